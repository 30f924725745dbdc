"""The figure of a schedule shows every action once, where it belongs."""

from __future__ import annotations

import re
from types import SimpleNamespace
from xml.etree import ElementTree

from alray.planning.prediction.program import Program
from alray.planning.prediction.simulate import simulate
from alray.planning.prediction.timeline import TimedAction
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.table import SCHEDULES
from alray.report.figure import Figure
from alray.report.lanes import Lane, View, lanes_of, whole
from alray.report.schedule_figure import schedule_figure

SVG = "{http://www.w3.org/2000/svg}"
PLAN = SimpleNamespace(
    stages=2,
    schedule="streamed",
    schedule_name="streamed",
    stage_of=lambda virtual: virtual % 2,
    micro_batches=1,
    stage_plans=[SimpleNamespace(runs=(range(1),)), SimpleNamespace(runs=(range(1, 3),))],
    costs=SimpleNamespace(components=[SimpleNamespace(name=name) for name in ("first", "second", "third")]),
)
"""What a figure asks of a plan."""


def view_of(schedule: str = "streamed", batches: int = 2) -> View:
    durations = Durations({"F": [1e-3] * 2, "B": [2e-3] * 2, "U": [1e-3] * 2})
    return shown(*simulate(Program.of_schedule(SCHEDULES[schedule], 2, batches), durations, in_flight=4).bars())


def shown(*bars: TimedAction) -> View:
    return whole(lanes_of(bars, stages=2))


def test_a_replica_that_is_slowed_on_purpose_is_told_from_its_backwards() -> None:
    view = shown(TimedAction(0, "0B0", 0.0, 1.0), TimedAction(0, "disturbance 0", 1.0, 2.0))
    assert [row["series"] for row in figure_of(measured=view).rows if row["series"] != "waiting"] == [
        "backward",
        "slowed on purpose",
    ]


def figure_of(**views: View) -> Figure:
    return schedule_figure(views, PLAN)


def test_a_slot_names_its_action_components_and_mini_batch() -> None:
    figure = figure_of(predicted=view_of())
    slots = [row for row in figure.rows if row["series"] != "waiting"]
    assert len(slots) == 12
    told = ("lane", "action", "series", "components", "mini_batch", "start_ms", "duration_ms")
    assert [slots[0][key] for key in told] == ["stage 0", "0F0", "forward", "0 first", 0, 0.0, 1.0]
    assert [slots[-1][key] for key in told] == ["stage 1", "1U1", "update", "1 second, 2 third", 1, 8.0, 1.0]
    message = figure_of(predicted=shown(TimedAction(0, "0S0", 0.0, 1.0), TimedAction(1, "1R0", 1.0, 2.0)))
    slots = [row for row in message.rows if row["series"] == "message"]
    assert [(row["peer"], row["mini_batch"], row["label"]) for row in slots] == [(1, 0, ""), (0, 0, "")]


def test_the_file_has_every_slot_and_the_names_of_what_it_shows() -> None:
    figure = figure_of(predicted=view_of())
    root = ElementTree.fromstring(figure.svg)
    assert {"stage 0", "stage 1", "B1", "forward", "waiting"} <= {text.text for text in root.iter(f"{SVG}text")}
    assert len([path for path in root.iter(f"{SVG}path") if "0F0" in path.get("aria-label", "")]) == 1
    assert "measured" not in figure.svg


def test_the_end_of_the_mini_batches_is_no_waiting() -> None:
    """What lies behind the slots, which reads as waiting, ends with the last slot of a stage."""
    rows = figure_of(predicted=view_of()).rows
    for lane in ("stage 0", "stage 1"):
        (track,) = [row for row in rows if row["lane"] == lane and row["series"] == "waiting"]
        last = [row for row in rows if row["lane"] == lane][-1]
        assert (track["start_ms"], track["end_ms"], last["label"]) == (0.0, last["end_ms"], "U1")


def test_both_are_on_one_axis_that_begins_at_their_start() -> None:
    predicted = whole([Lane(0, 0, (TimedAction(0, "0F0", 0.0, 1.0),))])
    waits = (TimedAction(0, "receive_wait", 100.0, 101.0), TimedAction(0, "0F0", 101.0, 102.0))
    figure = figure_of(predicted=predicted, measured=whole([Lane(0, 0, waits)]))
    slots = {row["lane"]: row["start_ms"] for row in figure.rows if row["series"] == "forward"}
    assert slots == {"predicted, stage 0": 0.0, "measured, stage 0": 1000.0}
    assert figure.scrubbed == (0.0, 2000.0)


def test_the_file_asks_for_nothing_from_elsewhere() -> None:
    text = re.sub(r'xmlns(:xlink)?="http://www.w3.org/[^"]+"', "", figure_of(predicted=view_of()).svg)
    assert "http" not in text and "href" not in text
