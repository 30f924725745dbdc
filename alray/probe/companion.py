"""A process that loads a processor as a stage would, for as long as it is told to.

    python -m alray.probe.companion THREADS BYTES

It prints `ready` when it can start, and reads commands from its input: `work` starts, `rest` pauses, end of input ends
the process.
"""

from __future__ import annotations

import select
import sys

import torch

_WIDTH = 256
_FLOAT_BYTES = 4


def main(threads: int, nbytes: int) -> None:
    """Do work like that of training: matrix products, and passes over activations of `nbytes` bytes."""
    torch.set_num_threads(threads)
    rows = max(1, nbytes // (_WIDTH * _FLOAT_BYTES))
    weights, s, out = torch.zeros(_WIDTH, _WIDTH), torch.zeros(rows, _WIDTH), torch.zeros(rows, _WIDTH)
    works = False
    print("ready", flush=True)  # noqa: T201
    while True:
        if not works or select.select([sys.stdin], [], [], 0.0)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            works = line.strip() == "work"
            continue
        torch.mm(s, weights, out=out)
        out.add_(s).relu_()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
