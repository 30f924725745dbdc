"""Stages of one replica on two nodes: each edge is of the kind that its two stages need, and the bits stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from alray.core.run_folder.records import StageRecord, read

from .conftest import Workshop
from .process_graph import ProcessGraph, in_processes
from .test_same_bits import same

NODES = ("one", "one", "other")
PIPELINE = (
    "method={kind: backpropagation}",
    "pipeline.schedule=1f1b",
    "pipeline.micro_batch_norm=accept",
    "pipeline.micro_batches=4",
)


@pytest.fixture
def shared(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Runs with `inline=False` seem to be on two nodes; gives the edges that went through shared memory."""
    found: set[str] = set()
    poll = ProcessGraph.poll

    def looking(self: ProcessGraph, timeout_s: float):
        for stage in self._actors:
            with suppress(OSError):  # it may have ended
                found.update(re.findall(r"memfd:alray-(\S+)", Path(f"/proc/{stage.pid}/maps").read_text()))
        return poll(self, timeout_s)

    monkeypatch.setattr(ProcessGraph, "poll", looking)
    with in_processes(server, NODES):
        yield found


def queued(workshop: Workshop) -> dict[int, set[int | None]]:
    """How many messages waited, by stage, as the records of a run say."""
    found: dict[int, set[int | None]] = {}
    for record in read(workshop.folder / "run/records.jsonl"):
        if isinstance(record, StageRecord):
            found.setdefault(record.stage, set()).add(record.queued_messages)
    return found


@pytest.mark.full
def test_local_losses(workshop: Workshop, reference, shared: set[str]) -> None:
    same(workshop.run("pipeline.partition=[1,2,1]", inline=False), reference)
    assert shared == {"0->1", "1->0"}
    waiting = queued(workshop)
    assert waiting[0] == {None}
    assert all(number is not None and 0 <= number <= 4 + 1 for stage in (1, 2) for number in waiting[stage])


@pytest.mark.full
def test_a_pipeline_of_backpropagation(workshop: Workshop, shared: set[str], server: str) -> None:
    """Its activations and gradients are ordered by torch; one of its edges goes over torch's process group."""
    overrides = ("pipeline.partition=[1,2,1]", *PIPELINE)
    apart = workshop.run(*overrides, inline=False)
    assert shared == {"0->1", "1->0"}
    assert queued(workshop) == {0: {None}, 1: {None}, 2: {None}}
    with in_processes(server):
        together = workshop.run(*overrides, inline=False, name="together")
    same(apart, together)
