"""`method: associated_learning`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from alray.config.sections.head import LabelSmoothing
from alray.config.sections.kind import Finding
from alray.config.sections.method import MethodSection
from alray.config.sections.paths import Path
from alray.config.sections.section import PositiveInt, Section, Width
from alray.config.sections.task import DEFAULT as DEFAULT_TASK

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec

Activation = Literal["tanh", "sigmoid", "none"]


class Bridge(Section):
    """The bridge b of a component: from its encoder's output to the width of the label chain."""

    pool: PositiveInt | None = 4
    """Images are averaged to at most this height and width first, over exact windows. null: no pooling."""
    hidden: Width | None = None
    """Width of a hidden layer, with the activation of `label_activation`. null: no hidden layer."""


class AssociatedLearning(MethodSection):
    """Associated Learning: every component has local losses, nothing travels backwards."""

    implementation = "method:AssociatedMethod"
    abbreviation = "AL"
    tasks = None
    takes_shares = True
    trains = "associated loss, autoencoder loss"
    travels = "s, t"
    source = "Kao and Chen 2021; Wu et al., ICLR 2022"

    kind: Literal["associated_learning"] = "associated_learning"
    """`associated_learning`."""
    label_dim: Width = 128
    """Width of the label chain t_l."""
    label_activation: Activation = "tanh"
    """After the label encoders g and the bridges b."""
    decoder_activation: Activation = "none"
    """After the label decoders h of every component but the first."""
    first_decoder_activation: Activation = "none"
    """After the label decoder h of the first component, whose output are the classes' scores, or the predictions of
    another task."""
    bridge: Bridge = Bridge()
    """The bridges b."""
    first_label_loss: Literal["auto", "cross_entropy", "mse"] = "auto"
    """Autoencoder loss of the first component; that of the others is the mean squared error. `auto`: the loss of the
    task, in classification the cross-entropy. Default: auto."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target that the first component's autoencoder loss spreads evenly over all classes. It is
    not for `first_label_loss: mse`."""
    sampled_tokens: PositiveInt | None = None
    """Tokens, drawn for each mini-batch, from which the first component's autoencoder loss is estimated. It saves time
    where the vocabulary is large. Only for `task: next_token`. null: all tokens."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        yield from self._of_first_loss(spec, at)
        if self.sampled_tokens is None:
            return
        if spec.task.kind != "next_token":
            yield (*at, "sampled_tokens"), f"the task {spec.task.kind} has no tokens", "leave it out"
        elif self.first_decoder_activation != "none":
            yield (
                (*at, "first_decoder_activation"),
                "the loss of sampled tokens takes the scores as they are",
                "leave it out, or leave out sampled_tokens",
            )

    def _of_first_loss(self, spec: Spec, at: Path) -> Iterator[Finding]:
        """The squared error has a one-hot target, and other tasks need other losses."""
        task = spec.task.kind
        if self.label_smoothing and self.first_label_loss == "mse":
            yield (
                (*at, "label_smoothing"),
                f"`{self.first_label_loss}` is not a cross-entropy",
                "leave it out, or set method.first_label_loss to cross_entropy",
            )
        if task == "next_token" and self.first_label_loss != "auto":
            yield (
                (*at, "first_label_loss"),
                "a token is no vector, and its loss is the cross-entropy",
                "leave it out: it is then the loss of the task",
            )
        elif task != DEFAULT_TASK and self.first_label_loss == "cross_entropy":
            yield (
                (*at, "first_label_loss"),
                f"`cross_entropy` is for classes, and the task is {task}",
                "leave it out: it is then the loss of the task",
            )
