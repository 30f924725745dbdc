"""alpha of docs/crossover.md: the step of a method on one device over that of backpropagation.

    python -m benchmarks.alpha

One process with one thread trains the networks of three studies by each method, for a few and for many mini-batches.
The difference is the step, in processor seconds. The methods of a family take turns, forwards and then backwards, and
a ratio compares the two steps of one turn. Beside other programs two turns of the first five networks took a quarter
of an hour.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from benchmarks.runs import settings, write_results

STUDIES = Path(__file__).parents[1] / "specs" / "studies" / "laptop"
LENGTHS = {"batch_size_al": (100, 1100), "crossover_factors": (20, 220), "crossover_factors_gpt": (20, 120)}
"""The studies, and the mini-batches of the short and of the long trial."""
SIZES = (64, 256)
"""Of the mini-batches in `batch_size_al`."""
BASELINE = "backpropagation"


def families(folder: Path) -> dict[str, dict[str, dict[int, Any]]]:
    """Family -> method -> number of mini-batches -> the trial that trains so long."""
    from alray.config.study.load import load_study
    from alray.studies.folder import StudyFolder
    from alray.studies.trial import TrialOrder

    found: dict[str, dict[str, dict[int, Any]]] = {}
    for name, lengths in LENGTHS.items():
        for steps in lengths:
            short = [
                f"set.run={{steps: {steps}, train: never, test: end, checkpoint: null}}",
                "set.resources.threads=1",
            ]
            short += ["repeats=1", "search=null", "target=null", "verdicts=[]"]
            short += [f"axes.data.batch_size={list(SIZES)}"] if name == "batch_size_al" else []
            short += [f"axes.variant={json.dumps(of_any_length(name))}"] if name == "crossover_factors" else []
            study = load_study(STUDIES / f"{name}.yaml", short)
            made = StudyFolder.make(study, folder / name / str(steps))
            for trial, spec in zip(study.trials, study.specs, strict=True):
                size = trial.point.values.get("data.batch_size")
                family = str(trial.point.values.get("variant", "gpt")) if size is None else f"{size} samples"
                order = TrialOrder(trial, made, study.study.base, True, False, None, False)
                found.setdefault(family, {}).setdefault(spec.method.kind, {})[steps] = order
    return found


def of_any_length(name: str) -> dict[str, dict[str, Any]]:
    """The networks of a study, without the number of mini-batches that some of them have of their own."""
    variants = yaml.safe_load((STUDIES / f"{name}.yaml").read_text(encoding="utf-8"))["axes"]["variant"]
    return {each: {key: value for key, value in own.items() if key != "run.steps"} for each, own in variants.items()}


def step_s(orders: dict[int, Any]) -> float:
    """Processor seconds of a mini-batch."""
    from alray.studies.trial import run_trial

    used = {}
    for steps, order in orders.items():
        began = time.process_time()
        record = run_trial(order)
        used[steps] = time.process_time() - began
        if record.status != "finished":
            raise SystemExit(f"{record.status}: {record.reason}")
    short, long = used
    return (used[long] - used[short]) / (long - short)


def turns(methods: dict[str, dict[int, Any]], number: int) -> Iterator[dict[str, float]]:
    """The step of each method in each turn. The first turn opens the data and does not count."""
    for turn in range(number + 1):
        order = list(methods) if turn % 2 else list(reversed(methods))
        steps = {method: step_s(methods[method]) for method in order}
        if turn:
            yield steps


def summarised(steps: list[dict[str, float]]) -> dict[str, Any]:
    """alpha of each method: the median over the turns, and the smallest and the largest."""
    found: dict[str, Any] = {"step_s": median(each[BASELINE] for each in steps), "alpha": {}}
    for method in steps[0]:
        ratios = [each[method] / each[BASELINE] for each in steps]
        if method != BASELINE:
            found["alpha"][method] = [median(ratios), min(ratios), max(ratios)]
    return found


def main() -> None:
    given = settings(__doc__, repeats=4)
    os.environ["OMP_NUM_THREADS"] = "1"
    from alray.studies.trial import prepare_process

    prepare_process()
    results: dict[str, Any] = {"turns": given.repeats, "families": {}}
    with tempfile.TemporaryDirectory() as folder:
        for family, methods in families(Path(folder)).items():
            results["families"][family] = summarised(list(turns(methods, given.repeats)))
            print(family, results["families"][family], flush=True)  # noqa: T201
    write_results("alpha", results)


if __name__ == "__main__":
    main()
