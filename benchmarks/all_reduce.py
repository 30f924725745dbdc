"""Seconds and bytes of every all-reduce and compression, beside the cost model and DDP's own.

    python -m benchmarks.all_reduce [--quick]

One process a rank, one thread each, on this machine over loopback. `--quick` measures two and three ranks on small
sizes and prints what it found.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch.multiprocessing

from benchmarks.all_reduce_ranks import Job, measure, side_of
from benchmarks.runs import write_results

FULL = Job(
    ranks=(2, 3, 4, 5, 6, 7, 8),
    compressed_ranks=(2, 4, 8),
    sides=[side_of(nbytes) for nbytes in (2**10, 2**16, 2**20, 2**24, 2**26)],
    cell_s=0.1,
    trained_ranks=4,
    epochs=15,
    seeds=3,
)
QUICK = Job(ranks=(2, 3), compressed_ranks=(2, 3), sides=(16, 128), cell_s=0.02, trained_ranks=3, epochs=1, seeds=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, print what was found")
    quick = parser.parse_args().quick
    job = QUICK if quick else FULL
    os.environ["OMP_NUM_THREADS"] = "1"
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure, args=(job, Path(folder)), nprocs=max(job.ranks))
        found = json.loads((Path(folder) / "all_reduce.json").read_text(encoding="utf-8"))
    result = {"cores": os.cpu_count(), "took_s": time.perf_counter() - began, **found}
    if quick:
        print(json.dumps(result, indent=2))  # noqa: T201
    else:
        write_results("all_reduce", result)


if __name__ == "__main__":
    main()
