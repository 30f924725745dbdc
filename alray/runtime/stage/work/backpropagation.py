"""A chain of backpropagation: the loss at the end of the network, whose gradient goes back through every component.

On one device the chain is the whole network. In a pipeline it is cut into virtual stages: outputs go up and their
gradients come down, micro-batch by micro-batch. The gradients of micro-batches are added up in the order of the
schedule's list, and divided by their number once, at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils.hooks import RemovableHandle

from alray.core import accelerator
from alray.core.errors import StageError
from alray.core.randomness.generators import put_back
from alray.models.backpropagation import BackpropagationComponent
from alray.models.boundary import across
from alray.models.component import Component, backward_of, read
from alray.models.delayed_weights import DelayedWeights, keeping_versions
from alray.models.encoder import Tensors, alias, in_default_strides, row_major
from alray.models.gradients import clip, gradient_norms, separate_gradients
from alray.models.split_backward import LaterWeights, SplitBackward
from alray.models.weight_average import name_in_checkpoint
from alray.runtime.stage.work.work import ComponentLosses, MicroBatch, Norms, Work, all_finite

Losses = dict[int, torch.Tensor]
"""The losses of the components that have one, by their index: scalars."""
Named = dict[tuple[int, str], nn.Parameter]
"""Parameters by the component's number and their name in a checkpoint."""
Buffers = dict[tuple[nn.Module, str], torch.Tensor | None]
"""Buffers by their module and their name in it."""


@dataclass(eq=False)
class ChainWork(Work):
    """Components on one device that are trained by the gradient of one loss."""

    components: Sequence[BackpropagationComponent]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chains = [self.components[run] for run in self.runs]
        self._clip_norm = self.components[0].clip_norm
        self._norms = torch.zeros(0)  # of all gradients of the update, in the order of the network

    @property
    def clips_together(self) -> bool:
        return self._clip_norm is not None

    def own_norms(self) -> Norms:
        for component in self.components:
            for optimizer in component.optimizers().values():
                optimizer.gather()
        separate_gradients(parameter for component in self.components for parameter in component.updated)
        return {
            component.index: gradient_norms(component.updated) for component in self.components if component.updated
        }

    def take_norms(self, norms: Norms) -> None:
        self._norms = torch.cat([norms[index] for index in sorted(norms)])

    def zero_gradients(self, own: int = 0) -> None:
        """Forget the gradients of virtual stage `own`."""
        for component in self.chains[own]:
            for optimizer in component.optimizers().values():
                optimizer.zero_grad()

    def update(self, lr: float, own: int = 0, *, step: int) -> None:
        for component in self.chains[own]:
            if self._clip_norm is not None and component.updated:
                clip(component.updated, self._clip_norm, self._norms)
            component.step_under_way = step
            component.step_optimizers(lr)
        self.zero_gradients(own)

    @torch.no_grad()
    def _infer_up(self, incoming: Tensors, step: int, batch: int, own: int) -> tuple[Tensors, list[torch.Tensor]]:
        """One route is the whole network."""
        chain = self.chains[own]
        incoming = received(chain, incoming)
        outgoing, scores = through(chain, incoming, step, "evaluation", batch)
        above = chain[-1].above
        if above is not None:
            outgoing = above.up.pack(outgoing)
        return outgoing, list(scores.values())

    @torch.no_grad()
    def infer_down(self, routes: list[torch.Tensor], own: int = 0) -> list[torch.Tensor]:
        return routes


@dataclass
class _Graph:
    """What the backward of one micro-batch needs of its forward. The output itself is not kept.

    Attributes:
        leaves: the tensors of the input, by name, whose gradients go down.
        edges: where the gradients of the output enter, by name.
        loss: where the chain ends in it.
        later: of a split backward, the gradients of weights that are left to G; None: none are.
    """

    leaves: Tensors
    edges: dict[str, GradientEdge] = field(default_factory=dict)
    loss: torch.Tensor | None = None
    later: LaterWeights | None = None


@dataclass(frozen=True)
class MicroBatching:
    """How mini-batches are cut into micro-batches.

    Attributes:
        count: micro-batches of a mini-batch.
        split: the micro-batches whose backward has two parts, I and G, as (virtual stage of this stage, number). The
            layers of the others run as torch's own; those that leave their weights for later cost some 30 us more each.
    """

    count: int = 1
    split: Collection[tuple[int, int]] = frozenset()


WHOLE = MicroBatching()
"""They are not cut."""


@dataclass(eq=False)
class BackpropagationWork(ChainWork):
    """Forward, backward, and a backward in two parts, of one micro-batch in one virtual stage."""

    cut: MicroBatching = WHOLE

    def __post_init__(self) -> None:
        self.averages_early = self.averages_early and self.replication.averages_in_backward
        super().__post_init__()
        self._micro_batches = self.cut.count
        self._splits = [SplitBackward(chain) for chain in self.chains] if self.cut.split else []
        self._graphs: dict[tuple[int, int], _Graph] = {}  # by virtual stage and micro-batch
        self._buffers: dict[tuple[int, int], Buffers] = {}  # before a forward that is computed again, by the same
        self._losses: dict[int, Losses] = {}  # by micro-batch
        self._backwards = 0  # of micro-batches through the loss
        self._left = [self.cut.count] * len(self.chains)  # micro-batches whose gradients are not complete
        self._ready = [GradientsReady(chain, self._complete) for chain in self.chains]
        self._trainable = [
            [each for component in chain for each in component.parameters() if each.requires_grad]
            for chain in self.chains
        ]
        self._late = [_late(chain) for chain in self.chains]
        self._fixed = [_fixed(chain) for chain in self.chains]
        # The virtual stages and mini-batches in which parameters were summed up around a forward.
        self._summed: set[tuple[int, int]] = set()
        self._samples = 0  # of the mini-batch that a virtual stage completes
        self._starts_sums = False  # whether they begin as its components are complete

    def update(self, lr: float, own: int = 0, *, step: int) -> None:
        super().update(lr, own, step=step)
        self._left[own] = self._micro_batches
        if own == len(self.chains) - 1:  # no other one has losses
            self._losses = {}
            self._backwards = 0

    @contextmanager
    def _weights(self, batch: MicroBatch, *, kept: bool = False) -> Iterator[None]:
        """Within it, this virtual stage has the weights with which the mini-batch is computed.

        Args:
            kept: whether a backward pass needs them later.
        """
        versions = [version for component in self.chains[batch.own] for version in _versions(component)]
        for each in versions:
            each.use(batch.step)
        with keeping_versions(versions) if kept and versions else nullcontext():
            yield

    def forward(self, batch: MicroBatch) -> None:
        if self._buffers:  # others wait, and are computed again with the buffers from before this one
            self._buffers_kept(batch)
        else:
            self._send_forward(batch)

    def _send_forward(self, batch: MicroBatch) -> None:
        outgoing = self._forward(batch)
        if batch.number == self._micro_batches - 1:
            for component in self.chains[batch.own]:
                if component.weight_average is not None and _versions(component):
                    # Buffers have no versions, and the next mini-batch may change them before the update of this one.
                    component.weight_average.keep_buffers()
        if outgoing is not None:
            chain = self.chains[batch.own]
            if chain[-1].above is not None:
                outgoing = chain[-1].above.up.pack(outgoing)
            batch.outgoing = outgoing | {"labels": batch.incoming["labels"]}

    def _forward(self, batch: MicroBatch) -> Tensors | None:
        """F. Every virtual stage but the first asks for its input's gradient, even where nothing below learns.

        Returns the output, or None of a chain that ends in the loss.
        """
        chain = self.chains[batch.own]
        incoming = received(chain, batch.incoming)
        leaves: Tensors = {}
        if chain[0].index > 0:
            leaves = {name: value.detach().requires_grad_() for name, value in _floating(incoming).items()}
        graph = self._graphs[batch.own, batch.number] = _Graph(leaves)
        if (batch.own, batch.number) in self.cut.split and leaves:
            graph.later = LaterWeights()
        purpose = draw_purpose(batch.step, batch.number, self._micro_batches)
        noting = self._splits[batch.own].noting(graph.later) if graph.later is not None else nullcontext()
        late = self._late[batch.own]
        unchanging = self._unchanging(batch, late, _changes_late) if late else nullcontext()
        with self._weights(batch, kept=True), noting, unchanging:
            # Of a leaf that is used twice, as of a weight, autocast would add up the gradients in the lower type.
            given = {name: alias(leaf) for name, leaf in leaves.items()}
            outgoing, scores = through(chain, incoming | given, *purpose)
            if chain[-1].index in scores:
                losses = losses_of(chain, scores, incoming["labels"])
                graph.loss = losses[chain[-1].index]
                self._losses[batch.number] = {index: loss.detach() for index, loss in losses.items()}
                return None
        graph.edges = {
            name: get_gradient_edge(value) for name, value in _floating(outgoing).items() if value.requires_grad
        }
        return {name: value.detach() for name, value in outgoing.items()}

    def forward_alone(self, batch: MicroBatch) -> None:
        """F before C: of its graph nothing is kept but the input, and the buffers that this forward changes.

        It is not run under `no_grad`: a compiled block, and some operations of torch, would then choose other kernels,
        whose bits may differ. The second forward needs the same memory in any case.

        Raises StageError if it changes a parameter: the second forward would do so again.
        """
        key = batch.own, batch.number
        with self._weights(batch), self._unchanging(batch, self._fixed[batch.own], _changes_again):
            self._buffers[key] = self._buffers_kept(batch)
        del self._graphs[key]

    @contextmanager
    def _unchanging(
        self,
        batch: MicroBatch,
        parameters: Named,
        refused: Callable[[int, str], StageError],
    ) -> Iterator[None]:
        """Raise the StageError that `refused` makes if a forward within it changes one of these parameters, or gives it
        another memory.

        torch counts no write by `.data`, and reading all weights each time takes too long. So they are summed up in one
        forward of the first mini-batch, and of those numbered 1, 2, 4, 8 and so on: a block that begins such writes
        later is found by the next of them.
        """
        now, is_first = (batch.own, batch.step), all(own != batch.own for own, _ in self._summed)
        is_summed = is_first or (batch.step & (batch.step - 1) == 0 and now not in self._summed)
        sums = [each.detach().double().sum() for each in parameters.values()] if is_summed else None
        places = [(each._version, each.data_ptr()) for each in parameters.values()]
        yield
        for at, parameter, place in zip(parameters, parameters.values(), places, strict=True):
            if (parameter._version, parameter.data_ptr()) != place:
                raise refused(*at)
        if sums is not None:
            self._summed.add(now)
            for at, parameter, before in zip(parameters, parameters.values(), sums, strict=True):
                if not torch.equal(parameter.detach().double().sum(), before) and not before.isnan():
                    raise refused(*at)

    def recompute(self, batch: MicroBatch) -> None:
        """C: the second forward draws what the first one drew, because random numbers are drawn from the purpose. It
        has copies of the buffers that the first one changed, so that it changes nothing that others read."""
        now = self._buffers_of(batch.own)
        with put_back(batch.incoming["s"].device):
            _put_buffers(self._buffers.pop((batch.own, batch.number)), in_place_of=now)
            try:
                self._forward(batch)
            finally:
                _put_buffers(now, in_place_of=self._buffers_of(batch.own))

    def _buffers_kept(self, batch: MicroBatch) -> Buffers:
        """Run F. Returns the buffers from before it, in place of those that it changes copies. Micro-batches that wait
        have copies of these, too."""
        before = self._buffers_of(batch.own)
        copied = {each: _Copy(each.detach().clone(), each._version) for each in before.values() if each is not None}
        self._send_forward(batch)
        after = self._buffers_of(batch.own)
        written = _written(copied)
        changed = {
            at: copied[value].value
            for at, value in before.items()
            if value is not None and (after.get(at) is not value or value in written)
        }
        for waiting in self._buffers.values():
            for at, value in changed.items():
                if waiting.get(at) is before[at]:
                    waiting[at] = value.clone()
        return before | changed

    def _buffers_of(self, own: int) -> Buffers:
        modules = (part for component in self.chains[own] for part in component.modules())
        return {(module, name): value for module in modules for name, value in module._buffers.items()}

    def backward(self, batch: MicroBatch) -> ComponentLosses:
        """B of a micro-batch. The last one returns the mean losses of the mini-batch."""
        return self._whole_backward(self._graphs.pop((batch.own, batch.number)), batch)

    def input_gradient(self, batch: MicroBatch) -> ComponentLosses:
        """I. Nothing waits for it on the first virtual stage, where G does it all."""
        graph = self._graphs[batch.own, batch.number]
        return self._gradients(graph, batch) if graph.leaves else {}

    def weight_gradients(self, batch: MicroBatch) -> None:
        graph = self._graphs.pop((batch.own, batch.number))
        if graph.later is not None:
            self._left_gradients(graph.later, batch)
        else:
            self._whole_backward(graph, batch)

    def _gradients(self, graph: _Graph, batch: MicroBatch) -> ComponentLosses:
        """Gradients of the weights, added to those of earlier micro-batches, and of what came in.

        Returns the mean losses if this was the last micro-batch of the chain that ends in the loss.
        """
        chain = self.chains[batch.own]
        above, below = chain[-1].above, chain[0].below
        from_above = batch.from_above if above is None else above.down.unpack(batch.from_above)
        names = [name for name in graph.edges if name in from_above]
        roots = (graph.loss,) if graph.loss is not None else tuple(graph.edges[name] for name in names)
        gradients = None if graph.loss is not None else tuple(from_above[name] for name in names)
        graph.loss, graph.edges, batch.from_above = None, {}, {}
        new = [parameter for parameter in self._trainable[batch.own] if parameter.grad is None]
        if roots:
            with (
                self._weights(batch),
                backward_of(chain),
                nullcontext() if graph.later is None else self._splits[batch.own].deferring(graph.later, roots),
            ):
                torch.autograd.backward(roots, gradients)
        # A block may ignore a part of its input. Zeros in its place would move the weights below where they decay.
        batch.to_below = {name: leaf.grad for name, leaf in graph.leaves.items() if leaf.grad is not None}
        graph.leaves = {}  # until G
        # The next pass may add to the parameters' before a message has left, or G has read what is left to it.
        separate_gradients(new, [*batch.to_below.values(), *(graph.later.gradients() if graph.later else ())])
        if below is not None:
            batch.to_below = below.down.pack(batch.to_below)
        if gradients is not None:
            return {}
        self._backwards += 1
        if self._backwards < self._micro_batches:
            return {}
        return {
            index: {chain[-1].loss_name: torch.stack([losses[index] for losses in self._losses.values()]).mean()}
            for index in self._losses[batch.number]
        }

    def _whole_backward(self, graph: _Graph, batch: MicroBatch) -> ComponentLosses:
        """A backward pass that leaves nothing to G. In the last one components are complete one after another."""
        if not self._completes(batch):
            return self._gradients(graph, batch)
        ready = self._ready[batch.own]
        if self._starts_sums:
            ready.begin(adds=self._micro_batches > 1)
        losses = self._gradients(graph, batch)
        ready.finish()
        return losses

    def _left_gradients(self, later: LaterWeights, batch: MicroBatch) -> None:
        """What a backward pass has left to G, in the order of that pass."""
        completes = self._completes(batch)
        for component in reversed(self.chains[batch.own]):
            with backward_of([component]):
                later.compute(component.parameters())
            if completes:
                self._complete(component)

    def _completes(self, batch: MicroBatch) -> bool:
        """Whether the gradients of this micro-batch are the last ones of the mini-batch in its virtual stage.

        If they are, `_complete` follows for each component.
        """
        self._left[batch.own] -= 1
        if self._left[batch.own]:
            return False
        self._samples = batch.samples
        self._starts_sums = self.averages_early
        if self._starts_sums and self.chains[batch.own][-1].head is not None:
            # With one that is not finite the run ends with this mini-batch.
            self._starts_sums = all_finite(loss for losses in self._losses.values() for loss in losses.values())
        return True

    def _complete(self, component: Component) -> None:
        """The gradients of all micro-batches are added up: make them those of the mini-batch, and begin to average."""
        if self._micro_batches > 1:
            for parameter in component.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(self._micro_batches)
        if self._starts_sums:
            self.replication.start(component, self._samples)


class GradientsReady:
    """Calls back with each component as soon as a backward pass has completed its gradients, the last one first.

    The order is the same on every replica, even where a parameter has a gradient on one replica and none on another: a
    component waits for all above it, and components that miss a gradient come at the end.
    """

    def __init__(self, components: Sequence[Component], ready: Callable[[Component], None]) -> None:
        self._components = list(components)
        self._ready = ready
        self._trainable = [[each for each in own.parameters() if each.requires_grad] for own in components]
        self._times: list[list[int]] | None = None  # how often each gradient comes in a pass; None before the first one
        self._seen: list[list[int]] = []  # how often it has come in this one
        self._missing: list[int] = []  # gradients still to come, by component
        self._hooks: list[RemovableHandle] = []
        self._called = 0

    def begin(self, *, adds: bool = False) -> None:
        """Call before a backward pass that completes the gradients of a mini-batch.

        The first such pass counts how often each gradient comes, and completes none before its end: a block may compute
        parts of itself in passes within this one, and each of them adds to the gradient. The next pass may have more of
        them, so such a component always comes at the end.

        Args:
            adds: whether it adds to the gradients of other passes, and `ready` changes the sums. A gradient that no
                other pass has given may lie in memory that this pass still needs, so its component comes at the end.
        """
        self._seen = [[0] * len(own) for own in self._trainable]
        for index, own in enumerate(self._trainable):
            self._hooks += [
                each.register_post_accumulate_grad_hook(partial(self._came, index, place))
                for place, each in enumerate(own)
                if each.requires_grad  # a block may have frozen it since
            ]
        if self._times is not None:
            self._missing = [
                sum(times) + (max(times, default=0) > 1 or (adds and any(each.grad is None for each in own)))
                for times, own in zip(self._times, self._trainable, strict=True)
            ]
            self._call(complete=True)  # components without parameters, where no other is above them

    def finish(self) -> None:
        """Call after it: the components that are left are ready. After a pass without `begin`, all are."""
        self._call(complete=False)
        for hook in self._hooks:
            hook.remove()
        if self._seen:  # one that did not come, such as of a layer that is skipped by chance, comes at least once
            before = self._times or [[1] * len(own) for own in self._trainable]
            self._times = [list(map(max, *both)) for both in zip(before, self._seen, strict=True)]
        self._hooks, self._seen = [], []
        self._called = 0

    def _came(self, index: int, place: int, _: torch.Tensor) -> None:
        self._seen[index][place] += 1
        if self._times is None:
            return
        if self._seen[index][place] <= self._times[index][place]:
            self._missing[index] -= 1
            self._call(complete=True)
        elif index >= len(self._components) - self._called:
            raise StageError(
                f"a gradient of component {self._components[index].index} came more often than in the mini-batches "
                "before, and its replicas average it already",
                hint="let the component's `forward` compute the same in each mini-batch",
            )

    def _call(self, *, complete: bool) -> None:
        while self._called < len(self._components):
            index = len(self._components) - 1 - self._called
            if complete and self._missing[index] > 0:
                return
            self._called += 1
            self._ready(self._components[index])


def _versions(component: Component) -> list[DelayedWeights]:
    """The versions of a component's weights, of each of its optimizers; none where gradients are not late."""
    return [each.delayed for each in component.optimizers().values() if each.delayed is not None]


def _late(chain: Sequence[Component]) -> Named:
    """The parameters that have several versions."""
    late = {each for component in chain for versions in _versions(component) for each in versions.parameters}
    return _named(chain, late.__contains__)


def _fixed(chain: Sequence[Component]) -> Named:
    """The parameters that no forward may change that is computed twice. Embeddings with a largest norm are not among
    them: a second forward finds them within it."""
    within = {
        module.weight
        for component in chain
        for module in component.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None
    }
    return _named(chain, lambda each: each not in within)


def _named(chain: Sequence[Component], wanted: Callable[[nn.Parameter], bool]) -> Named:
    return {
        (component.index, name_in_checkpoint(name)): value
        for component in chain
        for name, value in component.named_parameters()
        if wanted(value)
    }


def draw_purpose(step: int, micro_batch: int, micro_batches: int) -> tuple[str | int, ...]:
    """Return the key from which a micro-batch's random numbers are drawn, in addition to the seed and the component.

    It is the same in every pipeline, and without micro-batches the same as on one device.
    """
    return (step,) if micro_batches == 1 else (step, "micro_batch", micro_batch)


def through(
    components: Sequence[BackpropagationComponent], incoming: Tensors, *purpose: str | int
) -> tuple[Tensors, dict[int, torch.Tensor]]:
    """Run these components. Returns what the last one gives, in default strides, and the scores of those with a head.

    Gradients pass from one component to the one below in default strides, too, as they do from stage to stage. Between
    two of these components, what passes is compressed and uncompressed again where the spec says so.

    Returns:
        The output by name; scores `[N, classes]` by the index of the component, the first one first.
    """
    scores = {}
    before: BackpropagationComponent | None = None
    for component in components:
        if before is not None and before.above is not None and component.below is not None:
            incoming = across(incoming, before.above.up, component.below.down)
        before = component
        incoming = in_default_strides(component.f.run(incoming, *purpose))
        for value in incoming.values():
            if value.requires_grad:
                value.register_hook(row_major)
        if component.head is not None:
            scores[component.index] = read(component.head, incoming)
    return incoming, scores


def received(chain: Sequence[BackpropagationComponent], incoming: Tensors) -> Tensors:
    """What the first component gets of what came in."""
    below = chain[0].below
    return incoming if below is None else below.up.unpack(incoming)


def _floating(tensors: Tensors) -> Tensors:
    """Those that have gradients."""
    return {name: value for name, value in tensors.items() if name != "labels" and value.is_floating_point()}


def _changes_again(index: int, name: str) -> StageError:
    return StageError(
        f"the forward of component {index} changes the parameter `{name}`, and is computed twice with "
        "activation_checkpointing",
        hint="leave pipeline.activation_checkpointing out, let only the optimizer change it, or make it a buffer",
    )


def _changes_late(index: int, name: str) -> StageError:
    return StageError(
        f"the forward of component {index} changes the parameter `{name}`, of which a schedule with late gradients has "
        "two versions",
        hint="choose another schedule, let only the optimizer change it (so leave out `max_norm` of an embedding), or "
        "make it a buffer",
    )


@dataclass(frozen=True)
class _Copy:
    """A copy of a buffer, and the buffer's version when it was made."""

    value: torch.Tensor
    version: int


def _written(copied: Mapping[torch.Tensor, _Copy]) -> set[torch.Tensor]:
    """The buffers that have other values than their copies: torch counts no write by `.data`."""
    found, unsure = set(), defaultdict(list)
    for buffer, copy in copied.items():
        is_plain = accelerator.is_plain(buffer) and buffer.layout == torch.strided
        if buffer._version != copy.version or not is_plain or buffer.shape != copy.value.shape:
            found.add(buffer)
        else:
            unsure[buffer.device].append((buffer, torch.ne(buffer, copy.value).any()))
    for pairs in unsure.values():  # an accelerator answers once for all
        differ = torch.stack([differs for _, differs in pairs]).tolist()
        found |= {buffer for (buffer, _), differs in zip(pairs, differ, strict=True) if differs}
    return found


def _put_buffers(buffers: Buffers, *, in_place_of: Buffers) -> None:
    """Put buffers in their places, and take away those that have no place among them."""
    for module, name in in_place_of.keys() - buffers.keys():
        del module._buffers[name]
    for (module, name), value in buffers.items():
        module._buffers[name] = value


def losses_of(
    components: Sequence[BackpropagationComponent], scores: Mapping[int, torch.Tensor], labels: torch.Tensor
) -> Losses:
    """The loss of each component that has scores.

    Args:
        labels: class numbers `[N]`.
    """
    return {each.index: each.loss(scores[each.index], labels) for each in components if each.index in scores}
