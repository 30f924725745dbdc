"""Each backward pass in a new thread, as autograd runs it for a GPU in a thread of its own.

What belongs to a thread is then another one's within backward: that shows where a backward pass relies on it.
`ALRAY_TEST_BACKWARD=thread` has all tests do this, in the processes of stages, too (tests/conftest.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

of_the_calling_thread = pytest.mark.skipif(
    os.environ.get("ALRAY_TEST_BACKWARD") == "thread",
    reason="it looks at what the calling thread does: torch's modes and ranges, and the frames of an error",
)


def in_thread(run: Callable[..., Any], begin: Callable[[], Callable[[], None]] | None = None) -> Callable[..., Any]:
    """`run`, torch's backward, in a thread that computes with as many threads as the calling one.

    Args:
        begin: is called before; what it returns is called in the new thread, at its start.
    """

    def run_in_thread(*args: Any, **kwargs: Any) -> Any:
        prepare, threads = None if begin is None else begin(), torch.get_num_threads()

        def work() -> Any:
            if prepare is not None:
                prepare()
            torch.set_num_threads(threads)
            with torch.autograd.set_multithreading_enabled(False):
                return run(*args, **kwargs)

        with ThreadPoolExecutor(1, thread_name_prefix="backward") as thread:
            return thread.submit(work).result()

    return run_in_thread


def run_backward_in_threads() -> None:
    """From here on, `torch.autograd.backward` and `torch.autograd.grad` do, and what calls them."""
    engine: Any = torch.autograd
    engine._engine_run_backward = in_thread(engine._engine_run_backward)
