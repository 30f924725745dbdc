"""The task that a Python program gives as a loss and metrics: functions of outputs and labels, or objects of torch and
torchmetrics."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from alray.config.user_code import named
from alray.core.errors import FAULTS_OF_USER_CODE, RequestError, SpecError, UserCodeError
from alray.core.randomness.generators import put_back
from alray.models.task import Label, LearningTask, Tally, ValuesPrediction

_OF_SCORES = {nn.BCELoss: "BCEWithLogitsLoss", nn.NLLLoss: "CrossEntropyLoss"}
"""Losses of torch that take probabilities or their logarithms, and those that take scores."""
OfOutputs = Callable[[Tensor, Tensor], Any]
"""Takes outputs [N, ...] and labels [N, ...]."""


class LossTask(LearningTask):
    """A loss and metrics of the program. Outputs are those of its model, and labels what its data give.

    A readout of a method gives as many outputs as the model does, for each position if the model does.
    """

    metrics = ("score", "cost")
    takes_any_label = True
    compares_labels = True

    loss_of: ClassVar[tuple[OfOutputs]]
    """The loss: the mean over the samples of a mini-batch. In a tuple, so that it is no method."""
    metrics_of: ClassVar[tuple[OfOutputs, ...]]

    def __init__(self, section: Any, width: int, sample: tuple[int, ...] = ()) -> None:
        super().__init__(section, width, sample)
        if self.metric.name == "score" and not self.metrics_of:
            raise RequestError(
                "this run had metrics, the first of which chose its best checkpoint",
                key="loss",
                hint="give them again, with the loss: metrics=[...]",
            )

    def of_outputs(self, outputs: tuple[int, ...], *, by_model: bool) -> None:
        super().of_outputs(outputs, by_model=by_model)
        self.width = outputs[-1] if outputs else 1
        self.by_position = not self.label_dtype.is_floating_point and self.label_shape == outputs[:-1] != ()
        self.ignores = self.by_position
        (loss,) = self.loss_of
        of_scores = next((name for kind, name in _OF_SCORES.items() if isinstance(loss, kind)), None)
        if not by_model and of_scores is not None:
            raise SpecError(
                f"{type(loss).__name__} takes what the model makes of its scores, and a readout of local losses gives "
                "scores",
                key="loss",
                hint=f"give torch.nn.{of_scores}(), and let the model return scores; or method=backpropagation",
            )
        if not by_model and len(outputs) != 1 and not self.by_position:
            raise SpecError(
                f"the model gives {outputs} for a sample, and a readout of local losses gives one vector, or one for "
                "each position that has a whole number as its label",
                key="method.kind",
                hint="backpropagation learns by the last layer of the model alone: method=backpropagation",
            )
        if outputs == (1,) and not self.label_shape:
            _require_own_labels(loss, self.label_dtype)

    @property
    def label_shape(self) -> tuple[int, ...]:
        return () if self.labels is None else tuple(self.labels)

    @property
    def label_dtype(self) -> torch.dtype:
        return torch.int64 if self.labels is None else self.labels.dtype

    @property
    def readout_shape(self) -> tuple[int, ...]:
        return (*self.label_shape, self.width) if self.by_position else (self.width,)

    def suits(self, outputs: tuple[int, ...]) -> bool:
        return True  # whatever the loss takes

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        assert label_smoothing == 0.0, "refused for this task"
        (loss,) = self.loss_of
        if isinstance(loss, nn.Module) and type(scores) is Tensor and not scores.is_meta:  # else it lost its values
            loss.to(scores.device, torch.promote_types(scores.dtype, torch.float32))
        given = f"a mini-batch of outputs {list(scores.shape)} and labels {list(target.shape)} of {target.dtype}"
        with named("the loss", given, key="loss"):
            found = loss(scores, target)
        if isinstance(found, Tensor) and found.ndim == 0:
            return found
        wanted, hint = "one number", "give the mean over the samples: reduction='mean'"
        if not isinstance(found, Tensor):
            wanted, hint = "a tensor", "give what torch computed, as without .item()"
        raise UserCodeError(f"the loss gave {_described(found)}, not {wanted}", key="loss", hint=hint)

    def encoded(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """Classes one-hot, and not a number where one is negative; numbers as they are, [N, width]."""
        if labels.is_floating_point():
            return labels.flatten(1).to(dtype) if labels.ndim > 1 else labels.unsqueeze(1).to(dtype)
        return one_hot(labels, self.width, dtype)

    def read(self, label: object) -> Label | None:
        try:
            found = torch.as_tensor(label)
        except (TypeError, ValueError, RuntimeError):
            return None
        if self.labels is not None and tuple(found.shape) != self.label_shape:
            return None
        return found.float() if found.is_floating_point() else found.to(torch.int64)

    def collated(self, labels: Sequence[Label]) -> Tensor:
        return torch.stack([torch.as_tensor(label) for label in labels])

    def fits(self, labels: Tensor) -> Tensor:
        if tuple(labels.shape[1:]) != self.label_shape:
            return torch.zeros(len(labels), dtype=torch.bool)
        return labels.isfinite().flatten(1).all(1) if labels.ndim > 1 else labels.isfinite()

    @property
    def wants(self) -> str:
        if self.labels is None:
            return "give one tensor as the label, stacked or padded to one shape for all samples; the `loss` parts it"
        return f"give all samples labels of one shape, here {list(self.label_shape)}"

    def tally(self) -> Tally:
        return _GivenTally(self.metrics_of or (partial(self.loss),))

    def prediction(self, given: str, scores: Tensor, names: Sequence[str], depth: int) -> ValuesPrediction:
        values = scores.flatten().tolist()
        return ValuesPrediction(given, {f"output_{number}": value for number, value in enumerate(values)}, depth)


def task_of(loss: OfOutputs, metrics: Sequence[OfOutputs]) -> type[LossTask]:
    """The task of a loss and metrics. Its class is pickled by value, as no module has it."""

    class Given(LossTask):
        loss_of = (loss,)
        metrics_of = tuple(metrics)

    return Given


def _require_own_labels(loss: OfOutputs, dtype: torch.dtype) -> None:
    """Raise SpecError for a loss that compares each of the outputs [N, 1] with all labels [N], to which torch spreads
    both, and not with its own. Another fault is told with the first mini-batch."""
    outputs, labels = torch.tensor([[-1.0], [0.0], [2.0]]), torch.tensor([0, 1, 0]).to(dtype)
    try:
        with put_back():
            each = torch.stack([loss(outputs[n : n + 1], labels[n : n + 1]) for n in range(3)])
            given, in_rows = (loss(outputs, every) for every in (labels, labels.unsqueeze(1)))
            as_given, as_rows = (
                any(torch.allclose(found, of_each) for of_each in (each.mean(), each.sum()))
                for found in (given, in_rows)
            )
    except FAULTS_OF_USER_CODE:
        return
    if as_rows and not as_given:
        raise SpecError(
            "outputs are [N, 1] and labels [N], so this loss compares each output with the labels of all samples",
            key="loss",
            hint="give labels [N, 1], as by labels.unsqueeze(1), or let the loss take outputs.squeeze(1)",
        )


def one_hot(labels: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """`[N, ...]` int64 -> `[N, ..., width]`, not a number where a label is none of `width` classes."""
    known = (labels >= 0) & (labels < width)
    return functional.one_hot(labels.where(known, 0), width).to(dtype).masked_fill(~known.unsqueeze(-1), torch.nan)


def higher_is_better(metric: OfOutputs) -> bool:
    """As an object of torchmetrics says it by its attribute, or a function by one of the same name; True without."""
    return getattr(metric, "higher_is_better", None) is not False


class _OfWhole:
    """A function of all outputs and labels, in the form of an object of torchmetrics."""

    def __init__(self, function: OfOutputs) -> None:
        self._function = function
        self._parts: list[tuple[Tensor, Tensor]] = []

    def update(self, scores: Tensor, labels: Tensor) -> None:
        self._parts.append((scores, labels))

    def compute(self) -> Any:
        return self._function(*(torch.cat(parts) for parts in zip(*self._parts, strict=True)))


def _begun(metric: Any) -> Any:
    """A metric that takes a set in parts."""
    if not all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset")):
        return _OfWhole(metric)
    begun = copy.deepcopy(metric)
    begun.reset()
    return begun


class _GivenTally(Tally):
    def __init__(self, metrics: Sequence[OfOutputs]) -> None:
        super().__init__()
        self._metrics = list(map(_begun, metrics))
        self._names = _names(metrics)

    def _take(self, scores: Tensor, labels: Tensor) -> None:
        scores = scores.cpu()
        if labels.is_floating_point():  # in float64 as in training
            labels = labels.to(torch.promote_types(labels.dtype, scores.dtype))
        for name, each in zip(self._names, self._metrics, strict=True):
            with _measuring(name):
                each.update(scores, labels)

    def value(self) -> float | None:
        return self._value(0)

    @property
    def further(self) -> dict[str, float | None]:
        return {name: self._value(number) for number, name in enumerate(self._names) if number}

    def _value(self, number: int) -> float | None:
        name = self._names[number]
        with _measuring(name), torch.no_grad():
            found = self._metrics[number].compute()
            if isinstance(found, Tensor) and found.numel() != 1:
                raise UserCodeError(
                    f"the metric `{name}` gave {_described(found)}, not one number",
                    key="metrics",
                    hint="give a mean, as torchmetrics does with average='macro'",
                )
            return float(found)


def _measuring(name: str) -> Any:
    return named(f"the metric `{name}`", "an evaluation", key="metrics")


def _names(metrics: Sequence[Any]) -> list[str]:
    """A name for each metric: that of the function, or of the class in small letters."""
    found: list[str] = []
    for each in metrics:
        plain = getattr(each, "func", each)  # of a functools.partial
        name = getattr(plain, "__name__", None) or re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", type(plain).__name__).lower()
        found.append(name if name not in found else f"{name}_{len(found)}")
    return found


def _described(value: Any) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
