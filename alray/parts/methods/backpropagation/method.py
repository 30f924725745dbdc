"""Backpropagation of the loss of the task through all components."""

from __future__ import annotations

from alray.config.sections.head import HeadOrAuto
from alray.models.backpropagation import BackpropagationComponent
from alray.models.encoder import Encoder, EncoderFacts
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.readout import head_of
from alray.models.shape import Shape
from alray.models.tied_readout import tied_head


class BackpropagationMethod(Method):
    """The fields are the keys in `keys.py`.

    The only route is the whole network. With deep supervision (Lee et al., "Deeply-Supervised Nets", AISTATS 2015)
    every component has a classifier, the loss is

        CE(head_L(s_L), y) + deep_supervision * (CE(head_1(s_1), y) + ... + CE(head_{L-1}(s_{L-1}), y)),

    whose gradient goes through all components, and every depth is a route. It is the control of methods with a
    classifier after every component: the same parts, with gradients that do not stop.
    """

    local_losses = False

    def __init__(
        self,
        task: NetworkFacts,
        *,
        head: HeadOrAuto,
        label_smoothing: float,
        deep_supervision: float = 0.0,
        tied: bool = False,
    ) -> None:
        super().__init__(task)
        self.head = head
        self.tied = tied
        self.label_smoothing = label_smoothing
        self.deep_supervision = deep_supervision

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> BackpropagationComponent:
        head = None
        if self.ends_route(index):
            classes, of_model = self.task.classes, self.task.classifier
            if self.tied:
                head = make("head", lambda: tied_head(f.body, facts.output))
            elif self.head == "auto" and of_model is not None and self._is_last(index):
                head = make("head", lambda: of_model(facts.output, classes))
            else:
                head = make("head", lambda: head_of(self.head, facts.output, classes=classes, pooling=facts.pooling))
        return BackpropagationComponent(
            index,
            f=f,
            head=head,
            optimizer=self.task.optimizer,
            learning=self.task.learning,
            label_smoothing=self.label_smoothing,
            loss_weight=1.0 if self._is_last(index) else self.deep_supervision,
        )

    def ends_route(self, index: int) -> bool:
        """The last component ends a route; with deep supervision, every one does."""
        return self._is_last(index) or self.deep_supervision > 0

    def labels_in(self, index: int) -> dict[str, Shape]:
        """Components with a loss read labels."""
        return self.given_labels if self.ends_route(index) else {}

    def labels_out(self, index: int) -> dict[str, Shape]:
        """The labels as they are, up to the last component, which has the loss."""
        return {} if self._is_last(index) else self.given_labels
