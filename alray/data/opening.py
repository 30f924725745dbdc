"""Opens the data of a run: from the `data` section of a spec to splits that can be read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, cast

import torch

from alray.config.made import Load, code_of
from alray.config.sections.data import SOURCES, DataSection, OwnData, TokenSection
from alray.config.sections.own_code import OwnCode
from alray.config.sections.task import TASKS, TaskSection
from alray.core.errors import DataError, DataMissing
from alray.core.randomness.generators import put_back, seed_all
from alray.data.cache import cached
from alray.data.dataset import Dataset
from alray.data.picture import require_pictures
from alray.data.python_source import OwnObject, PythonSource, PythonTextSource
from alray.data.sample_data import sample_data
from alray.data.source import Source, SplitName, TextSource

_NOT_OF_THE_SETS = {
    "batch_size",
    "validation_fraction",
    "train_fraction",
    "split_by_classes",
    "last_batch",
    "workers",
    "augment",
    "mix",
    "channels",
    "text",
    "normalise",
    "assume",
}
"""Keys of `data` that say what a run makes of the sets."""


def open_data(
    section: DataSection,
    *,
    seed: int,
    load: Callable[[str], Any],
    task: TaskSection | None = None,
    fixed_length: bool = False,
    for_plan: bool = False,
) -> Dataset:
    """Open the source and make the splits of a run.

    One permutation, drawn with `seed`, selects the validation split from the training set and then the share
    `train_fraction` of the remaining samples.

    Args:
        load: turns a reference `python:package.module.Class` into that class.
        task: what the labels are for; None: classes.
        fixed_length: whether all mini-batches of text have the largest width.
        for_plan: data that are not there may be left out if their sizes are known; nothing is downloaded for them.

    Raises:
        DataError: if data is missing, damaged, too small for one mini-batch, or other than `data.assume` says.
    """
    task = TASKS.default_section() if task is None else task
    if for_plan and not section.expected.lacking:
        return _for_plan(section, seed, load, task, fixed_length)
    try:
        data = _opened(section, seed, load, task, fixed_length)
    except DataMissing as error:
        if not for_plan:
            raise
        keys = ", ".join(f"{key}: ..." for key in section.expected.lacking)
        hint = f"a plan without the data needs data.assume: {{{keys}}}"
        raise DataMissing.of(
            tuple(replace(each, hint=f"{each.hint}; {hint}" if each.hint else hint) for each in error.problems)
        ) from error
    if unlike := _unlike(data, section):
        raise DataError(
            f"the data are not as data.assume says: {unlike}", key="data.assume", hint="correct it, or set it to null"
        )
    return data


def _for_plan(
    section: DataSection, seed: int, load: Callable[[str], Any], task: TaskSection, fixed_length: bool
) -> Dataset:
    """The data if they can be read from files that are there, else their sizes."""
    from alray.data.assumed import assumed_data

    if section.from_files is not None:
        with suppress(DataMissing):
            data = _opened(section.from_files, seed, load, task, fixed_length)
            if unlike := _unlike(data, section):
                return replace(data, notes=(f"the data are there, and not as data.assume says: {unlike}",))
            return data
    return assumed_data(section, task, load)


def _unlike(data: Dataset, section: DataSection) -> str:
    """The differences between data and what `assume` says of them; empty if there are none."""
    expected = section.assume
    if expected is None:
        return ""
    words = data.sample_shape.words
    sizes = {
        "shape": (expected.shape and list(expected.shape), list(data.sample_shape)),
        "classes": (expected.classes, len(data.classes)),
        "samples": (expected.samples, data.num_samples),
        "test_samples": (expected.test_samples, len(data.test or ())),
        "vocabulary_size": (expected.vocabulary_size, None if words is None else len(words)),
    }
    return ", ".join(
        f"{key} is {there}, not {wanted}" for key, (wanted, there) in sizes.items() if wanted not in (None, there)
    )


def _opened(
    section: DataSection,
    seed: int,
    load: Callable[[str], Any],
    task: TaskSection,
    fixed_length: bool,
) -> Dataset:
    """What the sets of the source become depends on what they hold: samples, documents, or a text to continue."""
    with ExitStack() as drawing:
        if isinstance(section, OwnCode):  # a user's code may draw where it makes or opens a set
            drawing.enter_context(put_back())
            seed_all(torch.device("cpu"), seed, "source")
        source, sets = _source(section, load, task)
        if isinstance(source, Source):
            return sample_data(source, sets, section, seed, task, load)
        if isinstance(section, TokenSection):
            from alray.data.windows import window_data  # it imports the library of tokenizers

            return window_data(source, sets, section, seed, task)
        from alray.data.text_data import text_data  # it imports torchtext

        return text_data(source, sets, section, seed, task, load, fixed_length=fixed_length)


def _source(
    section: DataSection, load: Callable[[str], Any], task: TaskSection
) -> tuple[Source | TextSource, dict[SplitName, Any]]:
    """The source, and its sets. Raises DataError if one of them is empty, or the training set is not there."""

    def opened() -> tuple[Source | TextSource, dict[SplitName, Any]]:
        source = make_source(section, load, task)
        return source, {name: source.open(name) for name in _set_names(section)}

    if isinstance(section, OwnCode):  # what a user's code opens may depend on the seed, and may change
        source, sets = opened()
    else:
        key = section.model_dump(mode="json", exclude=_NOT_OF_THE_SETS), task.kind
        source, sets = cached("sets", key, opened)
    for name, samples in sets.items():
        # A text to continue may be too short to leave documents for a test.
        left_out = name == "test" and isinstance(section, TokenSection)
        if samples is not None and len(samples) == 0 and not left_out:
            raise DataError(f"the {name} set is empty", key="data", hint="use a source that has samples")
    if sets["train"] is None:
        raise DataError("there is no training set", key="data", hint="return a set from open('train')")
    return source, sets


def _set_names(section: DataSection) -> tuple[SplitName, ...]:
    return ("train", "validation", "test") if section.own_validation else ("train", "test")


def make_source(section: DataSection, load: Load, task: TaskSection | None = None) -> Source | TextSource:
    """Make the source that a spec names.

    Args:
        load: loads a class of the user.
        task: what its labels are for; None: classes.
    """
    found = code_of(SOURCES, section, load)
    if not isinstance(section, OwnCode):
        opened: Source | TextSource = found(section, TASKS.default_section() if task is None else task)
        return opened
    own = OwnObject(section.source, found, section.fields)
    section = cast("OwnData", section)
    return PythonSource(own, size=section.size) if section.text is None else PythonTextSource(own)


def check_pictures(section: DataSection, load: Callable[[str], Any], task: TaskSection | None = None) -> None:
    """Open the header of every picture file that training would read. Raises one DataError for all broken ones.

    A user's source is left out: only the source itself knows its files.
    """
    if isinstance(section, OwnCode):
        return
    source = make_source(section, load, task)
    if isinstance(source, Source):
        require_pictures([path for name in _set_names(section) for path in source.files(name)])
