"""What Ray Tune reads from the environment of a process that runs a study."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_QUIET = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of trials that fail while the study stops: nobody asks for them
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # nothing that Tune could save is ever read
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}


@contextmanager
def tunes_environment() -> Iterator[None]:
    """Set it for the block, around the connection to Ray: what a study leaves there comes to an end later than it does.

    Outside of it, a Ray Tune of the user's own is as before.
    """
    before = {name: value for name in _QUIET if (value := os.environ.get(name)) is not None}
    os.environ |= _QUIET
    try:
        yield
    finally:
        for name in _QUIET:
            del os.environ[name]
        os.environ |= before
