"""`data: huggingface`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.data import HubSection, TextSection


class HuggingFace(HubSection, TextSection):
    """A text set of the Hugging Face hub, or a folder of csv, json or parquet files. It needs `alray[hub]`."""

    implementation = "source:opened"

    source: Literal["huggingface"]
    """`huggingface`."""
    text_columns: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("text",)
    """Columns that form a document, joined by a space. Default: [text]."""
