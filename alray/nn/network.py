"""The blueprint of a network: shapes along the chain, and each component built alike wherever it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from alray.errors import SpecError
from alray.nn.blocks import builder
from alray.nn.component import AssociatedComponent, BackpropagationComponent, Component
from alray.nn.contrastive_component import ContrastiveComponent, LocalObjective, projection
from alray.nn.draws import module_draws
from alray.nn.encoder import Encoder, Tensors, run_block, stopped
from alray.nn.head import bridge, classifier, label_decoder, label_encoder
from alray.nn.pooling import Pooling
from alray.nn.shape import Shape
from alray.seeds import derive_seed
from alray.spec.models import AssociatedLearning, Head, Spec, SupervisedContrastive
from alray.user_code import FAULTS_OF_USER_CODE

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class EncoderFacts:
    """What is known of one encoder before it is built for real."""

    name: str
    input: Shape
    output: Shape
    draws: bool
    writes_input: bool
    normalises_batches: bool  # by statistics over the samples it is given
    pooling: Pooling
    takes_along: dict[str, Shape]  # `mask`, `h` and `c` of one sample, where they come in with `s`
    gives_along: dict[str, Shape]  # and where they go on with it

    @property
    def given_bytes(self) -> dict[str, int]:
        """Bytes of one sample of all the encoder gives, by name."""
        return {name: shape.sample_bytes for name, shape in ({"s": self.output} | self.gives_along).items()}


class Network:
    """The chain a spec describes, on samples of one shape with a number of classes.

    Every component is a function of (spec, seed, index): initial weights are drawn from (seed, component, part), so any
    process that builds component l builds the same one.
    """

    def __init__(
        self, spec: Spec, *, sample: Shape, classes: int, load: Callable[[str], Any], trained: bool = False
    ) -> None:
        """trained: whether weights are loaded from a checkpoint, so that files of initial ones are not read."""
        self._trained = trained
        self.spec, self.classes = spec, classes
        self.entries = spec.model.expanded()
        self._load = load
        self.dtype = DTYPES[spec.run.precision]
        self.encoders: list[EncoderFacts] = []
        shape = Shape(sample, self.dtype if sample.dtype.is_floating_point else sample.dtype, words=sample.words)
        along = {"mask": Shape(sample[:1], torch.bool)} if sample.words is not None else {}
        for index in range(len(self.entries)):
            link = self._inspect(index, shape, along)
            self.encoders.append(link)
            shape, along = link.output, link.gives_along

    def __len__(self) -> int:
        return len(self.entries)

    def ends_route(self, index: int) -> bool:
        """Whether inference may turn at component `index`: at every one with a label chain, else at the last alone."""
        return isinstance(self.spec.method, AssociatedLearning) or index == len(self) - 1

    def edge(self, after):
        facts = self.encoders[after]
        found = {"s": facts.output} | facts.gives_along
        if isinstance(self.spec.method, AssociatedLearning):
            found["t"] = Shape((self.spec.method.label_dim,), self.dtype)
        elif isinstance(self.spec.method, SupervisedContrastive):
            found["labels"] = Shape((), torch.int64)
        return found

    def route_shape(self, above):
        return Shape((getattr(self.spec.method, "label_dim", self.classes),), self.dtype)

    def num_routes(self, above):
        return sum(self.ends_route(index) for index in range(above, len(self)))

    def incoming(self, index: int, samples: int, device: str | torch.device) -> Tensors:
        """An input of component `index` for some samples: `s` and what comes with it, full length, values arbitrary."""
        return _incoming(self.encoders[index].input, self.encoders[index].takes_along, samples, device)

    def alike(self, index: int) -> str:
        """A key that components share which differ in their weights alone: they cost the same."""
        place = "first" if index == 0 else "last" if index == len(self) - 1 else "between"
        if len(self) == 1:
            place = "only"
        return f"{place} {self.entries[index]!r} {self.encoders[index]!r}"

    def component(self, index: int, device: str | torch.device) -> Component:
        """Component `index` (counted from 0) on a device, in training mode."""
        if torch.device(device).type == "meta":
            with torch.device("meta"):
                return self._component(index, device)
        return self._component(index, device)

    def _component(self, index: int, device: str | torch.device) -> Component:
        link = self.encoders[index]
        encoder = Encoder(
            self._seeded(index, "f", lambda: self._build_block(index, link.input)),
            index=index,
            seed=self.spec.seed,
            draws=link.draws,
            writes_input=link.writes_input,
        )
        method = self.spec.method
        component: Component
        if isinstance(method, AssociatedLearning):
            component = self._associated(index, encoder, method, device)
        elif isinstance(method, SupervisedContrastive):
            component = self._contrastive(index, encoder, method, device)
        else:
            head = None
            if index == len(self) - 1:
                head = self._seeded(index, "head", lambda: self._head(method.head, link)).to(device, self.dtype)
            component = BackpropagationComponent(
                index,
                f=encoder.to(device, self.dtype),
                head=head,
                optimizer=self.spec.optimizer,
            )
        return component.train()

    def _associated(
        self, index: int, encoder: Encoder, method: AssociatedLearning, device: str | torch.device
    ) -> AssociatedComponent:
        first = index == 0
        width = self.classes if first else method.label_dim
        label = {"label_dim": method.label_dim}
        parts = {
            "b": lambda: bridge(
                self.encoders[index].output,
                activation=method.label_activation,
                pool=method.bridge.pool,
                hidden=method.bridge.hidden,
                pooling=self.encoders[index].pooling,
                **label,
            ),
            "g": lambda: label_encoder(width, activation=method.label_activation, **label),
            "h": lambda: label_decoder(
                width,
                activation=method.first_decoder_activation if first else method.decoder_activation,
                **label,
            ),
        }
        built = {name: self._seeded(index, name, make).to(device, self.dtype) for name, make in parts.items()}
        return AssociatedComponent(
            index,
            f=encoder.to(device, self.dtype),
            **built,
            classes=self.classes if first else None,
            label_loss=method.first_label_loss if first else "mse",
            optimizer=self.spec.optimizer,
        )

    def _contrastive(
        self, index: int, encoder: Encoder, method: SupervisedContrastive, device: str | torch.device
    ) -> ContrastiveComponent:
        link, last = self.encoders[index], index == len(self) - 1

        def readout() -> nn.Module:
            if last:
                return self._head(method.head, link)
            return projection(link.output, projection_dim=method.projection_dim, pool=4, pooling=link.pooling)

        part = "head" if last else "p"
        return ContrastiveComponent(
            index,
            f=encoder.to(device, self.dtype),
            **{part: self._seeded(index, part, readout).to(device, self.dtype)},
            objective=LocalObjective(
                temperature=method.temperature,
                class_prior=None if method.debiased is False else method.debiased,
                label_smoothing=method.label_smoothing,
            ),
            optimizer=self.spec.optimizer,
        )

    def _head(self, head: Head | Literal["auto"], link: EncoderFacts) -> nn.Module:
        if head == "auto":
            head = Head(pool=4, hidden=None)
        return classifier(
            link.output,
            classes=self.classes,
            pool=head.pool,
            hidden=head.hidden,
            activation=head.activation,
            pooling=link.pooling,
        )

    def _seeded(self, index: int, part: str, make: Callable[[], nn.Module]) -> nn.Module:
        """Build a part with initial weights drawn from (seed, component, part), leaving the global stream as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(self.spec.seed, "weights", index, part))
            return make()

    def _build_block(self, index: int, input: Shape) -> nn.Module:
        entry = self.entries[index]
        key = f"model.components[{index}]"
        try:
            fields = entry.fields_of_trained if self._trained else entry.fields
            block = builder(entry.block, self._load)(input, **fields)
        except FAULTS_OF_USER_CODE as error:
            raise SpecError(
                f"block `{entry.block}` cannot be built on an input of {tuple(input)}: {error}",
                key=key,
                mend="a block is `build(input, **fields)` and takes the fields given beside it",
            ) from error
        except SpecError as error:
            problem = error.problems[0]
            raise SpecError(problem.message, key=key, mend=problem.mend) from error
        if not isinstance(block, nn.Module):
            raise SpecError(
                f"block `{entry.block}` gave {type(block).__name__}, not a torch.nn.Module",
                key=key,
                mend="return the module from `build`",
            )
        return block

    def _inspect(self, index: int, input: Shape, along: dict[str, Shape]) -> EncoderFacts:
        """Build the block on the meta device and pass two samples through it: shapes without memory or time.

        The global stream stays as it was, whatever the block draws.
        """
        entry = self.entries[index]
        key = f"model.components[{index}]"
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            block = self._build_block(index, input).to(dtype=self.dtype).train()
            incoming = _incoming(input, along, 2, "meta")
            before = incoming["s"]._version
            try:
                outgoing = run_block(block, incoming)
            except SpecError as error:
                problem = error.problems[0]
                raise SpecError(problem.message, key=key, mend=problem.mend) from error
            except FAULTS_OF_USER_CODE as error:
                raise SpecError(
                    f"block `{entry.block}` does not take an input of {tuple(input)}: {error}",
                    key=key,
                    mend="its forward pass must also run on the meta device, where shapes are found",
                ) from error
        output = outgoing["s"]
        if not isinstance(output, torch.Tensor) or output.ndim < 2 or output.shape[0] != 2:
            got = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
            raise SpecError(
                f"block `{entry.block}` gave {got} for a batch of 2",
                key=key,
                mend="forward must give one tensor [N, ...] for N samples",
            )
        if output.dtype != self.dtype:
            raise SpecError(
                f"block `{entry.block}` gave values of {output.dtype}, the run computes in {self.dtype}",
                key=key,
                mend="return values of the type of the input",
            )
        if "mask" in outgoing and output.shape[1] != input[0]:
            raise SpecError(
                f"block `{entry.block}` made {output.shape[1]} places of {input[0]}, and the mask of the text's words "
                "no longer fits",
                key=key,
                mend="keep the length of the sequence, or give one vector per sample",
            )
        given = stopped(outgoing)
        return EncoderFacts(
            name=entry.block,
            input=input,
            output=Shape(given.pop("s").shape[1:], output.dtype),
            # Code that is not alray's may draw without a dropout layer: seeding it costs little, so it always is.
            draws=entry.block.startswith("python:") or module_draws(block),
            writes_input=incoming["s"]._version != before,
            normalises_batches=any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in block.modules()),
            pooling=getattr(block, "pooling", "mean"),
            takes_along=along,
            gives_along={name: Shape(value.shape[1:], value.dtype) for name, value in given.items()},
        )


def _incoming(input: Shape, along: dict[str, Shape], samples: int, device: str | torch.device) -> Tensors:
    tensors = {"s": torch.zeros((samples, *input), dtype=input.dtype, device=device)}
    for name, shape in along.items():
        tensors[name] = torch.ones((samples, *shape), dtype=shape.dtype, device=device)
    return tensors
