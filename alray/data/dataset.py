"""The opened data of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from alray.config.sections.data import DataSection
from alray.config.sections.own_code import OwnCode
from alray.core.run_folder.data_identity import DataIdentity
from alray.data.hashes import hash_of_names
from alray.data.inputs import TextInputs, TokenInputs
from alray.data.picture import PictureFiles, told_of
from alray.data.source import Normalisation, Source
from alray.data.split import SampleSplit, Split
from alray.models.shape import Shape
from alray.models.task import LearningTask

__all__ = ["Dataset", "Normalisation"]  # users' classes import the second from here

_LOOKED_AT = 16
"""Samples that are read to see whether a normalisation is for their scale, at least."""
_FAR = 30.0
"""Normalised samples have a mean of about 0 and a standard deviation of about 1; beyond this factor they are told."""


@dataclass(frozen=True)
class Dataset:
    """The opened data of one run: its splits, and how they become mini-batches. `alray.data.opening` makes it."""

    #: How a run uses the splits: the size of mini-batches, augmentation.
    section: DataSection
    #: The task, which has the form of the labels.
    task: LearningTask
    train: Split
    validation: Split | None
    test: Split | None
    #: How a user's text becomes an input, or the source that says how samples are read: `DataForm` has the form of it.
    #: None: the data are not there, and samples are made up for a plan.
    inputs: TextInputs | TokenInputs | Source | None
    #: Number of samples of the source's training set, with those of validation and those that are left out.
    num_samples: int
    #: SHA-256 of what the source gives for training (see `DataIdentity`); None for a user's class and without data.
    contents: str | None
    #: The class of each sample of the training split, [len(train)] int64; None: there are none, or they are known only
    #: when samples are read.
    labels: Tensor | None = None
    #: The metric of a network that gives all samples the same scores (`LearningTask.chance`); None: it is not known.
    chance: float | None = None
    #: The weight of each class in the loss, [classes] float64; None: all samples count alike.
    class_weights: Tensor | None = None
    #: What the user should read of these data before a plan, in sentences.
    notes: tuple[str, ...] = ()
    #: A sentence: what a plan takes for data that are not there. None: they are.
    assumed: str | None = None

    def told(self) -> tuple[str, ...]:
        """What the user should read of these data before a plan, in sentences. A few pictures are decoded for it.

        Raises DataError if the content of pictures would be lost.
        """
        sets = {id(each.samples): each.samples for each in self.splits.values() if isinstance(each, SampleSplit)}
        pictures = [told_of(each) for each in sets.values() if isinstance(each, PictureFiles)]
        return (*self.notes, *dict.fromkeys(line for lines in pictures for line in lines), *self._of_another_scale())

    def _of_another_scale(self) -> Iterator[str]:
        """A sentence, where what the user says of normalisation is for values of another scale. A few samples are
        read for it, for most data are normalised by figures of their own."""
        train = self.train
        asked = self.section.normalise is not None or (self.own and train.normalisation is not None)
        if not asked or self.assumed is not None:
            return
        positions = range(0, len(train), max(1, len(train) // _LOOKED_AT))
        samples, _ = train.take(positions, augment=lambda sample, row: sample)  # a set in memory stays as it is
        channels = samples.transpose(0, 1).flatten(1)
        deviations = channels.std(1)
        if max(channels.mean(1).abs().max(), deviations.max()) > _FAR or 0 < deviations.mean() < 1 / _FAR:
            whose = "data.normalise" if self.section.normalise is not None else "the normalisation of the source"
            yield (
                f"{whose} is for values of another scale: it gives {samples.min():.3g} to {samples.max():.3g}; "
                "pictures have values of 0 to 1, not of 0 to 255"
            )

    @property
    def splits(self) -> Mapping[str, Split | None]:
        """The splits "train", "validation" and "test"; None if a split does not exist."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def reading(self) -> str:
        """The sample that is being read in this process, for another thread; "": none."""
        return next((split.reading for split in self.splits.values() if split is not None and split.reading), "")

    def standardise(self, samples: Normalisation | None, targets: Normalisation | None) -> None:
        """Have pictures and rows of numbers, and their targets, standardised so. None of them may be read yet."""
        for split in self.splits.values():
            if isinstance(split, SampleSplit):
                split.normalisation, split.target_normalisation = samples, targets

    @property
    def own(self) -> bool:
        """Whether a user's class is the source."""
        return isinstance(self.section, OwnCode)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, or of the labels or targets: as many as a readout is wide."""
        return self.train.classes

    @property
    def sample_shape(self) -> Shape:
        """The shape of one sample as the model gets it, without the batch dimension. For text: the largest shape."""
        return self.train.shape

    def in_units(self, values: Tensor) -> Tensor:
        """Scores or labels `[..., outputs]` in the units of the source, float64 where targets are standardised."""
        standardised = self.train.target_normalisation
        return values if standardised is None else standardised.undo(values)

    @property
    def identity(self) -> DataIdentity:
        words = self.sample_shape.words
        return DataIdentity(
            train=len(self.train),
            validation=len(self.validation or ()),
            shape=self.sample_shape,
            classes=hash_of_names(self.classes),
            words=None if words is None else hash_of_names(words),
            contents=self.contents,
        )

    @property
    def steps_per_epoch(self) -> int:
        """Number of mini-batches in one epoch, at least one."""
        whole, rest = divmod(len(self.train), self.section.batch_size)
        return whole + (1 if rest and self.section.last_batch == "keep" else 0)
