"""The registry of data sources: from the `source` a spec names to the object that opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from alray.data.source import Source
from alray.errors import DataError

if TYPE_CHECKING:
    from alray.spec import data as spec


def make_source(data_spec: spec.DataSection, load: Callable[[str], Any]) -> Source:
    """The source a spec names; `load` turns a reference `python:package.module.Class` into that class."""
    if data_spec.source.startswith("python:"):
        return _own(cast("spec.OwnData", data_spec), load)
    make = SOURCES.get(data_spec.source)
    if make is None:
        raise DataError(
            f"unknown data source `{data_spec.source}`",
            key="data.source",
            mend=f"known: {', '.join(SOURCES)}, python:package.module.Class",
        )
    return make(data_spec)


def _digits(data_spec: spec.Digits) -> Source:
    from alray.data.digits import Digits

    return Digits(image_size=data_spec.image_size)


def _synthetic(data_spec: spec.Synthetic) -> Source:
    from alray.data.synthetic import Synthetic

    return Synthetic(
        shape=tuple(data_spec.shape),
        classes=data_spec.classes,
        samples=data_spec.samples,
        image_size=data_spec.image_size,
    )


def _image_folder(data_spec: spec.ImageFolder) -> Source:
    from alray.data.image_folder import ImageFolder

    return ImageFolder(train=data_spec.train, test=data_spec.test, image_size=data_spec.image_size)


def _torchvision(data_spec: spec.Torchvision) -> Source:
    from alray.data.torchvision_sets import make_torchvision

    return make_torchvision(
        dataset=data_spec.dataset,
        root=data_spec.root,
        download=data_spec.download,
        image_size=data_spec.image_size,
    )


def _own(data_spec: spec.OwnData, load: Callable[[str], Any]) -> Source:
    from alray.data.python_source import PythonSource

    return PythonSource(data_spec.source, load(data_spec.source), data_spec.fields, image_size=data_spec.image_size)


#: The sources a spec can name; the modules behind them are imported only when they are asked for.
SOURCES: dict[str, Callable[[Any], Source]] = {
    "digits": _digits,
    "image_folder": _image_folder,
    "synthetic": _synthetic,
    "torchvision": _torchvision,
}
