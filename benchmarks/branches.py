"""The critical batch size from branches of one run, beside that of a study's many runs.

    python -m benchmarks.branches

At a checkpoint of a run with small mini-batches, copies of the run go on with larger ones, each for as many samples.
The critical batch size there is the largest one whose loss is no worse than that of the smaller ones (Merrill et al.
2025, arXiv 2505.23971, section 3.1).
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import alray
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import NonFiniteLoss
from alray.core.run_folder.store import manifests
from alray.data.cache import enable_cache
from alray.data.opening import open_data
from benchmarks.noise_scale import SEEDS, SPEC
from benchmarks.runs import write_results

RUNS = {
    "sgd": {"lr": 0.189},
    "momentum": {"lr": 0.0304, "momentum": 0.733},
}
"""The best settings of `docs/studies/batch_size` at 32 samples."""
SMALLEST, LARGEST = 32, 2048
"""Samples of a mini-batch of the run, and the most of a branch; branches double them."""
RULES = {"linear": 1.0, "square root": 0.5}
"""The power of the batch size by which the rate grows. The paper has the first for SGD, and the second for Adam."""
EVERY, POINTS = 49_152, 3
"""Samples between two branchings, and how many branchings a run has. The first is after half as many samples."""
WINDOW, CHECKPOINTS = 16_384, 8
"""Samples that a branch trains, and at how many checkpoints on its way its loss is measured."""
OF_LOSS = 8_192
"""Samples of the training set that a loss is measured on."""
SMOOTHING, TOLERANCE = 0.5, 0.01
"""The weight of the newest loss in the moving average of losses, and how much worse a loss may be (as in the paper)."""


def no_worse(losses: Mapping[int, float | None]) -> int:
    """The last batch size, in ascending order, whose loss is at most that of every smaller one plus the tolerance.

    Args:
        losses: by batch size; None of a branch that diverged.
    """
    best, found = math.inf, 0
    for size, loss in sorted(losses.items()):
        if loss is None or loss > best + TOLERANCE:
            break
        best, found = min(best, loss), size
    return found


def smoothed(losses: Iterator[float]) -> float:
    """The last value of the moving average."""
    average = next(losses)
    for loss in losses:
        average += SMOOTHING * (loss - average)
    return average


def branchings(settings: Mapping[str, float], seed: int) -> Iterator[dict[str, Any]]:
    """The samples trained at each branching of a run, and the losses of its branches by rule and batch size. The last
    batch size of a rule is the first that is worse, if any is: the branches end there."""
    spec = load_spec(SPEC, [f"seed={seed}"]).spec
    train = open_data(spec.data, seed=seed, load=UserCode(SPEC.parent)).train
    drawn = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[:OF_LOSS]
    measured_on = train.take(drawn)
    optimizer = ", ".join(f"{key}: {value}" for key, value in settings.items())
    changes = [f"seed={seed}", f"optimizer={{kind: sgd, {optimizer}}}", "run.stop_at=null", "run.evaluate_every=null"]
    with tempfile.TemporaryDirectory() as folder:
        first = [*changes, *_until(EVERY // 2 // SMALLEST, SMALLEST)]
        run = alray.run(SPEC, first, output=Path(folder) / "run", inline=True, progress=False)
        for point in range(POINTS):
            if point:
                run = _longer(run, EVERY, SMALLEST, settings["lr"])
            own = _loss_of_branch(run, SMALLEST, settings["lr"], measured_on)
            losses = {rule: {SMALLEST: own} for rule in RULES}
            for rule, power in RULES.items():
                size = SMALLEST
                while size < LARGEST and no_worse(losses[rule]) == size:
                    size *= 2
                    rate = settings["lr"] * (size / SMALLEST) ** power
                    losses[rule][size] = _loss_of_branch(run, size, rate, measured_on)
            yield {"samples": run.summary.steps * SMALLEST, "losses": losses}


def _loss_of_branch(run: alray.Run, size: int, rate: float, measured_on: tuple[Tensor, Tensor]) -> float | None:
    """The smoothed loss of a copy of the run that goes on with this batch size and rate; None if it diverges."""
    begun, (samples, labels) = run.summary.steps, measured_on
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(str(run.folder), folder, dirs_exist_ok=True)
        try:
            branch = _longer(alray.load_run(folder), WINDOW, size, rate)
        except NonFiniteLoss:
            return None
        steps = sorted(each["step"] for each in manifests(Path(folder)) if each["step"] > begun)
        with torch.no_grad():
            networks = (branch.trained(step=step).network() for step in steps)
            return smoothed(float(cross_entropy(network(samples), labels)) for network in networks)


def _longer(run: alray.Run, samples: int, size: int, rate: float) -> alray.Run:
    until = _until(run.summary.steps + samples // size, size)
    return run.resume([f"optimizer.lr={rate}", *until], allow_change=True, inline=True, progress=False)


def _until(steps: int, size: int) -> list[str]:
    """The overrides that end a run there, with the checkpoints of the last samples."""
    every = WINDOW // CHECKPOINTS // size
    kept = f"run.checkpoint={{every: {every} steps, keep: {CHECKPOINTS}}}"
    return [f"data.batch_size={size}", "run.samples=null", f"run.steps={steps}", kept]


def samples_of(found: Sequence[Mapping[str, Any]]) -> int:
    """Samples that a run and its branches trained.

    Args:
        found: the branchings of the run.
    """
    branches = sum(len(losses) for each in found for losses in each["losses"].values())
    twice = len(found) * (len(RULES) - 1)  # all rules share the branch of the smallest
    return int(found[-1]["samples"]) + WINDOW * (branches - twice)


def main() -> None:
    enable_cache()  # all runs read the same files
    found: dict[str, Any] = {}
    for name, settings in RUNS.items():
        found[name] = []
        for seed in range(SEEDS):
            found[name].append(list(branchings(settings, seed)))
            print(name, found[name][-1], flush=True)  # noqa: T201
    write_results("branches", found)


if __name__ == "__main__":
    main()
