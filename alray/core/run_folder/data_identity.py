"""The identity of the data of a run, which shows whether other data are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from pydantic import BaseModel, ConfigDict

from alray.core.errors import DataError

OF_WEIGHTS = ("shape", "classes", "words")
"""The fields of a `DataIdentity` on which a trained network depends."""


class DataIdentity(BaseModel):
    """A short description of a run's data. Every checkpoint holds it, so no run continues with other data unnoticed.

    The test set does not count: no weight depends on it.

    Attributes:
        train, validation: numbers of samples.
        shape: of one sample as the model gets it.
        classes, words: SHA-256 of the names of the classes, and of the words of the vocabulary (None: no text).
        contents: SHA-256 of the labels of the training set, with validation, and of its documents as
            `data.text.prepare` leaves them, its pixels in memory or the names of its picture files; None where a user's
            class gives the samples. Pixels of files do not count, because opening the data does not read them.
    """

    model_config = ConfigDict(frozen=True)

    train: int
    validation: int
    shape: tuple[int, ...]
    classes: str
    words: str | None
    contents: str | None

    @property
    def sha256(self) -> str:
        """The hash of all of it, as `environment.json` of a run has it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def given_sha256(self) -> str:
        """The hash of what no seed changes: without the vocabulary, and all else that the training split decides."""
        return hashlib.sha256(f"{self.classes} {self.contents}".encode()).hexdigest()

    def changes(self, before: DataIdentity | None) -> dict[str, str]:
        """The differences between these data and those `before`: in words, by field. None: those are not known."""
        if before is None:
            return {}
        described = {
            "train": f"{self.train:,} training samples, before {before.train:,}",
            "validation": f"{self.validation:,} validation samples, before {before.validation:,}",
            "shape": f"samples of shape {list(self.shape)}, before {list(before.shape)}",
            "classes": "other classes, or the same in another order",
            "words": "another vocabulary",
            "contents": "other samples, or the same in another order",
        }
        found = {name: words for name, words in described.items() if getattr(self, name) != getattr(before, name)}
        if len(found) > 1:
            found.pop("contents", None)  # the others say more
        return found

    def require_same(
        self,
        before: DataIdentity | None,
        whose: str,
        *,
        hint: str,
        key: str = "data",
        fields: Collection[str] | None = None,
    ) -> None:
        """Raise DataError if these are not the data `before`, as for `changes`.

        Args:
            whose: the run that had those.
            key: the key or option that names these data.
            fields: those that count; None: all.
        """
        changes = [words for name, words in self.changes(before).items() if fields is None or name in fields]
        if changes:
            raise DataError(f"these are not the data of {whose}: {'; '.join(changes)}", key=key, hint=hint)
