"""Components: the links of the chain. Each has separate parts, losses and optimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from alray.config.user_code import named, named_error
from alray.core.errors import FAULTS_OF_USER_CODE, AlrayError, StageError
from alray.core.randomness.generators import put_back, seed_all
from alray.core.randomness.seeds import derive_seed
from alray.models.boundary import Boundary, Passing
from alray.models.contract import Contract
from alray.models.encoder import ALONG, Encoder, Tensors, row_major, stopped
from alray.models.gradients import separate_gradients
from alray.models.optimizers import ComponentOptimizer, Recipe, Role
from alray.models.weight_average import WeightAverage, name_in_checkpoint

__all__ = [
    "ComparingComponent",
    "Component",
    "CopyingComponent",
    "Encoder",
    "LocalComponent",
    "Passage",
    "SampleSpan",
    "Tensors",
]


_LOSSES = "the losses"
_UPDATE = "the update"
_OVERWRITTEN = (
    "if it is a buffer, the forward of a later micro-batch has written to it: let `forward` compute with a copy "
    "(`self.scale.clone()`)"
)


class Component(nn.Module, ABC):
    """One component: an encoder `f` and the further parts its method gives it.

    Parts are modules with short names (f, b, g, h; f, head). They are hashed and saved in the order in which they are
    assigned, so `f` comes first. A subclass assigns its parts, then calls `train_with`.
    """

    own_losses: tuple[str, str] | None = None
    """Where a user's code computes the losses: `method` or `task`, and its name."""

    contract: Contract | None = None
    """Of a component of a user's method: its losses, and what it sends to the next one; None: nothing is checked."""

    apart: tuple[str, ...] = ()
    """Names of parts whose losses train no other part. Their gradients are clipped by themselves, so that they do not
    scale those of the others."""

    adds_up = False
    """Whether a route adds what the turn of this component gives to what the turns below give; `Method.infers_along`
    then names `score`."""

    def __init__(self, index: int, f: Encoder) -> None:
        """
        Args:
            index: of the component in the network, from 0.
        """
        super().__init__()
        self.index = index
        self.f = f
        self._optimizers: dict[str, ComponentOptimizer] = {}
        self._without_optimizer: set[nn.Parameter] = set()
        self.below: Boundary | None = None
        """Where what comes in is unpacked, and gradients that go down are packed; None: nothing is compressed."""
        self.above: Boundary | None = None
        """The same for what goes up."""
        self.weight_average: WeightAverage | None = None
        """The moving average of the weights; None: the spec asks for none."""
        self.step_under_way = 0
        """The mini-batch that the component computes or updates by, from 1. Random numbers depend on it."""

    def naming(self, name: str) -> AbstractContextManager[None]:
        """Around a pass of a user's code for the losses, which may raise any error: it becomes one that names the code.

        Args:
            name: of the pass.
        """
        if self.own_losses is None:
            return nullcontext()
        key, own = self.own_losses
        return named(f"{key} `{own}`", f"{name} of component {self.index}", key=key)

    def train_with(self, optimizer: Recipe, **parts: Sequence[nn.Module]) -> None:
        """Make one optimizer for each group of parts; the group's name is the optimizer's.

        Names are kept in checkpoints.

        Args:
            optimizer: what makes them.
        """
        embeddings = {
            parameter
            for module in self.modules()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag)
            for parameter in module.parameters()
        }
        embeddings |= {each for name, each in self.named_parameters() if name.rpartition(".")[2] == "positions"}
        names = {parameter: name_in_checkpoint(name) for name, parameter in self.named_parameters()}
        roles = {
            parameter: Role(part, part != "head" and parameter not in embeddings, part in self.apart, names[parameter])
            for part, module in self.named_children()
            for parameter in module.parameters()
        }
        for name, group in parts.items():
            parameters = [parameter for part in group for parameter in part.parameters()]
            device = parameters[0].device if parameters else torch.device("cpu")
            with put_back(device):  # the constructor of an optimizer of the user may draw
                seed_all(device, self.f.seed, "optimizer", self.index, name)
                self._optimizers[name] = ComponentOptimizer(parameters, optimizer, roles)
        self._without_optimizer = {each for each in self.parameters() if not each.requires_grad}
        if optimizer.section.ema_decay is not None:
            self.weight_average = WeightAverage(self, optimizer.section.ema_decay)

    def optimizers(self) -> dict[str, ComponentOptimizer]:
        """The component's optimizers by name."""
        return self._optimizers

    def step_optimizers(self, lr: float) -> None:
        """One step of every optimizer, at this rate, and of the average of the weights where that updates.

        Raises StageError if a parameter has a gradient and no optimizer.
        """
        learns = next((each for each in self._without_optimizer if each.grad is not None), None)
        if learns is not None:
            name = next(name for name, each in self.named_parameters() if each is learns)
            raise StageError(
                f"`{name_in_checkpoint(name)}` of component {self.index} begins to learn during the run, and has no "
                "optimizer",
                hint="let it require a gradient when the block is made, and freeze it in `forward` for as long",
            )
        optimizers = self.optimizers().values()
        if any(optimizer.may_draw for optimizer in optimizers):
            # The same on all replicas, so that their weights stay equal.
            device = next(self.parameters()).device
            seed_all(device, self.f.seed, "draw", self.index, self.step_under_way, _UPDATE)
        updated = [optimizer.step(lr) for optimizer in optimizers]
        if self.weight_average is not None and any(updated):
            self.weight_average.update()

    def showing_average(self) -> AbstractContextManager[None]:
        """Within it, the component has the average of its weights in their place, if there is one."""
        return nullcontext() if self.weight_average is None else self.weight_average.shown()

    def weights(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name (`f.0.weight`, ...), in the order in which they are hashed."""
        return {name_in_checkpoint(name): value for name, value in self.state_dict().items()}

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Take over what `weights()` gave; names and shapes must be the same."""
        self.load_state_dict(
            {(f"f.body.{name[2:]}" if name.startswith("f.") else name): value for name, value in weights.items()}
        )

    @property
    def sends(self) -> dict[str, Passing]:
        """What of this component's is compressed before it is sent, by its direction."""
        found = {}
        if self.above is not None:
            found["up"] = self.above.up
        if self.below is not None:
            found["down"] = self.below.down
        return found

    def part_parameters(self) -> dict[str, int]:
        """Number of trainable parameters of each part, by its name."""
        return {name: trainable(part) for name, part in self.named_children()}

    @property
    def passage(self) -> Passage | None:
        """The part that a sample passes before and after the encoder in inference; None if there is nothing to do."""
        return None

    @property
    @abstractmethod
    def turn(self) -> nn.Module | None:
        """The part that makes the prediction of this depth, a bridge or a head, called with (s, mask); None if no route
        of inference ends at this component."""

    @property
    def decoder(self) -> nn.Module | None:
        """The part that takes a route one component down; None if routes pass this component unchanged."""
        return None


class Passage(nn.Module, ABC):
    """What a component does with a sample before and after its encoder, in inference and, unless the component says
    otherwise, in training. A route takes it along."""

    @abstractmethod
    def before(self, incoming: Tensors) -> Tensors:
        """From what comes in to what the encoder gets: the samples are `[N, ...]`."""

    @abstractmethod
    def after(self, incoming: Tensors, encoded: Tensors) -> Tensors:
        """From what the encoder gives, detached and row-major, to what goes up."""


@dataclass(frozen=True)
class SampleSpan:
    """Which samples of a mini-batch a component gets."""

    first: int  # the position of the first one
    total: int  # samples of the mini-batch, over all replicas


def trainable(module: nn.Module | None) -> int:
    """Number of trainable parameters; 0 for None."""
    return 0 if module is None else sum(p.numel() for p in module.parameters() if p.requires_grad)


@contextmanager
def backward_of(components: Sequence[Component]) -> Iterator[None]:
    """Around a backward pass through these components: an error of a user's code becomes one that names the code.

    An error of a block that is not the user's is raised unchanged.
    """
    own = [component for component in components if component.f.own or component.own_losses is not None]
    if not own:
        yield
        return
    for component in own:
        component.f.in_backward = False
    try:
        yield
    except AlrayError:
        raise
    except FAULTS_OF_USER_CODE as fault:
        # The pass goes from the last component to the first, so the first of several started last.
        begun = [component for component in own if component.f.in_backward] or (own if len(own) == 1 else [])
        if not begun:
            raise
        at = begun[0]
        what = at.f.title if at.f.in_backward or at.own_losses is None else "{} `{}`".format(*at.own_losses)
        doing = f"the backward pass of component {at.index}"
        hint = _OVERWRITTEN if "modified by an inplace operation" in str(fault) else None
        raise named_error(fault, what, doing, key=f"model.components[{at.index}]", hint=hint) from fault


class LocalComponent(Component):
    """A component that learns from local losses: no gradient comes in, and none goes out.

    A subclass defines `local_losses` and `turn`, and `decoder` if its method has a label chain. Everything else is the
    same for all methods with local losses:

        F  encoder_step    f in training; what is passed on is computed before this component's update. A method may
                           prepare what f gets (`prepared`) and decide what goes up (`passed_up`)
        L  label_step      the local losses, and the label tensors for the next component
        B  backward_step   the gradients of the local losses
        U  update_step     one step of every optimizer
        E  infer           f in evaluation mode
        turn: code         from f's output to what a route carries down
        D  decode          one step of a route down
    """

    losses_draw = False
    """Whether built-in losses draw random numbers: those of a copy of the model's classifier may."""

    def __init__(self, index: int, f: Encoder) -> None:
        super().__init__(index, f)
        self._encoded: Tensors | None = None
        self._losses: Tensors | None = None
        self._device = torch.device("cpu")  # of the mini-batch under way
        self._samples, self._span = 0, SampleSpan(0, 0)

    @abstractmethod
    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        """Return the losses of a mini-batch, and the label tensors for the next component.

        Returns the losses by name, scalars, of which no two train the same part through different graphs; and tensors
        as `Method.labels_out` says, detached and row-major (`pass_on`).

        Args:
            encoded: f's output, with its gradient graph: `s` [N, ...], and `mask` [N, T] where there is one.
            incoming: what came with the labels: `Method.labels_in` of this component. The input of f is not in it: a
                method whose loss needs that keeps it in `prepared`.
        """

    @property
    def ends_route(self) -> bool:
        """Whether a route of inference turns here."""
        return self.turn is not None

    def prepared(self, incoming: Tensors) -> Tensors:
        """What f gets in training, from what comes in.

        Args:
            incoming: of the first component, with `labels`; of the others labels may be still on their way.
        """
        return incoming if self.passage is None else self.passage.before(incoming)

    def passed_up(self, incoming: Tensors, encoded: Tensors) -> Tensors:
        """What goes up in training, as `Method.goes_up` says, from f's output, detached and row-major."""
        return encoded if self.passage is None else self.passage.after(incoming, encoded)

    def drawn(self, draw: Callable[[int, torch.Generator], torch.Tensor], *purpose: str | int) -> torch.Tensor:
        """Random numbers for the samples of the mini-batch under way, from (seed, purpose, step, position of a sample).

        They are the same on any partition, and however replicas share the mini-batch.

        Args:
            draw: takes a number of samples and a generator of the CPU to numbers on the CPU, one row for each sample.
        """
        rows = draw(self._span.total, self.generator(*purpose))[self._span.first :][: self._samples]
        return rows.to(self._device)

    def generator(self, *purpose: str | int) -> torch.Generator:
        """A generator of the CPU for the mini-batch under way, from (seed, purpose, step): the same on all replicas."""
        return torch.Generator().manual_seed(derive_seed(self.f.seed, *purpose, self.step_under_way))

    def encoder_step(self, incoming: Tensors, step: int, span: SampleSpan | None = None) -> Tensors:
        """F: `s` for the next component, with what goes along with it.

        Args:
            step: from 1; random numbers depend on it.
            span: of the samples that come in; None: they are the whole mini-batch.
        """
        if self.below is not None:
            incoming = self.below.up.unpack(incoming)
        self.step_under_way = step
        self._device = incoming["s"].device
        self._samples = len(incoming["s"])
        self._span = span or SampleSpan(0, self._samples)
        self._encoded = self.f.run(self.prepared(incoming), step)
        outgoing = self.passed_up(incoming, stopped(self._encoded))
        if self.contract is not None:
            outgoing = self.contract.passed_up(outgoing, self.passed_up, self._samples)
        return outgoing if self.above is None else self.above.up.pack(outgoing)

    def label_step(self, incoming: Tensors) -> Tensors:
        """L, after F: computes the local losses; returns what the next component gets with the labels."""
        assert self._encoded is not None, "L before F"
        encoded, self._encoded = self._encoded, None
        # The first component of a stage has its input here too, and others do not: no loss may see it.
        incoming = {name: value for name, value in incoming.items() if name not in ALONG}
        with self._pass(_LOSSES):
            given = self.local_losses(encoded, incoming)
            if self.contract is not None:
                given = self.contract.losses_and_labels(given, self.local_losses, self._samples)
            self._losses, passed_on = given
        return passed_on

    def backward_step(self) -> Tensors:
        """B, after L: the gradients of the local losses. Returns the losses by name, detached scalars."""
        assert self._losses is not None, "B before L"
        losses, self._losses = self._losses, None
        for optimizer in self._optimizers.values():
            optimizer.zero_grad()
        graphs = [loss for loss in losses.values() if loss.requires_grad]
        if len(graphs) < len(losses) and trainable(self.f):
            graphs = list(losses.values())  # autograd names the loss that trains nothing
        if graphs:
            with self._pass("the backward pass"), backward_of([self]):
                torch.autograd.backward(graphs)  # one pass over all graphs is faster than one for each
            separate_gradients(each for optimizer in self._optimizers.values() for each in optimizer.parameters)
        return {name: loss.detach() for name, loss in losses.items()}

    def update_step(self, lr: float) -> None:
        """U: one step of every optimizer, at this rate."""
        with self._pass(_UPDATE):
            self.step_optimizers(lr)

    def _pass(self, name: str) -> AbstractContextManager[None]:
        """Around a pass of the method. A user's code may draw from any generator, and raise any error."""
        # An update is the same on all replicas, so that their weights stay equal.
        purpose = (self.step_under_way,) if name == _UPDATE else self.f.purpose(self.step_under_way)
        if self.own_losses is not None or (self.losses_draw and name == _LOSSES):
            seed_all(self._device, self.f.seed, "draw", self.index, *purpose, name)
        return self.naming(name)

    def infer(self, incoming: Tensors, *purpose: str | int) -> Tensors:
        """E: f's output in the form in which a turn reads it, and in which the next component gets it but for `sent`.

        Args:
            purpose: what random numbers are drawn from, if any are.
        """
        if self.below is not None:
            incoming = self.below.up.unpack(incoming)
        passage = self.passage
        outgoing = stopped(self.f.run(incoming if passage is None else passage.before(incoming), *purpose))
        if passage is not None:
            outgoing = passage.after(incoming, outgoing)
        if self.adds_up:
            assert self.turn is not None, "a component that adds up has a turn"
            outgoing["score"] = row_major(added(incoming, read(self.turn, outgoing)))
        return outgoing

    def sent(self, outgoing: Tensors) -> Tensors:
        """What `infer` gave, as the next component gets it."""
        return outgoing if self.above is None else self.above.up.pack(outgoing)

    def code(self, outgoing: Tensors) -> torch.Tensor:
        """The turn of a route: from what `infer` gave to what the route carries down, `[N, ...]`."""
        if self.adds_up:
            return outgoing["score"]
        assert self.turn is not None, "no route ends here"
        return read(self.turn, outgoing)

    def decode(self, t: torch.Tensor) -> torch.Tensor:
        """D: one step of a route down, `[N, ...] -> [N, ...]`; the first component gives class scores."""
        if self.decoder is None:
            return t
        result: torch.Tensor = self.decoder(t)
        return result


class ComparingComponent(LocalComponent):
    """A component whose loss compares the samples of a mini-batch with each other, by a code of each.

    A replica compares the samples of its share or, where the component `gathers`, those of all replicas. A subclass
    defines `codes`, and its `local_losses` begins with `compared(own_codes(encoded), labels)`.
    """

    def __init__(self, index: int, f: Encoder, *, gathers: bool) -> None:
        """
        Args:
            gathers: whether codes are compared over all replicas.
        """
        super().__init__(index, f)
        self.gathers = gathers
        self._codes: torch.Tensor | None = None  # this replica's, while those of the others are on their way
        self._gathered: tuple[torch.Tensor, int] | None = None

    @abstractmethod
    def codes(self, encoded: Tensors) -> torch.Tensor:
        """The codes `[N, D]` of f's output, with their gradient graph."""

    def to_gather(self, incoming: Tensors) -> torch.Tensor:
        """After F and before L, where there are several replicas: the codes, with the labels as one more column.

        Args:
            incoming: `labels` [N], as the data gives them. Class numbers below 2^24 are exact in float32.
        """
        assert self._encoded is not None, "gathering before F"
        self._codes = self.codes(self._encoded)
        return torch.cat([self._codes.detach(), incoming["labels"].unsqueeze(1).to(self._codes.dtype)], 1)

    def take_gathered(self, rows: torch.Tensor, first: int) -> None:
        """The rows of all replicas, `[samples of the mini-batch, D + 1]`; those of this replica begin at `first`."""
        self._gathered = rows, first

    def own_codes(self, encoded: Tensors) -> torch.Tensor:
        """The codes `[N, D]` of this share, computed once for a mini-batch."""
        if self._codes is None:
            return self.codes(encoded)
        codes, self._codes = self._codes, None
        return codes

    def compared(self, own: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The codes `[N, D]` and class numbers `[N]` that the loss compares: of this share, or of all replicas.

        Of the latter, this replica's codes alone have a gradient. The gradient of the whole mini-batch is the sum over
        the replicas. Replicas average with the weights w_i = N_i / N instead, so each of them divides its part by
        its w_i. That holds for what is compared alone: other losses may use `own` as well.

        Args:
            own: `[N, D]`, the codes of this share, from `own_codes`.
        """
        if self._gathered is None:
            return own, labels
        (rows, first), self._gathered = self._gathered, None
        codes = own.view_as(own)
        scale = len(rows) / len(codes)
        if codes.requires_grad:
            codes.register_hook(lambda gradient: gradient * scale)
        rows = rows.to(codes.device)
        others = rows[:, :-1]
        return torch.cat([others[:first], codes, others[first + len(codes) :]]), rows[:, -1].long()


class CopyingComponent(LocalComponent):
    """A component of a network in which all components have copies of a part of the last one (`Method.copy_every`).

    A copy is part of its weights. `alray.runtime.stage.copies` calls what is defined here between two mini-batches.
    """

    @abstractmethod
    def original(self) -> Tensors:
        """Of the last component: the tensors that `Method.copied` names, as they are now. Later updates do not change
        what is returned."""

    @abstractmethod
    def take_copy(self, copy: Tensors) -> None:
        """Take over the latest copy, which is not used before `renew_copy`. The last component ignores it."""

    @abstractmethod
    def renew_copy(self) -> None:
        """Use the latest copy from now on."""


def added(incoming: Tensors, scores: torch.Tensor) -> torch.Tensor:
    """These scores and those of the depths below, `score` in `incoming`, which the first component lacks."""
    return incoming["score"] + scores if "score" in incoming else scores


def read(readout: nn.Module, encoded: Tensors) -> torch.Tensor:
    """A readout of f's output: `readout(s, mask)`, with the mask None where there is none; or the classifier of an
    imported model, which needs all that comes."""
    if getattr(readout, "alray_takes_message", False):
        with named(str(readout.alray_title), "its `forward`", key="model.from"):
            scores: torch.Tensor = readout(encoded)["s"]
        return scores
    result: torch.Tensor = readout(encoded["s"], encoded.get("mask"))
    return result
