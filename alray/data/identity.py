"""What tells the data of a run from other data."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from alray.data.image_folder import PictureSet
from alray.data.source import SampleSet, TensorSet, TextSet
from alray.errors import DataError

OF_WEIGHTS = ("shape", "classes", "words")
"""The fields of a `DataIdentity` on which a trained network depends."""


class DataIdentity(BaseModel):
    """What a run trains on, in short. Every checkpoint keeps it, so that no run goes on with other data unnoticed.

    The test set does not count: no weight depends on it. train, validation: numbers of samples. shape: of one sample as
    the model gets it. classes, words: SHA-256 of the names of the classes, and of the words of the vocabulary (None: no
    text). contents: SHA-256 of the labels of the training set, with validation, and of its documents, its pixels in
    memory or the names of its picture files; None where a user's class gives the samples. Pixels of files do not count,
    because opening the data does not read them.
    """

    model_config = ConfigDict(frozen=True)

    train: int
    validation: int
    shape: tuple[int, ...]
    classes: str
    words: str | None
    contents: str | None

    def changes(self, before: Mapping[str, Any] | None) -> dict[str, str]:
        """What differs between these data and those `before`: in words, by field.

        before: as JSON; None: not known, in a checkpoint of an older version.
        """
        if before is None:
            return {}
        kept = DataIdentity.model_validate(before)
        said = {
            "train": f"{self.train:,} training samples, before {kept.train:,}",
            "validation": f"{self.validation:,} validation samples, before {kept.validation:,}",
            "shape": f"samples of shape {list(self.shape)}, before {list(kept.shape)}",
            "classes": "other classes, or the same in another order",
            "words": "another vocabulary",
            "contents": "other samples, or the same in another order",
        }
        found = {name: words for name, words in said.items() if getattr(self, name) != getattr(kept, name)}
        if len(found) > 1:
            found.pop("contents", None)  # the others say more
        return found

    def require_same(
        self,
        before: Mapping[str, Any] | None,
        whose: str,
        *,
        mend: str,
        key: str = "data",
        fields: Collection[str] | None = None,
    ) -> None:
        """Raise DataError if these are not the data `before`, as for `changes`.

        whose: the run that had those. key: what said which data these are. fields: those that count; None: all.
        """
        changes = [words for name, words in self.changes(before).items() if fields is None or name in fields]
        if changes:
            raise DataError(f"these are not the data of {whose}: {'; '.join(changes)}", key=key, mend=mend)


def hash_of_names(names: Iterable[str]) -> str:
    """SHA-256 of these names in this order."""
    return _sha256(repr(list(names)).encode("utf-8", "surrogatepass"))


def hash_of_set(samples: SampleSet | TextSet) -> str | None:
    """SHA-256 of the labels of a set of alray's own, and of what is in memory of its samples; None for other sets.

    Floating-point samples do not count: synthetic ones may differ in the last bit between processors.
    """
    if isinstance(samples, TensorSet):
        pixels = [_bytes(samples.samples)] if samples.samples.dtype == torch.uint8 else []
        return _sha256(_bytes(samples.labels), *pixels)
    if isinstance(samples, PictureSet):
        names = [(path.parent.name, path.name) for path in samples.paths]
        return _sha256(repr(names).encode("utf-8", "surrogatepass"), _of_labels(samples.labels))
    if isinstance(samples, TextSet):
        documents = (text.encode("utf-8", "surrogatepass") + b"\0" for text in samples.texts)
        return _sha256(_of_labels(samples.labels), *documents)
    return None


def _of_labels(labels: Sequence[int]) -> bytes:
    return repr(list(labels)).encode()


def _bytes(values: torch.Tensor) -> Any:
    return values.contiguous().numpy().data


def _sha256(*parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()
