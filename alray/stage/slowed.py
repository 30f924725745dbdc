"""A replica that is slower on purpose: `replicas.disturbance`."""

from __future__ import annotations

import time
from collections.abc import Generator

_LOOK_S = 1.0e-3


def pass_time(seconds: float) -> Generator[None, None, None]:
    """Be busy without computing. In turns, the others go on meanwhile, as they would on devices of their own."""
    until = time.perf_counter() + seconds
    while (left_s := until - time.perf_counter()) > 0:
        yield
        time.sleep(min(left_s, _LOOK_S))
