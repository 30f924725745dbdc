"""`data`: the source of the samples, and how they become mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from alray.config.sections.choice import ByShape
from alray.config.sections.expected import Expected
from alray.config.sections.kind import Finding, Kind, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode
from alray.config.sections.paths import Path as KeyPath
from alray.config.sections.section import (
    Counts,
    Input,
    InputFolder,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
    Width,
    describe,
    located,
    refusal,
)
from alray.config.sections.task import Label, TaskSection
from alray.planning.schedules.micro_batches import Fault

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec

ImageSize = Annotated[
    Annotated[PositiveInt, Tag("side")]
    | Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=2, max_length=2), Tag("sides")],
    Discriminator(ByShape((list, tuple), "sides", "side")),
]
"""The size of images in pixels: one number for height and width, or [height, width]."""


class Normalise(Section):
    """(x - mean) / deviation, for each channel of an image, whose values lie in 0..1 before, or entry of a vector."""

    mean: Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
    """Mean of each channel, such as [0.485, 0.456, 0.406]."""
    deviation: Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1)]
    """Standard deviation of each channel, such as [0.229, 0.224, 0.225]."""


NUMERIC: tuple[Label, ...] = ("class", "flags", "numbers")
"""The labels that a row of numbers may be."""


class Assume(Section):
    """Sizes of data that are not there, for a plan. A run compares them with its data."""

    shape: Counts | None = None
    """Shape of one sample as the model gets it, such as [3, 32, 32]. null: as the kind of the source, `image_size` or
    `text.max_tokens` says."""
    classes: Width | None = None
    """Number of classes. null: as the kind of the source says."""
    samples: PositiveInt | None = None
    """Number of samples of the training set, with those of validation. null: as the kind of the source says."""
    test_samples: NonNegativeInt | None = None
    """Number of samples of the test set. null: as the kind of the source says, or none."""
    vocabulary_size: Annotated[int, Field(ge=3, le=10_000_000)] | None = None
    """Size of the vocabulary of documents. null: the largest, `text.vocabulary_size`."""


class Mix(Section):
    """Samples of a mini-batch that are mixed with each other, and their labels with them."""

    mixup: PositiveFloat | None = None
    """Parameter of the Beta distribution of mixup (Zhang et al., ICLR 2018), such as 0.2. null: no mixup."""
    cutmix: PositiveFloat | None = None
    """Parameter of the Beta distribution of CutMix (Yun et al., ICCV 2019), such as 1. null: no CutMix. With both, each
    mini-batch draws one of them."""

    @model_validator(mode="after")
    def _mixes(self) -> Mix:
        if self.mixup is None and self.cutmix is None:
            raise refusal("nothing is mixed", "set mixup or cutmix, or leave data.mix out")
        return self


class DataSection(PartSection):
    """The keys of every data source."""

    chosen_by = ("source",)
    labels: ClassVar[tuple[Label, ...]] = ("class",)
    """What labels the samples may have."""
    samples_are: ClassVar[str] = "pictures"
    """What the samples of the source are, in words."""
    for_pictures: ClassVar[tuple[str, ...]] = ("augment", "mix", "image_size", "channels", "normalise")
    """Keys for pictures alone, if the samples of the source are others."""

    source: str
    """Name of the data source."""
    batch_size: PositiveInt = 64
    """Number of samples in a mini-batch, over all replicas. Default: 64."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share in 0..1 of the training set that is used for validation, selected by the seed. Default: 0.1. Zero: no
    validation."""
    train_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share in 0..1 of the remaining training set that is used, selected by the seed. Default: 1."""
    split_by_classes: bool = False
    """Whether both parts are drawn from each class in proportion, so that each class is trained. Default: false."""
    last_batch: Literal["drop", "keep"] = "drop"
    """Whether the last mini-batch of an epoch is dropped or kept if it is smaller than the others. Default: drop."""
    workers: NonNegativeInt = 0
    """Number of processes that load samples. Any number gives the same mini-batches. Default: 0, the stage itself."""
    augment: Literal["none", "strong"] = "none"
    """Augmentation of the training samples. `strong`: a random crop (after padding by 4 pixels), a random flip and
    random changes of colour. Default: none."""
    mix: Mix | None = None
    """Mixing of the training samples. null: none."""
    image_size: ImageSize | None = None
    """Height and width to which images are resized, in pixels: one number for both, or [height, width]. null: images
    keep their size."""
    channels: Literal[3] | None = None
    """3: grey pictures get three equal channels, for a network that takes colours. null: pictures keep theirs."""
    normalise: Normalise | None = None
    """Means and standard deviations by which samples are normalised. null: those of the source, if it has any."""
    assume: Assume | None = None
    """Sizes of the data for `alray plan` where the data are not there. null: those that the kind of the
    source has, if it has any."""

    @field_validator("augment", "mix", "image_size", "channels", "normalise", mode="before")
    @classmethod
    def _is_of_pictures(cls, value: Any, info: ValidationInfo) -> Any:
        if cls.samples_are != "pictures" and info.field_name in cls.for_pictures and value not in (None, "none"):
            message = f"this is for images, but the samples of this source are {cls.samples_are}"
            raise refusal(message, "leave it out")
        return value

    @classmethod
    def suits(cls, task: TaskSection) -> bool:
        """Whether the source may have labels for a task. A task of the user says of the labels themselves whether it
        takes them."""
        return cls.labels != ("tokens",) if task.label == "own" else task.label in cls.labels

    @property
    def of_kind(self) -> Expected:
        """The sizes that the kind of the source and the other keys say."""
        return Expected()

    @property
    def expected(self) -> Expected:
        """The sizes that `assume` says, and for the rest those of the kind."""
        kind, assumed = self.of_kind, self.assume
        if self.channels is not None and kind.shape is not None:
            kind = replace(kind, shape=(self.channels, *kind.shape[1:]))
        if assumed is None:
            return kind
        return Expected(
            shape=assumed.shape or kind.shape,
            classes=assumed.classes or kind.classes,
            samples=assumed.samples or kind.samples,
            test=kind.test if assumed.test_samples is None else assumed.test_samples,
            validation=kind.validation,
            words=kind.words and (assumed.vocabulary_size or kind.words),
            tokens=kind.tokens,
        )

    @property
    def has_numbers_of_tokenizer(self) -> bool:
        """Whether tokens have the numbers that a tokenizer of Hugging Face gives them."""
        text: Text | None = getattr(self, "text", None)  # also of a user's source of documents
        return text is not None and text.numbering == "tokenizer"

    @property
    def from_files(self) -> Self | None:
        """The section with which opening the data only reads files; None: it runs a user's code or asks a server."""
        return self

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width to which images are resized, in pixels."""
        if self.image_size is None:
            return None
        height, width = (self.image_size,) * 2 if isinstance(self.image_size, int) else self.image_size
        return height, width

    @property
    def picture_size(self) -> tuple[int, int] | None:
        """Height and width of the pictures as the network gets them, in pixels; None where only the data can tell, or
        samples are no pictures."""
        shape = self.expected.shape
        return self.size or (None if shape is None or len(shape) < 2 else (shape[-2], shape[-1]))

    @property
    def without_test(self) -> str | None:
        """What to do about it, if there is no test set."""
        lacks = "test" in type(self).model_fields and getattr(self, "test") is None  # noqa: B009  # no other source has it
        return "set data.test" if lacks else None

    @property
    def read_beside(self) -> tuple[Path, ...]:
        """Files that the source reads if they are there, without a key that names them."""
        return ()

    @property
    def downloads_to(self) -> Path | None:
        """The folder that a download fills, and where the files must lie if nothing is downloaded."""
        return None

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation set: that of the source, or a part of the training set."""
        return self.own_validation or self.validation_fraction > 0

    @property
    def own_validation(self) -> bool:
        """Whether the source has its own validation set."""
        return False

    @property
    def training_set(self) -> int | None:
        """The number of samples of the training set with validation, if the spec alone says it."""
        return None

    def split(self, samples: int) -> tuple[int, int]:
        """Return how many of the samples of the training set are for validation and for training."""
        validation = max(1, round(samples * self.validation_fraction)) if self.validation_fraction > 0 else 0
        return validation, round((samples - validation) * self.train_fraction)

    def mini_batch_fault(self, training: int, left: str) -> Fault | None:
        """Message and hint if the training split has no mini-batch.

        Args:
            training: its samples.
            left: their number in words.
        """
        if training >= self.batch_size or self.last_batch == "keep":
            return None
        return (
            f"{left}, fewer than one mini-batch of {self.batch_size}",
            f"set data.batch_size to at most {training}, or set data.last_batch=keep",
        )

    def left_of(self, samples: int) -> str:
        """How many of the samples of the training set are for training, in words."""
        training = self.split(samples)[1]
        return f"data.validation_fraction and data.train_fraction leave {training} of {samples} training samples"


class OwnValidationSection(DataSection):
    """The keys of a source that may have its own validation set."""

    validation_key: ClassVar = "validation"
    """The key that names the validation set."""

    @property
    def own_validation(self) -> bool:
        return getattr(self, self.validation_key) is not None

    @model_validator(mode="before")
    @classmethod
    def _no_fraction(cls, values: Any) -> Any:
        """A source that comes with a validation set keeps its training set whole."""
        if isinstance(values, dict) and cls.brings_own(values):
            return {"validation_fraction": 0.0, **values}
        return values

    @classmethod
    def brings_own(cls, values: dict[str, Any]) -> bool:
        """Whether the source has its own validation set, by keys that are not checked yet."""
        return values.get(cls.validation_key) is not None


def resized(expected: Expected, size: tuple[int, int] | None) -> Expected:
    """Those that differ in size are of three colours.

    Args:
        size: height and width of all pictures.
    """
    if size is None:
        return expected
    return replace(expected, shape=(3 if expected.shape is None else expected.shape[0], *size))


def _tokenizer(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str) or not value.strip():
        raise refusal(
            f"expected the name of a tokenizer, got {describe(value)}",
            "use `basic_english`, the path of a tokenizer's .json file, or a name on the hub",
        )
    return str(located(value, info)) if value.endswith(".json") else value


WordNumbering = Literal["frequency", "tokenizer"]


class Text(Section):
    """How documents become word numbers: 0 is padding, 1 is any word that is not in the vocabulary."""

    tokenizer: Annotated[str, BeforeValidator(_tokenizer), Input("file", ending=".json")] = "basic_english"
    """Tokenizer: `basic_english` (of torchtext: lower case, split at spaces and punctuation), the path of a tokenizer's
    .json file, or a name on the Hugging Face hub. The last two need `alray[hub]`. Default: basic_english."""
    vocabulary_size: Annotated[int, Field(ge=3, le=10_000_000)] = 30_000
    """Largest size of the vocabulary: padding, the unknown word, and the most frequent words of the training split.
    Default: 30000."""
    numbering: WordNumbering = "frequency"
    """Numbers of words. `frequency`: the most frequent word of the training split has the smallest. `tokenizer`: words
    have the numbers of `tokenizer`, all of its tokens are the vocabulary, and its special tokens are part of each
    document, as a model of Hugging Face has learnt them. Default: frequency."""
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Number of words of a document that are read. The rest is cut off. Default: 128."""
    prepare: Literal["none", "thesis"] = "none"
    """Preparation of a document before the tokenizer. `thesis`: lower case, without HTML tags, punctuation and the
    English stop words of NLTK; training documents that have fewer than two words left are left out. Default: none."""

    @model_validator(mode="after")
    def _numbers_of_a_tokenizer(self) -> Self:
        if self.numbering == "tokenizer":
            if self.tokenizer == "basic_english":
                raise refusal("the tokenizer basic_english has no numbers of its own", "name another tokenizer")
            if self.vocabulary_size != type(self).model_fields["vocabulary_size"].default:
                raise refusal("all tokens of the tokenizer are the vocabulary", "leave out vocabulary_size")
        return self


class TextSection(DataSection):
    """The keys of every source of documents."""

    samples_are = "documents"

    text: Text = Text()
    """How documents become word numbers."""

    @property
    def of_kind(self) -> Expected:
        return _of_documents(self.text)


def _of_documents(text: Text) -> Expected:
    return Expected(shape=(text.max_tokens,), words=text.vocabulary_size)


TestFraction = Annotated[float, Field(gt=0, lt=1)]


LEARNT_BYTE_PAIRS = 8_192
"""Size of the vocabulary of byte pairs, where a spec says none."""


class TokenSection(DataSection):
    """The keys of a text to continue, whose samples are windows of tokens."""

    labels = ("tokens",)
    samples_are = "tokens"

    tokens: Literal["bytes", "characters", "bpe"] = "bytes"
    """Tokens of a text. `bytes`: those of UTF-8, 256 of them. `characters`: those of the training split, the end of
    text, and U+FFFD for any other. `bpe`: byte pairs, of `tokenizer` or learnt from the training split; it needs
    `alray[hub]`. Default: bytes."""
    vocabulary_size: Annotated[int, Field(ge=258, le=10_000_000)] | None = None
    """Size of the vocabulary of byte pairs that are learnt. With `end_token`: the number of tokens of a model that has
    more of them than its tokenizer. null: as the tokenizer, or 8,192."""
    tokenizer: Annotated[str, BeforeValidator(_tokenizer), Input("file", ending=".json")] | None = None
    """Byte pairs that are known: the path of a tokenizer's .json file, or a name on the Hugging Face hub. null: they
    are learnt."""
    end_token: Annotated[str, Field(min_length=1)] | None = None
    """The token of `tokenizer` after each document, such as `<|endoftext|>`. Tokens then have the numbers of the
    tokenizer, as a model of Hugging Face has learnt them. null: token 0 is the end of a document, and token n is token
    n - 1 of the tokenizer."""
    context: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Number of tokens in a window. Default: 256."""

    @model_validator(mode="after")
    def _has_one_vocabulary(self) -> Self:
        if self.tokens != "bpe" and (self.tokenizer is not None or self.vocabulary_size is not None):
            raise refusal(
                f"`tokenizer` and `vocabulary_size` are for byte pairs, and the tokens are {self.tokens}",
                "leave them out, or set tokens to bpe",
            )
        if self.end_token is not None and self.tokenizer is None:
            raise refusal(
                "`end_token` is a token of a tokenizer, and there is none", "name a tokenizer, or leave it out"
            )
        if self.tokenizer is not None and self.vocabulary_size is not None and self.end_token is None:
            raise refusal("a known tokenizer has a fixed vocabulary", "leave out vocabulary_size, or name an end_token")
        return self

    @property
    def has_numbers_of_tokenizer(self) -> bool:
        return self.end_token is not None

    @property
    def of_kind(self) -> Expected:
        tokens = 256 if self.tokens == "bytes" else None
        if self.tokens == "bpe" and self.tokenizer is None:
            tokens = self.vocabulary_size or LEARNT_BYTE_PAIRS
        return Expected(shape=(self.context,), classes=tokens, tokens=True)

    @property
    def from_files(self) -> Self | None:
        return None if self.tokenizer is not None and not self.tokenizer.endswith(".json") else self


class HubSection(Section):
    """The keys of a set of the Hugging Face libraries."""

    dataset: str | None = None
    """Name on the hub, such as `ag_news` or `ylecun/mnist`. Give either this or `path`."""
    path: InputFolder | None = None
    """Folder on disk in a layout that `datasets.load_dataset` reads. It needs no network."""
    config: str | None = None
    """Configuration of the set, if it has several. null: the default of the set."""
    train_split: str = "train"
    """Name of the training split. Default: train."""
    test_split: str | None = "test"
    """Name of the test split. Default: test. null: no test set."""
    label_column: str = "label"
    """Column of the class: a ClassLabel, an integer or a text. Default: label."""

    @property
    def from_files(self) -> Self | None:
        return None if self.path is None else self

    @property
    def without_test(self) -> str | None:
        return None if self.test_split is not None else "set data.test_split"

    def faults(self, spec: Spec, at: KeyPath) -> Iterator[Finding]:
        if (self.dataset is None) == (self.path is None):
            yield (
                at,
                "give exactly one of `dataset` and `path`",
                "`dataset` is a name on the hub, `path` is a folder on disk",
            )


class OwnData(OwnCode, OwnValidationSection, extra="allow"):
    """A class of the user. Keys that are not listed here are passed to its constructor."""

    labels = (*NUMERIC, "classes")

    source: Annotated[Name, OfPackage("alray.sources")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it."""
    text: Text | None = None
    """How documents become word numbers. null: the samples are images or vectors."""
    brings_validation: bool = False
    """Whether the class has its own validation set, `open("validation")`. Default: false."""

    @classmethod
    def brings_own(cls, values: dict[str, Any]) -> bool:
        return values.get("brings_validation") is True

    @property
    def own_validation(self) -> bool:
        return self.brings_validation

    @property
    def of_kind(self) -> Expected:
        return Expected() if self.text is None else _of_documents(self.text)

    @property
    def from_files(self) -> None:
        return None

    @field_validator("text")
    @classmethod
    def _documents(cls, value: Text | None, info: ValidationInfo) -> Text | None:
        for field in ("augment", "mix", "image_size", "channels", "normalise"):
            if value is not None and info.data.get(field) not in (None, "none"):
                raise refusal(f"`{field}` is for images, but samples with `text` are documents", f"leave out {field}")
        return value

    @field_validator("brings_validation")
    @classmethod
    def _no_documents(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("text") is not None:
            hint = "leave the validation set out; data.validation_fraction takes a part of the training set"
            raise refusal("documents have no validation set of their own", hint)
        return value


SOURCES = Kind("sources", DataSection, OwnData, key="source")
"""All sources."""
Data = Annotated[DataSection, SOURCES]
