"""What the benchmarks with several runs in each repeat share: how they are asked for, and how a run is told."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Any, Protocol


class Runner(Protocol):
    """Runs a spec with overrides and returns its summary, as `benchmarks.runs.summary_of` does."""

    def __call__(self, spec: Any, /, *overrides: str) -> dict[str, Any]: ...


class Comparer(Protocol):
    """Plans a spec in every schedule on every number of stages, the best first, as `benchmarks.runs.comparison_of`."""

    def __call__(self, spec: Any, /, *overrides: str) -> list[dict[str, Any]]: ...


def settings(description: str | None, *, repeats: int) -> Namespace:
    """`repeats` and `overrides` from the command line."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help=f"runs of each (default {repeats})")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for `alray run`, in every run")
    return parser.parse_args()


def described(figures: dict[str, Any]) -> str:
    """One line about a run: its step, measured and predicted."""
    measured, predicted = figures["step_time_s"], figures["predicted_step_time_s"]
    return f"{1e3 * measured:.1f} ms measured, {1e3 * predicted:.1f} ms predicted ({predicted / measured:.3f})"
