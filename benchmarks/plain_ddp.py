"""Synchronous SGD as one writes it with torch alone: DistributedDataParallel, a DistributedSampler, gloo.

    python -m torch.distributed.run --nproc-per-node 2 -m benchmarks.plain_ddp benchmarks/replicas.yaml

Network, data and optimizer are those of a spec of backpropagation on one stage; everything else is not alray's. Prints
one JSON object: the median seconds of a mini-batch over all processes, the first ones left out.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from alray.config.loading.load import load_spec
from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.parts.optimizers.sgd import Sgd
from alray.runtime.stage.clock import WARM_UP_STEPS
from alray.runtime.workload import Workload


def load(spec_file: Path, overrides: list[str]) -> tuple[Spec, nn.Sequential, TensorDataset]:
    """The spec, and its network, a module for each component, and training set as plain torch."""
    workload = Workload.open(load_spec(spec_file, overrides).spec, UserCode(spec_file.resolve().parent))
    parts = []
    for index in range(len(workload.network)):
        component = workload.network.component(index, "cpu")
        parts.append(nn.Sequential(component.f.body, *([component.turn] if component.turn is not None else [])))
    samples, labels = workload.data.train.take(range(len(workload.data.train)))
    return workload.spec, nn.Sequential(*parts), TensorDataset(samples, labels)


def train(spec: Spec, network: nn.Sequential, data: TensorDataset) -> list[float]:
    """Seconds of each mini-batch of this process, from one update to the next."""
    optimizer_of = spec.optimizer
    assert isinstance(optimizer_of, Sgd)
    ddp = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=optimizer_of.lr, momentum=optimizer_of.momentum)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, seed=spec.seed, drop_last=True)
    loader = DataLoader(data, spec.data.batch_size // dist.get_world_size(), sampler=sampler, drop_last=True)
    times: list[float] = []
    began = time.perf_counter()
    for epoch in count():
        sampler.set_epoch(epoch)
        for samples, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(ddp(samples), labels).backward()
            optimizer.step()
            ended = time.perf_counter()
            times.append(ended - began)
            began = ended
            if len(times) == spec.run.steps:
                return times
    raise AssertionError("epochs do not end")


def run(train: Callable[[Spec, nn.Sequential, TensorDataset], list[float]]) -> None:
    """Train the spec of the command line in this process of torchrun, and print the median of all processes."""
    dist.init_process_group("gloo")
    spec, network, data = load(Path(sys.argv[1]), sys.argv[2:])
    torch.set_num_threads(spec.resources.threads)
    every: list[list[float]] = [[]] * dist.get_world_size()
    dist.all_gather_object(every, train(spec, network, data))
    if dist.get_rank() == 0:
        print(json.dumps({"step_time_s": median(one for times in every for one in times[WARM_UP_STEPS:])}))  # noqa: T201
    dist.destroy_process_group()


if __name__ == "__main__":
    run(train)
