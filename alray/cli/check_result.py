"""The result of one check of `alray doctor`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. A warning or a fault may have a `hint`: what the user can do about it."""

    name: str
    state: Literal["ok", "warning", "fault"]
    message: str
    hint: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
