"""The definitions of a report's figures: the docstrings of the records' fields, as pages and the terminal show them."""

from __future__ import annotations

from pydantic import BaseModel

from alray.core.run_folder.records import Summary

NO_BUBBLE = "none: the stages take turns in one process"
"""Stands for the bubble where it is null."""
NO_PEAK = "not measured: the process is not that of one stage alone"
"""Stands for the peak memory where it is null."""


def definition(kind: type[BaseModel], key: str) -> str:
    """The definition of a figure, in one line.

    Args:
        kind: the type that holds it.
        key: its name there.
    """
    text = kind.model_fields[key].description
    assert text is not None, f"{kind.__name__}.{key} has no docstring"
    return " ".join(text.split())


def of_summary(**named: str) -> dict[str, str]:
    """The names by which a page calls figures of `summary.json`, and their definitions.

    Args:
        named: key -> name.
    """
    return {name: definition(Summary, key) for key, name in named.items()}
