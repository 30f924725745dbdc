"""The table of docs/network.md on imported models, from published figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import huggingface

Figures = dict[str, Any]
PAGE = Path(__file__).parents[1] / "docs" / "network.md"
ROUNDING = 1e-6
"""The largest difference in float64 that counts as agreement: some models compute in float32 inside."""
_TRAINED = ("trained", "same")
"""How the mini-batch of a method ends where nothing failed."""
_PLACE = re.compile(
    r"(?<=^<!-- models: written by `make publish` -->\n).*?(?=^<!-- /models -->$)", re.MULTILINE | re.DOTALL
)


def page(entries: Sequence[Figures], exported: Sequence[Figures], classes: Sequence[Figures]) -> str:
    """The page with the table of today.

    Args:
        entries: those of `benchmarks/models.py`.
        exported: those of `benchmarks/exported.py`.
        classes: those of `benchmarks/huggingface.py`.
    """
    found = table(entries, exported, classes)
    return _PLACE.sub(lambda _: found, PAGE.read_text(encoding="utf-8"))


def table(entries: Sequence[Figures], exported: Sequence[Figures], classes: Sequence[Figures]) -> str:
    rows = [
        _row("torchvision", "models for classification", entries),
        _row("timm", "families, a small model each", entries),
        _of_transformers(classes),
    ]
    largest = max(
        abs(value - entry["plain"][depth]) for entry in exported for depth, value in entry["evaluated"].items()
    )
    return "\n".join(
        [
            "",
            "| library | tried | cut, and equal to the whole | not used |",
            "|---|---|---|---|",
            *rows,
            "",
            f"The exported weights of {len(exported)} runs, in plain torch, differ from `alray evaluate` by at most "
            f"{largest:.0e}.",
            "",
            "",
        ]
    )


def _row(library: str, what: str, entries: Sequence[Figures]) -> str:
    tried = [entry for entry in entries if entry["from"].startswith(f"{library}:") and was_tried(entry)]
    others = [f"`{entry['from'].partition(':')[2]}`" for entry in tried if not works(entry)]
    return f"| {library} | {len(tried)} {what} | {len(tried) - len(others)} | {', '.join(others)} |"


def _of_transformers(entries: Sequence[Figures]) -> str:
    others = [
        f"`{entry['class']}`"
        for entry in entries
        if "refused" in entry or any(entry.get(method, "bits") != "bits" for method in huggingface.METHODS)
    ]
    return f"| transformers | {len(entries)} classes, small | {len(entries) - len(others)} | {', '.join(others)} |"


def was_tried(entry: Figures) -> bool:
    """Whether a model was looked at, and not only listed."""
    return "with" in entry or "failed" in entry


def works(entry: Figures) -> bool:
    """Whether a model was traced and cut, and nothing that was tried with it failed."""
    trained = entry.get("trained") or {}
    return "places" in entry and not (
        entry.keys() & {"refused", "failed"}
        or any(each not in _TRAINED for each in trained.values())
        or max(entry.get("in_float64", {}).values(), default=0.0) > ROUNDING
    )
