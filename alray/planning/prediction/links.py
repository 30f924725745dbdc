"""Messages between nodes in a simulation: each takes its link for a while, and holds back the next one.

A link carries the messages from one stage to another, one after another, while both compute on. The system takes some
bytes from a sender before they are on their way, so a send waits only if more than that is left of those before it.
All that a stage sends to other nodes goes through its network card, one message after another, whichever neighbour it
is for; what it sends within its node goes through the link of its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.program import NUM_KINDS, Codes, Floats, Program, kind_number, kinds, looked_up
from alray.planning.schedules.durations import Durations

_NONE = -1


def seconds_on_links(every: Sequence[Durations], program: Program) -> Floats | None:
    """[actions, n]: seconds for which each action takes a link, over all stages; None if none of these n durations has
    a link."""
    if not any(len(durations.up_link_s) for durations in every):
        return None
    table = np.stack([_table(durations, program) for durations in every], axis=-1)
    return np.concatenate([looked_up(table, program, stage) for stage in range(program.stages)])


def is_on_link(durations: Durations, program: Program) -> NDArray[np.bool_]:
    """Whether each action takes a link, over all stages.

    The setting decides this and no cut, so that cuts which are simulated at once are predicted as each by itself. A
    message without bytes takes a link for no time, and its latency passes.
    """
    table = np.zeros((program.stages * program.virtual_stages, 2 * NUM_KINDS))
    for half in (0, NUM_KINDS):
        table[:-1, half + kind_number("S")] = durations.has_link
    table[1:, kind_number("S", True)] = durations.has_link
    return np.concatenate([looked_up(table, program, stage) > 0 for stage in range(program.stages)])


def _table(durations: Durations, program: Program) -> Floats:
    """As `alray.planning.prediction.program.looked_up` reads it. Only sends take a link."""
    table = np.zeros((program.stages * program.virtual_stages, 2 * NUM_KINDS))
    labels = durations.labels_link_s if len(durations.labels_link_s) else durations.up_link_s
    table[:-1, kind_number("S")], table[:-1, NUM_KINDS + kind_number("S")] = durations.up_link_s, labels
    table[1:, kind_number("S", True)] = durations.down_link_s
    return table


@dataclass(frozen=True, eq=False)
class LinkEvents:
    """The effect of links on each event of a simulation.

    Attributes:
        over: whether it is a send over a link. For these, seconds: for how long it takes the link.
        packing: seconds before that.
        before: the last send over the same link, or -1.
        ahead: the last send through the same card, or the same link of a device, or -1; `before` on a line of its own.
        buffer_s: how long the sends before may still take the link.
    """

    over: NDArray[np.bool_]
    seconds: Floats
    packing: Floats
    before: Codes
    ahead: Codes
    buffer_s: Floats
    latency_s: Floats
    """The latency of the link of each send or receive."""

    @classmethod
    def of(
        cls, program: Program, positions: NDArray[np.int64], seconds: Floats, packing: Floats, durations: Durations
    ) -> LinkEvents:
        """
        Args:
            positions: the number of each event's action, over all stages.
            seconds, packing: of each event.
        """
        over = is_on_link(durations, program)[positions]
        codes = np.concatenate(program.codes)[positions]
        lower = np.concatenate([_lower(program, stage) for stage in range(program.stages)])[positions]
        goes_down = kinds(codes) == kind_number("S", True)
        stages = np.array([program.stage_of(virtual) for virtual in range(int(lower.max()) + 2)])
        source, target = stages[lower + goes_down], stages[lower + ~goes_down]
        before = _last(np.where(over, source * program.stages + target, _NONE))
        edge = np.clip(lower, 0, len(durations.link_buffer_s) - 1)
        through = np.array(durations.link_through or ["itself"] * len(durations.link_buffer_s))[edge]
        shared = np.where(through == "card", source, program.stages + source)
        ahead = np.where(through == "itself", before, _last(np.where(over & (through != "itself"), shared, _NONE)))
        return cls(
            over,
            seconds,
            packing,
            before,
            ahead,
            np.array(durations.link_buffer_s)[edge],
            np.array(durations.link_latency_s)[edge],
        )

    def after(self, receives: Codes, packing: Floats) -> Floats:
        """How much later each of these receives may start than its send, besides the time on the link.

        The lag of a receive counts from the start of its send and holds the packing; a message leaves the link later.
        """
        latency_s: Floats = self.latency_s[receives, None] - packing
        return latency_s


def _last(ways: Codes) -> Codes:
    """For each event, the last one before it that goes the same way, or -1; events that go no way are -1."""
    found = np.full(len(ways), _NONE)
    order = np.argsort(ways, kind="stable")
    again = (ways[order[1:]] == ways[order[:-1]]) & (ways[order[1:]] != _NONE)
    found[order[1:][again]] = order[:-1][again]
    return found


def _lower(program: Program, stage: int) -> Codes:
    """The lower (virtual) stage of the edge that each send or receive of a stage uses."""
    is_lower = np.isin(kinds(program.codes[stage]), [kind_number("S"), kind_number("R", True)])
    lower: Codes = program.virtual(stage) - ~is_lower
    return lower
