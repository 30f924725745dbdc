"""The private names of torch, Ray and other libraries that alray uses. Whatever uses one imports it from here.

Each name is imported from its library when it is first asked for. One that a version of the library lacks is an error
that names both, so nothing goes on without it: a Ray that cannot be guarded from other users of the machine is not
started. `tests/core/test_compat.py` looks at all of them, and at the private attributes of objects that alray uses.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from importlib.metadata import requires, version
from operator import attrgetter
from typing import Any

from alray.core.errors import RequestError


@dataclass(frozen=True)
class Private:
    """A private name.

    Attributes:
        module: of the library.
        name: in that module; "": the module itself.
        parts: attributes that it must have, also attributes of those (`Options._timeout`).
    """

    module: str
    name: str = ""
    parts: tuple[str, ...] = ()

    @property
    def library(self) -> str:
        return self.module.partition(".")[0]

    def load(self) -> Any:
        """Raises RequestError if the installed version lacks it, or a part of it."""
        try:
            found: Any = importlib.import_module(self.module)
            if self.name:
                found = getattr(found, self.name)
            for part in self.parts:
                attrgetter(part)(found)
        # A library that does not fit to another one ends its own import with a RuntimeError.
        except (ImportError, AttributeError, TypeError, ValueError, RuntimeError, OSError) as error:
            raise self._lacking(str(error)) from error
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


PRIVATE: dict[str, Private] = {
    # Which processes Ray started, and that Ray prints nothing about them.
    "ray_worker": Private("ray._private.worker", parts=("_global_node", "_worker_logs_enabled")),
    # A Ray that listens on 127.0.0.1 alone, and where its agent looks for a dashboard.
    "ray_constants": Private(
        "ray._private.ray_constants",
        parts=("DASHBOARD_ADDRESS", "ENABLE_RAY_CLUSTER", "ENABLE_RAY_CLUSTERS_ENV_VAR", "KV_NAMESPACE_DASHBOARD"),
    ),
    # A Ray without a dashboard, an autoscaler and a reader of logs.
    "ray_node": Private(
        "ray._private.node", parts=("Node.start_api_server", "Node.start_log_monitor", "Node.start_monitor")
    ),
    # A token for each Ray of a process.
    "AuthenticationTokenLoader": Private("ray._raylet", "AuthenticationTokenLoader", parts=("instance", "reset_cache")),
    # That Ray's C++ code reads its environment now, and again.
    "RayConfig": Private("ray._raylet", "Config", parts=("initialize", "ray_cookie")),
    # Workers that do not import from the current folder.
    "JobConfig": Private("ray.job_config", "JobConfig", parts=("_runtime_env_has_working_dir",)),
    # Whether a cluster takes the token, before Ray tries for 20 s.
    "GcsClient": Private("ray._private.services", "GcsClient"),
    # Workers of Ray Train that meet on one address.
    "TorchBackend": Private("ray.train.torch.config", "_TorchBackend", parts=("on_start",)),
    # What Ray Train sets in its workers.
    "set_torch_distributed_env_vars": Private("ray.train.torch.config", "_set_torch_distributed_env_vars"),
    # Counting memory and operations without computing; what a model that is cut reads and draws.
    "TorchDispatchMode": Private("torch.utils._python_dispatch", "TorchDispatchMode"),
    # Numbers that torch reads while operations are counted.
    "disable_current_modes": Private("torch.utils._python_dispatch", "_disable_current_modes"),
    # The tensors among arguments.
    "tree_iter": Private("torch.utils._pytree", "tree_iter"),
    # The tensors in what a step of a model gives.
    "tree_flatten": Private("torch.utils._pytree", "tree_flatten"),
    # The tensors among arguments.
    "tree_leaves": Private("torch.utils._pytree", "tree_leaves"),
    # The shapes of results; the tensors of groups.
    "tree_map": Private("torch.utils._pytree", "tree_map"),
    # What a step of a model gives, from a message.
    "tree_unflatten": Private("torch.utils._pytree", "tree_unflatten"),
    # No function is watched in a module that no cut lies in.
    "pop_mode": Private("torch.overrides", "_pop_mode_temporarily"),
    # Memory of tensors that are not there.
    "fake_tensor": Private("torch._subclasses.fake_tensor", parts=("FakeTensor", "FakeTensorMode")),
    # An LSTM over padded sequences, and counting the operations of one.
    "VF": Private("torch._VF", parts=("lstm", "_pack_padded_sequence", "_pad_packed_sequence")),
    # Workers of a loader that no handler of signals watches: alray finds out by itself that one is gone.
    "loader_signals": Private("torch.utils.data._utils.signal_handling", parts=("_remove_worker_pids",)),
    # Which layers normalise over the samples of a mini-batch, of any number of dimensions.
    "BatchNorm": Private("torch.nn.modules.batchnorm", "_BatchNorm"),
    # That torch.compile compiles each size, and never falls back.
    "dynamo_config": Private(
        "torch._dynamo.config", parts=("recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit_hit")
    ),
    # A moving average of all weights in one operation.
    "foreach_lerp_": Private("torch", "_foreach_lerp_"),
    # Tensors without values see operations alone.
    "no_torch_function": Private("torch._C", "_disabled_torch_function_impl"),
    # Layers within transformations of functions, such as torch.func.vmap.
    "are_functorch_transforms_active": Private("torch._C", "_are_functorch_transforms_active"),
    # Whether a backward pass is the one that is split, or another one within it.
    "current_graph_task_id": Private("torch._C", "_current_graph_task_id"),
    # Whether a forward pass had as many operations as an earlier one.
    "sequence_number": Private("torch.autograd", "_get_sequence_nr"),
    # Whether a pass within the one that is split asks for the gradient of a weight.
    "will_engine_execute_node": Private("torch._C", "_will_engine_execute_node"),
    # How long an operation between GPUs waits for the others.
    "ProcessGroupNCCL": Private("torch.distributed", "ProcessGroupNCCL", parts=("Options._timeout",)),
    # Which layers are a dropout.
    "DropoutNd": Private("torch.nn.modules.dropout", "_DropoutNd"),
}
"""All of them, by the name under which they are imported from here."""


def __getattr__(name: str) -> Any:
    """The private part of this name. Raises RequestError if the installed version lacks it."""
    if name not in PRIVATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PRIVATE[name].load()
