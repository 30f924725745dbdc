"""Opens the data of a run: from the `data` section of a spec to splits that can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from alray.config.sections.own_code import OwnCode
from alray.config.sections.task import TASKS, TaskSection
from alray.core.errors import DataError, DataMissing
from alray.core.randomness.generators import put_back, seed_all
from alray.core.run_folder.data_identity import DataIdentity
from alray.data.cache import cached
from alray.data.class_labels import MOST_SHOWN
from alray.data.class_parts import parts_by_classes
from alray.data.hashes import hash_of_names, hash_of_set
from alray.data.huggingface import HubPictures
from alray.data.image_folder import PictureSet
from alray.data.opening import make_source
from alray.data.picture import PictureFiles, require_pictures, told_of
from alray.data.preparation import prepared_sets
from alray.data.source import Normalisation, SampleSet, Source, SplitName, TensorSet, TextSet, TextSource, generator
from alray.data.split import SampleSplit, Split, own_entry
from alray.models.task import LearningTask, make_task

if TYPE_CHECKING:
    from alray.config.sections import data as spec
    from alray.data.tokens import Tokens
    from alray.data.vocabulary import Vocabulary

SomeSet = TypeVar("SomeSet", SampleSet, TextSet)

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

__all__ = ["Dataset", "Normalisation", "SampleSet", "Source", "Split", "TensorSet", "open_data"]


@dataclass(frozen=True)
class Dataset:
    """The opened data of one run: its splits, and the shape of its mini-batches."""

    #: None: the data are not there, and the samples of the splits are made up for a plan.
    source: Source | TextSource | None
    train: Split
    validation: Split | None
    test: Split | None
    #: How samples are normalised after augmentation; None: not at all.
    normalisation: Normalisation | None
    #: The task, which has the form of the labels.
    task: LearningTask
    #: Number of samples of the source's training set, with those of validation and those that are left out.
    num_samples: int
    batch_size: int
    last_batch: Literal["drop", "keep"]
    augment: Literal["none", "strong"]
    #: SHA-256 of what the source gives for training (see `DataIdentity`); None for a user's class and without data.
    contents: str | None
    #: How the samples of a mini-batch are mixed; None: not at all.
    mix: spec.Mix | None = None
    #: Of a regression: how the targets are standardised; None: not at all.
    target_normalisation: Normalisation | None = None
    #: For text: the words, and how a document becomes word numbers. None for other data.
    vocabulary: Vocabulary | None = None
    #: For text: whether every mini-batch has the width of `sample_shape` instead of that of its longest document.
    fixed_length: bool = False
    #: Of windows of tokens: the number of tokens. None for other data.
    num_tokens: int | None = None
    #: Of windows of tokens: how a text becomes tokens; None for other data, or without data.
    tokens: Tokens | None = None
    #: A sentence: what a plan takes for data that are not there. None: they are.
    assumed: str | None = None
    #: What the user should read of these data before a plan, in sentences.
    notes: tuple[str, ...] = ()

    def told(self) -> tuple[str, ...]:
        """What the user should read of these data before a plan, in sentences. A few pictures are decoded for it.

        Raises DataError if the content of pictures would be lost.
        """
        sets = {id(each.samples): each.samples for each in self.splits.values() if isinstance(each, SampleSplit)}
        pictures = [told_of(each) for each in sets.values() if isinstance(each, PictureFiles)]
        return (*self.notes, *dict.fromkeys(line for lines in pictures for line in lines))

    @property
    def splits(self) -> Mapping[str, Split | None]:
        """The splits "train", "validation" and "test"; None if a split does not exist."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def own(self) -> bool:
        """Whether a user's class is the source."""
        return self.contents is None

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    @property
    def num_classes(self) -> int:
        """Number of classes, or of labels or targets: the width of a readout."""
        return len(self.classes)

    def in_units(self, values: Tensor) -> Tensor:
        """Scores or labels `[..., outputs]` in the units of the source, float64 where targets are standardised."""
        return values if self.target_normalisation is None else self.target_normalisation.undo(values)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the model gets it, without the batch dimension. For text: the largest shape."""
        return self.train.shape

    @property
    def sample_dtype(self) -> torch.dtype:
        """float32, or int64 for text."""
        return self.train.dtype

    @property
    def words(self) -> tuple[str, ...] | None:
        """For text, the word of each number, `<pad>` and `<unk>` first; None for other data."""
        return None if self.vocabulary is None else self.vocabulary.words

    @property
    def identity(self) -> DataIdentity:
        return DataIdentity(
            train=len(self.train),
            validation=len(self.validation or ()),
            shape=self.sample_shape,
            classes=hash_of_names(self.classes),
            words=None if self.words is None else hash_of_names(self.words),
            contents=self.contents,
        )

    @property
    def num_train(self) -> int:
        """Number of samples of the training split, before a partial batch is dropped."""
        return len(self.train)

    @property
    def steps_per_epoch(self) -> int:
        """Number of mini-batches in one epoch, at least one."""
        whole, rest = divmod(self.num_train, self.batch_size)
        return whole + (1 if rest and self.last_batch == "keep" else 0)

    def read_samples(self, path: Path) -> Iterator[tuple[str, Tensor]]:
        """The samples of a picture file or of a table as inputs of the model, each with a name: float32 of
        `sample_shape`, prepared like training samples.

        Raises DataError if the file is missing or damaged, or holds no samples of this source.
        """
        if not isinstance(self.source, Source) or not isinstance(self.train, SampleSplit):
            raise DataError(
                "the samples of this data are documents, not pictures or numbers",
                file=str(path),
                key="data.source",
                hint="give lines of text, or files of text",
            )
        for name, sample in self.source.read_samples(path):
            yield name, self.train.prepare(sample, f"sample {name}")

    def read_text(self, text: str) -> Tensor:
        """Return a document as an input of the model: [T] int64, 1 <= T <= `sample_shape`[0], padded where mini-batches
        are.

        Raises DataError if the samples are not documents.
        """
        if self.vocabulary is None:
            raise DataError(
                "the samples of this data are not documents",
                key="data.source",
                hint="give the paths of picture files",
            )
        return self.vocabulary.numbers(text, padded=self.fixed_length)


def open_data(
    data_spec: spec.DataSection,
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
    if for_plan and not data_spec.expected.lacking:
        return _for_plan(data_spec, seed, load, task, fixed_length)
    try:
        data = _open(data_spec, seed, load, task, fixed_length)
    except DataMissing as error:
        if not for_plan:
            raise
        keys = ", ".join(f"{key}: ..." for key in data_spec.expected.lacking)
        hint = f"a plan without the data needs data.assume: {{{keys}}}"
        raise DataMissing.of(
            tuple(replace(each, hint=f"{each.hint}; {hint}" if each.hint else hint) for each in error.problems)
        ) from error
    if unlike := _unlike(data, data_spec):
        raise DataError(
            f"the data are not as data.assume says: {unlike}", key="data.assume", hint="correct it, or set it to null"
        )
    return data


def _for_plan(
    data_spec: spec.DataSection, seed: int, load: Callable[[str], Any], task: TaskSection, fixed_length: bool
) -> Dataset:
    """The data if they can be read from files that are there, else their sizes."""
    if data_spec.from_files is not None:
        with suppress(DataMissing):
            data = _open(data_spec.from_files, seed, load, task, fixed_length)
            if unlike := _unlike(data, data_spec):
                return replace(data, notes=(f"the data are there, and not as data.assume says: {unlike}",))
            return data
    return _assumed(data_spec, load, task, fixed_length)


def _open(
    data_spec: spec.DataSection, seed: int, load: Callable[[str], Any], task: TaskSection, fixed_length: bool
) -> Dataset:
    if not isinstance(data_spec, OwnCode):
        return _opened_data(data_spec, seed, load, task, fixed_length)
    with put_back():  # a user's code may draw where it makes or opens a set
        seed_all(torch.device("cpu"), seed, "source")
        return _opened_data(data_spec, seed, load, task, fixed_length)


def check_pictures(data_spec: spec.DataSection, load: Callable[[str], Any], task: TaskSection | None = None) -> None:
    """Open the header of every picture file that training would read. Raises one DataError for all broken ones.

    A user's source is left out: only the source itself knows its files.
    """
    if isinstance(data_spec, OwnCode):
        return
    source = make_source(data_spec, load, task)
    if isinstance(source, Source):
        names: tuple[SplitName, ...] = (
            ("train", "validation", "test") if data_spec.own_validation else ("train", "test")
        )
        require_pictures([path for name in names for path in source.files(name)])


def _opened_data(
    data_spec: spec.DataSection, seed: int, load: Callable[[str], Any], section: TaskSection, fixed_length: bool
) -> Dataset:
    source, sets = _source(data_spec, load, section)
    if isinstance(source, TextSource) and data_spec.labels == ("tokens",):
        return _open_windows(source, sets, cast("spec.TokenSection", data_spec), seed, section)
    task = make_task(section, len(source.classes), load=load)
    if isinstance(source, TextSource):
        return _open_text(source, sets, data_spec, seed, task, fixed_length)
    train, test = _require_train(_opened(sets.get("train"), "train")), _opened(sets.get("test"), "test")
    own_validation = _opened(sets.get("validation"), "validation")
    labels = _class_numbers(train, section)
    train_part, validation_part = _divide(len(train), data_spec, seed, labels)
    sample, _ = own_entry(train, 0, "sample 0 of split `train`", task) if source.own else train[0]
    shape = tuple(sample.shape)
    channels = _channels(data_spec, shape)
    _require_images_to_augment(data_spec, shape)
    normalisation = _normalisation(data_spec, source, shape if channels is None else (channels, *shape[1:]))
    target_normalisation = _target_normalisation(section, source)

    def split(name: SplitName, samples: SampleSet, part: Tensor) -> Split:
        return SampleSplit(
            samples,
            part,
            name=name,
            shape=shape,
            channels=channels,
            classes=source.classes,
            task=task,
            normalisation=normalisation,
            target_normalisation=target_normalisation,
            own_seed=seed if source.own else None,
        )

    validation: Split | None
    if own_validation is not None:
        validation = split("validation", own_validation, torch.arange(len(own_validation)))
    else:
        validation = split("train", train, validation_part) if len(validation_part) else None
    return Dataset(
        source=source,
        train=split("train", train, train_part),
        validation=validation,
        test=split("test", test, torch.arange(len(test))) if test is not None else None,
        normalisation=normalisation,
        task=task,
        target_normalisation=target_normalisation,
        num_samples=len(train),
        batch_size=data_spec.batch_size,
        last_batch=data_spec.last_batch,
        augment=data_spec.augment,
        mix=data_spec.mix,
        contents=None if source.own else hash_of_set(train),
        notes=(*source.notes, *_never_trained(labels, train_part, source.classes)),
    )


def _assumed(
    data_spec: spec.DataSection, load: Callable[[str], Any], section: TaskSection, fixed_length: bool
) -> Dataset:
    from alray.data.assumed import AssumedSplit, assumed_vocabulary

    expected = data_spec.expected
    assert expected.samples is not None and expected.shape is not None and expected.classes is not None
    task = make_task(section, expected.classes, expected.shape, load)
    validation, train = _part_sizes(expected.samples, data_spec)
    tokens = expected.classes if expected.tokens else None
    if data_spec.own_validation:
        validation = expected.validation
    _require_images_to_augment(data_spec, expected.shape)
    vocabulary = None
    samples = f"{expected.samples:,} samples of shape {list(expected.shape)}"
    if expected.words is not None:
        text = cast("spec.TextSection", data_spec).text
        vocabulary = assumed_vocabulary(expected.words, text.tokenizer, text.max_tokens)
        samples = (
            f"{expected.samples:,} documents of up to {expected.shape[0]} words, of {expected.words:,} different ones,"
        )
    whence = "the published sizes of this set" if data_spec.assume is None else "as data.assume says"
    return Dataset(
        source=None,
        train=AssumedSplit(train, expected, task),
        validation=AssumedSplit(validation, expected, task) if validation else None,
        test=AssumedSplit(expected.test, expected, task) if expected.test else None,
        normalisation=None,
        task=task,
        num_samples=expected.samples,
        batch_size=data_spec.batch_size,
        last_batch=data_spec.last_batch,
        augment=data_spec.augment,
        mix=data_spec.mix,
        contents=None,
        vocabulary=vocabulary,
        num_tokens=tokens,
        fixed_length=fixed_length,
        assumed=f"planned without the data: {samples} in {expected.classes} classes ({whence})",
    )


def _unlike(data: Dataset, data_spec: spec.DataSection) -> str:
    """The differences between data and what `assume` says of them; empty if there are none."""
    assumed = data_spec.assume
    if assumed is None:
        return ""
    words = data.words
    sizes = {
        "shape": (assumed.shape and list(assumed.shape), list(data.sample_shape)),
        "classes": (assumed.classes, data.num_classes),
        "samples": (assumed.samples, data.num_samples),
        "test_samples": (assumed.test_samples, len(data.test or ())),
        "vocabulary_size": (assumed.vocabulary_size, None if words is None else len(words)),
    }
    return ", ".join(
        f"{key} is {there}, not {wanted}" for key, (wanted, there) in sizes.items() if wanted not in (None, there)
    )


def _source(
    data_spec: spec.DataSection, load: Callable[[str], Any], task: TaskSection
) -> tuple[Source | TextSource, dict[SplitName, Any]]:
    """The source, and its sets."""
    names: tuple[SplitName, ...] = ("train", "test", "validation") if data_spec.own_validation else ("train", "test")

    def opened() -> tuple[Source | TextSource, dict[SplitName, Any]]:
        source = make_source(data_spec, load, task)
        return source, {name: source.open(name) for name in names}

    if isinstance(data_spec, OwnCode):  # what a user's code opens may depend on the seed, and may change
        return opened()
    key = data_spec.model_dump(mode="json", exclude=_NOT_OF_THE_SETS), task.kind
    return cached("sets", key, opened)


def _open_text(
    source: TextSource,
    sets: dict[SplitName, Any],
    data_spec: spec.DataSection,
    seed: int,
    task: LearningTask,
    fixed_length: bool,
) -> Dataset:
    # Imported only here, because pictures do not need torchtext.
    from alray.data.text_data import text_splits

    section = cast("spec.TextSection", data_spec)
    given, test = _require_train(_opened(sets.get("train"), "train")), _opened(sets.get("test"), "test")
    train, test = prepared_sets(given, test, section.text.prepare)
    labels = torch.tensor(train.labels, dtype=torch.int64)
    train_part, validation_part = _divide(len(train), data_spec, seed, labels)
    train_split, validation_split, test_split, vocabulary = text_splits(
        train,
        test,
        train_part=train_part,
        validation_part=validation_part,
        classes=source.classes,
        text=section.text,
        fixed_length=fixed_length,
    )
    return Dataset(
        source=source,
        train=train_split,
        validation=validation_split,
        test=test_split,
        normalisation=None,
        task=task,
        num_samples=len(given),  # of the source: preparation may leave some out
        batch_size=data_spec.batch_size,
        last_batch=data_spec.last_batch,
        augment=data_spec.augment,
        contents=None if isinstance(data_spec, OwnCode) else hash_of_set(train),
        vocabulary=vocabulary,
        fixed_length=fixed_length,
        notes=(*source.notes, *_never_trained(labels, train_part, source.classes)),
    )


def _open_windows(
    source: TextSource, sets: dict[SplitName, Any], section: spec.TokenSection, seed: int, task_section: TaskSection
) -> Dataset:
    from alray.config.sections.data import LEARNT_BYTE_PAIRS
    from alray.data.tokens import make_tokens
    from alray.data.windows import window_splits

    documents, test = _require_train(_opened(sets.get("train"), "train")), sets["test"]
    train_part, validation_part = _parts(len(documents), section, seed)
    tokens = make_tokens(
        section.tokens,
        [documents.texts[index] for index in train_part.tolist()],
        section.tokenizer,
        section.vocabulary_size or LEARNT_BYTE_PAIRS,
    )
    train_split, validation_split, test_split = window_splits(
        documents,
        test,
        tokens,
        train_part=train_part,
        validation_part=validation_part,
        context=section.context,
        seed=seed,
    )
    _require_mini_batch(len(train_split), section, f"{len(train_split)} windows of {section.context} tokens")
    return Dataset(
        source=source,
        train=train_split,
        validation=validation_split,
        test=test_split,
        normalisation=None,
        task=make_task(task_section, len(tokens.names), (section.context,)),
        num_samples=len(train_split),
        batch_size=section.batch_size,
        last_batch=section.last_batch,
        augment=section.augment,
        contents=hash_of_set(documents),
        num_tokens=len(tokens.names),
        tokens=tokens,
    )


def _opened(samples: SomeSet | None, name: SplitName) -> SomeSet | None:
    if samples is not None and len(samples) == 0:
        raise DataError(f"the {name} set is empty", key="data", hint="use a source that has samples")
    return samples


def _require_train(samples: SomeSet | None) -> SomeSet:
    if samples is None:
        raise DataError("there is no training set", key="data", hint="return a set from open('train')")
    return samples


def _class_numbers(samples: SampleSet, section: TaskSection) -> Tensor | None:
    """The class of each sample, [N] int64; None if samples have none, or only reading a sample says it."""
    if section.label != "class" or not isinstance(samples, TensorSet | PictureSet | HubPictures):
        return None
    labels = torch.as_tensor(samples.labels)
    return labels if labels.dtype == torch.int64 and labels.ndim == 1 else None


def _never_trained(labels: Tensor | None, train_part: Tensor, classes: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence about the classes of which the training split has no sample; none if there are none.

    Args:
        labels: of the training set, [N] int64; None: not known.
        train_part: the indices of the training split.
    """
    if labels is None:
        return ()
    trained = set(labels[train_part].tolist())
    missing = [f"`{name}`" for number, name in enumerate(classes) if number not in trained]
    if not missing:
        return ()
    shown = ", ".join(missing[:MOST_SHOWN]) + (f" and {len(missing) - MOST_SHOWN} more" if missing[MOST_SHOWN:] else "")
    what = f"classes {shown} have" if len(missing) > 1 else f"class {shown} has"
    return (
        f"{what} no sample in the training split and cannot be learnt; data.split_by_classes=true leaves it its share",
    )


def _divide(num_samples: int, data_spec: spec.DataSection, seed: int, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the indices of the training and the validation split into the source's training set, sorted. Raises
    DataError if they leave no mini-batch.

    Args:
        labels: as for `_never_trained`.
    """
    _part_sizes(num_samples, data_spec)
    if not data_spec.split_by_classes:
        return _parts(num_samples, data_spec, seed)
    if labels is None or bool((labels < 0).any()):
        raise DataError(
            "these samples have no classes that are known before they are read",
            key="data.split_by_classes",
            hint="leave it out",
        )
    return parts_by_classes(labels, *data_spec.split(num_samples), seed)


def _parts(num_samples: int, data_spec: spec.DataSection, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(num_samples, generator=generator(seed, "validation"))
    num_validation, num_train = data_spec.split(num_samples)
    train = order[num_validation : num_validation + num_train]
    return train.sort().values, order[:num_validation].sort().values


def _part_sizes(num_samples: int, data_spec: spec.DataSection) -> tuple[int, int]:
    """Return the sizes of the validation and the training split. Raises DataError if they leave no mini-batch."""
    num_validation, num_train = data_spec.split(num_samples)
    left = f"data.validation_fraction and data.train_fraction leave {num_train} of {num_samples} training samples"
    if num_train == 0:
        raise DataError(left, key="data", hint="decrease the first or increase the second")
    _require_mini_batch(num_train, data_spec, left)
    return num_validation, num_train


def _require_mini_batch(num_train: int, data_spec: spec.DataSection, left: str) -> None:
    """Raise DataError if the training split has no mini-batch.

    Args:
        left: its size in words.
    """
    if num_train < data_spec.batch_size and data_spec.last_batch == "drop":
        raise DataError(
            f"{left}, fewer than one mini-batch of {data_spec.batch_size}",
            key="data.batch_size",
            hint=f"set data.batch_size to at most {num_train}, or set data.last_batch=keep",
        )


def _channels(data_spec: spec.DataSection, shape: tuple[int, ...]) -> int | None:
    """How many channels are made of the one of these pictures; None: they stay as they are."""
    wanted = data_spec.channels
    if wanted is None or (len(shape) == 3 and shape[0] == wanted):
        return None
    if len(shape) != 3 or shape[0] != 1:
        raise DataError(
            f"there are no {wanted} channels to make of samples of shape {list(shape)}",
            key="data.channels",
            hint="leave it out: it is for pictures [1, height, width]",
        )
    return wanted


def _require_images_to_augment(data_spec: spec.DataSection, shape: tuple[int, ...]) -> None:
    if data_spec.augment != "none" and (len(shape) != 3 or shape[0] not in (1, 3)):
        raise DataError(
            f"`{data_spec.augment}` is for pictures with 1 or 3 channels, but the samples have shape {list(shape)}",
            key="data.augment",
            hint="set data.augment=none",
        )
    if data_spec.mix is not None and data_spec.mix.cutmix is not None and len(shape) != 3:
        raise DataError(
            f"CutMix is for pictures [channels, height, width], but the samples have shape {list(shape)}",
            key="data.mix.cutmix",
            hint="leave it out, or use mixup",
        )


def _target_normalisation(section: TaskSection, source: Source) -> Normalisation | None:
    """How the targets of a regression are standardised. Raises DataError if the source says it of other targets."""
    found = source.target_normalisation
    if found is None or not section.standardises:
        return None
    if not len(found.mean) == len(found.std) == len(source.classes):
        raise DataError(
            f"`target_normalisation` has {len(found.mean)} means and {len(found.std)} standard deviations for "
            f"{len(source.classes)} targets",
            key="data.source",
            hint="give one mean and one standard deviation for each target",
        )
    return found


def _normalisation(data_spec: spec.DataSection, source: Source, shape: tuple[int, ...]) -> Normalisation | None:
    """How the samples are normalised: as the spec says, or else as the source does."""
    given = data_spec.normalise
    found = source.normalisation if given is None else Normalisation(given.mean, given.deviation)
    if given is None and found is not None and data_spec.channels is not None and len(found.mean) == 1:
        found = Normalisation(found.mean * shape[0], found.std * shape[0])
    if found is not None and not (len(found.mean) == len(found.std) and shape[:1] == (len(found.mean),)):
        raise DataError(
            f"`{'normalisation' if given is None else 'normalise'}` has {len(found.mean)} means and {len(found.std)} "
            f"standard deviations, but the samples have shape {list(shape)}",
            key="data.source" if given is None else "data.normalise",
            hint="give one mean and one standard deviation for each channel, the first dimension of a sample",
        )
    return found
