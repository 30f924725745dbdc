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
    """The fields are the keys of the section.

    The only route is the whole network.
    """

    local_losses = False

    def __init__(
        self,
        task: NetworkFacts,
        *,
        head: HeadOrAuto,
        label_smoothing: float,
        tied: bool = False,
    ) -> None:
        super().__init__(task)
        self.head = head
        self.tied = tied
        self.label_smoothing = label_smoothing

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> BackpropagationComponent:
        head = None
        if self._is_last(index):
            classes, of_model = self.task.classes, self.task.classifier
            if self.tied:
                head = make("head", lambda: tied_head(f.body, facts.output))
            elif self.head == "auto" and of_model is not None:
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
        )

    def labels_in(self, index: int) -> dict[str, Shape]:
        """The last component alone has a loss, and reads labels."""
        return self.given_labels if self._is_last(index) else {}

    def labels_out(self, index: int) -> dict[str, Shape]:
        """The labels as they are, up to the last component, which has the loss."""
        return {} if self._is_last(index) else self.given_labels
