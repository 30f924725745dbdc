"""The blueprint of a network: shapes along the chain, and components that are the same wherever they are built."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from alray.config.sections.own_code import OwnCode
from alray.config.sections.section import listed
from alray.config.sections.spec import Spec
from alray.config.user_code import named, own_error
from alray.core.compat import BatchNorm
from alray.core.errors import FAULTS_OF_USER_CODE, SpecError
from alray.core.randomness.generators import put_back, seed_all
from alray.models.boundary import Boundary
from alray.models.chain import chain_of
from alray.models.compiled import compile_part
from alray.models.component import Component, LocalComponent
from alray.models.contract import Contract
from alray.models.encoder import (
    Encoder,
    EncoderFacts,
    EncoderGroup,
    Tensors,
    facts_of_group,
    module_draws,
    run_block,
    stopped,
)
from alray.models.imported.absent import counting
from alray.models.method import Method, NetworkFacts, make_method
from alray.models.optimizers import recipe
from alray.models.own_state import Owners, require_tensors, require_untouched_buffers
from alray.models.precision import LOWERED, lower
from alray.models.shape import Shape
from alray.models.task import LearningTask, make_task
from alray.models.trial_passes import mixes_samples

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bf16": torch.float32}
"""The type of weights, and of messages between components, by `run.precision`."""

_FITS_ITS_INPUT = (
    "one sample has this shape, and the constructor gets it as `input`: build the layers for it; `forward` must also "
    "run on torch's meta device, where shapes are found"
)
"""The hint of an error: the requirements on a forward pass so that the shape of its output can be found."""


class Network:
    """The chain of components that a spec describes, for samples of one shape and a number of classes, or of labels
    or targets.

    Every component is a function of (spec, seed, index): initial weights are drawn from (seed, component, part), so any
    process that builds component l builds the same one. Components count from 0.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        sample: Shape,
        classes: int,
        load: Callable[[str], Any],
        trained: bool = False,
        encoders: Sequence[EncoderFacts] = (),
        components: int | None = None,
    ) -> None:
        """
        Args:
            components: how many the whole network has, of which this one is the first part; None: it is the whole.
            sample: shape of one sample.
            load: takes a reference `python:package.module.Class` to that class.
            trained: whether weights are loaded from a checkpoint: files of initial weights are not read.
            encoders: what another process has found (`blocks`), (): found here.
        """
        self.spec = spec
        self.load = load
        self.classes = classes
        learning = _learning(spec, classes, sample, load)
        self._chain = chain_of(spec, load, sample=sample, trained=trained, encoders=encoders, learning=learning)
        if learning.takes_any_label and (outputs := self._chain.outputs) is not None:
            learning.of_outputs(outputs, by_model=spec.method.uses_model_head)
            self.classes = classes = learning.width
        together = spec.method.blocks_together
        starts = range(0, len(self._chain), together)
        self._groups = [range(first, min(first + together, len(self._chain))) for first in starts]
        """The blocks of each component."""
        self._owners = Owners()
        self.dtype = DTYPES[spec.run.precision]
        task = NetworkFacts(
            classes=classes,
            learning=learning,
            num_components=components or len(self),
            dtype=self.dtype,
            optimizer=recipe(spec.optimizer, load),
            classifier=self._chain.classifier(),
            copy=self._copy,
        )
        self._by_position = task.learning.by_position
        self.tokens = sample.tokens
        """How many tokens there are; None where the samples are no windows of tokens."""
        self.method = make_method(spec.method, task, load, of_task=spec.task)
        task.learning.gives_shares = self.method.gives_shares
        self.blocks = list(encoders) or self._inspect_all(sample)
        """The facts about each block of the model."""
        if not (trained or encoders or components):
            self._chain.require_outputs(self.blocks[-1].output, classes)
        self.encoders = [facts_of_group([self.blocks[index] for index in group]) for group in self._groups]
        self._require_positions(task.learning)
        self.method.require(self.encoders)
        self.boundary(0)  # raises SpecError where messages cannot be compressed so

    def _inspect_all(self, sample: Shape) -> list[EncoderFacts]:
        found: list[EncoderFacts] = []
        dtype = self.dtype if sample.dtype.is_floating_point else sample.dtype
        shape = sample.like(sample, dtype)
        along = {"mask": Shape(sample[:1], torch.bool)} if sample.words is not None else {}
        if self.method.encoders_take_samples and self._chain.ends(0) is not None:
            raise SpecError(
                f"every encoder of `{self.spec.method.kind}` takes the samples, and the parts of a model take each "
                "other's outputs",
                key="method.kind",
                hint="list blocks in `model.components`, or choose another method",
            )
        for index in range(len(self._chain)):
            facts = self._inspect(index, shape, along)
            found.append(facts)
            if not self.method.encoders_take_samples:
                shape, along = facts.output, facts.gives_along
        return found

    def _require_positions(self, learning: LearningTask) -> None:
        """Raise SpecError where a readout has no vector for each position that has a label."""
        positions = learning.readout_shape[:-1] if learning.takes_any_label else ()
        for index, facts in enumerate(self.encoders if self.method.local_losses else ()):
            if positions and tuple(facts.output[:-1]) != positions:
                raise SpecError(
                    f"component {index} gives {tuple(facts.output)} for a sample, and the task has a label for each of "
                    f"{list(positions)} positions",
                    key="method.kind",
                    hint="a readout needs a vector for each of them, [positions, width]; backpropagation learns by the "
                    "last layer of the model alone: method=backpropagation",
                )

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def notes(self) -> Sequence[str]:
        """Sentences that the user should read on the initial weights and the method."""
        return (*self._chain.notes, *self.method.notes)

    @property
    def model_sha256(self) -> str | None:
        """The hash of the model that a Python program gave, as it is before its training: of its modules, and of the
        names and values of its weights. None: a spec names the model."""
        return self._chain.sha256

    @property
    def architecture_sha256(self) -> str | None:
        """As `model_sha256`, without the values of its weights: equal for those that each seed draws anew."""
        return self._chain.architecture_sha256

    def labels(self, index: int) -> dict[str, Shape]:
        """Return the label tensors that component `index` receives in training, by name: shapes of one sample."""
        return self.method.labels_in(index)

    def boundary(self, after: int) -> Boundary | None:
        """The boundary after component `after`; None where nothing is compressed, and after the last one."""
        messages = self.spec.pipeline.messages
        if messages is None or after == len(self) - 1:
            return None
        if self.method.sends_rows:
            raise SpecError(
                f"`{self.spec.method.kind}` sends several rows for a sample, which are not compressed",
                key="pipeline.messages",
                hint="leave it out",
            )
        boundary = Boundary(messages, self.method.goes_up(self.encoders[after]), self.load)
        if self._by_position and boundary.over_positions:
            raise SpecError(
                "a scale of several positions would tell a token something of those after it, which it is to predict",
                key="pipeline.messages",
                hint="set scale to token, or choose another compression",
            )
        return boundary

    def edge(self, after: int) -> dict[str, Shape]:
        """Everything in the training message after component `after` to another stage, `s` first: shapes of one
        sample."""
        return self._goes_up(after, training=True) | self.method.labels_out(after)

    def gradient_edge(self, after: int) -> dict[str, Shape]:
        """Everything in the message of gradients that comes down to component `after`: shapes of one sample."""
        boundary, shapes = self.boundary(after), self.method.goes_up(self.encoders[after])
        return shapes if boundary is None else boundary.down.packed(shapes)

    def inference_edge(self, after: int) -> dict[str, Shape]:
        """Everything in the message of an evaluation after component `after`, `s` first: shapes of one sample."""
        along = self.method.given_labels if self.measures_where_routes_end else {}
        return self._goes_up(after, training=False) | self.method.infers_along() | along

    def _goes_up(self, after: int, *, training: bool) -> dict[str, Shape]:
        """What goes up to another stage with the samples, as it is packed."""
        boundary, shapes = self.boundary(after), self.method.goes_up(self.encoders[after], training=training)
        return shapes if boundary is None else boundary.up.packed(shapes)

    def ends_route(self, index: int) -> bool:
        """Whether a route of inference ends at component `index`."""
        return self.method.ends_route(index)

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths of all routes, shallowest first; a route of depth n ends at the n-th component."""
        return tuple(index + 1 for index in range(len(self)) if self.ends_route(index))

    def num_routes(self, above: int) -> int:
        """Number of routes that end at component `above` or higher."""
        return sum(self.ends_route(index) for index in range(above, len(self)))

    def route_shape(self, above: int) -> Shape:
        """Return the shape of one sample that a route sends down from component `above` to those below it."""
        return self.method.route(above)

    @cached_property
    def measures_where_routes_end(self) -> bool:
        """Whether the stage where a route ends takes from its scores what the metric needs, in place of sending them to
        stage 0: where that is less, and no component below changes scores. Labels then go up with the samples."""
        task = self.method.task.learning
        scores_pass = all(self.route_shape(index) == task.score_shape for index in range(len(self)))
        return task.measured_shape != task.score_shape and scores_pass and not isinstance(self.spec.method, OwnCode)

    def comes_down(self, above: int) -> Shape:
        """Return the shape of one sample that an evaluation sends down for a route, as in `route_shape`."""
        if self.measures_where_routes_end:
            return Shape(self.method.task.learning.measured_shape, self.dtype)
        return self.route_shape(above)

    def incoming(self, index: int, samples: int, device: str | torch.device) -> Tensors:
        """An input of component `index` in inference: `s` and what comes with it, full length, values arbitrary."""
        return self._input(index, samples, device, training=False)

    def training_input(
        self, index: int, samples: int, device: str | torch.device, positions: int | None = None
    ) -> Tensors:
        """An input of component `index` in training: the same, with labels of zeros.

        Args:
            positions: of sequences that are cut to this length; None: they have their full one.
        """
        labels = {name: _zeros(shape, samples, device) for name, shape in self.labels(index).items()}
        return self._input(index, samples, device, training=True, positions=positions) | labels

    def other_in_inference(self, index: int, samples: int, device: str | torch.device) -> Tensors | None:
        """As `incoming`, where that has other tensors or shapes than in training; else None."""
        same = self._comes_in(index, training=True) == self._comes_in(index, training=False)
        return None if same else self.incoming(index, samples, device)

    def _input(
        self, index: int, samples: int, device: str | torch.device, *, training: bool, positions: int | None = None
    ) -> Tensors:
        along = self._comes_in(index, training=training, positions=positions)
        return _incoming(along.pop("s"), along, samples, device)

    def _comes_in(self, index: int, *, training: bool, positions: int | None = None) -> dict[str, Shape]:
        """Shapes of one sample, by name."""
        if index == 0:
            shapes, boundary = {"s": self.encoders[0].input} | self.encoders[0].takes_along, None
        else:
            shapes = dict(self.method.goes_up(self.encoders[index - 1], training=training))
            boundary = self.boundary(index - 1)
        if positions is not None:
            shapes |= {name: shapes[name].of_length(positions) for name in ("s", "mask") if name in shapes}
        return shapes if boundary is None else boundary.up.packed(shapes)

    @cached_property
    def mixes_samples(self) -> list[bool]:
        """Whether each component computes a sample from the others of its mini-batch in training, as batch
        normalisation does. Of alray's blocks it is known; of imported models and a user's code passes of noise tell."""
        found: dict[str, bool] = {}
        for index, facts in enumerate(self.encoders):
            kind = self.alike(index)
            if kind not in found:
                known = not facts.own and facts.ends is None
                found[kind] = facts.normalises_batches if known else mixes_samples(self, index)
        return [found[self.alike(index)] for index in range(len(self))]

    def has_batch_norm(self, index: int) -> bool:
        """Whether there is a layer of batch normalisation in component `index`, in its classifier too."""
        parts = self.component(index, "meta").modules()
        return any(isinstance(part, BatchNorm) and part.training for part in parts)

    @cached_property
    def needs_two_samples(self) -> int | None:
        """The first component whose batch normalisation gets one value of each channel from a single sample, so that
        it cannot train on one; None: every one can."""
        if self.method.normalises_batches:
            return 0
        for component, group in enumerate(self._groups):
            normalise = [index for index in group if self.blocks[index].normalises_batches]
            if not all(self._trains_on_one_sample(index) for index in normalise):
                return component
        return None

    def _trains_on_one_sample(self, index: int) -> bool:
        facts = self.blocks[index]
        with put_back(), counting():
            block = self._seeded(index, "f", lambda: self._build_block(index, facts.input)).to(dtype=self.dtype)
            try:
                run_block(block.train(), _incoming(facts.input, facts.takes_along, 1, "meta"))
            except FAULTS_OF_USER_CODE:
                return False
        return True

    def model_section(self, depth: int) -> dict[str, Any]:
        """The section `model` of a spec for the routes up to this depth, whose weights are there."""
        return self._chain.as_spec(self._groups[depth - 1][-1] + 1)

    def whole_model(self, parts: Sequence[nn.Module]) -> nn.Module | None:
        """The model that `model.from` names, in evaluation mode, on the CPU in float32, with the weights of these parts
        of it. None: the components are blocks."""
        return self._chain.whole(parts)

    def require_parts(self, names: Collection[str]) -> None:
        """Raise SpecError if `optimizer.rate_factors` names a part that no component has."""
        known = (
            {part: None for index in range(len(self)) for part in self.component(index, "meta").part_parameters()}
            if names
            else {}
        )
        for name in names:
            if name not in known:
                raise SpecError(
                    f"no component has a part `{name}`",
                    key=f"optimizer.rate_factors.{name}",
                    hint=f"the parts are {listed(list(known), 'and')}",
                )

    def alike(self, index: int) -> str:
        """A key that is the same for components that differ in their weights only, and so cost the same."""
        position = "first" if index == 0 else "last" if index == len(self) - 1 else "between"
        if len(self) == 1:
            position = "only"
        blocks = ", ".join(self._chain.alike(block) for block in self._groups[index])
        unknown = isinstance(self.spec.method, OwnCode) and type(self.method).alike is Method.alike
        of_method = f"{index}" if unknown else self.method.alike(index)
        return f"{position} {blocks} {self.encoders[index]!r} {of_method}"

    def component(self, index: int, device: str | torch.device) -> Component:
        """Component `index` on a device, in training mode."""
        if torch.device(device).type == "meta":
            with torch.device("meta"):
                return self._component(index, device)
        return self._component(index, device)

    def _component(self, index: int, device: str | torch.device) -> Component:
        facts = self.encoders[index]
        own_method = isinstance(self.spec.method, OwnCode)

        def make(part: str, build: Callable[[], nn.Module]) -> nn.Module:
            # With groups, as the last block of the group would draw them: one group of all is backpropagation.
            made = self._seeded(self._groups[index][-1], part, build)
            if own_method:
                require_tensors(made, f"component {index}", "method")
            return made.to(device, self.dtype)

        encoders = [self._encoder(block) for block in self._groups[index]]
        encoder = encoders[0] if len(encoders) == 1 else EncoderGroup(encoders, index=index, facts=facts)
        encoder = encoder.to(device, self.dtype)
        with self._method_called(f"component({index})") if own_method else nullcontext():
            component = self.method.component(index, encoder, facts, make)
        if not isinstance(component, Component) or (component.turn is not None) != self.ends_route(index):
            raise SpecError(
                f"method `{type(self.method).__name__}` gave no fitting component {index}",
                key="method",
                hint="give a LocalComponent; its `turn` is a module where `ends_route(index)` holds, else None",
            )
        if own_method:
            component.own_losses = ("method", self.spec.method.kind)
            if isinstance(component, LocalComponent):
                component.contract = self._contract(index)
        elif isinstance(self.spec.task, OwnCode):
            component.own_losses = ("task", self.spec.task.kind)
        if own_method:
            require_tensors(component, f"component {index}", "method")
            self._owners.claim(index, component)
        self._prepare(component, torch.device(device))
        component.above = self.boundary(index)
        component.below = self.boundary(index - 1) if index > 0 else None
        return component.train()

    def disown(self, component: Component) -> None:
        """Keep no references to a component whose parameters are swapped for others, which torch then would refuse."""
        self._owners.forget(component)

    def _encoder(self, index: int) -> Encoder:
        """Block `index` of the model, with initial weights."""
        facts = self.blocks[index]
        body = self._seeded(index, "f", lambda: self._build_block(index, facts.input))
        return Encoder(body, index=index, seed=self.spec.seed, facts=facts)

    def _method_called(self, call: str) -> AbstractContextManager[None]:
        """Around a call of a method of the user."""
        return named(f"method `{self.spec.method.kind}`", f"`{call}`", key="method.kind")

    def _contract(self, index: int) -> Contract:
        """What component `index` of a method of the user gives."""
        method, facts = self.method, self.encoders[index]
        if index == len(self) - 1:
            return Contract(self.spec.method.kind, index, samples=None, labels=None, shorter=False)
        with self._method_called(f"labels_out({index})"):
            labels = method.labels_out(index)
        with self._method_called("goes_up(facts)"):
            samples = method.goes_up(facts)
        return Contract(self.spec.method.kind, index, samples, labels, shorter="mask" in self.encoders[0].takes_along)

    def _prepare(self, component: Component, device: torch.device) -> None:
        """Have the parts compute as `run.precision` and `run.compile` say."""
        run = self.spec.run
        for child in component.children():
            for part in child.bodies if isinstance(child, Encoder) else [child]:
                if run.precision in LOWERED:
                    lower(part, LOWERED[run.precision])
                if run.compile and device.type != "meta":
                    compile_part(part)

    def _seeded(self, index: int, part: str, make: Callable[[], nn.Module]) -> nn.Module:
        """Build a part with initial weights drawn from (seed, component, part). Global generators stay as they were."""
        with put_back():
            seed_all(torch.device("cpu"), self.spec.seed, "weights", index, part)
            return make()

    def _build_block(self, index: int, input: Shape) -> nn.Module:
        block = self._chain.build(index, input)
        if self._chain.is_own(index):
            self._owners.claim(index, block)
        return block

    def _copy(self, index: int, of: int, below: EncoderFacts) -> tuple[EncoderFacts, Callable[[], nn.Module]]:
        """See `CopyOf`."""
        facts = self._inspect(of, below.output, below.gives_along)

        def build() -> Encoder:
            block = self._chain.build(of, facts.input)
            if facts.own:
                self._owners.claim(index, block)
            return Encoder(block, index=index, seed=self.spec.seed, facts=facts)

        return facts, build

    def _inspect(self, index: int, input: Shape, along: dict[str, Shape]) -> EncoderFacts:
        """Find the shapes of a block: it is built on the meta device, and two samples pass through it.

        This takes neither memory nor time. Global generators stay as they were, whatever the block draws.
        """
        known = self._chain.facts(index, input, along, self.dtype)
        if known is not None:
            return replace(known, pooling="none") if self._by_position else known
        name, key, own = self._chain.name(index), self._chain.key(index), self._chain.is_own(index)
        with put_back(), torch.device("meta"):
            made = self._seeded(index, "f", lambda: self._build_block(index, input))
            require_tensors(made, f"block `{name}`", key)
            block = made.to(dtype=self.dtype).train()
            incoming = _incoming(input, along, 2, "meta")
            before = incoming["s"]._version
            with _fitting(name, input, key):
                outgoing = run_block(block, incoming)
                if own:
                    again = partial(run_block, block, _incoming(input, along, 2, "meta"))
                    require_untouched_buffers(block, again, index)
        output = outgoing["s"]
        if not isinstance(output, torch.Tensor) or output.ndim < 2 or output.shape[0] != 2:
            got = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
            raise SpecError(
                f"block `{name}` gave {got} for a batch of 2",
                key=key,
                hint="forward must give one tensor [N, ...] for N samples",
            )
        if output.dtype != self.dtype:
            raise SpecError(
                f"block `{name}` gave values of {output.dtype}, the run computes in {self.dtype}",
                key=key,
                hint="return values of the type of the input",
            )
        if "mask" in outgoing and output.shape[1] != input[0]:
            raise SpecError(
                f"block `{name}` made {output.shape[1]} positions of {input[0]}, and the mask of the text's "
                "words no longer fits",
                key=key,
                hint="keep the length of the sequence, or give one vector per sample",
            )
        given = stopped(outgoing)
        return EncoderFacts(
            name=name,
            own=own,
            input=input,
            output=Shape(given.pop("s").shape[1:], output.dtype),
            draws=own or getattr(block, "alray_draws", False) or module_draws(block),
            writes_input=incoming["s"]._version != before,
            normalises_batches=any(isinstance(part, BatchNorm) and part.training for part in block.modules()),
            pooling="none" if self._by_position else getattr(block, "alray_pooling", "mean"),
            takes_along=along,
            gives_along={each: Shape(value.shape[1:], value.dtype) for each, value in given.items()},
            ends=self._chain.ends(index),
        )


def _learning(spec: Spec, classes: int, sample: Shape, load: Callable[[str], Any]) -> LearningTask:
    """The task, with labels as they are in training."""
    task = make_task(spec.task, classes, sample, load)
    if spec.data.mix is not None:
        task = task.of_mixed_samples()
    elif spec.task.weights_of_classes is not None:
        task = task.of_weighted_samples()
    return task


@contextmanager
def _fitting(block: str, input: Shape, key: str) -> Iterator[None]:
    """Raise SpecError if a block does not take this input."""
    try:
        yield
    except SpecError as error:
        problem = error.problems[0]
        raise SpecError(problem.message, key=key, hint=problem.hint) from error
    except FAULTS_OF_USER_CODE as error:
        message = f"block `{block}` does not take an input of {tuple(input)}: {error}"
        raise own_error(error, message, key=key, hint=_FITS_ITS_INPUT) from error


def _incoming(input: Shape, along: dict[str, Shape], samples: int, device: str | torch.device) -> Tensors:
    tensors = {"s": _zeros(input, samples, device)}
    for name, shape in along.items():
        tensors[name] = torch.ones((samples, *shape), dtype=shape.dtype, device=device)
    return tensors


def _zeros(shape: Shape, samples: int, device: str | torch.device) -> torch.Tensor:
    return torch.zeros((samples, *shape), dtype=shape.dtype, device=device)
