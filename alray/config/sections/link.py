"""`pipeline.links`: links between stages that are slower than this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from alray.config.sections.section import Section, refusal

_BITS_PER_S = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"


def _pattern(units: Mapping[str, float]) -> str:
    return rf"^{_NUMBER} *({'|'.join(units)})$"


def _value(text: str, units: Mapping[str, float]) -> float | None:
    """The value in the unit of factor 1; None if the text has another form."""
    match = re.fullmatch(_pattern(units), text)
    return float(match[1]) * units[match[2]] if match is not None else None


def _bandwidth(text: str) -> str:
    if not _value(text, _BITS_PER_S):
        raise refusal(f"expected a bandwidth above zero, got `{text}`", "write, for example, 1 Gbit/s or 100 Mbit/s")
    return text


def _latency(text: str) -> str:
    if _value(text, _SECONDS) is None:
        raise refusal(f"expected a latency, got `{text}`", "write, for example, 20 ms")
    return text


Bandwidth = Annotated[
    str,
    AfterValidator(_bandwidth),
    WithJsonSchema({"type": "string", "pattern": _pattern(_BITS_PER_S), "examples": ["1 Gbit/s", "100 Mbit/s"]}),
]
Latency = Annotated[
    str,
    AfterValidator(_latency),
    WithJsonSchema({"type": "string", "pattern": _pattern(_SECONDS), "examples": ["20 ms"]}),
]


class LinkSection(Section):
    """A link between two stages, the same in both directions."""

    bandwidth: Bandwidth
    """Number of bits that it takes in a second: `N bit/s`, `N kbit/s`, `N Mbit/s` or `N Gbit/s`."""
    latency: Latency = "0 s"
    """Time that a message travels besides: `N s`, `N ms` or `N us`. Default: 0 s."""

    @property
    def s_per_byte(self) -> float:
        """Seconds that a byte takes the link."""
        return 8.0 / (_value(self.bandwidth, _BITS_PER_S) or 1.0)

    @property
    def latency_s(self) -> float:
        """The latency in seconds."""
        return _value(self.latency, _SECONDS) or 0.0
