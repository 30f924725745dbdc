"""Runs cases of damaged input one after another and tells those that did not end as they must."""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MOST_S = 2.0
"""Seconds of the processor that one case may take."""
MOST_BYTES = 500_000_000
"""Memory by which the process may grow over all cases."""
_HANGS_S = 60
"""Seconds after which a case counts as one that never ends."""


class Hangs(BaseException):
    """A case that takes for ever. No `except Exception` keeps it."""


@contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def watched(case: str, run: Callable[[], str | None]) -> list[str]:
    """What is wrong with a case. run: returns what it finds wrong itself, and raises nothing."""
    begun_s, begun_bytes = time.process_time(), _peak_bytes()
    wrong = []
    try:
        with _limited():
            said = run()
    except (Exception, Hangs):  # noqa: BLE001  # whatever a user would see as a traceback is to be told
        wrong.append(f"{case}: traceback\n{traceback.format_exc(limit=-6)}")
    else:
        wrong += [f"{case}: {said}"] if said else []
    took_s, grown = time.process_time() - begun_s, _peak_bytes() - begun_bytes
    if took_s > MOST_S:
        wrong.append(f"{case}: took {took_s:.1f} s")
    if grown > MOST_BYTES:
        wrong.append(f"{case}: took {grown / 1e6:,.0f} MB")
    return wrong


def _peak_bytes() -> int:
    """The most memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
