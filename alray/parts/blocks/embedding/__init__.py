"""`block: embedding`."""

from __future__ import annotations

from typing import Any, Literal

from alray.config.sections.blocks import BlockSection
from alray.config.sections.section import InputFile, Width


class Embedding(BlockSection):
    """A learned vector for each word of the vocabulary. It is the first component for text."""

    implementation = "block:build"

    block: Literal["embedding"]
    """`embedding`."""
    dim: Width
    """Width of the vectors."""
    vectors: InputFile | None = None
    """File of initial word vectors, with lines `word v1 ... v_dim` (the text format of GloVe, word2vec and fastText).
    Words that are not in the file start with small random vectors of mean zero. null: all words do."""

    @property
    def fields_of_trained(self) -> dict[str, Any]:
        return {**self.fields, "vectors": None}
