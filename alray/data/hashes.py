"""Hashes by which data sets are told apart (`alray.core.run_folder.data_identity`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from alray.data.picture import PictureFiles
from alray.data.source import SampleSet, TensorSet, TextSet


def hash_of_names(names: Iterable[str]) -> str:
    """SHA-256 of these names in this order."""
    return _sha256(repr(list(names)).encode("utf-8", "surrogatepass"))


def hash_of_set(samples: SampleSet | TextSet) -> str | None:
    """SHA-256 of the labels of a set that alray opened, and of what is in memory of its samples; None for other sets.

    Floating-point samples count if they are exact. Synthetic ones may differ in the last bit between processors.
    """
    if isinstance(samples, TensorSet):
        counts = samples.exact or samples.samples.dtype == torch.uint8
        pixels = [_bytes(samples.samples)] if counts else []
        return _sha256(_bytes(samples.labels), *pixels)
    if isinstance(samples, PictureFiles):
        names = [repr(samples.names).encode("utf-8", "surrogatepass")] if samples.names else []
        labels = samples.labels
        return _sha256(*names, _bytes(labels) if isinstance(labels, torch.Tensor) else _of_labels(labels))
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
