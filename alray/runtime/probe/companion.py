"""A process that loads a processor as a stage would, for as long as the measurement requests it.

    python -P alray/runtime/probe/companion.py BYTES

It prints `ready` when it can start, and reads commands from its input: `work` starts, `rest` pauses, end of input ends
the process. It computes with NumPy, because to import torch takes seconds of a processor.
"""

from __future__ import annotations

import select
import sys

import numpy as np

_WIDTH = 256
_FLOAT_BYTES = 4


def main(nbytes: int) -> None:
    """Do work like that of training: matrix products, and passes over activations of `nbytes` bytes."""
    rows = max(1, nbytes // (_WIDTH * _FLOAT_BYTES))
    weights, s, out = (np.zeros((size, _WIDTH), dtype=np.float32) for size in (_WIDTH, rows, rows))
    works = False
    print("ready", flush=True)  # noqa: T201
    while True:
        if not works or select.select([sys.stdin], [], [], 0.0)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            works = line.strip() == "work"
            continue
        np.matmul(s, weights, out=out)
        np.add(out, s, out=out)
        np.maximum(out, 0.0, out=out)


if __name__ == "__main__":
    main(int(sys.argv[1]))
