"""The argument of `--profile`: mini-batches such as `20-24,40`, counted from 1 as in the records of a run."""

from __future__ import annotations

import re

from alray.core.errors import RequestError

MOST_STEPS = 100
"""Largest number of mini-batches. A trace has thousands of events for each, and viewers cannot open larger traces."""

_KEY = "--profile"
_GRAMMAR = "write mini-batches and ranges, for example 20-24,40"
_PART = re.compile(r"(\d{1,12})(?:\s*-\s*(\d{1,12}))?", re.ASCII)


def parse_steps(text: str) -> tuple[range, ...]:
    """Return the mini-batches that a text names as sorted, disjoint ranges. Raises RequestError with the reason."""
    found: list[range] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            message = f"`{part.strip()}` is not a mini-batch" if part.strip() else "a mini-batch is missing"
            raise RequestError(message, key=_KEY, hint=_GRAMMAR)
        first, last = int(match[1]), int(match[2] or match[1])
        if first == 0:
            raise RequestError("there is no mini-batch 0", key=_KEY, hint="count mini-batches from 1")
        if last < first:
            raise RequestError(f"the range {first}-{last} ends before it starts", key=_KEY, hint=_GRAMMAR)
        found.append(range(first, last + 1))
    joined = _joined(found)
    count = sum(len(steps) for steps in joined)
    if count > MOST_STEPS:
        raise RequestError(
            f"a trace of {count:,} mini-batches is too large to open",
            key=_KEY,
            hint=f"choose at most {MOST_STEPS}",
        )
    return joined


def require_steps(ranges: tuple[range, ...], *, done: int, total: int) -> None:
    """Raise RequestError unless all these mini-batches are in the rest of a run that has done `done` of `total`."""
    for steps in ranges:
        for step in (steps[0], steps[-1]):
            if not done < step <= total:
                raise RequestError(
                    f"mini-batch {step:,} is not part of this run, which does {done + 1:,} to {total:,}"
                    if done < total
                    else f"mini-batch {step:,} is not part of this run: all {total:,} mini-batches are already done",
                    key=_KEY,
                    hint="choose other mini-batches, or make the run longer",
                )


def _joined(ranges: list[range]) -> tuple[range, ...]:
    """Return the same numbers as sorted, disjoint ranges, as few as possible."""
    joined: list[range] = []
    for steps in sorted(ranges, key=lambda steps: steps.start):
        if joined and steps.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, steps.stop))
        else:
            joined.append(steps)
    return tuple(joined)
