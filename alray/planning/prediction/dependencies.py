"""The actions of other stages that each action of a program waits for, and why a program cannot end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alray.core.errors import PlanError
from alray.planning.prediction.program import Codes, Program, batches, chunks, kind_number, kinds, messages, parts

Positions = NDArray[np.int64]

NOTHING = -1  # the action starts when the one before it ends
FIRST_BARRIER = -2  # barrier n of the program is FIRST_BARRIER - n

_MOST_TOLD = 4  # stages in the error of a deadlock
_HINT = "each receive needs its send, in the same order, and no two stages may wait for each other"


@dataclass(frozen=True, eq=False)
class Dependencies:
    """The action, or barrier, that each action waits for.

    Actions are numbered consecutively over all stages; those of stage s begin at `offsets[s]`. on[i] is the number of
    the action whose end action i waits for, NOTHING, or a barrier.
    """

    on: Positions
    offsets: Positions


def find_dependencies(program: Program, in_flight: int | None) -> Dependencies:
    """Match each receive with its send, and the barriers of all stages with each other.

    An edge holds `in_flight` mini-batches that wait to be received: the first part of a mini-batch is sent only when
    the receiver has taken the first part of the mini-batch `in_flight` before it. Later parts, such as the labels, find
    the room of their mini-batch already there. None: an edge holds any number. Raises PlanError where actions do not
    match.
    """
    sizes = [len(codes) for codes in program.codes]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    on = np.full(offsets[-1], NOTHING, dtype=np.int64)
    virtual = program.virtual_stages * program.stages
    barriers = [codes[kinds(codes) == kind_number("W")] for codes in program.codes]
    for stage, codes in enumerate(program.codes):
        _check_edges(program, stage, virtual)
        if not np.array_equal(barriers[stage], barriers[0]):
            raise PlanError(f"stages 0 and {stage} have different barriers", hint="give all stages the same W actions")
        waits = np.flatnonzero(kinds(codes) == kind_number("W"))
        on[offsets[stage] + waits] = FIRST_BARRIER - np.arange(len(waits))
        for number in program.held(stage):
            for down, other in ((False, number + 1), (True, number - 1)):
                if not 0 <= other < virtual:
                    continue
                peer = program.stage_of(other)
                sends = _positions(codes, kind_number("S", down), number, program)
                receives = _positions(program.codes[peer], kind_number("R", down), other, program)
                _check_messages(program, stage, sends, peer, receives)
                if peer == stage:
                    _check_order(program, stage, sends, receives)
                    continue
                on[offsets[peer] + receives] = offsets[stage] + sends
                if in_flight is None:
                    continue
                sends, receives = _first_parts(codes, sends), _first_parts(program.codes[peer], receives)
                on[offsets[stage] + sends[in_flight:]] = offsets[peer] + receives[:-in_flight]
    return Dependencies(on, offsets)


def _first_parts(codes: Codes, positions: Positions) -> Positions:
    """The positions among these at which the first message of a mini-batch is."""
    first: Positions = positions[parts(codes[positions]) == 0]
    return first


def _positions(codes: Codes, kind: int, virtual_stage: int, program: Program) -> Positions:
    """The indices, in the list of a stage, of all actions of one virtual stage with one kind and direction."""
    found = kinds(codes) == kind
    if program.virtual_stages > 1:
        found &= chunks(codes) == virtual_stage // program.stages
    return _by_message(codes, np.flatnonzero(found))


def _by_message(codes: Codes, positions: Positions) -> Positions:
    """The same positions, with the parts of each mini-batch in the order of their numbers.

    A stage may send and receive the parts in different orders: a receive takes the part that it names, whichever part
    came first.
    """
    batch = batches(codes[positions])
    return positions[np.lexsort((parts(codes[positions]), np.maximum.accumulate(batch)))] if len(batch) else positions


def _check_edges(program: Program, stage: int, virtual: int) -> None:
    """Raises PlanError where an action uses an edge that does not exist."""
    codes = program.codes[stage]
    absent = np.zeros(len(codes), dtype=bool)
    for number, down in ((0, False), (virtual - 1, True)):  # nothing below the first, nothing above the last
        if program.stage_of(number) == stage:
            uses = np.isin(kinds(codes), [kind_number("R", down), kind_number("S", not down)])
            absent |= uses & (chunks(codes) == number // program.stages)
    for index in np.flatnonzero(absent):
        action = program.action(stage, int(index))
        raise PlanError(
            f"`{action}` uses the edge between stages {action.stage} and {action.peer}, but there are {virtual} stages",
            hint=_HINT,
        )


def _check_messages(program: Program, stage: int, sends: Positions, peer: int, receives: Positions) -> None:
    """Raises PlanError unless mini-batches are received in the order in which they are sent, each message once."""
    sent = messages(program.codes[stage][sends])
    received = messages(program.codes[peer][receives])
    shared = min(len(sent), len(received))
    place = next(iter(np.flatnonzero(sent[:shared] != received[:shared])), shared)
    lists = ((stage, sends), (peer, receives))
    made, wanted = (f"`{program.action(own, each[place])}`" if place < len(each) else "nothing" for own, each in lists)
    if made != wanted:
        raise PlanError(f"stage {stage} sends {made} next, where stage {peer} receives {wanted}", hint=_HINT)


def _check_order(program: Program, stage: int, sends: Positions, receives: Positions) -> None:
    """Raises PlanError where a stage wants what it hands over to itself before it has it."""
    for index in np.flatnonzero(receives < sends):
        early = program.action(stage, int(receives[index]))
        raise PlanError(
            f"deadlock: stage {stage} waits for itself: `{early}` comes before "
            f"`{program.action(stage, int(sends[index]))}`",
            hint=_HINT,
        )


def deadlock(program: Program, stuck: dict[int, int]) -> PlanError:
    """The error for stages that wait for each other.

    Args:
        stuck: for each such stage, the index in its list at which it waits.
    """
    waits = [f"stage {stage} at `{program.action(stage, index)}`" for stage, index in sorted(stuck.items())]
    return PlanError(f"deadlock: these wait for ever: {', '.join(waits[:_MOST_TOLD])}", hint=_HINT)
