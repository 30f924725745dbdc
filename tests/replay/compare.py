"""What differs between the answers of two trees, and which of these differences are meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

MEANT = Path(__file__).with_name("meant.yaml")
MOST_LINES = 12
"""Lines of a difference that are shown."""


@dataclass(frozen=True)
class Meant:
    """Differences that a change is made for. answers: a pattern of their names."""

    answers: str
    reason: str


@dataclass(frozen=True)
class Comparison:
    """What differs between two trees.

    Attributes:
        unmeant: names of answers.
        meant: name of an answer -> the reason.
        stale: patterns that nothing matches: they are of a change that is made already.
    """

    unmeant: list[str]
    meant: dict[str, str]
    stale: list[str]

    @property
    def is_green(self) -> bool:
        return not self.unmeant and not self.stale


def read_meant(file: Path = MEANT) -> list[Meant]:
    return [Meant(**entry) for entry in yaml.safe_load(file.read_text(encoding="utf-8")) or ()]


def compare(before: Mapping[str, str], after: Mapping[str, str], meant: Sequence[Meant]) -> Comparison:
    """Compare answers by their names. One that a side does not have differs too."""
    differing = [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]
    reasons = {
        name: each.reason for name in differing for each in reversed(meant) if re.search(each.answers, name) is not None
    }
    used = {each for each in meant for name in differing if re.search(each.answers, name) is not None}
    stale = [each.answers for each in meant if each not in used]
    return Comparison([name for name in differing if name not in reasons], reasons, stale)


def shown(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """The lines of an answer that differ."""
    yield name
    if name not in before or name not in after:
        yield f"    only {'after' if name in after else 'before'}"
        return
    lines = difflib.unified_diff(before[name].splitlines(), after[name].splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    yield from (f"    {line[:200]}" for line in changed[:MOST_LINES])
    if len(changed) > MOST_LINES:
        yield f"    and {len(changed) - MOST_LINES} more lines"
