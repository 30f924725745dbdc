"""`pipeline.links`: links between stages that are slower than this machine."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from alray.config.sections.section import Section, quantity_of, refusal
from alray.core.quantities import BITS_PER_S, SECONDS, pattern, value_of


def _bandwidth(text: str) -> str:
    if not quantity_of(text, BITS_PER_S):
        raise refusal(f"expected a bandwidth above zero, got `{text}`", "write, for example, 1 Gbit/s or 100 Mbit/s")
    return text


def _latency(text: str) -> str:
    if quantity_of(text, SECONDS) is None:
        raise refusal(f"expected a latency, got `{text}`", "write, for example, 20 ms")
    return text


Bandwidth = Annotated[
    str,
    AfterValidator(_bandwidth),
    WithJsonSchema({"type": "string", "pattern": pattern(BITS_PER_S), "examples": ["1 Gbit/s", "100 Mbit/s"]}),
]
Latency = Annotated[
    str,
    AfterValidator(_latency),
    WithJsonSchema({"type": "string", "pattern": pattern(SECONDS), "examples": ["20 ms"]}),
]


class LinkSection(Section):
    """A link between two stages, the same in both directions."""

    bandwidth: Bandwidth
    """What it takes in a second: `N bit/s`, `N kbit/s`, `N Mbit/s` or `N Gbit/s`, or bytes: `N MB/s`, `N GB/s`."""
    latency: Latency = "0 s"
    """Time that a message travels besides: `N s`, `N ms` or `N us`. Default: 0 s."""

    @property
    def s_per_byte(self) -> float:
        """Seconds that a byte takes the link."""
        return 8.0 / (value_of(self.bandwidth, BITS_PER_S) or 1.0)

    @property
    def latency_s(self) -> float:
        """The latency in seconds."""
        return value_of(self.latency, SECONDS) or 0.0
