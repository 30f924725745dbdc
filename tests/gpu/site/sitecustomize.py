"""Gives the processes of stages on Ray the devices of the tests: Python imports this file when it starts, where the
folder is on PYTHONPATH (tests/gpu/test_on_ray.py).

Ray has many processes. Only those of stages import `alray.runtime.graph.actor`, those of trials `alray.studies.trial`,
and only they import torch for it.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_ACTOR = "alray.runtime.graph.actor"
_TRIAL = "alray.studies.trial"


class _BeforeOwnCode(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in (_ACTOR, _TRIAL):
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def execute_on_simulated(module: Any) -> None:
            from tests.simulated.stages import give_devices, report_faults

            give_devices()
            execute(module)
            if name == _ACTOR:
                report_faults(module.StageActor)

        def execute_on_one_gpu(module: Any) -> None:
            from tests.gpu.one_gpu import share_the_gpus, share_the_gpus_of_trials

            execute(module)
            os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # Ray shows one of those that it was told of
            if name == _ACTOR:
                share_the_gpus(module)
            else:
                share_the_gpus_of_trials()

        simulated = os.environ["ALRAY_TEST_DEVICE"] == "simulated"
        spec.loader.exec_module = execute_on_simulated if simulated else execute_on_one_gpu  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _BeforeOwnCode())
