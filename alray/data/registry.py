"""The registry of data sources: from the `source` of a spec to the object that opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from alray.config.sections.own_code import OwnCode, reference_to
from alray.config.sections.packages import SOURCES as GROUP
from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.csv_file import CsvForm
from alray.data.picture import Reading
from alray.data.source import Source, TextSource

if TYPE_CHECKING:
    from alray.config.sections import data as spec


def make_source(data_spec: spec.DataSection, load: Callable[[str], Any], task: TaskSection) -> Source | TextSource:
    """Make the source that a spec names. `load` turns a reference, as from `reference_to`, into that class.

    Args:
        task: what its labels are for.
    """
    if data_spec.source in _OF_TASKS:
        return _OF_TASKS[data_spec.source](data_spec, task)
    if isinstance(data_spec, OwnCode):
        return _own(cast("spec.OwnData", data_spec), load)
    make = SOURCES.get(data_spec.source)
    if make is None:
        raise DataError(
            f"unknown data source `{data_spec.source}`",
            key="data.source",
            hint=f"known: {', '.join(sorted([*SOURCES, *_OF_TASKS]))}, python:package.module.Class",
        )
    return make(data_spec)


def _digits(data_spec: spec.Digits) -> Source:
    from alray.data.digits import Digits

    return Digits(size=data_spec.size)


def _synthetic(data_spec: spec.Synthetic, task: TaskSection) -> Source:
    from alray.data.synthetic import Synthetic

    return Synthetic(
        shape=tuple(data_spec.shape),
        classes=data_spec.classes,
        samples=data_spec.samples,
        size=data_spec.size,
        label=task.label,
    )


def _image_folder(data_spec: spec.ImageFolder, task: TaskSection) -> Source:
    from alray.data.image_folder import ImageFolder, ImagesWithTargets

    assert data_spec.size is not None
    if task.label != "class":
        return ImagesWithTargets(
            train=data_spec.train,
            test=data_spec.test,
            validation=data_spec.validation,
            size=data_spec.size,
            table=data_spec.targets,
            columns=data_spec.label_columns,
            form=CsvForm(data_spec.delimiter, data_spec.decimal),
            task=task,
            reading=_reading(data_spec),
        )
    return ImageFolder(
        train=data_spec.train,
        test=data_spec.test,
        validation=data_spec.validation,
        size=data_spec.size,
        reading=_reading(data_spec),
    )


def _reading(data_spec: spec.PictureSection) -> Reading:
    return Reading(data_spec.pixel_range, data_spec.background)


def _torchvision(data_spec: spec.Torchvision) -> Source:
    from alray.data.torchvision_sets import make_torchvision

    return make_torchvision(
        dataset=data_spec.dataset,
        root=data_spec.root,
        download=data_spec.download,
        options=data_spec.options,
        size=data_spec.size,
    )


def _tiny_imagenet(data_spec: spec.TinyImagenet) -> Source:
    from alray.data.tiny_imagenet import TinyImagenet

    return TinyImagenet(root=data_spec.root, size=data_spec.size)


def _text_folder(data_spec: spec.TextFolder) -> TextSource:
    from alray.data.text_folder import TextFolder

    return _redivided(TextFolder(train=data_spec.train, test=data_spec.test), data_spec.test_fraction)


def _huggingface(data_spec: spec.HuggingFace) -> TextSource:
    from alray.data.huggingface import HubSets, HuggingFace

    sets = HubSets(
        dataset=data_spec.dataset,
        path=data_spec.path,
        config=data_spec.config,
        splits={"train": data_spec.train_split, "test": data_spec.test_split},
        label_column=data_spec.label_column,
        columns={"text_columns": data_spec.text_columns},
    )
    return HuggingFace(sets, data_spec.text_columns)


def _huggingface_images(data_spec: spec.HuggingFaceImages) -> Source:
    from alray.data.huggingface import HubImages, HubSets

    sets = HubSets(
        dataset=data_spec.dataset,
        path=data_spec.path,
        config=data_spec.config,
        splits={
            "train": data_spec.train_split,
            "validation": data_spec.validation_split,
            "test": data_spec.test_split,
        },
        label_column=data_spec.label_column,
        columns={"image_column": (data_spec.image_column,)},
    )
    assert data_spec.size is not None
    return HubImages(sets, data_spec.image_column, data_spec.size, _reading(data_spec))


def _text_csv(data_spec: spec.TextCsv) -> TextSource:
    from alray.data.text_csv import TextCsv, TextFileLayout

    source = TextCsv(
        train=data_spec.train,
        test=data_spec.test,
        layout=TextFileLayout(
            data_spec.header, data_spec.label_column, data_spec.text_columns, CsvForm(data_spec.delimiter)
        ),
        classes=data_spec.classes,
    )
    return _redivided(source, data_spec.test_fraction)


def _redivided(source: TextSource, test_fraction: float | None) -> TextSource:
    if test_fraction is None:
        return source
    from alray.data.redivided import Redivided

    return Redivided(source, test_fraction)


def _table(data_spec: spec.Table, task: TaskSection) -> Source:
    from alray.data.table import Layout, Table

    return Table(
        train=data_spec.train,
        validation=data_spec.validation,
        test=data_spec.test,
        layout=Layout(
            data_spec.header,
            data_spec.label_column,
            data_spec.columns,
            None if task.label == "class" else data_spec.label_columns or (),
            form=CsvForm(data_spec.delimiter, data_spec.decimal),
        ),
        classes=data_spec.classes,
        task=task,
    )


def _text(data_spec: spec.TokenText) -> TextSource:
    if data_spec.docstrings:
        from alray.data.docstrings import Docstrings

        return _redivided(Docstrings(cache=data_spec.cache), data_spec.test_fraction)
    from alray.data.token_text import TokenText

    return TokenText(
        file=data_spec.file,
        folder=data_spec.folder,
        pattern=data_spec.pattern,
        separator=data_spec.separator,
        test_fraction=data_spec.test_fraction,
    )


def _docstrings(data_spec: spec.Docstrings) -> TextSource:
    from alray.data.docstrings import Docstrings

    return Docstrings(cache=data_spec.cache)


def _own(data_spec: spec.OwnData, load: Callable[[str], Any]) -> Source | TextSource:
    from alray.data.python_source import OwnObject, PythonSource, PythonTextSource

    own = OwnObject(data_spec.source, load(reference_to(data_spec.source, GROUP)), data_spec.fields)
    return PythonSource(own, size=data_spec.size) if data_spec.text is None else PythonTextSource(own)


#: Those whose labels depend on the task.
_OF_TASKS: dict[str, Callable[[Any, TaskSection], Source]] = {
    "image_folder": _image_folder,
    "synthetic": _synthetic,
    "table": _table,
}
#: The other sources that a spec can name. Their modules are imported only when they are used.
SOURCES: dict[str, Callable[[Any], Source | TextSource]] = {
    "digits": _digits,
    "docstrings": _docstrings,
    "huggingface": _huggingface,
    "huggingface_images": _huggingface_images,
    "text": _text,
    "text_csv": _text_csv,
    "text_folder": _text_folder,
    "tiny_imagenet": _tiny_imagenet,
    "torchvision": _torchvision,
}
