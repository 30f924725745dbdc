"""A process that loads a processor as a stage would, for as long as the measurement requests it.

    python -P alray/runtime/probe/companion.py

It prints `ready` when it can start, and reads commands from its input: `size BYTES` says how much memory it works on,
`work` starts, `rest` pauses, end of input ends the process. It computes with NumPy, because to import torch takes
seconds of a processor.
"""

from __future__ import annotations

import select
import sys

import numpy as np

_WIDTH = 256
_FLOAT_BYTES = 4
_ROWS_AT_ONCE = 512  # about a millisecond: it rests soon after it is told to


def main() -> None:
    """Do work like that of training: matrix products, and passes over activations that go through all its memory."""
    weights = np.ones((_WIDTH, _WIDTH), dtype=np.float32)
    s = out = np.ones((_ROWS_AT_ONCE, _WIDTH), dtype=np.float32)
    first, works = 0, False
    print("ready", flush=True)  # noqa: T201
    while True:
        if not works or select.select([sys.stdin], [], [], 0.0)[0]:
            command, *values = sys.stdin.readline().split() or [""]
            if not command:
                return
            if command == "size":
                rows = max(_ROWS_AT_ONCE, int(values[0]) // (2 * _WIDTH * _FLOAT_BYTES))
                s, out = (np.ones((rows, _WIDTH), dtype=np.float32) for _ in range(2))  # memory that is really there
                first = 0
            works = command == "work"
            continue
        own = slice(first, first + _ROWS_AT_ONCE)
        np.matmul(s[own], weights, out=out[own])
        np.add(out[own], s[own], out=out[own])
        np.maximum(out[own], 0.0, out=out[own])
        first = own.stop if own.stop < len(s) else 0


if __name__ == "__main__":
    main()
