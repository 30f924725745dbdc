"""Streamed decoupled greedy learning as one writes it with torch alone: two processes, and a queue between them.

    python -m benchmarks.plain_streamed benchmarks/eight.yaml 'method={kind: decoupled_greedy}'

Network, readouts and data are those of the spec, whose components are dealt evenly to the processes; everything else is
not alray's. A process sends its last output before it computes gradients. Prints one JSON object: the median seconds of
a mini-batch over both processes, the first ones left out.
"""

from __future__ import annotations

import json
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

import torch
from torch import multiprocessing as mp
from torch.nn import functional

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.parts.methods.decoupled_greedy.method import GreedyComponent
from alray.parts.optimizers.adam import Adam
from alray.runtime.stage.clock import WARM_UP_STEPS
from alray.runtime.workload import Workload

PROCESSES = 2
ROOM = 4
"""Outputs that wait in the queue."""


def train(rank: int, spec_file: Path, overrides: list[str], outputs: mp.Queue, times: mp.Queue, end: Barrier) -> None:
    """Send the seconds of each mini-batch of this process to `times`."""
    workload = Workload.open(load_spec(spec_file, overrides).spec, UserCode(spec_file.resolve().parent))
    spec = workload.spec
    torch.set_num_threads(spec.resources.threads)
    each, rest = divmod(len(workload.network), PROCESSES)
    assert rest == 0, "every process has as many components"
    parts, weights = [], []
    for index in range(rank * each, (rank + 1) * each):
        component = workload.network.component(index, "cpu")
        assert isinstance(component, GreedyComponent)
        parts.append((component.f.body, component.head))
        weights += [*component.f.body.parameters(), *component.head.parameters()]
    assert isinstance(spec.optimizer, Adam)
    assert spec.run.steps is not None
    optimizer = torch.optim.Adam(weights, lr=spec.optimizer.lr)
    samples, labels = workload.data.train.take(range(len(workload.data.train)))
    generator = torch.Generator().manual_seed(spec.seed)  # each process draws the same mini-batches
    found: list[float] = []
    began = time.perf_counter()
    while len(found) < spec.run.steps:
        order = torch.randperm(len(labels), generator=generator)
        for rows in order.split(spec.data.batch_size)[: len(labels) // spec.data.batch_size]:
            value = samples[rows] if rank == 0 else outputs.get()
            encoded = []
            for body, _ in parts:
                encoded.append(body(value))
                value = encoded[-1].detach()
            if rank < PROCESSES - 1:
                outputs.put(value)
            optimizer.zero_grad()
            for (_, head), output in zip(parts, encoded, strict=True):
                functional.cross_entropy(head(output, None), labels[rows]).backward()
            optimizer.step()
            ended = time.perf_counter()
            found.append(ended - began)
            began = ended
            if len(found) == spec.run.steps:
                break
    times.put(found[WARM_UP_STEPS:])
    end.wait()  # what is in the queue is memory of the process that put it there


def main() -> None:
    context = mp.get_context("spawn")
    outputs, times = context.Queue(ROOM), context.Queue()
    arguments = (Path(sys.argv[1]), sys.argv[2:], outputs, times, context.Barrier(PROCESSES))
    processes = [context.Process(target=train, args=(rank, *arguments)) for rank in range(PROCESSES)]
    for process in processes:
        process.start()
    found = [one for _ in processes for one in times.get(timeout=300)]
    for process in processes:
        process.join()
    print(json.dumps({"step_time_s": median(found)}))  # noqa: T201


if __name__ == "__main__":
    main()
