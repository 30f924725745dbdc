"""Durations in a spec: `500 steps`, `10000 samples`, `1 epoch`, `30 s`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from alray.config.sections.section import describe, listed, refusal

Unit = Literal["steps", "samples", "epochs", "s"]
_PATTERN = r"^([0-9]+(?:\.[0-9]+)?) *(steps?|samples?|epochs?|s)$"
_UNITS: dict[str, Unit] = {"step": "steps", "sample": "samples", "epoch": "epochs"}
_WHOLE: tuple[Unit, ...] = ("steps", "samples")


@dataclass(frozen=True)
class Duration:
    """`count` units. A step is one mini-batch, an epoch is one pass over the training set, `s` is seconds.

    A sample counts as often as it is used. What recurs every N samples is due after the mini-batch that reaches a
    multiple of N, and after each mini-batch if these are larger than N.
    """

    count: float
    unit: Unit

    def __str__(self) -> str:
        count = int(self.count) if self.count == int(self.count) else self.count
        singular = self.count == 1 and self.unit != "s"
        return f"{count} {self.unit.removesuffix('s') if singular else self.unit}"


def parse_duration(text: str) -> Duration:
    """Parse `N steps`, `N samples`, `N epochs` or `N s`, also in the singular.

    Raises ValueError with the reason if the text does not have this form or N is not in range.
    """
    match = re.fullmatch(_PATTERN, text)
    if match is None:
        raise ValueError(f"expected a duration, got {describe(text)}")
    count, unit = float(match[1]), match[2]
    duration = Duration(count, _UNITS.get(unit) or _unit(unit))
    if not 0 < count < 1e15:
        raise ValueError(f"expected a duration between 0 and 1e15, got `{text}`")
    if duration.unit in _WHOLE and count != int(count):
        raise ValueError(f"expected a whole number of {duration.unit}, got `{text}`")
    return duration


def _unit(text: str) -> Unit:
    return next(unit for unit in get_args(Unit) if unit == text)


@dataclass(frozen=True)
class _In:
    """Reads a duration as a field of the spec, in one of these units."""

    units: tuple[Unit, ...]

    def __call__(self, value: Any) -> Duration:
        hint = f"write {listed([f'N {unit}' for unit in self.units])}"
        try:
            if not isinstance(value, str | Duration):
                raise ValueError(f"expected a duration, got {describe(value)}")
            duration = parse_duration(value) if isinstance(value, str) else value
        except ValueError as error:
            raise refusal(str(error), hint) from error
        if duration.unit not in self.units:
            raise refusal(f"expected a number of {_COUNTED[self.units]}, got `{duration}`", hint)
        return duration


_SERIALIZER = PlainSerializer(str, return_type=str)
_STEPS: tuple[Unit, ...] = ("steps",)
_OF_DATA: tuple[Unit, ...] = ("steps", "samples", "epochs")
_COUNTED = {_STEPS: "mini-batches", _OF_DATA: "mini-batches, samples or epochs"}
SpecDuration = Annotated[
    Duration,
    PlainValidator(_In(get_args(Unit))),
    _SERIALIZER,
    WithJsonSchema(
        {"type": "string", "pattern": _PATTERN, "examples": ["1 epoch", "500 steps", "10000 samples", "30 s"]}
    ),
]
"""A `Duration` as a field of the spec."""
CountedDuration = Annotated[
    Duration,
    PlainValidator(_In(_OF_DATA)),
    _SERIALIZER,
    WithJsonSchema(
        {
            "type": "string",
            "pattern": _PATTERN.replace("|s)", ")"),
            "examples": ["30 epochs", "500 steps", "10000 samples"],
        }
    ),
]
"""A `Duration` that does not depend on the clock."""
Steps = Annotated[
    Duration,
    PlainValidator(_In(_STEPS)),
    _SERIALIZER,
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+ *steps?$", "examples": ["8 steps"]}),
]
"""A `Duration` of mini-batches."""
