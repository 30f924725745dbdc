"""One component by itself as the work of a stage: what the probe times and counts is what trains."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from alray.models.backpropagation import BackpropagationComponent
from alray.models.component import Component, LocalComponent
from alray.models.encoder import Tensors
from alray.models.network import Network
from alray.models.shape import Shape
from alray.runtime.stage.work.backpropagation import WHOLE, BackpropagationWork, MicroBatching
from alray.runtime.stage.work.local_losses import LocalLosses
from alray.runtime.stage.work.work import MicroBatch, Work


class ComponentWork:
    """The actions of one component on one mini-batch, one by one.

    They are called in the order F, L, B, U, or F, I, G where the backward has two parts. Repeating them changes no
    weight. Where there are neighbours, a component reads the outputs that the one below has just computed, and the
    gradients that the one above has just computed.
    """

    def __init__(self, network: Network, component: Component, incoming: Tensors, cut: MicroBatching = WHOLE) -> None:
        """
        Args:
            incoming: a mini-batch as the component gets it in training, or one micro-batch of it.
            cut: of a chain of backpropagation, how mini-batches are cut. The micro-batch is the first one each time.
        """
        self.component = component
        self.incoming = incoming
        samples, device = len(incoming["s"]), incoming["s"].device
        shape = network.route_shape(component.index + 1)
        self._route = torch.zeros(samples, *shape, dtype=shape.dtype, device=device)
        other = network.other_in_inference(component.index, samples, device)
        self._in_inference = incoming if other is None else other
        self._work: Work
        if isinstance(component, LocalComponent):
            self._work = LocalLosses([component])
        else:
            assert isinstance(component, BackpropagationComponent), "a component learns by one of both"
            self._work = BackpropagationWork([component], cut=cut)
        self._step = 1
        self._batch = self._next(incoming)

    def _next(self, incoming: Tensors) -> MicroBatch:
        return MicroBatch(self._step, incoming, len(incoming["s"]))

    @property
    def passed_up(self) -> Tensors:
        """What the next component gets: of F, and after L its labels too."""
        return self._batch.outgoing

    def actions(
        self, below: ComponentWork | None = None, above: ComponentWork | None = None
    ) -> dict[str, Callable[[], None]]:
        """All actions, by the names of their times in `ComponentCosts`.

        Args:
            below, above: the neighbours; None: there is none, and what would come from it is made up.
        """
        return {
            "forward_s": partial(self.forward, below),
            "label_s": self.label,
            "backward_s": partial(self.backward, above),
            "input_gradient_s": partial(self.input_gradient, above),
            "weight_gradients_s": self.weight_gradients,
            "update_s": self.update,
            "infer_s": self.infer,
            "route_s": self.route,
        }

    def forward(self, below: ComponentWork | None = None) -> None:
        """F: the encoder in training."""
        self._batch = self._next(self.incoming if below is None else below.passed_up)
        self._work.forward(self._batch)

    def label(self) -> None:
        """L: the label chain and the local losses, where the method has them."""
        if isinstance(self._work, LocalLosses):
            self._work.label(self._batch)

    def backward(self, above: ComponentWork | None = None) -> None:
        """B."""
        self._take_gradients(above)
        self._work.backward(self._batch)

    def input_gradient(self, above: ComponentWork | None = None) -> None:
        """I: the gradient for the component below, and those of small weights."""
        self._take_gradients(above)
        self._work.input_gradient(self._batch)

    def weight_gradients(self) -> None:
        """G: the gradients of large weights."""
        self._work.weight_gradients(self._batch)

    def _take_gradients(self, above: ComponentWork | None) -> None:
        """Before B of a chain of backpropagation: take the gradients of the output, and drop the output.

        Without a neighbour above, the gradients are ones, or a message of zeros where messages are compressed.
        """
        if isinstance(self._work, LocalLosses):
            return
        batch, shapes = self._batch, self._gradient_shapes()
        batch.outgoing = {}
        if above is not None:
            batch.from_above = above._batch.to_below
        else:
            value, device = int(self.component.above is None), batch.incoming["s"].device
            batch.from_above = {
                name: torch.full((batch.samples, *shape), value, dtype=shape.dtype, device=device)
                for name, shape in shapes.items()
            }

    def _gradient_shapes(self) -> dict[str, Shape]:
        """Shapes of the gradients of one sample, as a message has them."""
        sent, above = self._batch.outgoing, self.component.above
        if above is not None:
            sent = above.up.unpack(sent)
        shapes = {name: Shape(each.shape[1:], each.dtype) for name, each in sent.items() if each.is_floating_point()}
        return shapes if above is None else above.down.packed(shapes)

    def forget(self) -> None:
        """Keep nothing of the last mini-batch, as between two of them."""
        self._batch = self._next(self.incoming)

    def update(self) -> None:
        """U, at rate 0."""
        if self._work.clips_together:
            self._work.take_norms(self._work.own_norms())
        self._work.update(0.0, step=self._step)
        self._step += 1

    def infer(self) -> None:
        """E, with the turn of the route if one ends here, and its first step down."""
        self.component.eval()
        self._work.infer_up(self._in_inference, self._step, 0)
        self.component.train()

    def route(self) -> None:
        """D: one step of a route down."""
        self._work.infer_down([self._route])
