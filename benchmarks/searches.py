"""Seconds of a processor and memory that the search of a cut takes, for many components and stages.

    python -m benchmarks.searches

Components have random times, 50 to 150 ms of a forward for a mini-batch and twice as much of a backward. Each search
has a process of its own. `alray plan --compare` searches many layouts of components with such times.
"""

from __future__ import annotations

import random
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from alray.planning.prediction.best import best_cut
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES
from benchmarks.runs import write_results

SIZES = ((500, 64), (1000, 256))
"""Components and stages."""
SAMPLES = 8192
LIMIT_BYTES = 10**6
"""Of each stage, where memory is limited: enough for every cut, which the search does not know."""


def main() -> None:
    searches = []
    for components, stages in SIZES:
        for name, schedule in SCHEDULES.items():
            if schedule.only_layout is None and not schedule.one_stage and _parts(name, stages) <= components:
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                    searches.append(process.submit(search, name, components, stages).result())
                print(searches[-1], flush=True)  # noqa: T201
    limited = []
    for components, stages in SIZES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            limited.append(process.submit(search, "1f1b", components, stages, limit=LIMIT_BYTES).result())
        print(limited[-1], flush=True)  # noqa: T201
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        fitted = process.submit(fit, *SIZES[0]).result()
    print(fitted, flush=True)  # noqa: T201
    write_results("searches", {"searches": searches, "limited": limited, "fit": fitted})


def fit(components: int, devices: int) -> dict[str, Any]:
    """Processor seconds and peak memory of the ways to train with DGL on so many A100, and how many are shown."""
    import alray

    spec = {
        "name": "many",
        "data": {"source": "digits", "batch_size": 64},
        "model": {"components": [{"block": "mlp", "widths": [64], "repeat": components}]},
        "method": "decoupled_greedy",
        "run": {"epochs": 1},
        "pipeline": {
            "costs": [
                {name: getattr(each, name) for name in ("forward_s", "backward_s", "update_s")}
                for each in _components(components)
            ]
        },
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    found = alray.ways(spec, on=f"{devices}xA100", link="25GB/s", progress=False)
    assert found.best is not None, "80 GB are enough"
    return {
        "components": components,
        "devices": devices,
        "layouts": len(found.rows),
        "seconds": time.process_time() - began,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "step_s": found.best.predicted_step_time_s,
    }


def search(name: str, components: int, stages: int, *, limit: int | None = None) -> dict[str, Any]:
    """Processor seconds and peak memory of one search, and the step of its result.

    Args:
        limit: bytes that each stage may hold.
    """
    schedule = SCHEDULES[name]
    setting = StepSetting(
        name,
        Costs("given", "cpu", 1, SAMPLES, tuple(_components(components))),
        stages,
        in_flight=2,
        micro_batches=schedule.default_micro_batches(stages, SAMPLES),
        virtual_stages=schedule.default_virtual_stages,
        memory_limits=() if limit is None else (limit,) * stages,
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    best = best_cut(setting)
    return {
        "schedule": name,
        "components": components,
        "stages": stages,
        "micro_batches": setting.micro_batches,
        "seconds": time.process_time() - began,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "step_s": best.step_s,
    }


def _parts(name: str, stages: int) -> int:
    return stages * SCHEDULES[name].default_virtual_stages


def _components(number: int) -> list[ComponentCosts]:
    drawn = random.Random(1)
    forwards = [0.1 * drawn.uniform(0.5, 1.5) for _ in range(number)]
    return [
        ComponentCosts(
            name=str(index),
            forward_s=forward_s,
            backward_s=2 * forward_s,
            update_s=0.1 * forward_s,
            infer_s=forward_s,
            route_s=0.0,
            parameters=100,
            parameter_bytes=400,
            gradient_bytes=400,
            optimizer_bytes=800,
            activation_bytes=1000,
            output_bytes=1000,
            infer_bytes=10,
            route_bytes=10,
            output_shape=(1,),
        )
        for index, forward_s in enumerate(forwards)
    ]


if __name__ == "__main__":
    main()
