"""The page docs/accuracy.md, from published figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean, stdev
from typing import Any

from alray.config.sections.method import METHODS as SECTIONS

NETWORKS = {
    "vgg_digits": "VGG, digits",
    "vgg_fashion_mnist": "VGG, Fashion-MNIST",
    "resnet_digits": "ResNet, digits",
    "resnet_fashion_mnist": "ResNet, Fashion-MNIST",
    "lstm_docstrings": "LSTM, docstrings",
    "transformer_docstrings": "Transformer, docstrings",
}
"""Specs of specs/laptop, and how the page calls them."""
_COMPARED = ("associated_learning", "backpropagation", "supervised_contrastive", "decoupled_greedy")
METHODS = {kind: SECTIONS.sections[kind].abbreviation for kind in _COMPARED}
"""How the page calls the methods that it compares: those that train all of its networks as they are."""
ALLOWED_POINTS = 2.0
"""How far below its twin by backpropagation Associated Learning may stay."""
SEEDS = 3

Runs = dict[str, dict[str, Any]]
"""Of one network by one method: by seed, the figures of its run."""


def page(result: dict[str, dict[str, Runs]]) -> str:
    """The page's text from figures by network, method and seed."""
    lines = [
        "# Accuracy",
        "",
        "How accurate small networks become by local losses and by backpropagation, after all epochs: the same",
        f"encoders by {', '.join(f'`{kind}` ({short})' for kind, short in METHODS.items())}.",
        "All methods of a network have one rate, which no search chose, so a point more or less says little. For your",
        "network: [a fair comparison](comparing.md).",
        "",
        "Test accuracy in percent, mean over seeds ± the sample standard deviation, of the evaluation with the best",
        "validation accuracy (`make accuracy`, from `specs/laptop/*.yaml`). AL - BP is in points, over the same seeds.",
        "",
        *_whole(result),
        "",
        "## Routes of each depth",
        "",
        "The route of depth n uses the first n components only. A method with a single figure has one classifier,",
        "after the last component.",
        "",
        *_depths(result),
        *_missing(result),
        "",
        PUBLISHED,
    ]
    return "\n".join(lines)


PUBLISHED = """\
## What was published

Of the networks in `specs/al`, test accuracies in percent that others published. None of these specs was trained here:
they want data sets that alray does not bring, and most of them GPUs.

| spec | AL | BP |
|---|---:|---:|
| `transformer_agnews` | 91.96 | 91.10 |
| `transformer_dbpedia` | 98.01 | 97.65 |
| `transformer_imdb` | 90.19 | 87.95 |
| `lstm_agnews` | 91.97 | 91.26 |
| `lstm_dbpedia` | 98.64 | 98.42 |
| `lstm_imdb` | 90.17 | 88.66 |
| `vgg_tiny_imagenet` | 48.2 | 50.9 |
| `resnet_tiny_imagenet` | 42.7 | 49.5 |
| `vgg_cifar10` | 91.3 | 92.9 |
| `resnet_cifar100` | 58.9 | 70.6 |

Those of CIFAR are from result files whose repository was not noted. The others are of T.-H. Lin, *Enabling
simultaneous parameter updates in different layers for a neural network, using associated learning and pipeline*,
National Central University, 2023 (code: `nick880107-git/Pipeline-Associated-Learning`): means over ten runs of the best
test accuracy of any epoch, so the test set chose the epoch. alray chooses it by validation accuracy.
`data.text.prepare: thesis` prepares texts as that code does, but the split of IMDb is another one, a tenth of the
training set is for validation, and padding is never read.
"""


def _whole(result: dict[str, dict[str, Runs]]) -> list[str]:
    lines = [
        f"| network, data | seeds | {' | '.join(METHODS.values())} | AL - BP, points | mean at most 2 below BP |",
        f"|---|---|{'---|' * len(METHODS)}---|---|",
    ]
    for network, title in NETWORKS.items():
        of = result.get(network)
        if not of:
            continue
        seeds = sorted({int(seed) for runs in of.values() for seed in runs})
        cells = " | ".join(_shown(_tests(of.get(method, {}))) for method in METHODS)
        points = differences(of.get("associated_learning", {}), of.get("backpropagation", {}))
        shown = _shown(points, signed=True)
        verdict = "–" if not points else "yes" if fmean(points) >= -ALLOWED_POINTS else "**no**"
        lines.append(f"| {title} | {' '.join(map(str, seeds))} | {cells} | {shown} | {verdict} |")
    return lines


def differences(first: Runs, second: Runs) -> list[float]:
    """Test accuracy of the first less that of the second, in points, of every seed that both have."""
    return [100 * (first[seed]["test"] - second[seed]["test"]) for seed in sorted(first) if seed in second]


def _depths(result: dict[str, dict[str, Runs]]) -> list[str]:
    deepest = max((depth for of in result.values() for depth in _depths_of(of)), default=0)
    columns = range(1, deepest + 1)
    lines = [
        f"| network, data | method | {' | '.join(f'depth {depth}' for depth in columns)} |",
        f"|---|---|{'---|' * deepest}",
    ]
    for network, title in NETWORKS.items():
        for method, short in METHODS.items():
            runs = result.get(network, {}).get(method)
            if runs:
                cells = (_shown(_at(runs, depth), nothing="") for depth in columns)
                lines.append(f"| {title} | {short} | {' | '.join(cells)} |")
    return lines


def _missing(result: dict[str, dict[str, Runs]]) -> list[str]:
    """Runs that have not finished yet, of the seeds there should be."""
    lacking = [
        f"{title} by {short} ({' '.join(seeds)})"
        for network, title in NETWORKS.items()
        for method, short in METHODS.items()
        if (seeds := [str(seed) for seed in range(SEEDS) if str(seed) not in result.get(network, {}).get(method, {})])
    ]
    return ["", f"Not there yet (seeds): {', '.join(lacking)}."] if lacking else []


def _depths_of(of: dict[str, Runs]) -> Iterable[int]:
    return (int(depth) for runs in of.values() for run in runs.values() for depth in run["test_per_depth"])


def _tests(runs: Runs) -> list[float]:
    return [100 * run["test"] for run in runs.values()]


def _at(runs: Runs, depth: int) -> list[float]:
    return [100 * run["test_per_depth"][str(depth)] for run in runs.values() if str(depth) in run["test_per_depth"]]


def _shown(values: list[float], *, signed: bool = False, nothing: str = "–") -> str:
    """Mean ± sample standard deviation, of a single value the value alone."""
    if not values:
        return nothing
    form: Callable[[float], str] = (lambda value: f"{value:+.2f}") if signed else (lambda value: f"{value:.2f}")
    mean = form(fmean(values))
    return mean if len(values) == 1 else f"{mean} ± {stdev(values):.2f}"
