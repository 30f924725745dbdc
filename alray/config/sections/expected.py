"""The facts of data that are known before they are opened: from the kind of their source, or because a spec says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """Sizes of data; None: not known.

    Attributes:
        shape: of one sample as the model gets it; of documents, the largest.
        samples: number of the training set, with what becomes validation.
        validation, test: numbers of samples of the source's separate sets; 0: none.
        words: size of the vocabulary of documents; None: the samples are no documents.
        tokens: whether the samples are windows of tokens, of which there are as many as classes.
    """

    shape: tuple[int, ...] | None = None
    classes: int | None = None
    samples: int | None = None
    test: int = 0
    validation: int = 0
    words: int | None = None
    tokens: bool = False

    @property
    def lacking(self) -> tuple[str, ...]:
        """The keys of `data.assume` without which there is no plan."""
        return tuple(key for key in ("shape", "classes", "samples") if getattr(self, key) is None)
