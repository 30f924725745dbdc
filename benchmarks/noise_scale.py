"""The gradient noise scale along one run, beside the critical batch size of a study's many runs.

    python -m benchmarks.noise_scale

The simple noise scale is tr(S) / |G|^2: the variance of the gradient of one sample, summed over all weights, divided by
the square of the gradient of all samples. Where all directions curve alike it is the critical batch size (McCandlish et
al. 2018, arXiv 1812.06162, section 2.2). It takes gradients at two batch sizes (appendix A.1).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import alray
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.run_folder.store import manifests
from alray.data.opening import open_data
from benchmarks.runs import write_results

SPEC = Path(__file__).parents[1] / "specs" / "laptop" / "mlp_fashion_mnist.yaml"
RUNS = {
    "sgd": ("optimizer.lr=0.5",),
    "momentum": ("optimizer={kind: sgd, lr: 0.085, momentum: 0.86}",),
}
"""The best settings of `docs/studies/batch_size` at 128 samples."""
SEEDS = 3
OF_RUN, EVERY = 128, 32
"""Samples of a mini-batch of the run, and mini-batches between two measurements."""
SMALL, BATCHES = 64, 128
"""Samples of a small mini-batch of a measurement, and how many of them make the large one."""


def noise_scale(gradients: Tensor, samples: int) -> float:
    """That of a network from the gradients of several mini-batches (appendix A.1 of the paper).

    Args:
        gradients: of independent mini-batches, shape [mini-batches, weights].
        samples: of each mini-batch.
    """
    count = len(gradients)
    small = float(gradients.square().sum(dim=1).mean())
    large = float(gradients.mean(dim=0).square().sum())
    square = (count * large - small) / (count - 1)  # of the gradient, without bias
    variance = (small - large) * samples * count / (count - 1)  # of one sample, without bias
    return variance / square


def over_run(scales: Iterable[float], samples: int) -> float:
    """The critical batch size that the noise scales along a run lead to.

    A step with a mini-batch of B samples comes as far as 1 / (1 + b / B) steps of the full gradient, where b is the
    noise scale there (section 2.2 of the paper). So the steps of a run are S_min (1 + B_c / B), where B_c is the mean
    of b, each weighted by how far its step comes.

    Args:
        scales: at even distances along the run.
        samples: of a mini-batch of the run.
    """
    found = list(scales)
    weights = [1.0 / (1.0 + scale / samples) for scale in found]
    return sum(weight * scale for weight, scale in zip(weights, found, strict=True)) / sum(weights)


def along(overrides: Sequence[str], seed: int) -> Iterator[tuple[int, float]]:
    """The mini-batches trained and the noise scale there, every `EVERY` mini-batches of a run to its target."""
    kept = f"run.checkpoint={{every: {EVERY} steps, keep: 100}}"
    changes = [*overrides, f"seed={seed}", f"data.batch_size={OF_RUN}", kept]
    with tempfile.TemporaryDirectory() as folder:
        run = alray.run(SPEC, changes, output=Path(folder) / "run", inline=True, progress=False)
        spec = load_spec(SPEC, changes).spec
        train = open_data(spec.data, seed=seed, load=UserCode(SPEC.parent)).train
        drawn = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[: SMALL * BATCHES]
        for step in sorted(each["step"] for each in manifests(Path(folder) / "run")):
            if step % EVERY:  # one with the best accuracy
                continue
            network = run.trained(step=step).network()
            found = []
            for indices in drawn.split(SMALL):
                samples, labels = train.take(indices)
                network.zero_grad()
                cross_entropy(network(samples), labels).backward()
                weights = [each.grad.flatten() for each in network.parameters() if each.grad is not None]
                found.append(torch.cat(weights).double())
            yield step, noise_scale(torch.stack(found), SMALL)


def main() -> None:
    found: dict[str, Any] = {}
    for name, overrides in RUNS.items():
        found[name] = [{step: round(scale, 1) for step, scale in along(overrides, seed)} for seed in range(SEEDS)]
        print(name, found[name], flush=True)  # noqa: T201
    write_results("noise_scale", found)


if __name__ == "__main__":
    main()
