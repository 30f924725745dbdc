"""`data`: the source of the samples, and how they become mini-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from alray.config.sections.choice import OPEN_TAG, ByShape, Choice
from alray.config.sections.expected import KNOWN, TINY_IMAGENET, Expected
from alray.config.sections.own_code import FreeValue, Name, OfPackage, OwnCode
from alray.config.sections.packages import SOURCES as GROUP
from alray.config.sections.section import (
    Counts,
    Input,
    InputFile,
    InputFolder,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
    SpecPath,
    Width,
    describe,
    located,
    nearest,
    refusal,
)
from alray.config.sections.task import Label, TaskSection

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


class DataSection(Section):
    """The keys of every data source."""

    labels: ClassVar[tuple[Label, ...]] = ("class",)
    """What labels the samples may have."""

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
    """Sizes of the data for `alray plan` and `alray fit` where the data are not there. null: those that the kind of the
    source has, if it has any."""

    @classmethod
    def suits(cls, task: TaskSection) -> bool:
        """Whether the source may have labels for a task. A task of one's own says of the labels themselves whether it
        takes them."""
        return cls.labels != ("tokens",) if task.label == "own" else task.label in cls.labels

    @property
    def of_kind(self) -> Expected:
        """The sizes that the kind of the source and the other keys say."""
        return Expected()

    @property
    def expected(self) -> Expected:
        """The sizes that `assume` says, and for the rest those of the kind."""
        kind, said = self.of_kind, self.assume
        if self.channels is not None and kind.shape is not None:
            kind = replace(kind, shape=(self.channels, *kind.shape[1:]))
        if said is None:
            return kind
        return Expected(
            shape=said.shape or kind.shape,
            classes=said.classes or kind.classes,
            samples=said.samples or kind.samples,
            test=kind.test if said.test_samples is None else said.test_samples,
            validation=kind.validation,
            words=kind.words and (said.vocabulary_size or kind.words),
            tokens=kind.tokens,
        )

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
    def has_validation(self) -> bool:
        """Whether there is a validation set: one of the source's own, or a part of the training set."""
        return self.own_validation or self.validation_fraction > 0

    @property
    def own_validation(self) -> bool:
        """Whether the source has a validation set of its own."""
        return False

    @property
    def training_set(self) -> int | None:
        """The number of samples of the training set with validation, if the spec alone says it."""
        return None

    def split(self, samples: int) -> tuple[int, int]:
        """Return how many of the samples of the training set are for validation and for training."""
        validation = max(1, round(samples * self.validation_fraction)) if self.validation_fraction > 0 else 0
        return validation, round((samples - validation) * self.train_fraction)


class Digits(DataSection):
    """The 1,797 handwritten digits of scikit-learn: 1 x 8 x 8 pixels, 10 classes, no download.

    The test set is fixed: 360 of them.
    """

    source: Literal["digits"]
    """`digits`."""

    @property
    def training_set(self) -> int:
        return 1437


class Synthetic(DataSection):
    """Artificial samples, for tests and timings: the pattern of a class plus random noise."""

    labels = NUMERIC

    source: Literal["synthetic"]
    """`synthetic`."""
    shape: Counts = (3, 32, 32)
    """Shape of one sample, such as [channels, height, width]. Default: [3, 32, 32]."""
    classes: Annotated[int, Field(ge=2)] = 10
    """Number of classes; of labels or targets in other tasks. Default: 10."""
    samples: PositiveInt = 10000
    """Number of samples in the training set, including validation. The test set has a fifth of it. Default: 10000."""

    @property
    def training_set(self) -> int:
        return self.samples


class OwnValidationSection(DataSection):
    """The keys of a source that may have a validation set of its own."""

    @model_validator(mode="before")
    @classmethod
    def _no_fraction(cls, values: Any) -> Any:
        """With a validation set of its own, a source keeps its training set whole."""
        if isinstance(values, dict) and cls._brings_validation(values):
            return {"validation_fraction": 0.0, **values}
        return values

    @classmethod
    def _brings_validation(cls, values: dict[str, Any]) -> bool:
        return values.get("validation") is not None


def _header(value: Any) -> Any:
    if not isinstance(value, bool) and value != "auto":
        raise refusal(f"expected true, false or `auto`, got {describe(value)}", "write one of them")
    return value


def _column(value: Any) -> Any:
    named = isinstance(value, str) and value != ""
    if not named and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise refusal(f"expected a column, got {describe(value)}", "give its name, or its number, counted from 0")
    return value


def _columns(value: Any) -> Any:
    return [value] if isinstance(value, str | int) else value


def _class_names(value: Any) -> Any:
    """Names, where some may look like numbers: `[0, 1]` is `["0", "1"]`."""
    if not isinstance(value, list | tuple):
        return value
    return [str(name) if isinstance(name, int) and not isinstance(name, bool) else name for name in value]


Column = Annotated[str | int, BeforeValidator(_column)]
"""A column of a table: its name in the header, or its number, counted from 0."""
Columns = Annotated[tuple[Column, ...], BeforeValidator(_columns), Field(strict=False, min_length=1)]
ClassNames = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_class_names),
    Field(strict=False, min_length=1),
]


def _require_other_sign(delimiter: str, decimal: str) -> None:
    if delimiter == decimal:
        raise refusal(
            f"`{decimal}` cannot both divide columns and be the decimal sign",
            'set delimiter too, such as delimiter: ";"',
        )


def _delimiter(value: Any) -> Any:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n':
        raise refusal(
            f"expected one character, got {describe(value)}",
            'write, for example, ";", or "\\t" in double quotes for a tab',
        )
    return value


Delimiter = Annotated[str, BeforeValidator(_delimiter)]
"""The character between two columns of a CSV file."""


class PictureSection(DataSection):
    """The keys of a source of picture files of any kind."""

    pixel_range: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """The values of black and white in pictures of more than 8 bits, such as [0, 4095] for 12 bits, here and in
    predictions; values beyond are clipped. null: [0, 65535] for whole numbers and [0, 1] for floating point, and values
    beyond are refused. Pictures of 8 bits have 0 to 255."""
    background: Literal["white", "black"] = "white"
    """On which transparent pictures are laid. Default: white."""

    @field_validator("pixel_range")
    @classmethod
    def _rises(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not value[0] < value[1]:
            raise refusal("black is not below white", "give the lower value first, such as [0, 4095]")
        return value


class ImageFolder(PictureSection, OwnValidationSection):
    """Image files on disk, with one folder for each class; or with a table of labels or targets, for other tasks than
    classification."""

    labels = NUMERIC

    source: Literal["image_folder"]
    """`image_folder`."""
    train: InputFolder
    """Folder of the training set, with one folder for each class."""
    test: InputFolder | None = None
    """Folder of the test set, with the same classes. null: no test set."""
    validation: InputFolder | None = None
    """Folder of the validation set, with the same classes. null: `validation_fraction` of the training set."""
    targets: Annotated[str, Field(min_length=1)] = "metadata.csv"
    """Name of a CSV file in each folder, for other tasks than classification: its column `file_name` has the path of an
    image in the folder, and the others its labels (0 or 1) or targets. Default: metadata.csv."""
    label_columns: Columns | None = None
    """Columns of the labels or targets in that file. null: all but `file_name`."""
    delimiter: Delimiter = ","
    """The character between two columns of that file, such as ";". Default: ","."""
    decimal: Literal[".", ","] = "."
    """The decimal sign in that file. Default: "."."""

    @model_validator(mode="after")
    def _has_two_signs(self) -> Self:
        _require_other_sign(self.delimiter, self.decimal)
        return self

    image_size: ImageSize
    """Height and width to which images are resized, in pixels: one number for both, or [height, width]."""

    @property
    def own_validation(self) -> bool:
        return self.validation is not None

    @property
    def of_kind(self) -> Expected:
        return _resized(Expected(), self.size)


class TinyImagenet(DataSection):
    """Tiny-ImageNet as in its archive: 3 x 64 x 64, 200 classes. The 10,000 validation images are the test set."""

    source: Literal["tiny_imagenet"]
    """`tiny_imagenet`."""
    root: InputFolder
    """Folder with `wnids.txt`, `train` and `val` (`tiny-imagenet-200` in the archive)."""

    @property
    def of_kind(self) -> Expected:
        return _resized(TINY_IMAGENET, self.size)


def _resized(expected: Expected, size: tuple[int, int] | None) -> Expected:
    """Those that differ in size are of three colours.

    Args:
        size: height and width of all pictures.
    """
    if size is None:
        return expected
    return replace(expected, shape=(3 if expected.shape is None else expected.shape[0], *size))


def _known(value: Any) -> Any:
    if isinstance(value, str) and value not in KNOWN:
        meant = nearest(value, KNOWN)
        hint = f"did you mean `{meant}`?" if meant else "torchvision's other sets are not for classification"
        raise refusal(f"expected one of {', '.join(KNOWN)}, got {describe(value)}", hint)
    return value


class Torchvision(OwnValidationSection):
    """One of torchvision's data sets, read from disk or downloaded."""

    source: Literal["torchvision"]
    """`torchvision`."""
    dataset: Annotated[str, BeforeValidator(_known), WithJsonSchema({"type": "string", "enum": list(KNOWN)})]
    """Name of the data set, as of its class in `torchvision.datasets`."""
    root: SpecPath
    """Folder of the data set's files. A download writes them there."""
    download: bool = False
    """Whether the data set is downloaded if it is not in `root`. Default: false."""
    options: dict[str, FreeValue] = Field(default_factory=dict)
    """Further arguments of the class in torchvision, such as {split: letters} for EMNIST or {size: 160px} for
    Imagenette. Default: {}."""

    @property
    def of_kind(self) -> Expected:
        known = KNOWN[self.dataset]
        return _resized(replace(known, classes=None, samples=None) if self.options else known, self.size)

    @property
    def own_validation(self) -> bool:
        return KNOWN[self.dataset].validation > 0

    @classmethod
    def _brings_validation(cls, values: dict[str, Any]) -> bool:
        known = KNOWN.get(str(values.get("dataset")))
        return known is not None and known.validation > 0

    @property
    def from_files(self) -> Self:
        return self.model_copy(update={"download": False})


def _tokenizer(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str) or not value.strip():
        raise refusal(
            f"expected the name of a tokenizer, got {describe(value)}",
            "use `basic_english`, the path of a tokenizer's .json file, or a name on the hub",
        )
    return str(located(value, info)) if value.endswith(".json") else value


class Text(Section):
    """How documents become word numbers: 0 is padding, 1 is any word that is not in the vocabulary."""

    tokenizer: Annotated[str, BeforeValidator(_tokenizer), Input("file", ending=".json")] = "basic_english"
    """Tokenizer: `basic_english` (of torchtext: lower case, split at spaces and punctuation), the path of a tokenizer's
    .json file, or a name on the Hugging Face hub. The last two need `alray[hub]`. Default: basic_english."""
    vocabulary_size: Annotated[int, Field(ge=3, le=10_000_000)] = 30_000
    """Largest size of the vocabulary: padding, the unknown word, and the most frequent words of the training split.
    Default: 30000."""
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Number of words of a document that are read. The rest is cut off. Default: 128."""
    prepare: Literal["none", "thesis"] = "none"
    """Preparation of a document before the tokenizer. `thesis`: lower case, without HTML tags, punctuation and the
    English stop words of NLTK; training documents that have fewer than two words left are left out. Default: none."""


class TextSection(DataSection):
    """The keys of every source of documents."""

    text: Text = Text()
    """How documents become word numbers."""

    @property
    def of_kind(self) -> Expected:
        return _of_documents(self.text)

    @field_validator("augment", "mix", "image_size", "channels", "normalise")
    @classmethod
    def _for_pictures(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in (None, "none"):
            hint = "set data.augment=none" if info.field_name == "augment" else "leave it out"
            raise refusal("this is for images, but the samples of this source are documents", hint)
        return value


def _of_documents(text: Text) -> Expected:
    return Expected(shape=(text.max_tokens,), words=text.vocabulary_size)


TestFraction = Annotated[float, Field(gt=0, lt=1)]


class TextCsv(TextSection):
    """Documents in CSV files: a column of classes, and one or more columns of text.

    Classes are numbers from 0 or 1 without gaps, or names. A file `classes.txt` next to the training file may give the
    names of the classes, one on each line. AG News and DBpedia are read without further keys.
    """

    source: Literal["text_csv"]
    """`text_csv`."""
    train: InputFile
    """File of the training set."""
    test: InputFile | None = None
    """File of the test set, with the same classes and columns. null: no test set."""
    test_fraction: TestFraction | None = None
    """Share in 0..1 of all documents, those of `train` and `test` together, that is the test set: a random part that
    does not depend on the seed. null: the documents of `test`."""
    header: Annotated[bool | Literal["auto"], BeforeValidator(_header)] = "auto"
    """Whether the first line names the columns. Default: auto, if a column is given by its name, if the first line has
    the name `label`, if its class is neither a number nor on another line, or if it counts the columns: 0, 1, 2, ..."""
    delimiter: Delimiter = ","
    """The character between two columns, such as ";", or "\\t" for a tab. Default: ","."""
    label_column: Column | None = None
    """Column of the class: its name, or its number, counted from 0. null: the column `label`, or else the first."""
    text_columns: Columns | None = None
    """Columns that form a document, joined by a space: names or numbers, or one of them. null: all others; if
    columns have names, those with a name."""
    classes: ClassNames | None = None
    """Names of the classes, in the order of their numbers. null: those of `classes.txt`, or else the different classes
    of the training file."""


class Table(OwnValidationSection):
    """Rows of numbers in CSV or Parquet files: columns of numbers, and a column of classes; in other tasks than
    classification, columns of labels or targets.

    A file that ends with `.parquet` is Parquet, any other CSV. Classes are numbers from 0 or 1 without gaps, or names.
    A file `classes.txt` next to the training file may give the names of the classes, one on each line. Every column is
    normalised by its mean and its standard deviation in the training file, and so are the targets of a regression.
    """

    labels = NUMERIC

    source: Literal["table"]
    """`table`."""
    train: InputFile
    """File of the training set."""
    test: InputFile | None = None
    """File of the test set, with the same classes and columns. null: no test set."""
    validation: InputFile | None = None
    """File of the validation set, with the same classes and columns. null: `validation_fraction` of the training
    set."""
    header: Annotated[bool | Literal["auto"], BeforeValidator(_header)] = "auto"
    """Whether the first line of a CSV file names the columns. Default: auto, if a column is given by its name or is
    called `label`, if the first line has something else than a number in a column of numbers, or if it counts at least
    three columns: 0, 1, 2, ..."""
    delimiter: Delimiter = ","
    """The character between two columns of a CSV file, such as ";", or "\\t" for a tab. Default: ","."""
    decimal: Literal[".", ","] = "."
    """The decimal sign in a CSV file. Default: "."."""
    label_column: Column | None = None
    """Column of the class: its name, or its number, counted from 0. null: the column `label`."""
    label_columns: Columns | None = None
    """Columns of the labels (0 or 1) or the targets, for other tasks than classification: names or numbers, or one of
    them. null: `label_column`."""
    columns: Columns | None = None
    """Columns of numbers: names or numbers, or one of them. null: all others; if columns have names, those with a
    name."""
    classes: ClassNames | None = None
    """Names of the classes, in the order of their numbers. null: those of `classes.txt`, or else the different classes
    of the training file."""

    @field_validator("augment", "image_size", "channels")
    @classmethod
    def _for_pictures(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in (None, "none"):
            raise refusal("this is for images, but the samples of this source are rows of numbers", "leave it out")
        return value

    @model_validator(mode="after")
    def _has_two_signs(self) -> Self:
        _require_other_sign(self.delimiter, self.decimal)
        return self

    @property
    def own_validation(self) -> bool:
        return self.validation is not None

    @property
    def of_kind(self) -> Expected:
        return Expected(shape=None if self.columns is None else (len(self.columns),))


class TextFolder(TextSection):
    """Documents in .txt files, with one folder for each class, as in IMDb. A folder `unsup` is skipped."""

    source: Literal["text_folder"]
    """`text_folder`."""
    train: InputFolder
    """Folder of the training set, with one folder for each class."""
    test: InputFolder | None = None
    """Folder of the test set, with the same classes. null: no test set."""
    test_fraction: TestFraction | None = None
    """Share in 0..1 of all documents, those of `train` and `test` together, that is the test set: a random part that
    does not depend on the seed. null: the documents of `test`."""


class Docstrings(TextSection):
    """Docstrings of the installed standard library, NumPy, SciPy and scikit-learn; the class is the library.

    There are about 13,000 documents, without a download. They are made at first use and kept in a cache. A fixed 15 %
    are the test set.
    """

    source: Literal["docstrings"]
    """`docstrings`."""
    cache: SpecPath | None = None
    """Folder of the cache. null: `alray` in the user's cache folder ($XDG_CACHE_HOME, or ~/.cache)."""


class TokenText(DataSection):
    """Text to continue: windows of tokens, of which each has the next one as its label. It is for `task: next_token`.

    The text is a file, the files of a folder, or the docstrings of the source `docstrings`. Documents are divided into
    training, validation and test set as wholes. Those of a set follow each other with an end of text, token 0, after
    each. An epoch cuts this stream into windows; where it begins to cut is drawn from the seed and the number of the
    epoch.
    """

    labels = ("tokens",)

    source: Literal["text"]
    """`text`."""
    file: InputFile | None = None
    """A text file. Give `separator` with it, or it is a single document. null: `folder` or `docstrings`."""
    folder: InputFolder | None = None
    """A folder whose files are the documents, with those of its subfolders. null: `file` or `docstrings`."""
    pattern: Annotated[str, Field(min_length=1)] = "*.txt"
    """Names of the files in `folder`, such as `*.py`. Default: *.txt."""
    docstrings: bool = False
    """Whether the documents are the docstrings of the installed standard library, NumPy, SciPy and scikit-learn.
    Default: false."""
    cache: SpecPath | None = None
    """Folder of the cache of docstrings. null: `alray` in the user's cache folder."""
    separator: Annotated[str, Field(min_length=1)] | None = None
    """Text at which files are divided into documents, such as "\\n\\n" for empty lines. null: a file is a document."""
    tokens: Literal["bytes", "characters", "bpe"] = "bytes"
    """Tokens of a text. `bytes`: those of UTF-8, 256 of them. `characters`: those of the training split, the end of
    text, and U+FFFD for any other. `bpe`: byte pairs, of `tokenizer` or learnt from the training split; it needs
    `alray[hub]`. Default: bytes."""
    vocabulary_size: Annotated[int, Field(ge=258, le=10_000_000)] | None = None
    """Size of the vocabulary of byte pairs that are learnt. null: as the tokenizer, or 8,192."""
    tokenizer: Annotated[str, BeforeValidator(_tokenizer), Input("file", ending=".json")] | None = None
    """Byte pairs that are known: the path of a tokenizer's .json file, or a name on the Hugging Face hub. null: they
    are learnt."""
    context: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Number of tokens in a window. Default: 256."""
    test_fraction: TestFraction = 0.1
    """Share in 0..1 of the documents that is the test set: a random part that does not depend on the seed. Default:
    0.1."""

    @model_validator(mode="after")
    def _has_one_text(self) -> Self:
        if (self.file is not None) + (self.folder is not None) + self.docstrings != 1:
            raise refusal(
                "the text is one of `file`, `folder` and `docstrings`", "give one of them, such as docstrings: true"
            )
        if self.split_by_classes:
            raise refusal("documents of tokens have no classes to divide them by", "leave out split_by_classes")
        if self.tokens != "bpe" and (self.tokenizer is not None or self.vocabulary_size is not None):
            raise refusal(
                f"`tokenizer` and `vocabulary_size` are for byte pairs, and the tokens are {self.tokens}",
                "leave them out, or set tokens to bpe",
            )
        if self.tokenizer is not None and self.vocabulary_size is not None:
            raise refusal("a known tokenizer has its own vocabulary", "leave out vocabulary_size")
        return self

    @field_validator("augment", "mix", "image_size", "channels", "normalise")
    @classmethod
    def _for_pictures(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in (None, "none"):
            raise refusal("this is for images, but the samples of this source are tokens", "leave it out")
        return value

    @property
    def of_kind(self) -> Expected:
        tokens = 256 if self.tokens == "bytes" else None
        if self.tokens == "bpe" and self.tokenizer is None:
            tokens = self.vocabulary_size or LEARNT_BYTE_PAIRS
        return Expected(shape=(self.context,), classes=tokens, tokens=True)

    @property
    def from_files(self) -> Self | None:
        return None if self.tokenizer is not None and not self.tokenizer.endswith(".json") else self


LEARNT_BYTE_PAIRS = 8_192
"""Size of the vocabulary of byte pairs, where a spec says none."""


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


class HuggingFace(HubSection, TextSection):
    """A text set of the Hugging Face hub, or a folder of csv, json or parquet files. It needs `alray[hub]`."""

    source: Literal["huggingface"]
    """`huggingface`."""
    text_columns: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("text",)
    """Columns that form a document, joined by a space. Default: [text]."""


class HuggingFaceImages(HubSection, PictureSection, OwnValidationSection):
    """A set of images of the Hugging Face hub, or a folder of parquet or image files. It needs `alray[hub]`."""

    source: Literal["huggingface_images"]
    """`huggingface_images`."""
    validation_split: str | None = None
    """Name of the validation split. null: `validation_fraction` of the training split."""
    image_column: str = "image"
    """Column of the images. Default: image."""
    image_size: ImageSize
    """Height and width to which images are resized, in pixels: one number for both, or [height, width]."""

    @classmethod
    def _brings_validation(cls, values: dict[str, Any]) -> bool:
        return values.get("validation_split") is not None

    @property
    def own_validation(self) -> bool:
        return self.validation_split is not None

    @property
    def of_kind(self) -> Expected:
        return _resized(Expected(), self.size)


class OwnData(OwnCode, DataSection):
    """A class of the user. Keys that are not listed here are passed to its constructor."""

    model_config = ConfigDict(extra="allow")

    labels = NUMERIC

    source: Annotated[Name, OfPackage(GROUP)]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it."""
    text: Text | None = None
    """How documents become word numbers. null: the samples are images or vectors."""

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


Data = Annotated[
    Annotated[Digits, Tag("digits")]
    | Annotated[Synthetic, Tag("synthetic")]
    | Annotated[ImageFolder, Tag("image_folder")]
    | Annotated[TinyImagenet, Tag("tiny_imagenet")]
    | Annotated[Torchvision, Tag("torchvision")]
    | Annotated[Table, Tag("table")]
    | Annotated[TextCsv, Tag("text_csv")]
    | Annotated[TextFolder, Tag("text_folder")]
    | Annotated[Docstrings, Tag("docstrings")]
    | Annotated[TokenText, Tag("text")]
    | Annotated[HuggingFace, Tag("huggingface")]
    | Annotated[HuggingFaceImages, Tag("huggingface_images")]
    | Annotated[OwnData, Tag(OPEN_TAG)],
    Discriminator(Choice("source", group=GROUP, own=lambda: SOURCES)),
]

SOURCES: dict[str, type[DataSection]] = {
    get_args(member)[1].tag: get_args(member)[0] for member in get_args(get_args(Data)[0])
}
"""The sections of all sources by `source`; `python` stands for those of one's own."""
