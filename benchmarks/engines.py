"""Pipelines of backpropagation by alray's executor, and by torch.distributed.pipelining: bits and step time.

python -m benchmarks.engines [CASE...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alray.models.component import Component
from alray.planning.schedules.table import SCHEDULES as TABLE
from alray.runtime.channel.message import packed_bytes
from alray.runtime.stage.assemble import chain_of
from benchmarks.in_turns import LR, Engine, Place, measure, told
from benchmarks.runs import write_results

if TYPE_CHECKING:
    from benchmarks.torch_pipelines import EdgePair

HERE = Path(__file__).parent
LAPTOP = HERE.parent / "specs" / "laptop"
BP = "method={kind: backpropagation}"
TINY = ("model.components=[{block: linear, width: 32, repeat: 8}]", "data.batch_size=64")
CASES = {
    "equal_components": (LAPTOP / "equal_components.yaml", (BP, "pipeline.stages=2"), (4, 8, 16)),
    "eight": (HERE / "eight.yaml", (BP, "pipeline.stages=2"), (4, 8, 16)),
    "tiny layers": (
        LAPTOP / "equal_components.yaml",
        (BP, *TINY, "pipeline.stages=2"),
        (4, 8, 16),
    ),
    "8 sleeping": (HERE / "sleeping.yaml", (BP, "model.components.0.repeat=8", "pipeline.stages=8"), (16,)),
    "16 sleeping": (HERE / "sleeping.yaml", (BP, "pipeline.stages=16"), (16,)),
}
SCHEDULES = ("1f1b", "gpipe", "interleaved_1f1b", "zero_bubble", "zb_v", "dualpipe_v")


def cases() -> Iterator[tuple[str, Path, list[str]]]:
    """Name, spec and overrides of each."""
    for name, (spec, overrides, counts) in CASES.items():
        for schedule in SCHEDULES:
            if "sleeping" in name and schedule in ("interleaved_1f1b", "zb_v", "dualpipe_v"):
                continue  # a component for each stage
            for micro_batches in counts:
                more = [f"pipeline.schedule={schedule}", f"pipeline.micro_batches={micro_batches}"]
                yield f"{name}, {schedule}, {micro_batches}", spec, [*overrides, *more]


def split_cases() -> Iterator[tuple[str, Path, list[str]]]:
    """Those in which a backward is split, and is compared with one that is not."""
    return (case for case in cases() if "sleeping, zero_bubble" in case[0])


def own(place: Place, components: Sequence[Component]) -> Engine:
    """alray's executor."""
    return place.executed(components)


def torchs(place: Place, components: Sequence[Component]) -> Engine:
    """torch's schedule."""
    from benchmarks.torch_pipelines import TorchPipeline  # imports torch's compiler

    pipeline = TorchPipeline(place.plan, place.stage, chain_of(components), place.network, _edge_pairs(place))
    return lambda incoming, step: pipeline.mini_batch(incoming, step, LR)


def without_split(place: Place, components: Sequence[Component]) -> Engine:
    """alray's executor with the lists of 1F1B, on the edges of another schedule."""
    plan = place.plan
    return place.executed(components, TABLE["1f1b"].actions(place.stage, plan.stages, 0, plan.micro_batches, 1))


def _edge_pairs(place: Place) -> dict[int, EdgePair]:
    """Edges with room for every micro-batch, both ways, as torch's schedules want them."""
    from benchmarks.torch_pipelines import EdgePair

    plan, stage = place.plan, place.stage
    peers = sorted({other for pair in plan.edges_between() for other in pair if stage in pair} - {stage})
    largest = max(encoder.output.sample_bytes for encoder in place.network.encoders)
    capacity = packed_bytes([largest * plan.costs.batch_size // plan.micro_batches])
    room = 2 * plan.micro_batches * plan.virtual_stages
    senders = {peer: place.edges.sender(peer, "torch", capacity, room) for peer in peers}
    return {peer: EdgePair(sender, place.edges.receiver(peer, "torch")) for peer, sender in senders.items()}


def main(wanted: list[str]) -> None:
    found = {}
    for name, spec, overrides in cases():
        if not wanted or any(name.startswith(each) for each in wanted):
            found[name] = measure(spec, overrides, own, torchs)
            print(told(name, found[name], "torch"), flush=True)  # noqa: T201
            write_results("engines", found)
    split = {}
    for name, spec, overrides in split_cases():
        if not wanted or any(name.startswith(each) for each in wanted):
            split[name] = measure(spec, overrides, own, without_split)
            print(told(name, split[name], "1f1b"), flush=True)  # noqa: T201
            write_results("split_backward", split)


if __name__ == "__main__":
    main(sys.argv[1:])
