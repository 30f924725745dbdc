"""The private parts of torch, Ray and other libraries that alray uses. Whatever uses a name of a module imports it from
here; attributes of objects are listed too.

Each name is imported from its library when it is first asked for. One that a version of the library lacks is an error
that names both, so nothing goes on without it: a Ray that cannot be guarded from other users of the machine is not
started. `tests/core/test_compat.py` looks at all of them.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import requires, version
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from alray.core.errors import RequestError


@dataclass(frozen=True)
class Private:
    """A private name.

    Attributes:
        module: of the library.
        name: in that module; "": the module itself.
        parts: attributes that it must have, also attributes of those (`Options._timeout`).
        parameters: names of arguments that it must take.
        why: what alray needs it for.
        made: takes what is loaded to an object that must have `parts`. Whoever uses one takes it from such an object,
            and imports nothing from here; `why` is about these parts.
    """

    module: str
    name: str = ""
    parts: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    why: str = ""
    made: Callable[[Any], Any] | None = None

    @property
    def library(self) -> str:
        return self.module.partition(".")[0]

    def load(self) -> Any:
        """Raises RequestError if the installed version lacks it, or a part of it."""
        try:
            found: Any = importlib.import_module(self.module)
            if self.name:
                found = getattr(found, self.name)
            of = found if self.made is None else self.made(found)
            for part in self.parts:
                attrgetter(part)(of)
            given = inspect.signature(found).parameters if self.parameters else {}
        # A library that does not fit to another one ends its own import with a RuntimeError.
        except (ImportError, AttributeError, TypeError, ValueError, RuntimeError, OSError) as error:
            raise self._lacking(str(error)) from error
        if missing := [each for each in self.parameters if each not in given]:
            raise self._lacking(f"it takes no argument `{missing[0]}`")
        return found

    def _lacking(self, why: str) -> RequestError:
        shown = f"{self.module}.{self.name}" if self.name else self.module
        return RequestError(
            f"{self.library} {version(self.library)} has no `{shown}` as alray needs it: {why}",
            hint=f"install another version within `{required(self.library)}`",
        )


def required(library: str) -> str:
    """What alray's own package requires of a library, such as `torch<3,>=2.13`."""
    of_alray = (each.partition(";")[0].strip() for each in requires("alray") or ())
    return next(each for each in of_alray if re.match(rf"{library}\b(?!-)", each))


def _called(kind: Any) -> Any:
    return kind()


def _words_of(function: Any) -> SimpleNamespace:
    """The names and texts in the code of a function, for attributes of objects that are not made just to look."""
    code = function.__code__
    return SimpleNamespace(**{str(word): None for word in (*code.co_names, *code.co_consts)})


PRIVATE: dict[str, Private] = {
    "ray_worker": Private(
        "ray._private.worker",
        parts=("_global_node", "_worker_logs_enabled"),
        why="which processes Ray started, and that Ray prints nothing about them",
    ),
    "ray_constants": Private(
        "ray._private.ray_constants",
        parts=("ENABLE_RAY_CLUSTER", "ENABLE_RAY_CLUSTERS_ENV_VAR"),
        why="a Ray that listens on 127.0.0.1 alone",
    ),
    "AuthenticationTokenLoader": Private(
        "ray._raylet",
        "AuthenticationTokenLoader",
        parts=("instance", "reset_cache"),
        why="a token for each Ray of a process",
    ),
    "RayConfig": Private(
        "ray._raylet",
        "Config",
        parts=("initialize", "ray_cookie"),
        why="that Ray's C++ code reads its environment now, and again",
    ),
    "JobConfig": Private(
        "ray.job_config",
        "JobConfig",
        parts=("_runtime_env_has_working_dir",),
        parameters=("_py_driver_sys_path",),
        why="workers that do not import from the current folder",
    ),
    "GcsClient": Private(
        "ray._private.services",
        "GcsClient",
        why="whether a cluster takes the token, before Ray tries for 20 s",
    ),
    "TorchBackend": Private(
        "ray.train.torch.config",
        "_TorchBackend",
        parts=("on_start",),
        why="workers of Ray Train that meet on one address",
    ),
    "set_torch_distributed_env_vars": Private(
        "ray.train.torch.config",
        "_set_torch_distributed_env_vars",
        why="what Ray Train sets in its workers",
    ),
    "TorchDispatchMode": Private(
        "torch.utils._python_dispatch",
        "TorchDispatchMode",
        why="counting memory and operations without computing; what a model that is cut reads and draws",
    ),
    "disable_current_modes": Private(
        "torch.utils._python_dispatch",
        "_disable_current_modes",
        why="numbers that torch reads while operations are counted",
    ),
    "tree_iter": Private("torch.utils._pytree", "tree_iter", why="the tensors among arguments"),
    "tree_flatten": Private("torch.utils._pytree", "tree_flatten", why="the tensors in what a step of a model gives"),
    "tree_leaves": Private("torch.utils._pytree", "tree_leaves", why="the tensors among arguments"),
    "tree_map": Private("torch.utils._pytree", "tree_map", why="the shapes of results; the tensors of groups"),
    "tree_unflatten": Private(
        "torch.utils._pytree", "tree_unflatten", why="what a step of a model gives, from a message"
    ),
    "pop_mode": Private(
        "torch.overrides", "_pop_mode_temporarily", why="no function is watched in a module that no cut lies in"
    ),
    "fake_tensor": Private(
        "torch._subclasses.fake_tensor",
        parts=("FakeTensor", "FakeTensorMode"),
        why="memory of tensors that are not there",
    ),
    "VF": Private(
        "torch._VF",
        parts=("lstm", "_pack_padded_sequence", "_pad_packed_sequence"),
        why="an LSTM over padded sequences, and counting the operations of one",
    ),
    "loader_signals": Private(
        "torch.utils.data._utils.signal_handling",
        parts=("_remove_worker_pids",),
        why="workers of a loader that no handler of signals watches: alray finds out by itself that one is gone",
    ),
    "BatchNorm": Private(
        "torch.nn.modules.batchnorm",
        "_BatchNorm",
        why="which layers normalise over the samples of a mini-batch, of any number of dimensions",
    ),
    "dynamo_config": Private(
        "torch._dynamo.config",
        parts=("recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit_hit"),
        why="that torch.compile compiles each size, and never falls back",
    ),
    "foreach_lerp_": Private(
        "torch",
        "_foreach_lerp_",
        why="a moving average of all weights in one operation",
    ),
    "no_torch_function": Private(
        "torch._C", "_disabled_torch_function_impl", why="tensors without values see operations alone"
    ),
    "are_functorch_transforms_active": Private(
        "torch._C",
        "_are_functorch_transforms_active",
        why="layers within transformations of functions, such as torch.func.vmap",
    ),
    "current_graph_task_id": Private(
        "torch._C",
        "_current_graph_task_id",
        why="whether a backward pass is the one that is split, or another one within it",
    ),
    "sequence_number": Private(
        "torch.autograd",
        "_get_sequence_nr",
        why="whether a forward pass had as many operations as an earlier one",
    ),
    "will_engine_execute_node": Private(
        "torch._C",
        "_will_engine_execute_node",
        why="whether a pass within the one that is split asks for the gradient of a weight",
    ),
    "ProcessGroupNCCL": Private(
        "torch.distributed",
        "ProcessGroupNCCL",
        parts=("Options._timeout",),
        why="how long an operation between GPUs waits for the others",
    ),
    "DropoutNd": Private("torch.nn.modules.dropout", "_DropoutNd", why="which layers are a dropout"),
    "Module": Private(
        "torch.nn",
        "Module",
        parts=(
            "_parameters",
            "_buffers",
            "_modules",
            "_non_persistent_buffers_set",
            "_apply",
            "_load_from_state_dict",
        ),
        made=_called,
        why="parts of a module under all their names, and putting others in their place",
    ),
    "state_dict": Private(
        "torch.nn",
        "Module",
        parts=("_metadata",),
        made=lambda kind: kind().state_dict(),
        why="what is known of an exported model, where `load_state_dict` passes over it",
    ),
    "LSTM": Private(
        "torch.nn",
        "LSTM",
        parts=("_flat_weights", "_flat_weight_refs"),
        made=lambda kind: kind(1, 1),
        why="recurrent layers whose weights are swapped for ones without memory",
    ),
    "ParameterMeta": Private(
        "torch.nn.parameter",
        "_ParameterMeta",
        parts=("_is_param",),
        made=lambda kind: _words_of(kind.__instancecheck__),
        why="that a tensor without memory is a parameter",
    ),
    "Tensor": Private(
        "torch",
        "Tensor",
        parts=("_backward_hooks", "_make_wrapper_subclass", "_post_accumulate_grad_hooks", "_version"),
        made=_called,
        why="hooks that a copy of a parameter would lack; whether a tensor was changed in place",
    ),
    "UntypedStorage": Private(
        "torch",
        "UntypedStorage",
        parts=("_cdata",),
        made=_called,
        why="whether two tensors lie in the same memory",
    ),
    "operations": Private(
        "torch",
        "ops",
        parts=("aten._local_scalar_dense", "aten._pack_padded_sequence", "aten._unique2", "aten.add.Tensor._schema"),
        made=lambda operations: operations,
        why="operations that read a number out of a tensor, and those that write to their arguments",
    ),
    "compile": Private(
        "torch",
        parts=("_orig_mod",),
        made=lambda module: module.compile(module.nn.Identity()),
        why="the module that torch.compile has compiled",
    ),
    "loader_iterator": Private(
        "torch.utils.data.dataloader",
        "_MultiProcessingDataLoaderIter",
        parts=("_worker_pids_set",),
        made=lambda kind: _words_of(kind.__init__),
        why="a handler of signals that is not alray's",
    ),
    "PretrainedConfig": Private(
        "transformers.configuration_utils",
        "PretrainedConfig",
        parts=("_attn_implementation",),
        made=_called,
        why="the code of attention, which no saved config tells",
    ),
}
"""All of them, by the name under which they are imported from here (see `Private.made` for those that are not)."""


def __getattr__(name: str) -> Any:
    """The private part of this name. Raises RequestError if the installed version lacks it."""
    if name not in PRIVATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PRIVATE[name].load()
