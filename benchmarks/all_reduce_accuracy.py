"""A small network on the bundled digits, trained by replicas with each compression."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.config.sections.compression import COMPRESSIONS
from alray.runtime.channel.all_reduce import make_all_reduce
from alray.runtime.channel.compression import make_compression
from alray.runtime.channel.gradient_layout import GradientLayout
from alray.runtime.channel.gradient_reducer import CommunicationThread, GradientReducer

BATCH = 64
TEST_SAMPLES = 360
TIMEOUT_S = 300.0
OF_GRADIENTS = tuple(name for name, section in COMPRESSIONS.sections.items() if section.implementation)
"""The compressions that are measured. The others compress only what passes between components."""


def accuracies(
    group: dist.ProcessGroup, settings: Mapping[str, Mapping[str, Any]], *, epochs: int, seeds: int
) -> list[dict[str, Any]]:
    """Test accuracy with each compression over a ring, and the bytes one rank sends a step. Collective."""
    found = []
    for kind in OF_GRADIENTS:
        runs = [train(group, kind, dict(settings.get(kind, {})), seed, epochs) for seed in range(seeds)]
        found.append(
            {
                "compression": kind,
                "settings": settings.get(kind, {}),
                "ranks": group.size(),
                "epochs": epochs,
                "accuracies": [run["accuracy"] for run in runs],
                "accuracy": mean(run["accuracy"] for run in runs),
                "bytes_per_step": runs[0]["bytes_per_step"],
                "same_bits": all(run["same_bits"] for run in runs),
            }
        )
    return found


def train(group: dist.ProcessGroup, kind: str, settings: dict[str, Any], seed: int, epochs: int) -> dict[str, Any]:
    """Synchronous SGD with momentum; each rank takes its part of every mini-batch."""
    from sklearn.datasets import load_digits  # takes long to import, and only this one needs it

    s, labels = (torch.as_tensor(array) for array in load_digits(return_X_y=True))
    order = torch.randperm(len(s), generator=torch.Generator().manual_seed(seed))
    s, labels = (s.float() / 16)[order], labels[order]
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    layout = GradientLayout.of(parameters)
    over = make_all_reduce(ALL_REDUCES.section("ring"), group, timeout_s=TIMEOUT_S)
    steps = 0
    with CommunicationThread() as thread:
        compression = make_compression(COMPRESSIONS.section(kind, **settings), layout, seed=seed)
        reducer = GradientReducer(layout=layout, over=over, compression=compression, thread=thread)
        for epoch in range(epochs):
            shuffle = torch.Generator().manual_seed(1000 * seed + epoch)
            for batch in torch.randperm(len(s) - TEST_SAMPLES, generator=shuffle).split(BATCH):
                mine = batch.tensor_split(group.size())[group.rank()] + TEST_SAMPLES
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(s[mine]), labels[mine]).backward()
                reducer.start([parameter.grad for parameter in parameters], len(mine) / len(batch))
                reducer.wait()
                optimizer.step()
                steps += 1
    bytes_per_step = reducer.bytes_sent / steps
    with torch.no_grad():
        right = net(s[:TEST_SAMPLES]).argmax(1) == labels[:TEST_SAMPLES]
        weights = over.gather(torch.cat([parameter.view(-1) for parameter in parameters]))
    return {
        "accuracy": float(right.float().mean()),
        "bytes_per_step": bytes_per_step,
        "same_bits": bool((weights == weights[0]).all()),
    }
