"""A pipeline as one writes it with torch alone: torch.distributed.pipelining, gloo.

    python -m torch.distributed.run --nproc-per-node 2 -m benchmarks.plain_pipeline benchmarks/eight.yaml \
        'method={kind: backpropagation}' pipeline.schedule=1f1b pipeline.micro_batches=8

Network, data and optimizer are those of a spec of backpropagation, whose components are dealt evenly to the processes;
everything else is not alray's. Prints one JSON object: the median seconds of a mini-batch over all processes, the first
ones left out.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.nn import functional
from torch.utils.data import TensorDataset

from alray.config.sections.spec import Spec
from alray.parts.optimizers.adam import Adam
from benchmarks.plain_ddp import run

CLASSES = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "zero_bubble": schedules.ScheduleInterleavedZeroBubble,
}


def train(spec: Spec, network: nn.Sequential, data: TensorDataset) -> list[float]:
    """Seconds of each mini-batch of this process, from one update to the next."""
    rank, processes = dist.get_rank(), dist.get_world_size()
    each, rest = divmod(len(network), processes)
    assert rest == 0, "every process has as many components"
    mine = network[rank * each : (rank + 1) * each]
    stage = PipelineStage(mine, rank, processes, torch.device("cpu"))
    made = CLASSES[spec.pipeline.schedule]
    stages = [stage] if issubclass(made, schedules.PipelineScheduleMulti) else stage
    schedule = made(stages, spec.pipeline.micro_batches, loss_fn=functional.cross_entropy)
    optimizer_of = spec.optimizer
    assert isinstance(optimizer_of, Adam)
    optimizer = torch.optim.Adam(mine.parameters(), lr=optimizer_of.lr)
    samples, labels = data.tensors
    generator = torch.Generator().manual_seed(spec.seed)  # each process draws the same mini-batches
    times: list[float] = []
    began = time.perf_counter()
    while True:
        order = torch.randperm(len(data), generator=generator)
        for rows in order.split(spec.data.batch_size)[: len(data) // spec.data.batch_size]:
            optimizer.zero_grad()
            arguments = [samples[rows]] if rank == 0 else []
            target = labels[rows] if rank == processes - 1 else None
            schedule.step(*arguments, target=target, return_outputs=False)
            optimizer.step()
            ended = time.perf_counter()
            times.append(ended - began)
            began = ended
            if len(times) == spec.run.steps:
                return times


if __name__ == "__main__":
    run(train)
