"""`data`: where samples come from, and how they become mini-batches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from alray.spec.choice import OPEN_TAG, Choice
from alray.spec.own_code import OwnCode, Reference
from alray.spec.section import Counts, NonNegativeInt, PositiveInt, Section, SpecPath


class DataSection(Section):
    """What every source has."""

    source: str
    """Where the samples come from."""
    batch_size: PositiveInt = 64
    """Samples in one mini-batch, over all replicas."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the training set kept aside for validation, split by the seed. Zero: no validation."""
    train_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of what is left of the training set that is used, chosen by the seed."""
    last_batch: Literal["drop", "keep"] = "drop"
    """What becomes of an epoch's last mini-batch where it is smaller than the others."""
    workers: NonNegativeInt = 0
    """Processes that load samples. Zero: the stage itself. The mini-batches are the same for every number."""
    augment: Literal["none", "strong"] = "none"
    """`strong`: training samples are cropped at random (4 pixels of padding), flipped, recoloured."""
    image_size: PositiveInt | None = None
    """Height and width the images are resized to, pixels. null: as they are."""


class Digits(DataSection):
    """The 1,797 handwritten digits that come with scikit-learn: 1 x 8 x 8, 10 classes, no download.

    A fixed 360 of them are the test set.
    """

    source: Literal["digits"]
    """`digits`."""


class Synthetic(DataSection):
    """Samples made from random numbers around one mean per class, for tests and timings."""

    source: Literal["synthetic"]
    """`synthetic`."""
    shape: Counts = (3, 32, 32)
    """Shape of one sample: channels, height, width."""
    classes: Annotated[int, Field(ge=2)] = 10
    """Number of classes."""
    samples: PositiveInt = 10000
    """Samples in the training set, before the validation split; the test set has a fifth as many."""


class ImageFolder(DataSection):
    """Image files on disk, one folder per class."""

    source: Literal["image_folder"]
    """`image_folder`."""
    train: SpecPath
    """Folder of the training set: it holds one folder per class."""
    test: SpecPath | None = None
    """Folder of the test set, with the same classes. null: there is none."""
    image_size: PositiveInt
    """Height and width the images are resized to, pixels."""


class Torchvision(DataSection):
    """One of torchvision's data sets, downloaded or read from disk."""

    source: Literal["torchvision"]
    """`torchvision`."""
    dataset: Literal["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"]
    """Which one."""
    root: SpecPath
    """Folder that holds the data set's files, or will after the download."""
    download: bool = False
    """Whether to download it where it is not in `root`. Default: no."""


class OwnData(OwnCode, DataSection):
    """A data source of one's own; the keys that are not listed here go to its constructor."""

    model_config = ConfigDict(extra="allow")

    source: Reference
    """The class, as `python:package.module.Class`."""


Data = Annotated[
    Annotated[Digits, Tag("digits")]
    | Annotated[Synthetic, Tag("synthetic")]
    | Annotated[ImageFolder, Tag("image_folder")]
    | Annotated[Torchvision, Tag("torchvision")]
    | Annotated[OwnData, Tag(OPEN_TAG)],
    Discriminator(Choice("source")),
]
