"""The form of a run's data: how an input becomes a sample, and what the outputs of a network mean.

A run folder holds it, and the header of an exported route. So a trained network can be used without its data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator
from torch import Tensor

from alray.config.sections.data import WordNumbering
from alray.core.run_folder.store import FORM
from alray.core.storage.json_file import read_json
from alray.core.storage.location import Location
from alray.data.dataset import Dataset
from alray.data.inputs import FileInputs, TextInputs, TokenInputs
from alray.data.picture import Picture
from alray.data.preparation import Preparation
from alray.data.source import Normalisation, Source
from alray.data.split import as_float, as_whole
from alray.data.standardisation import fits_float32
from alray.data.table_file import RowReader
from alray.data.tokens import BytePairs, Bytes, Characters, Tokens
from alray.models.several import Several
from alray.models.shape import Shape


class Form(BaseModel):
    """What is known of data without them: a value that files hold as JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SampleForm(Form):
    """Samples of one shape: float32, values of pictures scaled to 0..1, then (x - mean) / std per channel; or rows of
    whole numbers, int64."""

    kind: Literal["samples"] = "samples"
    shape: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    mean: tuple[float, ...] | None  # null: not normalised
    std: tuple[float, ...] | None
    picture: Picture | None  # null: samples are not pictures, or the user's code reads them
    rows: RowReader | None = None  # null: samples are not rows of tables
    numbers: PositiveInt | None = None  # how many whole numbers there are; null: samples are values
    several: tuple[tuple[str | None, tuple[int | str, ...], int | None], ...] | None = None  # null: one
    labels: tuple[int | str, ...] | None = None  # sizes and type of a label, where the data say it

    @model_validator(mode="after")
    def _each_channel_has_both(self) -> SampleForm:
        if any(given is not None and len(given) != self.shape[0] for given in (self.mean, self.std)):
            raise ValueError(f"`mean` and `std` need a value for each of {self.shape[0]} channels")
        return self

    @property
    def reads_files(self) -> bool:
        """Whether this says how a file becomes samples."""
        return self.picture is not None or self.rows is not None

    def inputs(self) -> FileInputs:
        """How a picture file, or one of rows of numbers, becomes inputs."""
        if self.rows is not None:
            return FileInputs(self.rows.read, self.shape, self.prepare)
        return self.inputs_of(None if self.picture is None else self.picture.read)

    def inputs_of(self, read: Callable[[Path], Tensor] | None) -> FileInputs:
        """How the sample that a function reads from a file becomes an input."""
        samples = None if read is None else lambda path: iter([(str(path), read(path))])
        return FileInputs(samples, self.shape, self.prepare)

    def prepare(self, samples: Tensor | Mapping[str, Tensor] | Sequence[Tensor]) -> Tensor:
        """Samples of the source as the network takes them, `[N, *shape]` float32, or int64 of whole numbers: as those
        of a split. Where a sample has several inputs, `[N, *input]` each, by name or in order, these are rows of them.

        Args:
            samples: `[N, *shape]`, or grey pictures `[N, 1, height, width]`; uint8 is scaled from 0..255 to 0..1. Rows
                of float64 are rounded to float32 only when they are normalised.

        Raises:
            DataError: for integers of another kind.
        """
        if self.several is not None:
            return samples if isinstance(samples, Tensor) else Several.from_json(self.several).packed(samples)
        assert isinstance(samples, Tensor), "a sample is one tensor"
        if self.numbers is not None:
            return as_whole(samples, "a sample")
        wide = samples.dtype == torch.float64 and len(self.shape) == 1 and self.normalisation is not None
        given = samples if wide else as_float(samples.expand(-1, *self.shape), "a sample")
        return given if self.normalisation is None else self.normalisation.apply(given).to(torch.float32)

    @property
    def normalisation(self) -> Normalisation | None:
        """By which samples are normalised; None: they are not."""
        return None if self.mean is None or self.std is None else Normalisation(self.mean, self.std)


class TextForm(Form):
    """Documents as rows of word numbers, int64, with a mask that is true at the words of a row."""

    kind: Literal["text"] = "text"
    words: Annotated[tuple[str, ...], Field(min_length=2)]  # the word of each number; <pad> and <unk> first
    tokenizer: str
    max_tokens: Annotated[int, Field(ge=1, le=100_000)]
    prepare: Preparation = "none"
    numbering: WordNumbering = "frequency"
    padded: bool = False  # whether every row had `max_tokens` positions in training

    def inputs(self) -> TextInputs:
        """How a document becomes an input."""
        from alray.data.vocabulary import Vocabulary  # imports torchtext, which pictures do without

        return TextInputs(
            Vocabulary(self.words, self.tokenizer, self.max_tokens, self.prepare, self.numbering), self.padded
        )


class TokenForm(Form):
    """Windows of tokens, int64."""

    kind: Literal["tokens"] = "tokens"
    tokens: Literal["bytes", "characters", "bpe"]
    characters: tuple[str, ...] = ()
    tokenizer: str = ""  # of Hugging Face, as JSON
    end_token: str | None = None  # of the tokenizer, if the tokens have its numbers
    vocabulary_size: int | None = None  # null: as many tokens as the tokenizer has
    context: Annotated[int, Field(ge=1, le=1_000_000)]

    @classmethod
    def of(cls, tokens: Tokens, context: int) -> TokenForm:
        """The form of windows of `context` of these tokens."""
        if isinstance(tokens, BytePairs):
            return cls(
                tokens="bpe",
                tokenizer=tokens.as_json(),
                end_token=tokens.end_token,
                vocabulary_size=tokens.size,
                context=context,
            )
        if isinstance(tokens, Characters):
            return cls(tokens="characters", characters=tokens.known, context=context)
        return cls(tokens="bytes", context=context)

    def inputs(self) -> TokenInputs:
        """How a text becomes an input. Raises DataError if byte pairs need a library that is not installed."""
        tokens: Tokens = Bytes()
        if self.tokens == "bpe":
            tokens = BytePairs.from_json(self.tokenizer, self.end_token, self.vocabulary_size)
        elif self.tokens == "characters":
            tokens = Characters(self.characters)
        return TokenInputs(tokens, self.context)


class TargetForm(Form):
    """How a regression's targets are standardised: a target is mean + std x score."""

    mean: Annotated[tuple[float, ...], Field(min_length=1)]
    std: Annotated[tuple[float, ...], Field(min_length=1)]

    def in_units(self, scores: torch.Tensor) -> torch.Tensor:
        """Scores `[outputs]` in the units of the targets, float64."""
        return self.normalisation.undo(scores)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation as an export has them: float32, but float64 where float32 would round away a part
        of the spread of a target."""
        kind = torch.float32 if all(map(fits_float32, self.mean, self.std)) else torch.float64
        return torch.tensor(self.mean, dtype=kind), torch.tensor(self.std, dtype=kind)

    @property
    def normalisation(self) -> Normalisation:
        """By which targets are standardised."""
        return Normalisation(self.mean, self.std)


class DataForm(Form):
    """The form of the data of a run."""

    classes: Annotated[tuple[str, ...], Field(min_length=1)]  # or the names of labels or targets
    targets: TargetForm | None = None  # null: targets are not standardised, or there are none
    input: Annotated[SampleForm | TextForm | TokenForm, Field(discriminator="kind")]

    @classmethod
    def of(cls, data: Dataset) -> DataForm:
        """The form of data that are there."""
        standardised = data.train.target_normalisation
        return cls(
            classes=data.classes,
            targets=None if standardised is None else TargetForm(mean=standardised.mean, std=standardised.std),
            input=_form(data),
        )

    @property
    def constants(self) -> tuple[Normalisation | None, Normalisation | None]:
        """How samples and targets are standardised; None: they are not."""
        samples = self.input.normalisation if isinstance(self.input, SampleForm) else None
        return samples, None if self.targets is None else self.targets.normalisation

    def standardise(self, data: Dataset) -> None:
        """Have the splits of these data standardised as this says, whatever their training file holds now. What their
        spec says itself stays: it may have been changed by hand."""
        if isinstance(self.input, SampleForm):
            samples, targets = self.constants
            if data.section.normalise is not None:
                samples = data.train.normalisation
            if targets is None or data.train.target_normalisation is None:
                targets = data.train.target_normalisation
            data.standardise(samples, targets)

    def suits(self, data: Dataset) -> bool:
        """Whether these data have samples of this shape, and as many classes, labels or targets."""
        return (*self.sample, len(self.classes)) == (*data.sample_shape, len(data.classes))

    @property
    def reads_files(self) -> bool:
        """Whether this says how a file, or a text, becomes samples."""
        return not isinstance(self.input, SampleForm) or self.input.reads_files

    @property
    def sample(self) -> Shape:
        """One sample as a network takes it; of text, the longest one."""
        if isinstance(self.input, TextForm):
            return Shape((self.input.max_tokens,), torch.int64, words=self.input.words)
        if isinstance(self.input, TokenForm):
            return Shape((self.input.context,), torch.int64, tokens=len(self.classes))
        labels = None if self.input.labels is None else Shape.from_json([*self.input.labels])
        several = None if self.input.several is None else Several.from_json(self.input.several)
        return Shape.of_samples(self.input.shape, numbers=self.input.numbers, labels=labels, several=several)


def form_in(run_dir: Location) -> DataForm:
    """The form of the data of a run. Raises CheckpointError if it is damaged."""
    return read_json(run_dir / FORM, DataForm)


def _form(data: Dataset) -> SampleForm | TextForm | TokenForm:
    inputs = data.inputs
    if isinstance(inputs, TextInputs):
        return TextForm(**asdict(inputs.vocabulary), padded=inputs.padded)
    if isinstance(inputs, TokenInputs):
        return TokenForm.of(inputs.tokens, inputs.context)
    assert isinstance(inputs, Source), "a trained network has data"
    normalisation, picture, shape = data.train.normalisation, inputs.picture, data.sample_shape
    if picture is not None and len(picture.read_as) != 3:  # synthetic rows of numbers
        picture = None
    return SampleForm(
        shape=shape,
        mean=normalisation.mean if normalisation else None,
        std=normalisation.std if normalisation else None,
        numbers=shape.numbers,
        several=None if shape.several is None else tuple(shape.several.as_json()),
        labels=None if shape.labels is None else tuple(shape.labels.as_json()),
        picture=picture,
        rows=inputs.rows,
    )
