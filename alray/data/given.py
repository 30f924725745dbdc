"""Data that a Python program gives: data sets of torch, tensors and arrays, as the sets of a source."""

from __future__ import annotations

import hashlib
import operator
import pickle
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from alray.config.objects import LARGEST
from alray.config.sections.task import Label
from alray.config.user_code import named
from alray.core.compat import tree_leaves
from alray.core.counting import counted
from alray.core.errors import DataError
from alray.core.randomness.generators import put_back, seed_all
from alray.data.source import SampleSet, SplitName, TensorSet
from alray.data.split import WHOLE
from alray.models.several import Several
from alray.models.shape import Shape

Dumps: TypeAlias = Callable[[Any], bytes]
"""Pickles an object with the classes of a notebook by value."""
Classes: TypeAlias = int | list[str] | tuple[str, ...]
"""How many classes there are, or their names."""

SETS: tuple[SplitName, ...] = ("train", "validation", "test")
_READ = 256
"""Samples of a data set that are read for its hash, at least; of a smaller one all."""
_COUNTED = 10_000
"""Size of the largest data set of which all labels are read to count the classes."""
_LABELS = ("label", "labels", "target", "targets", "y")
"""What the label is called in entries that are dictionaries."""
_PAIR = (
    "give a data set whose entries are pairs (sample, label), or of several inputs tuples of them with the label last, "
    "or dictionaries with a `label`; or a pair of tensors (samples, labels)"
)
_OF_POSITIONS = (
    "a token for each position comes of texts: data={'source': 'text', 'folder': 'texts', 'context': 128} and "
    "task='next_token'"
)
_NUMBERED = "number the classes from 0: classes, labels = numpy.unique(labels, return_inverse=True)"
_NO_TEXTS = (
    "give a tensor or an array [N, ...]; of texts, data={'source': 'text_csv', ...} makes the numbers and the mask; "
    "of categories in a table, pandas.get_dummies(table) does"
)
_HIGHEST = 100
"""Labels in floating point that are whole numbers from -1 to this one may be classes."""
_IN_A_FILE = "write a class with open(split) in a file and name it: data={'source': 'python:my_data.Mine'}"


def _refused(message: str, hint: str) -> DataError:
    """The refusal of what a program gave as data."""
    return DataError(message, key="data", hint=hint)


@dataclass(eq=False)
class GivenSet:
    """A data set of torch by value. Arrays and pictures become tensors, and several inputs of a sample a row of them.

    Loader workers get the pickle, so they need not import what a notebook defines. The program's own set is never read:
    it might open files, or draw.

    Attributes:
        content: its pickle.
        labels: the class of each sample, [N] int64, if it is known.
        several: the inputs of a sample; None: it is one tensor.
    """

    content: bytes
    labels: Tensor | None = None
    several: Several | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "inner"}

    @cached_property
    def inner(self) -> Any:
        """The data set."""
        return pickle.loads(self.content)

    def anew(self) -> GivenSet:
        """The same set, of which nothing has been read yet."""
        return replace(self)

    def class_numbers(self, *, read: bool) -> Tensor | None:
        """The class of each sample, [N] int64; None if it is not known.

        Args:
            read: whether all samples of a set that is not large are read where nothing else tells. Raises DataError if
                a label is no class.
        """
        if self.labels is None and read and len(self) <= _COUNTED:
            samples = self.anew()
            numbers = [operator.index(_entry(samples, index, "train")[1]) for index in range(len(samples))]
            self.labels = torch.tensor(numbers, dtype=torch.int64)
        return self.labels

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        entry = _pair_in(self.inner[index])
        match entry:
            case (sample, label):
                made = _as_tensor(sample) if self.several is None else _row(sample, self.several)
                return made, label.item() if _is_number(label) else _as_tensor(label)
            case _:
                return entry  # the caller checks it


class CollatedSet:
    """A data set whose entries are what a `collate_fn` makes of each of them alone; or beside the longest ones, where
    it pads, so that all have one length."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> None:
        self.dataset = dataset
        self._collate = collate
        self.longest: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        entries = [self.dataset[index], *self.longest]
        batch = self._collate(entries)
        for each in filter(_is_tensor, tree_leaves(batch)):
            if not each.ndim or len(each) != len(entries):
                raise DataError(
                    f"the `collate_fn` makes of {counted(len(entries), 'entry', 'entries')} a tensor of the shape "
                    f"{list(each.shape)}, which has no row for each",
                    key="data",
                    hint="let it give tensors with a row for each entry, as torch.stack does, padded where entries "
                    "differ in size",
                )
        return _row_in(batch, 0)

    def require_rows(self, name: SplitName) -> None:
        """Raise DataError if the `collate_fn` makes other rows of three entries than of each: a mini-batch would depend
        on which samples it has."""
        entries = [_read(self.dataset, index, name) for index in range(min(3, len(self)))]

        def rows(of: list[Any]) -> list[Any]:
            with put_back(), named(f"the loader of `{name}`", "its collate_fn", key="data"):
                seed_all(torch.device("cpu"), 0, "given", name)
                batch = self._collate([*of, *self.longest])
            return [_row_in(batch, number) for number in range(len(of))]

        alone = [rows([entry])[0] for entry in entries]
        for row, other in zip(rows(entries), alone, strict=True):
            if not _are_equal(row, other):
                raise _refused(
                    f"the `collate_fn` of the loader of `{name}` makes other samples of several entries than of each "
                    "of them: it mixes or draws them",
                    "let it give rows that do not depend on the others, but by their padding; "
                    "data={'mix': {'mixup': 0.2}} mixes samples",
                )


def _pad_alike(sets: Mapping[SplitName, GivenSet], dumps: Dumps) -> str | None:
    """Have the `collate_fn` of loaders pad all samples of these sets to one length: that of the longest ones, which it
    gets beside each. A sentence on it; None: it does not pad.

    Raises DataError, as `CollatedSet.require_rows`.
    """
    read = {name: each.anew().inner for name, each in sets.items()}
    few = [(name, index) for name, each in read.items() for index in _spread(each)]
    pads = len({_sizes(_read(read[name], index, name)) for name, index in few}) > 1
    if pads:
        sizes = {
            (name, index): _sizes(_read(inner, index, name))
            for name, inner in read.items()
            for index in range(len(inner))
        }
        axes = [(number, axis) for number, each in enumerate(next(iter(sizes.values()))) for axis in range(len(each))]
        samples = dict.fromkeys(max(sizes, key=lambda at: sizes[at][number][axis]) for number, axis in axes)
        entries = [read[name].dataset[index] for name, index in samples]
        for name, each in sets.items():
            read[name].longest = each.inner.longest = entries
            each.content = dumps(each.inner)
    for name, inner in read.items():
        inner.require_rows(name)
    return "every mini-batch is padded by the `collate_fn` as one with the longest samples is" if pads else None


def _sizes(entry: Any) -> tuple[tuple[int, ...], ...]:
    """The shapes of the tensors in an entry."""
    return tuple(tuple(torch.as_tensor(each).shape) for each in tree_leaves(entry) if not isinstance(each, str))


def _row_in(batch: Any, number: int) -> Any:
    """A row of what a `collate_fn` gave: samples and labels, in order or by name."""
    if isinstance(batch, Mapping):
        return {key: _row_in(value, number) for key, value in batch.items()}
    if isinstance(batch, tuple) or (isinstance(batch, list) and any(map(_is_tensor, batch))):
        return tuple(_row_in(value, number) for value in batch)
    return batch[number] if isinstance(batch, Tensor | numpy.ndarray | list) else batch


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two entries hold the same."""
    of_one, of_other = tree_leaves(one), tree_leaves(other)
    return len(of_one) == len(of_other) and all(
        torch.equal(torch.as_tensor(each), torch.as_tensor(beside)) if _is_tensor(each) else each == beside
        for each, beside in zip(of_one, of_other, strict=True)
    )


def _pair_in(entry: Any) -> Any:
    """A sample and its label: of a dictionary the label by its name, of more than two the last one. Anything else as it
    is."""
    if isinstance(entry, Mapping):
        labels = [key for key in entry if key in _LABELS]
        if len(labels) == 1 and len(entry) > 1:
            inputs = {key: value for key, value in entry.items() if key != labels[0]}
            return next(iter(inputs.values())) if len(inputs) == 1 else inputs, entry[labels[0]]
    elif isinstance(entry, tuple | list) and len(entry) > 2:
        several = [torch.as_tensor(each) if isinstance(each, int | float) else each for each in entry[:-1]]
        if all(map(_is_input, several)):
            return tuple(several), entry[-1]
    return entry


def _is_input(value: Any) -> bool:
    return _is_tensor(value) or isinstance(value, Image.Image)


def _values(sample: Any) -> dict[str | int, Tensor] | None:
    """The inputs of a sample as tensors, by name or place; None: it is one input, or none of these forms."""
    named: dict[str | int, Any]
    if isinstance(sample, Mapping):
        named = {str(name): value for name, value in sample.items()}
    elif isinstance(sample, tuple | list) and len(sample) > 1 and all(map(_is_input, sample)):
        named = dict(enumerate(sample))
    else:
        return None
    hint = "give tensors, arrays or lists of numbers, and leave out what is no input of the module"
    return {name: _number_tensor(value, f"the input `{name}` of a sample is", hint) for name, value in named.items()}


def _number_tensor(value: Any, has: str, hint: str) -> Tensor:
    """Numbers as a tensor. Raises DataError, which says who `has` what is no number."""
    try:
        found = torch.as_tensor(_as_tensor(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise _refused(f"{has} {reprlib.repr(value)}, which is no number", hint) from error
    return found


def _several_of(samples: GivenSet) -> Several | None:
    """The inputs of a sample, by the first one and the largest numbers of a few; None: it is one tensor."""
    read = samples.anew()
    entry = _pair_in(_read(read.inner, 0, "train"))
    values = _values(entry[0]) if isinstance(entry, tuple | list) and len(entry) == 2 else None
    if values is None:
        return None
    names, first = tuple(name for name in values if isinstance(name, str)), list(values.values())
    largest = [1] * len(first)
    for index in _spread(read):
        found = _values(_pair_in(_read(read.inner, index, "train"))[0]) or {}
        for number, value in enumerate([*found.values()][: len(first)]):
            if value.numel() and not value.is_floating_point():
                largest[number] = max(largest[number], int(value.max()))
    shapes = []
    for value, most in zip(first, largest, strict=True):
        if value.is_floating_point() or (value.dtype == torch.uint8 and value.ndim > 1):
            shapes.append(Shape(value.shape, torch.float32))
        else:
            kind = torch.bool if value.dtype == torch.bool else torch.int64
            shapes.append(Shape(value.shape, kind, numbers=most + 1))
    return Several(names, tuple(shapes))


def _row(sample: Any, several: Several) -> Tensor:
    """A sample of several inputs as a row. Raises DataError for one that has others than the first one, or other
    shapes."""
    named = _values(sample) or {}
    ordered = [named.get(name) for name in several.names or range(len(named))]
    shapes = [None if value is None else tuple(value.shape) for value in ordered]
    if shapes != [tuple(shape) for shape in several.shapes] or len(named) != len(shapes):
        raise _refused(
            f"a sample has the inputs {reprlib.repr(sample)}, of the shapes {shapes}, and the first one those of "
            f"{[tuple(shape) for shape in several.shapes]}",
            "give all samples the same inputs; pad them, as by the `collate_fn` of a DataLoader that is given",
        )
    return several.packed([value.unsqueeze(0) for value in ordered if value is not None])[0]


@dataclass(frozen=True)
class GivenData:
    """The sets of a run. It has the form of an `OwnSource`, and that of its class.

    Attributes:
        contents: SHA-256 of the training and the validation set: of tensors all values, of other sets up to 511 samples
            of each, spread evenly.
        label: what the labels are: `class`, `flags`, `numbers`, `classes` of positions, or `any` as a loss of the
            program takes them.
        batch_size: that of the loader, if the training set came in one; None: it came without a loader.
        keeps_rest: whether that loader keeps a smaller last mini-batch.
        numbers, several: as of a `Source`.
        notes: what loaders say and a run does otherwise, in sentences.
    """

    sets: Mapping[SplitName, SampleSet]
    classes: tuple[str, ...]
    contents: str
    label: Label
    batch_size: int | None = None
    keeps_rest: bool = False
    numbers: int | None = None
    notes: tuple[str, ...] = ()
    several: Several | None = None

    def __call__(self, classes: Classes | None = None, numbers: int | None = None) -> GivenData:
        """The same data: they were made with these keys of the section `data`."""
        return self

    def open(self, split: SplitName) -> SampleSet | None:
        """The set of a split, or None."""
        return self.sets.get(split)


def given_data(
    data: Any,
    dumps: Dumps,
    label: Label | None,
    *,
    classes: Classes | None = None,
    numbers: int | None = None,
    ignored: int = -100,
) -> GivenData:
    """The data that a program gave.

    Raises DataError with what to give instead, and UserCodeError if a data set raises.

    Args:
        data: the training set, (train, validation, test), or a mapping with these names. A set is a data set of torch,
            a loader of one, or a pair (samples, labels) of tensors or arrays; None: there is none.
        label: what the task takes; None: as the labels are.
        classes: how many classes there are, or their names; None: as the data say.
        numbers: how many whole numbers samples consist of; None: as the data say.
        ignored: label of a position without a class.
    """
    sets = _sets(data)
    if label == "tokens":
        raise _refused("the labels of this task are the next tokens of a text, and these are pairs", _OF_POSITIONS)
    found = {name: _taken(each, name, dumps) for name, each in sets.items()}
    train = found["train"]
    given = {name: each for name, each in found.items() if isinstance(each, GivenSet)}
    collated = {name: each for name, each in given.items() if isinstance(each.inner, CollatedSet)}
    padded = _pad_alike(collated, dumps) if collated else None
    several = _several_of(train) if isinstance(train, GivenSet) else None
    for each in given.values():
        each.several = several
    label = label or _label_of(train)
    made: dict[SplitName, SampleSet] = {
        name: _in_memory(each, name, label) if isinstance(each, TensorDataset) else each for name, each in found.items()
    }
    contents, read = _hash_of({name: each for name, each in made.items() if name != "test"})
    if label == "class":
        _take_targets(given, read)
    own = _names_of_classes(given) if label in ("class", "classes") else None
    first, first_label = _entry(made["train"], 0, "train")
    if classes is not None and label in ("any", "class", "classes"):
        names = tuple(classes if isinstance(classes, list | tuple) else map(str, range(classes)))
    elif label in ("class", "classes"):
        names = own or _numbered(made.values(), ignored if label == "classes" else None)
    elif label == "any":
        names = ("output",)
    else:
        outputs = range(torch.as_tensor(first_label).numel())
        names = tuple(f"{'label' if label == 'flags' else 'target'}_{number}" for number in outputs)
    if several is not None or not _are_whole(first):
        if numbers is not None:
            raise DataError(
                "`numbers` says how many whole numbers rows [N, T] consist of, and the samples are values",
                key="data.numbers",
                hint="leave it out",
            )
    elif numbers is None:
        numbers = 1 + max(map(_largest_number, made.values()))
    made |= {name: each.anew() for name, each in given.items()}
    notes: tuple[str, ...] = () if padded is None else (padded,)
    if isinstance(train, GivenSet) and _changes(train):
        notes += (
            "the first training sample is another one when it is read again, so a resumed run has other samples: "
            "let the data set draw from the generators of torch, numpy or random",
        )
    if isinstance(first, Tensor) and first.dtype == torch.uint8:
        notes += ("the samples are uint8, and `forward` gets them divided by 255, from 0 to 1",)
    batches: Any = sets["train"].batch_sampler if isinstance(sets["train"], DataLoader) else None
    if batches is not None and isinstance(batches.sampler, SequentialSampler):
        notes += ("the seed of the run shuffles the training samples, though their loader leaves their order",)
    size, keeps = (None, False) if batches is None else (batches.batch_size, not batches.drop_last)
    return GivenData(made, names, contents, label, size, keeps, numbers, notes, several)


def _sets(data: Any) -> dict[SplitName, Any]:
    """The sets by name. Raises DataError if the training set is not there."""
    if isinstance(data, Mapping) and "train" in data and data.keys() <= set(SETS):
        found = [data.get(name) for name in SETS]
    elif isinstance(data, tuple | list) and len(data) == len(SETS):
        found = list(data)
    elif isinstance(data, tuple) and len(data) == 2 and _in_columns(data, "train") is None:
        message = "these are two sets, and nothing says whether the second one is for validation or for the test"
        raise _refused(message, "give (train, validation, test), with None for a set that is not there")
    else:
        found = [data, None, None]
    if found[0] is None:
        raise _refused("there is no training set", "give (train, validation, test)")
    return {name: each for name, each in zip(SETS, found, strict=True) if each is not None}


def as_data_set(given: Any, name: SplitName) -> Any:
    """The data set of a set that a program gave: with a length and an index, whose entries have a label.

    That of a loader, with its `collate_fn`; of a pair in memory one of torch's. Raises DataError for what is none, such
    as a loader whose mini-batches are not rows of its data set.
    """
    if isinstance(given, DataLoader) and isinstance(given.dataset, IterableDataset):
        given = given.dataset
    if isinstance(given, DataLoader):
        if not _draws_each_once(given):
            raise _refused(
                f"the loader of `{name}` draws samples by a sampler of its own, or an `__iter__`, which would be left "
                "out",
                "give the data set: alray shuffles it by the seed of the run",
            )
        own = given.collate_fn is not default_collate
        given = CollatedSet(given.dataset, given.collate_fn) if own else given.dataset
    found = _in_columns(given, name)
    if found is not None:
        return found
    _require_set(given, name)
    return given


def _taken(given: Any, name: SplitName, dumps: Dumps) -> TensorDataset | GivenSet:
    """Samples and labels in memory, or a data set by value. Raises DataError for what is neither, and for a set that is
    empty or too large."""
    found = as_data_set(given, name)
    taken: TensorDataset | GivenSet
    if type(found) is TensorDataset and len(found.tensors) == 2:
        taken, size = found, found.tensors[0].numel() * found.tensors[0].element_size()
    else:
        content = dumps(found)
        taken, size = GivenSet(content), len(content)
    if size > LARGEST:
        raise _refused(
            f"the {name} set has {size / 1e9:.1f} GB, and at most {LARGEST / 1e9:.1f} GB are sent to the stages",
            _IN_A_FILE,
        )
    if len(taken) == 0:
        raise _refused(f"the {name} set is empty", "give a set that has samples")
    return taken


def _in_columns(given: Any, name: SplitName) -> TensorDataset | StackDataset | None:
    """Samples and labels that are in memory: of several inputs each, by name or in order. None: they are not. Raises
    DataError for those that are no numbers."""
    if not isinstance(given, tuple | list) or len(given) != 2 or not _is_in_memory(given[1]):
        return None
    samples, labels = given
    several = samples if isinstance(samples, tuple) and len(samples) > 1 else [samples]
    inputs = samples if isinstance(samples, Mapping) else dict(enumerate(several))
    if not all(map(_is_in_memory, inputs.values())):
        return None
    columns: dict[str, Any] = {str(key): _numbers_of(value, "samples") for key, value in inputs.items()}
    beside: Any = _numbers_of(labels, "labels")
    every = (*columns.values(), beside)
    if len({len(each) for each in every}) > 1:
        shapes = " and ".join(str(list(each.shape)) for each in every)
        raise _refused(
            f"the {name} set has samples and labels of the shapes {shapes}",
            "give a label, or a row of labels, for each sample",
        )
    if isinstance(samples, Mapping) and len(columns) > 1:
        return StackDataset(StackDataset(**columns), beside)  # an input may have a name of labels
    return TensorDataset(*every)


def _require_set(given: Any, name: SplitName) -> None:
    """Raise DataError for what is no data set with a length and an index, or has no labels."""
    is_iterable = isinstance(given, IterableDataset)
    if _is_in_memory(given):
        what, hint = "a tensor without labels", "give a pair (samples, labels)"
    elif isinstance(given, Mapping):
        what, hint = f"a dictionary of {', '.join(map(str, given))}", _PAIR
    elif isinstance(given, int | float):
        what = f"the number {given}"
        hint = "a share of the training set for validation is data={'validation_fraction': 0.1}"
    elif is_iterable or not hasattr(given, "__getitem__") or not isinstance(given, Sized):
        kind = "an IterableDataset" if is_iterable else f"of type {type(given).__name__}"
        what = f"{kind}, which has no length and no index: each mini-batch is a function of the seed and of its number"
        hint = f"give list(it), if that fits into memory; else {_PAIR}"
    else:
        return
    raise _refused(f"the {name} set is {what}", hint)


def _draws_each_once(loader: DataLoader[Any]) -> bool:
    """Whether the mini-batches of a loader are an epoch's samples, each once, in order or shuffled."""
    batches: Any = loader.batch_sampler
    own = type(loader).__iter__ is not DataLoader.__iter__ or type(batches) is not BatchSampler
    if own or type(batches.sampler) not in (RandomSampler, SequentialSampler):
        return False
    whole = len(batches.sampler) == len(loader.dataset)  # type: ignore[arg-type]
    return whole and not getattr(batches.sampler, "replacement", False)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor | numpy.ndarray)


def _is_in_memory(value: Any) -> bool:
    """Whether it is a tensor, an array, a sparse matrix of SciPy, a table of pandas, or a list that begins with one of
    these, with a number or a text, or with such a list."""
    if isinstance(value, list):
        return len(value) > 0 and (isinstance(value[0], int | float | str) or _is_in_memory(value[0]))
    return isinstance(value, Tensor) or hasattr(value, "__array__") or hasattr(value, "toarray")


def _numbers_of(values: Any, what: str) -> Tensor:
    """The values as a tensor. Raises DataError for those that are no numbers."""
    try:
        if hasattr(values, "columns") and numpy.asarray(values).dtype.kind in "Ob":  # flags beside numbers, or alone
            values = values.astype("float64")  # dates are refused
        given = values if isinstance(values, Tensor) else numpy.require(values, requirements=("C", "W"))
        return torch.as_tensor(given)
    except (TypeError, ValueError) as error:  # texts, sparse matrices, rows of different lengths
        hint = _NUMBERED if what == "labels" else _NO_TEXTS
        raise _refused(f"the {what} are no numbers: {error}", hint) from error


def _label_of(train: TensorDataset | GivenSet) -> Label:
    """What the labels of a training set are, by their type, shape and values. Raises DataError if they may as well be
    something else."""
    read = train.anew() if isinstance(train, GivenSet) else train
    first = read.tensors[1] if isinstance(read, TensorDataset) else _label_at(read, 0)
    if not first.is_floating_point():
        if not _has_rows(first):
            return "class"
        _require_flags(first, "train")
    further = () if isinstance(read, TensorDataset) else (_label_at(read, index) for index in _spread(read))
    if _may_be_classes(first) and all(map(_may_be_classes, further)):  # reads on only as long as they may
        if _has_rows(first):
            what, classes = "rows of 0 and 1", "labels.argmax(1), if each row has one 1"
            flags = "several labels"
        else:
            what, classes = "whole numbers in floating point", "labels.long(), from 0"
            flags = "0 or 1 by one output"
        numbers = "; for numbers, set task='regression'" if first.is_floating_point() else ""
        raise _refused(
            f"the labels of the train set are {what}, and nothing says whether these are classes",
            f"for classes, give {classes}; for {flags}, set task='multi_label'{numbers}",
        )
    return "numbers" if first.is_floating_point() else "flags"


def _label_at(train: GivenSet, index: int) -> Tensor:
    """The label of a sample, [1, ...]."""
    hint = "give the number of the class, from 0, or the numbers to learn"
    label = _entry(train, index, "train")[1]
    found = _number_tensor(label, f"sample {index} of the train set has the label", hint)
    return found.reshape(1, *(found.shape or (1,)))


def _has_rows(labels: Tensor) -> bool:
    return labels.ndim > 1 and labels.shape[1] > 1


def _may_be_classes(labels: Tensor) -> bool:
    """Whether labels [N, ...] that are no class numbers may be classes: one-hot, or in floating point."""
    if not _has_rows(labels):
        return bool(((labels == labels.round()) & (labels >= -1) & (labels <= _HIGHEST)).all())
    flags = bool(((labels == 0) | (labels == 1)).all())
    return flags and (labels.is_floating_point() or bool((labels.sum(1) == 1).all()))


def _require_flags(labels: Tensor, name: SplitName) -> None:
    """Raise DataError for labels that are no rows of 0 and 1."""
    if labels.ndim > 2 or bool(((labels != 0) & (labels != 1)).any()):
        raise _refused(
            f"the {name} set has labels of shape {list(labels.shape[1:])} of whole numbers, which are no rows of 0 and "
            "1",
            "give a class for each sample, or a row of 0 and 1 (multi_label); for a class of each token or pixel, "
            "set task='dense_classification'",
        )


def _in_memory(given: TensorDataset, name: SplitName, label: Label) -> TensorSet:
    samples, labels = (each.detach().cpu().clone() for each in given.tensors)  # the program may change its own
    if samples.ndim < 2:
        raise _refused(f"the {name} set has samples of shape {list(samples.shape)}", "give samples [N, ...]")
    if _are_whole(samples[0]):
        samples = samples.to(torch.int64)
    elif not samples.is_floating_point() and samples.dtype != torch.uint8:
        raise _refused(
            f"the {name} set has samples of type {samples.dtype}",
            "give floating-point numbers, as by samples.float(); pictures as uint8, which are scaled to 0..1; or "
            "rows of whole numbers [N, T] from 0 on, such as tokens",
        )
    if samples.is_floating_point() and samples.dtype not in (torch.float32, torch.float64):
        samples = samples.float()
    of_classes = {"class": labels.numel() == len(labels), "classes": labels.ndim > 1}
    if (labels.is_floating_point() and label in of_classes) or not of_classes.get(label, True):
        raise _refused(
            f"the {name} set has labels of type {labels.dtype} and shape {list(labels.shape)}, and the task has "
            + ("classes" if label == "class" else "a class for each position"),
            "give whole numbers [N], or [N, positions], as by labels.long(), or of one-hot rows labels.argmax(1); "
            "or set the task: regression for numbers, multi_label for rows of 0 and 1",
        )
    if label == "class":
        labels = labels.reshape(-1).to(torch.int64)
    elif label in ("any", "classes"):
        labels = labels.float() if labels.is_floating_point() else labels.to(torch.int64)
    else:
        if label == "flags":
            _require_flags(labels, name)
        labels = (labels if labels.dtype == torch.float64 else labels.float()).reshape(len(labels), -1)
    return TensorSet(samples, labels, exact=True)


def _are_whole(sample: Any) -> bool:
    """Whether a sample is a row of whole numbers, such as tokens. Other whole numbers are pictures or mistakes."""
    return isinstance(sample, Tensor) and sample.ndim == 1 and sample.dtype in WHOLE


def _largest_number(samples: SampleSet) -> int:
    """The largest whole number in the samples of a set."""
    if isinstance(samples, TensorSet):
        return int(samples.samples.max())
    if len(samples) > _COUNTED:
        raise _refused(
            f"nothing says how many whole numbers {counted(len(samples), 'sample')} have, and to read them all takes "
            "long",
            "say it, data={'numbers': 30000}: they are 0 to 29999",
        )
    return max(int(torch.as_tensor(_entry(samples, index, "train")[0]).max()) for index in range(len(samples)))


def _entry(samples: Any, index: int, name: SplitName) -> tuple[Any, Any]:
    """An entry of a user's set, the global generators seeded for it. Raises DataError if it is no pair."""
    entry = _pair_in(_read(samples, index, name))
    match entry:
        case (sample, label) if not isinstance(sample, tuple | list | Mapping):
            return sample, label
    raise _refused(
        f"sample {index} of the {name} set is {reprlib.repr(entry)}, not a pair of a tensor and a label",
        f"{_PAIR}; numbers as tensors, as a data set of Hugging Face gives by its with_format('torch')",
    )


def _read(samples: Any, index: int, name: SplitName) -> Any:
    with put_back(), named(f"the {name} set", f"reading sample {index}", key="data"):
        seed_all(torch.device("cpu"), 0, "given", name, index)
        return samples[index]


def _names_of_classes(sets: Mapping[SplitName, GivenSet]) -> tuple[str, ...] | None:
    """The names of the classes that the training set has; None: it has none. Raises DataError if another set has other
    names, or in another order: equal numbers would be other classes."""
    found = {name: _own_names(each.inner) for name, each in sets.items()}
    own = found.get("train")
    for name, names in found.items():
        if own is not None and names is not None and names != own:
            raise _refused(
                f"the {name} set has the classes {reprlib.repr(names)}, and the train set {reprlib.repr(own)}",
                "give sets whose attribute `classes` is the same, so that equal numbers are equal classes",
            )
    return own


def _own_names(given: Any) -> tuple[str, ...] | None:
    while isinstance(given, Subset | CollatedSet):
        given = given.dataset
    names = getattr(given, "classes", None)
    return tuple(map(str, names)) if isinstance(names, tuple | list) and names else None


def _numbered(sets: Iterable[SampleSet], ignored: int | None) -> tuple[str, ...]:
    """The numbers up to the largest label as names of classes. Raises DataError if they do not begin at 0.

    Args:
        ignored: of a class for each position, the label of those without one; None: there is one for each sample.
    """
    by_position = ignored is not None
    found = torch.cat([_numbers_in(samples, by_position=by_position) for samples in sets])
    found = found[found != ignored] if by_position else found
    lowest, highest = (int(found.min()), int(found.max())) if len(found) else (0, 0)
    if lowest < 0 or (lowest > 0 and not by_position):
        hint = f"{_NUMBERED}; if no sample of some is here, say how many there are: data={{'classes': {highest + 1}}}"
        raise _refused(f"the labels are {lowest} to {highest}, and classes begin at 0", hint)
    return tuple(map(str, range(max(2, highest + 1))))


def _numbers_in(samples: SampleSet, *, by_position: bool) -> Tensor:
    """The class numbers of a set, [N] int64; of a part of a data set whose `targets` say them, those of the whole."""
    if isinstance(samples, TensorSet):
        return samples.labels.flatten()
    assert isinstance(samples, GivenSet)
    whole = samples.inner
    while isinstance(whole, Subset):
        whole = whole.dataset
    labels = None if samples.labels is None else _targets(whole)
    if labels is None and len(samples) > _COUNTED:
        raise _refused(
            f"nothing says how many classes {counted(len(samples), 'sample')} have, and to read them all takes long",
            "say it, data={'classes': 10}, or give the data set an attribute `classes` with their names",
        )
    if by_position:
        every = (_entry(samples, index, "train")[1] for index in range(len(samples)))
        return torch.cat([torch.as_tensor(each).flatten() for each in every])
    labels = samples.class_numbers(read=True) if labels is None else labels
    assert labels is not None, "all samples may be read"
    return labels


def _take_targets(sets: Mapping[SplitName, GivenSet], read: Mapping[SplitName, Mapping[int, Any]]) -> None:
    """Have the sets know the class of each sample by their `targets`, unless these are others than the labels of any
    set that were read: a data set may make others of them."""
    found = {name: _targets(each.inner) for name, each in sets.items()}
    for name, targets in found.items():
        labels = read.get(name, {})
        if targets is not None and any(targets[index] != operator.index(each) for index, each in labels.items()):
            return
    for name, samples in sets.items():
        samples.labels = found[name]


def _targets(given: Any) -> Tensor | None:
    """The class of each sample as the attribute `targets` of a data set says, [N] int64; None where that is not a whole
    number for each, or something makes other labels of them."""
    if isinstance(given, Subset):
        of_whole = _targets(given.dataset)
        return None if of_whole is None else of_whole[torch.as_tensor(list(given.indices), dtype=torch.int64)]
    targets = getattr(given, "targets", None)
    if targets is None or getattr(given, "target_transform", None) is not None:
        return None
    try:
        found = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError):
        return None
    are_classes = not (found.is_floating_point() or found.is_complex()) and found.shape == (len(given),)
    return found.to(torch.int64) if are_classes else None


def _hash_of(sets: Mapping[SplitName, SampleSet]) -> tuple[str, dict[SplitName, dict[int, Any]]]:
    """The hash of these sets, and the labels that were read for it, by the index of the sample."""
    found = hashlib.sha256()
    read: dict[SplitName, dict[int, Any]] = {}
    for name, samples in sets.items():
        if isinstance(samples, TensorSet):
            for values in (samples.samples, samples.labels):
                _add(found, values)
        else:
            labels = read.setdefault(name, {})
            for index in _spread(samples):
                sample, labels[index] = _entry(samples, index, name)
                _add(found, sample)
                _add(found, labels[index])
    return found.hexdigest(), read


def _changes(samples: GivenSet) -> bool:
    """Whether a set gives another first entry the second time, though the global generators are where they were."""
    read = samples.anew()
    return not _are_equal(_entry(read, 0, "train"), _entry(read, 0, "train"))


def _spread(samples: SampleSet) -> range:
    """Indices of samples that are read for a look at a set, evenly spread."""
    return range(0, len(samples), max(1, len(samples) // _READ))


def _add(found: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        found.update(f"{value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    else:
        found.update(repr(value).encode("utf-8", "surrogatepass"))


def _as_tensor(value: Any) -> Any:
    """A tensor of an array, and of a picture its channels [C, H, W]; a tensor on the CPU; other values as they are."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, Image.Image):
        pixels = torch.from_numpy(numpy.array(value))
        return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()
    return torch.from_numpy(numpy.ascontiguousarray(value)) if isinstance(value, numpy.ndarray) else value


def _is_number(label: Any) -> bool:
    """Whether a label is one number in a tensor, an array or a scalar of NumPy."""
    return isinstance(label, numpy.generic) or (isinstance(label, Tensor | numpy.ndarray) and label.ndim == 0)
