"""The encoders of a network in order: of the blocks that a spec lists, or the parts of an imported model."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from alray.config.made import code_of
from alray.config.sections.blocks import BLOCKS, BlockSection
from alray.config.sections.model import TRANSFORMERS, Model
from alray.config.sections.own_code import OBJECT, OWN, OwnCode
from alray.config.user_code import UserCode
from alray.core.compat import BatchNorm
from alray.core.counting import counted
from alray.core.errors import FAULTS_OF_USER_CODE, SpecError
from alray.core.randomness.generators import put_back, seed_all
from alray.models.encoder import EncoderFacts, PartEnds
from alray.models.precision import LOWERED
from alray.models.shape import Shape
from alray.models.task import LearningTask

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec
    from alray.models.imported.given import GivenModel

Load = Callable[[str], Any]
"""Takes a reference `python:package.module.Class` to the object that it names."""


BuildClassifier = Callable[[Shape, int], nn.Module]
"""Takes the shape of the features and the number of classes."""


_TRANSFORMING = ("torchvision:googlenet", "torchvision:inception_v3")
"""Models that torchvision has transform their samples where they get its weights."""


class Chain(ABC):
    """The modules of the encoders, counted from 0, and how messages name them."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, index: int) -> str:
        """The block, as messages name it."""

    @abstractmethod
    def key(self, index: int) -> str:
        """The key of the spec that an error of this encoder belongs to."""

    @abstractmethod
    def is_own(self, index: int) -> bool:
        """Whether the module is a user's code."""

    @abstractmethod
    def alike(self, index: int) -> str:
        """A text that is equal for encoders that differ in their weights only."""

    @abstractmethod
    def build(self, index: int, input: Shape) -> nn.Module:
        """The module for samples of this shape, with initial weights from torch's global generator or, for parts of a
        model, from the seed of the run. Raises SpecError."""

    @abstractmethod
    def as_spec(self, depth: int) -> dict[str, Any]:
        """The section `model` of a spec that builds at least the first `depth` encoders, for weights that are there."""

    def whole(self, parts: Sequence[nn.Module]) -> nn.Module | None:
        """The model, in evaluation mode, on the CPU in float32, with the weights of these parts of it. None: the
        encoders are blocks."""
        return None

    @property
    def notes(self) -> Sequence[str]:
        """Sentences that the user should read on the initial weights."""
        return ()

    @property
    def sha256(self) -> str | None:
        """See `Network.model_sha256`."""
        return None

    @property
    def architecture_sha256(self) -> str | None:
        """See `Network.architecture_sha256`."""
        return None

    def ends(self, index: int) -> PartEnds | None:
        """The cut points at which a part of a model begins and ends; None for a block."""
        return None

    def facts(self, index: int, input: Shape, along: dict[str, Shape], dtype: torch.dtype) -> EncoderFacts | None:
        """The facts about a part of a model; None for a block, which is built to find them.

        Args:
            input: the shape of `s` that comes in.
            along: of what comes in with it.
            dtype: in which the run computes.
        """
        return None

    def classifier(self) -> BuildClassifier | None:
        """The builder of the model's classifier after the last encoder, None if there is none."""
        return None

    @property
    def outputs(self) -> tuple[int, ...] | None:
        """The shape of what a model gives for one sample, with its classifier; None for blocks."""
        return None

    def require_outputs(self, features: Shape, classes: int) -> None:  # noqa: B027 - blocks have no outputs of their own
        """Raise SpecError if a model gives fewer scores than the data has classes, labels or targets, whether or not
        the method keeps its last layer: it is a model for other data.

        Args:
            features: the output of the last encoder for one sample.
        """


def chain_of(
    spec: Spec,
    load: Load,
    *,
    sample: Shape,
    trained: bool,
    encoders: Sequence[EncoderFacts],
    learning: LearningTask,
) -> Chain:
    """The chain of a spec's model.

    Raises SpecError.

    Args:
        learning: the task.
        encoders: facts that are known of it, (): none.
    """
    if spec.model.source is None and sample.several is not None:
        raise SpecError(
            "blocks take one tensor, and a sample has several inputs", key="model.components", hint="give a module"
        )
    if spec.model.source is None:
        return _Blocks(spec.model, load, trained=trained)
    return _ImportedParts(spec, load, sample=sample, trained=trained, encoders=encoders, learning=learning)


def _allows_files(load: Load) -> bool:
    return isinstance(load, UserCode) and load.allow_elsewhere


class _Blocks(Chain):
    def __init__(self, model: Model, load: Load, *, trained: bool) -> None:
        self._entries = model.expanded()
        self._load = load
        self._trained = trained

    def __len__(self) -> int:
        return len(self._entries)

    def name(self, index: int) -> str:
        return self._entries[index].block

    def key(self, index: int) -> str:
        return f"model.components[{index}]"

    def is_own(self, index: int) -> bool:
        return isinstance(self._entries[index], OwnCode)

    def alike(self, index: int) -> str:
        return repr(self._entries[index])

    def as_spec(self, depth: int) -> dict[str, Any]:
        entries = [entry.model_dump(mode="json") for entry in self._entries[:depth]]
        # Initial vectors are not needed: the weights hold what they became.
        return {"components": [{key: entry[key] for key in entry if key != "vectors"} for entry in entries]}

    def build(self, index: int, input: Shape) -> nn.Module:
        entry = self._entries[index]
        key = self.key(index)
        try:
            fields = entry.fields_of_trained if self._trained else entry.fields
            block = self._builder(entry)(input, **fields)
        except SpecError as error:
            problem = error.problems[0]
            raise SpecError(problem.message, key=key, hint=problem.hint) from error
        except FAULTS_OF_USER_CODE as error:
            raise SpecError(
                f"block `{entry.block}` cannot be built on an input of {tuple(input)}: {error}",
                key=key,
                hint="a block is `build(input, **fields)` and takes the fields given next to it",
            ) from error
        if not isinstance(block, nn.Module):
            raise SpecError(
                f"block `{entry.block}` gave {type(block).__name__}, not a torch.nn.Module",
                key=key,
                hint="return the module from `build`",
            )
        return block

    def _builder(self, entry: BlockSection) -> Callable[..., Any]:
        """The builder of a block. A class or function of the user's is called, unless it has an attribute `build`.
        Raises SpecError."""
        found = code_of(BLOCKS, entry, self._load)
        build = getattr(found, "build", found)
        if not callable(build):
            raise SpecError(
                f"`{entry.block}` is not a class or function", hint="name a class with `build(input, **fields)`"
            )
        result: Callable[..., Any] = build
        return result


class _ImportedParts(Chain):
    """The whole model is made once in this process, with weights drawn from (seed, "model")."""

    def __init__(
        self,
        spec: Spec,
        load: Load,
        *,
        sample: Shape,
        trained: bool,
        encoders: Sequence[EncoderFacts],
        learning: LearningTask,
    ) -> None:
        model = spec.model
        assert model.source is not None
        self._source = model.source
        self._model = model
        self._load = load
        self._seed = spec.seed
        self._learns_numbers = spec.task.label == "numbers"
        self._trained = trained
        self._lowered = spec.run.precision in LOWERED
        file = model.weights_file
        name = model.weights if file is None else None
        self._weights = file or name
        self._arguments = model.arguments
        if name is not None and self._source in _TRANSFORMING:
            self._arguments = {"transform_input": True} | self._arguments
        self._sample = sample
        self._learning = learning
        known = [facts.ends for facts in encoders if facts.ends is not None]
        self._for_stages = ""
        self._parts = known or self._cut(spec)

    def _cut(self, spec: Spec) -> list[PartEnds]:
        """The components: as many as there are stages, where there are fewer natural units."""
        method = spec.method
        cut = partial(
            self._imported.cut, given=spec.model.cut, several=not method.local_losses, whole=method.takes_model_head
        )
        parts, stages = cut(spec.model.number), spec.pipeline.stages
        if len(parts) >= stages or spec.model.cut is not None or spec.model.number != "auto":
            return parts
        if not isinstance(spec.pipeline.partition, str):  # then their number is given
            return parts
        try:
            found = cut(stages)
        except SpecError as error:
            why = self._imported.reason
            raise SpecError(
                f"{counted(stages, 'stage')}, but "
                + (f"`{self._source}` cannot be cut: {why}" if why else error.problems[0].message),
                key="pipeline.stages",
                hint=f"train it on {counted(len(parts), 'stage')}"
                + ("; or set model.untie=true" if self._imported.is_tied else ""),
            ) from error
        if method.local_losses:
            self._for_stages = (
                f"`{self._source}` has {counted(len(parts), 'natural unit')}, and becomes {stages} components for "
                f"{stages} stages: on fewer stages it trains to other weights, unless model.components={stages}"
            )
        return found

    @cached_property
    def _imported(self) -> GivenModel:
        from alray.models.imported.given import GivenModel
        from alray.models.imported.sources import made

        section = self._model
        with put_back(), torch.device("cpu"):
            seed_all(torch.device("cpu"), self._seed, "weights", "model")
            whole, notes = made(
                self._source,
                self._arguments,
                self._load,
                allow_files=_allows_files(self._load),
                sample=self._sample,
                trained=self._trained or self._weights is not None,
            )
            model = GivenModel(
                whole,
                self._source,
                self._arguments,
                self._sample,
                freeze=section.freeze,
                untie=section.untie,
                lowered=self._lowered,
            )
            model.notes += notes
            if self._weights is not None and not self._trained:
                model.start_from(self._weights)
        return model

    @property
    def notes(self) -> Sequence[str]:
        has_weights = self._weights is not None or self._source.startswith(TRANSFORMERS)
        why = self._imported.reason
        uncut = [f"`{self._source}` is one component, which no second stage can share: {why}"] if why else []
        more = [self._for_stages] if self._for_stages else []
        return [*(self._imported.notes if has_weights and not self._trained else ()), *uncut, *more]

    @property
    def sha256(self) -> str | None:
        return self._imported.sha256 if self._source.startswith(OBJECT) else None

    @property
    def architecture_sha256(self) -> str | None:
        return self._imported.architecture_sha256 if self._source.startswith(OBJECT) else None

    def __len__(self) -> int:
        return len(self._parts)

    def name(self, index: int) -> str:
        after, until = self._parts[index]
        return f"{self._source}, {after or 'its input'} to {until}"

    def key(self, index: int) -> str:
        return "model.from"

    def is_own(self, index: int) -> bool:
        return self._source.startswith(OWN)

    def alike(self, index: int) -> str:
        return f"{self._source} {sorted(self._arguments.items())} {self._model.freeze} {self._parts[index]}"

    def as_spec(self, depth: int) -> dict[str, Any]:
        cut_points = [part.until for part in self._parts[:-1]]
        cut: dict[str, Any] = {"cut": cut_points} if cut_points else {"components": 1}
        if self._parts[-1].until != self._imported.last_cut:
            cut = {"components": "auto"}  # a cut by names ends behind the model's pooling
        if self._source.startswith(TRANSFORMERS):
            from alray.models.imported.hugging_face import as_arguments

            whole = self._imported.whole
            return {"from": f"{TRANSFORMERS}{type(whole).__name__}", "with": as_arguments(whole), **cut}
        if self._model.untie:
            cut["untie"] = True
        return {"from": self._source, "with": self._arguments, **cut}

    def build(self, index: int, input: Shape) -> nn.Module:
        return self._moved(self._imported.part(*self._parts[index]))

    def ends(self, index: int) -> PartEnds:
        return self._parts[index]

    def facts(self, index: int, input: Shape, along: dict[str, Shape], dtype: torch.dtype) -> EncoderFacts:
        model, ends = self._imported, self._parts[index]
        assert ends.until is not None, "only the classifier has no end"
        part = model.part(*ends)
        gives = {
            name: Shape(shape, dtype if shape.dtype.is_floating_point else shape.dtype)
            for name, shape in model.gives(ends.until).items()
        }
        output = gives.pop("s")
        if "mask" in along and len(output) > 1:
            gives = {"mask": along["mask"]} | gives
        return EncoderFacts(
            name=self.name(index),
            own=self.is_own(index),
            input=input,
            output=output,
            draws=True,
            writes_input=index == 0 and model.cutter.recordings[True].writes_input,
            normalises_batches=any(isinstance(each, BatchNorm) and each.training for each in part.train().modules()),
            pooling=part.alray_pooling,
            takes_along=along,
            gives_along=gives,
            ends=ends,
        )

    def whole(self, parts: Sequence[nn.Module]) -> nn.Module:
        model = copy.deepcopy(self._imported.whole).float().eval()
        weights = model.state_dict()  # with the versions of its modules
        of_parts = {name: value for part in parts for name, value in part.state_dict().items()}
        assert of_parts.keys() <= weights.keys(), "the parts of a model have its names"
        # Names that no part has are left out: they may be second names of weights that a part does have.
        for name in weights.keys() - of_parts.keys():
            del weights[name]
        weights.update(of_parts)
        model.load_state_dict(weights, strict=False)
        return model

    def classifier(self) -> BuildClassifier:
        return self._classifier

    def _classifier(self, features: Shape, classes: int) -> nn.Module:
        takes = self._imported.gives(str(self._parts[-1].until))["s"]
        if tuple(features) != tuple(takes):
            raise SpecError(
                f"the classifier of `{self._source}` takes {tuple(takes)} for a sample, and not {tuple(features)}",
                key="method.head",
                hint="choose another head: it takes what the last component gives",
            )
        found = self._imported.classifier(self._parts)
        if not self._learning.suits(self.outputs):
            raise self._other_outputs(self.outputs, classes)
        return self._moved(found)

    @property
    def outputs(self) -> tuple[int, ...]:
        return self._imported.cutter.outputs

    def require_outputs(self, features: Shape, classes: int) -> None:
        if self._learning.by_position:
            return
        if len(self.outputs) == 1 and self.outputs[0] < classes:
            raise self._other_outputs(self.outputs, classes)

    def _other_outputs(self, gives: tuple[int, ...], classes: int) -> SpecError:
        """The error of a model that gives a sample a tensor of another shape than the data has classes."""
        wanted = self._learning.readout_shape
        of = f"{classes} classes, {wanted} for a sample"
        hint = (
            f"let its last layer give {wanted}: by num_classes in model.with in torchvision and timm, num_labels or "
            "vocab_size in transformers; or say of how many classes the data are: data.classes"
        )
        if self._learns_numbers:
            of = f"{counted(classes, 'target')}: floating-point labels are those of a regression"
            hint = f"for classes, give whole numbers: labels.long(); else let its last layer give {wanted}"
        message = f"`{self._source}` gives {gives} for a sample, and the data has {of}"
        return SpecError(message, key="model.with", hint=hint)

    @staticmethod
    def _moved(part: nn.Module) -> nn.Module:
        """On the device of the context: only meta tensors while shapes are found."""
        device = torch.get_default_device()
        if device.type != "meta":
            return part
        from alray.models.imported.part import on_meta

        return on_meta(part)
