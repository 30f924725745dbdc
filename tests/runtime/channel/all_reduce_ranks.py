"""Five processes over loopback: `python all_reduce_ranks.py FOLDER`.

Each writes what it came to as FOLDER/RANK.json; `test_all_reduce.py` looks at it.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.multiprocessing import start_processes

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.config.sections.compression import COMPRESSIONS
from alray.core.errors import ChannelError
from alray.core.parts import names_of
from alray.core.randomness.seeds import derive_seed
from alray.runtime.channel.all_reduce import make_all_reduce
from alray.runtime.channel.compression import make_compression
from alray.runtime.channel.gradient_layout import GradientLayout

WORLD = 5
SHAPES = ((16, 12), (16,), (9, 4, 3, 3), (3, 2), (40, 30), ())
STEPS, PLAIN_STEPS = 6, 2


def drawn(rank: int, size: int) -> torch.Tensor:
    """What a rank has: values of very different magnitudes."""
    generator = torch.Generator().manual_seed(1000 * size + rank)
    spread = torch.randint(-6, 7, (size,), generator=generator)
    return torch.randn(size, generator=generator, dtype=torch.float64) * 2.0**spread


class Bucket:
    """What `powerSGD_hook` asks of DDP's bucket."""

    def __init__(self, layout: GradientLayout, flat: torch.Tensor) -> None:
        self._layout, self._flat = layout, flat

    def buffer(self) -> torch.Tensor:
        return self._flat

    def gradients(self) -> list[torch.Tensor]:
        return self._layout.views(self._flat)

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


def drawn_q(number: int, iteration: int, shape: tuple[int, int]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(derive_seed(7, "powersgd", number, iteration))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def beside_the_hook(name: str, group: dist.ProcessGroup, *, rank: int) -> list[float]:
    """The largest difference to torch's hook, step by step, both starting from the same Q."""
    # The hook takes no parameter of no dimension.
    layout = GradientLayout(tuple(torch.Size(shape) for shape in SHAPES if shape), torch.float64)
    powersgd = COMPRESSIONS.section("powersgd", rank=rank, start_iteration=PLAIN_STEPS)
    ours = make_compression(powersgd, layout, seed=7)
    hook = PowerSGDState(group, rank, PLAIN_STEPS)
    sides = [(16, 12), (9, 36), (40, 30)]  # of the matrices that become at least twice as small
    differences = []
    for step in range(STEPS):
        if step == PLAIN_STEPS:  # the hook keeps what it finds here
            qs = [drawn_q(number, step, (columns, rank)) for number, (_, columns) in enumerate(sides)]
            hook.q_memory_dict[0] = torch.cat([q.view(-1) for q in qs])
            hook.p_memory_dict[0] = torch.empty(sum(rank * rows for rows, _ in sides), dtype=torch.float64)
        mine = drawn(10 * step + group.rank(), layout.num_elements)
        theirs = mine.clone()
        reduction = make_all_reduce(ALL_REDUCES.section(name), group, timeout_s=30.0)
        mine /= group.size()
        ours.reduce(mine, 1.0 / group.size(), reduction)
        powerSGD_hook(hook, Bucket(layout, theirs)).wait()
        differences.append(float((mine - theirs).abs().max()))
    return differences


def lost(name: str, group: dist.ProcessGroup) -> str | None:
    """The last rank never comes."""
    if group.rank() == group.size() - 1:
        return None
    try:
        make_all_reduce(ALL_REDUCES.section(name), group, timeout_s=0.5).sum(torch.ones(64))
    except ChannelError as error:
        return str(error)
    return "nothing was noticed"


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=timedelta(seconds=60))
    found: dict[str, Any] = {}
    members = [2, 3, 4]  # a rank in a group differs from that of the process
    group = dist.new_group(members)
    for name in ("backend", "ring") if rank in members else ():
        for width in (2, 3):
            found[f"powersgd {name} {width}"] = beside_the_hook(name, group, rank=width)
    for name in names_of("all_reduces"):
        group = dist.new_group([1, 3, 4])
        if rank in (1, 3, 4):
            found[f"lost {name}"] = lost(name, group)
        dist.barrier()
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()


if __name__ == "__main__":
    start_processes(main, args=(Path(sys.argv[1]),), nprocs=WORLD, start_method="fork")  # torch is loaded once
