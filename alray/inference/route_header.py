"""The header of an exported route: what is needed to prepare an input, build the route and name the classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from alray import __version__
from alray.config.sections.spec import Spec
from alray.core.errors import CheckpointError
from alray.core.storage.json_file import first_fault
from alray.data.inputs import Inputs, PictureInputs, SampleInputs, TextInputs, TokenInputs
from alray.data.picture import BY_DEFAULT, Picture, Reading
from alray.data.preparation import Preparation
from alray.data.source import Normalisation
from alray.data.tokens import BytePairs, Bytes, Characters, Tokens
from alray.inference.network import TrainedNetwork
from alray.models.network import Network
from alray.models.route import Route, route_of
from alray.models.shape import Shape

HEADER = "alray"
"""Key of the header, as JSON, in a file's metadata."""


_Pixels = Annotated[int, Field(ge=1, le=65_535)]


class _PartHeader(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PictureForm(_PartHeader):
    """See `alray.data.picture.Picture`."""

    read_as: tuple[_Pixels, _Pixels, _Pixels]
    size: tuple[_Pixels, _Pixels]
    as_float: bool
    reading: Reading = BY_DEFAULT

    @property
    def picture(self) -> Picture:
        return Picture(self.read_as, self.size, self.as_float, self.reading)


class SampleForm(_PartHeader):
    """Samples of one shape: float32, values of pictures scaled to 0..1, then (x - mean) / std per channel."""

    kind: Literal["samples"] = "samples"
    shape: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    mean: tuple[float, ...] | None  # null: not normalised
    std: tuple[float, ...] | None
    picture: PictureForm | None  # null: samples are not pictures, or the user's code reads them

    @model_validator(mode="after")
    def _each_channel_has_both(self) -> SampleForm:
        if any(given is not None and len(given) != self.shape[0] for given in (self.mean, self.std)):
            raise ValueError(f"`mean` and `std` need a value for each of {self.shape[0]} channels")
        return self

    def inputs(self) -> PictureInputs:
        """How a picture file becomes an input."""
        normalisation = None if self.mean is None or self.std is None else Normalisation(self.mean, self.std)
        return PictureInputs(self.picture.picture if self.picture else None, self.shape, normalisation)


class TextForm(_PartHeader):
    """Documents as rows of word numbers, int64, with a mask that is true at the words of a row."""

    kind: Literal["text"] = "text"
    words: Annotated[tuple[str, ...], Field(min_length=2)]  # the word of each number; <pad> and <unk> first
    tokenizer: str
    max_tokens: Annotated[int, Field(ge=1, le=100_000)]
    prepare: Preparation = "none"
    padded: bool = False  # whether every row had `max_tokens` positions in training

    def inputs(self) -> TextInputs:
        """How a document becomes an input."""
        from alray.data.vocabulary import Vocabulary  # imports torchtext, which pictures do without

        return TextInputs(Vocabulary(self.words, self.tokenizer, self.max_tokens, self.prepare), self.padded)


class TokenForm(_PartHeader):
    """Windows of tokens, int64."""

    kind: Literal["tokens"] = "tokens"
    tokens: Literal["bytes", "characters", "bpe"]
    characters: tuple[str, ...] = ()
    tokenizer: str = ""  # of Hugging Face, as JSON
    context: Annotated[int, Field(ge=1, le=1_000_000)]

    @classmethod
    def of(cls, tokens: Tokens, context: int) -> TokenForm:
        """The form of windows of `context` of these tokens."""
        if isinstance(tokens, BytePairs):
            return cls(tokens="bpe", tokenizer=tokens.as_json(), context=context)
        if isinstance(tokens, Characters):
            return cls(tokens="characters", characters=tokens.known, context=context)
        return cls(tokens="bytes", context=context)

    def inputs(self) -> TokenInputs:
        """How a text becomes an input. Raises DataError if byte pairs need a library that is not installed."""
        tokens: Tokens = Bytes()
        if self.tokens == "bpe":
            tokens = BytePairs.from_json(self.tokenizer)
        elif self.tokens == "characters":
            tokens = Characters(self.characters)
        return TokenInputs(tokens, self.context)


class TargetForm(_PartHeader):
    """How a regression's targets are standardised: a target is mean + std x score."""

    mean: Annotated[tuple[float, ...], Field(min_length=1)]
    std: Annotated[tuple[float, ...], Field(min_length=1)]

    def in_units(self, scores: torch.Tensor) -> torch.Tensor:
        """Scores `[outputs]` in the units of the targets, float64."""
        return Normalisation(self.mean, self.std).undo(scores)


class RouteHeader(_PartHeader):
    """One route of a trained network. `spec` holds the sections that build it, with one entry for each component."""

    format: Literal[1] = 1
    alray: str
    name: str
    step: int  # mini-batches of training
    depth: PositiveInt
    components: Annotated[int, Field(ge=1, le=100_000)] | None = None  # of the whole network; null: in older files
    classes: Annotated[tuple[str, ...], Field(min_length=1)]  # or the names of labels or targets
    targets: TargetForm | None = None  # null: targets are not standardised, or there are none
    input: Annotated[SampleForm | TextForm | TokenForm, Field(discriminator="kind")]
    spec: dict[str, Any]

    @property
    def sample(self) -> Shape:
        """One sample as the route takes it."""
        if isinstance(self.input, TextForm):
            return Shape((self.input.max_tokens,), torch.int64, words=self.input.words)
        if isinstance(self.input, TokenForm):
            return Shape((self.input.context,), torch.int64, tokens=len(self.classes))
        return Shape(self.input.shape)

    def whole_spec(self) -> Spec:
        """`spec` with the sections that a spec must have, and inference does not use. Raises ValueError."""
        spec = Spec.model_validate({**self.spec, "data": {"source": "digits"}, "run": {"steps": 1}})
        components = spec.model.num_components
        # An imported model is cut at the same points as a whole; the route has the first of its parts.
        fits = components == self.depth if spec.model.source is None else (components or self.depth) >= self.depth
        if not fits:
            raise ValueError(f"a route of depth {self.depth} has {self.depth} components, not {components}")
        return spec

    def build(self, load: Callable[[str], Any]) -> Route:
        """The route on the CPU in float32, with its weights still to be loaded. Raises SpecError.

        Args:
            load: turns a reference `python:package.module.Class` into that class.
        """
        network = Network(
            self.whole_spec(),
            sample=self.sample,
            classes=len(self.classes),
            load=load,
            trained=True,
            components=self.components,
        )
        return route_of([network.component(index, "cpu") for index in range(self.depth)], self.depth)


def header_of(network: TrainedNetwork, depth: int) -> RouteHeader:
    """The header of the route of this depth."""
    standardised = network.workload.data.train.target_normalisation
    spec = network.workload.spec.model_dump(mode="json", include={"name", "seed", "task", "method"})
    spec["model"] = network.workload.network.model_section(depth)
    return RouteHeader(
        alray=__version__,
        name=network.workload.spec.name,
        step=network.step,
        depth=depth,
        components=len(network.components),
        classes=network.workload.data.classes,
        targets=None if standardised is None else TargetForm(mean=standardised.mean, std=standardised.std),
        input=_form(network.workload.data.inputs),
        spec=spec,
    )


def parse_header(text: str, file: str) -> RouteHeader:
    """Parse the header of a file. Raises CheckpointError if it is damaged or of another version."""
    try:
        header = RouteHeader.model_validate_json(text)
        header.whole_spec()
    except ValueError as error:
        why = first_fault(error) if isinstance(error, ValidationError) else error
        raise CheckpointError(
            f"this is not a header that alray {__version__} can read: {why}",
            file=file,
            hint="export the run anew with `alray export`",
        ) from error
    return header


def _form(inputs: Inputs | None) -> SampleForm | TextForm | TokenForm:
    if isinstance(inputs, TextInputs):
        vocabulary = inputs.vocabulary
        return TextForm(
            words=vocabulary.words,
            tokenizer=vocabulary.tokenizer,
            max_tokens=vocabulary.max_tokens,
            prepare=vocabulary.prepare,
            padded=inputs.padded,
        )
    if isinstance(inputs, TokenInputs):
        return TokenForm.of(inputs.tokens, inputs.context)
    assert isinstance(inputs, SampleInputs), "a trained network has data"
    normalisation, picture = inputs.split.normalisation, inputs.source.picture
    return SampleForm(
        shape=inputs.split.shape,
        mean=normalisation.mean if normalisation else None,
        std=normalisation.std if normalisation else None,
        picture=PictureForm(**vars(picture)) if picture else None,
    )
