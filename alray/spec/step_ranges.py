"""`--profile STEPS`: mini-batches chosen on the command line, as `20-24,40`, counted from 1 as records count them."""

from __future__ import annotations

import re

from alray.errors import RequestError

MOST_STEPS = 100
"""A trace holds some thousand events for every mini-batch: of more than these no viewer opens it."""

_KEY = "--profile"
_GRAMMAR = "write mini-batches and ranges of them, such as 20-24,40"
_PART = re.compile(r"(\d{1,12})(?:\s*-\s*(\d{1,12}))?", re.ASCII)


def parse_steps(text: str) -> tuple[range, ...]:
    """The mini-batches a text names: apart from each other, in order. Raises RequestError with the cause."""
    found: list[range] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            said = f"`{part.strip()}` is no mini-batch" if part.strip() else "a mini-batch is missing"
            raise RequestError(said, key=_KEY, mend=_GRAMMAR)
        first, last = int(match[1]), int(match[2] or match[1])
        if first == 0:
            raise RequestError("there is no mini-batch 0", key=_KEY, mend="they are counted from 1")
        if last < first:
            raise RequestError(f"the range {first}-{last} ends before it begins", key=_KEY, mend=_GRAMMAR)
        found.append(range(first, last + 1))
    joined = _joined(found)
    count = sum(len(steps) for steps in joined)
    if count > MOST_STEPS:
        raise RequestError(
            f"a trace of {count:,} mini-batches would be too large to open",
            key=_KEY,
            mend=f"choose at most {MOST_STEPS}",
        )
    return joined


def require_steps(ranges: tuple[range, ...], *, done: int, total: int) -> None:
    """Raise RequestError unless all of these mini-batches are done by a run that goes on after `done` of `total`."""
    for steps in ranges:
        for step in (steps[0], steps[-1]):
            if not done < step <= total:
                raise RequestError(
                    f"mini-batch {step:,} is not done by this run: its mini-batches are {done + 1:,} to {total:,}"
                    if done < total
                    else f"mini-batch {step:,} is not done by this run: all {total:,} are done",
                    key=_KEY,
                    mend="choose among those, or give the run more of them",
                )


def _joined(ranges: list[range]) -> tuple[range, ...]:
    """The same numbers as few ranges as they make, in order."""
    joined: list[range] = []
    for steps in sorted(ranges, key=lambda steps: steps.start):
        if joined and steps.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, steps.stop))
        else:
            joined.append(steps)
    return tuple(joined)
