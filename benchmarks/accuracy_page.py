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
        "# Accuracy of the four families on laptop data",
        "",
        "Measured by `make accuracy`, from the run folders of `specs/laptop/*.yaml`. Each spec is trained by these",
        f"methods, with the same encoders: {', '.join(f'`{kind}` ({short})' for kind, short in METHODS.items())}.",
        "",
        "Test accuracy in percent: the mean over seeds ± the sample standard deviation. Of each run the evaluation",
        "with the best validation accuracy counts; the test set chooses nothing. A seed changes initial weights, the",
        "order of samples, and which of them are kept aside for validation.",
        "",
        "## Whole networks",
        "",
        *_whole(result),
        "",
        "AL - BP is the mean over the seeds that both have, in points (hundredths of the test set). All methods of a",
        "network have one learning rate, which no search chose.",
        "",
        "## Routes of each depth",
        "",
        "The route of depth n uses the first n components only. A method with a single figure has one classifier,",
        "after the last component.",
        "",
        *_depths(result),
        *_bags(result),
        *_missing(result),
        *_of_unknown_specs(result),
    ]
    return "\n".join(lines) + "\n"


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


def _bags(result: dict[str, dict[str, Runs]]) -> list[str]:
    """On text the first component alone is a classifier of the mean of word vectors."""
    told = []
    for network, title in NETWORKS.items():
        runs = result.get(network, {}).get("associated_learning")
        if runs and network.endswith("docstrings"):
            above = [100 * (run["test"] - run["test_per_depth"]["1"]) for run in runs.values()]
            told.append(
                f"- {title}: **bag of embeddings** {_shown(_at(runs, 1))}; the whole network by AL is "
                f"{_shown(above, signed=True)} points from it."
            )
    if not told:
        return []
    return ["", "On text the route of depth 1 reads the mean of the word vectors and no order of words:", "", *told]


def _missing(result: dict[str, dict[str, Runs]]) -> list[str]:
    """Runs that have not finished yet, of the seeds there should be."""
    lacking = [
        f"{title} by {short} ({' '.join(seeds)})"
        for network, title in NETWORKS.items()
        for method, short in METHODS.items()
        if (seeds := [str(seed) for seed in range(SEEDS) if str(seed) not in result.get(network, {}).get(method, {})])
    ]
    return ["", f"Not there yet (seeds): {', '.join(lacking)}."] if lacking else []


def _of_unknown_specs(result: dict[str, dict[str, Runs]]) -> list[str]:
    """Runs that were published before their figures said of which spec they are."""
    figures = [figure for of in result.values() for runs in of.values() for figure in runs.values()]
    unknown = sum("spec_sha256" not in figure for figure in figures)
    told = f"Of {unknown} of {len(figures)} runs it was not kept which spec they had. They stay on this page until they"
    return ["", told, "are measured again, even if the spec has changed."] if unknown else []


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
