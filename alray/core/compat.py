"""The private parts of torch and Ray that alray uses. Whatever uses one imports it from here.

Each is imported from its library when it is first asked for. One that a version of the library lacks is an error that
names both, so nothing goes on without it: where it guards a Ray from other users of the machine (`guards`), that Ray is
not started. `alray doctor` looks at all of them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from alray.core.errors import RequestError


@dataclass(frozen=True)
class Private:
    """A private name.

    Attributes:
        module: of the library.
        name: in that module; "": the module itself.
        parts: attributes that it must have.
        parameters: names of arguments that it must take.
        used_in: files of alray.
        why: what alray needs it for.
        guards: whether a user's safety rests on it.
    """

    module: str
    name: str = ""
    parts: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    used_in: tuple[str, ...] = ()
    why: str = ""
    guards: bool = False

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
                getattr(found, part)
            given = inspect.signature(found).parameters if self.parameters else {}
        except (ImportError, AttributeError, ValueError) as error:
            raise self._lacking(str(error)) from error
        if missing := [each for each in self.parameters if each not in given]:
            raise self._lacking(f"it takes no argument `{missing[0]}`")
        return found

    def _lacking(self, why: str) -> RequestError:
        shown = f"{self.module}.{self.name}" if self.name else self.module
        return RequestError(
            f"{self.library} {version(self.library)} has no `{shown}` as alray needs it: {why}",
            hint=f"install a version of {self.library} that alray was tested with; alray doctor names them",
        )


PRIVATE: dict[str, Private] = {
    "ray_worker": Private(
        "ray._private.worker",
        parts=("_global_node", "_worker_logs_enabled", "global_worker"),
        used_in=("runtime/local_ray/head.py", "runtime/local_ray/watch.py", "runtime/cluster/connect.py"),
        why="which processes Ray started, whether its GCS answers, and that Ray prints nothing about them",
    ),
    "ray_constants": Private(
        "ray._private.ray_constants",
        parts=("ENABLE_RAY_CLUSTER", "ENABLE_RAY_CLUSTERS_ENV_VAR", "NUM_REDIS_GET_RETRIES"),
        used_in=("runtime/local_ray/start.py", "runtime/local_ray/private.py"),
        why="a Ray that listens on 127.0.0.1 alone, and gives up in time",
        guards=True,
    ),
    "AuthenticationTokenLoader": Private(
        "ray._raylet",
        "AuthenticationTokenLoader",
        parts=("instance", "reset_cache"),
        used_in=("runtime/local_ray/ray_init.py",),
        why="a token for each Ray of a process",
        guards=True,
    ),
    "RayConfig": Private(
        "ray._raylet",
        "Config",
        parts=("initialize", "ray_cookie"),
        used_in=("runtime/local_ray/ray_init.py",),
        why="that Ray's C++ code reads its environment now, and again",
        guards=True,
    ),
    "JobConfig": Private(
        "ray.job_config",
        "JobConfig",
        parts=("_runtime_env_has_working_dir",),
        parameters=("_py_driver_sys_path",),
        used_in=("runtime/local_ray/ray_init.py",),
        why="workers that do not import from the current folder",
        guards=True,
    ),
    "GcsClient": Private(
        "ray._private.services",
        "GcsClient",
        used_in=("runtime/cluster/connect.py",),
        why="whether a cluster takes the token, before Ray tries for 20 s",
    ),
    "is_token_auth_enabled": Private(
        "ray._private.authentication.authentication_utils",
        "is_token_auth_enabled",
        used_in=("runtime/cluster/survey.py",),
        why="whether a cluster asks for a token",
    ),
    "available_resources_per_node": Private(
        "ray._private.state",
        "available_resources_per_node",
        used_in=("runtime/cluster/placement.py",),
        why="the room of each node",
    ),
    "TorchBackend": Private(
        "ray.train.torch.config",
        "_TorchBackend",
        parts=("on_start",),
        used_in=("runtime/ray_train/trainer.py",),
        why="workers of Ray Train that meet on one address",
    ),
    "set_torch_distributed_env_vars": Private(
        "ray.train.torch.config",
        "_set_torch_distributed_env_vars",
        used_in=("runtime/ray_train/trainer.py",),
        why="what Ray Train sets in its workers",
    ),
    "TorchDispatchMode": Private(
        "torch.utils._python_dispatch",
        "TorchDispatchMode",
        used_in=("runtime/probe/", "models/imported/"),
        why="counting memory and operations without computing; what a model that is cut reads and draws",
    ),
    "disable_current_modes": Private(
        "torch.utils._python_dispatch",
        "_disable_current_modes",
        used_in=("runtime/probe/recurrent_operations.py",),
        why="numbers that torch reads while operations are counted",
    ),
    "tree_iter": Private(
        "torch.utils._pytree", "tree_iter", used_in=("runtime/probe/",), why="the tensors among arguments"
    ),
    "tree_leaves": Private(
        "torch.utils._pytree", "tree_leaves", used_in=("models/imported/",), why="the tensors among arguments"
    ),
    "tree_map": Private(
        "torch.utils._pytree", "tree_map", used_in=("models/",), why="the shapes of results; the tensors of groups"
    ),
    "fake_tensor": Private(
        "torch._subclasses.fake_tensor",
        parts=("FakeTensor", "FakeTensorMode"),
        used_in=("runtime/probe/component_memory.py",),
        why="memory of tensors that are not there",
    ),
    "VF": Private(
        "torch._VF",
        parts=("lstm", "_pack_padded_sequence", "_pad_packed_sequence"),
        used_in=("parts/blocks/lstm/unpacked.py", "runtime/probe/recurrent_operations.py"),
        why="an LSTM over padded sequences, and counting the operations of one",
    ),
    "loader_signals": Private(
        "torch.utils.data._utils.signal_handling",
        parts=("_remove_worker_pids",),
        used_in=("data/batches.py",),
        why="workers of a loader that no handler of signals watches: alray finds out by itself that one is gone",
    ),
    "BatchNorm": Private(
        "torch.nn.modules.batchnorm",
        "_BatchNorm",
        used_in=("models/",),
        why="which layers normalise over the samples of a mini-batch, of any number of dimensions",
    ),
    "ConvNd": Private(
        "torch.nn.modules.conv", "_ConvNd", used_in=("models/imported/layout.py",), why="convolutions of any dimensions"
    ),
    "dynamo_config": Private(
        "torch._dynamo.config",
        parts=("recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit_hit"),
        used_in=("models/compiled.py",),
        why="that torch.compile compiles each size, and never falls back",
    ),
    "foreach_lerp_": Private(
        "torch",
        "_foreach_lerp_",
        used_in=("models/weight_average.py",),
        why="a moving average of all weights in one operation",
    ),
    "are_functorch_transforms_active": Private(
        "torch._C",
        "_are_functorch_transforms_active",
        used_in=("models/split_backward.py",),
        why="layers within transformations of functions, such as torch.func.vmap",
    ),
    "current_graph_task_id": Private(
        "torch._C",
        "_current_graph_task_id",
        used_in=("models/split_backward.py",),
        why="whether a backward pass is the one that is split, or another one within it",
    ),
    "ProcessGroupNCCL": Private(
        "torch.distributed",
        "ProcessGroupNCCL",
        parts=("Options",),
        used_in=("runtime/rendezvous/groups.py",),
        why="how long an operation between GPUs waits for the others (`Options()._timeout`)",
    ),
}
"""All of them, by the name under which they are imported from here."""


def __getattr__(name: str) -> Any:
    """The private part of this name. Raises RequestError if the installed version lacks it."""
    if name not in PRIVATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PRIVATE[name].load()


def lacking() -> Iterator[tuple[Private, str]]:
    """Each private part that the installed versions lack, and what is wrong. That of NCCL is left out where torch has
    none."""
    for name, private in PRIVATE.items():
        if name == "ProcessGroupNCCL" and not importlib.import_module("torch.distributed").is_nccl_available():
            continue
        try:
            private.load()
        except RequestError as error:
            yield private, error.problems[0].message
