"""Charts show every action once, where it belongs."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from alray.plan.program import Program
from alray.plan.simulate import simulate
from alray.plan.timeline import TimedAction
from alray.report.html import render
from alray.report.lanes import Lane, View, lanes_of, whole
from alray.report.schedule_chart import ScheduleChart, chart_text, schedule_chart, time_text
from alray.schedules.durations import Durations

SVG = "{http://www.w3.org/2000/svg}"


def view_of(schedule: str = "streamed", batches: int = 2) -> View:
    durations = Durations([1e-3] * 2, [2e-3] * 2, [1e-3] * 2)
    return shown(*simulate(Program.of_schedule(schedule, 2, batches), durations, in_flight=4).bars())


def shown(*bars: TimedAction) -> View:
    return whole(lanes_of(bars, stages=2))


def svg_of(chart: ScheduleChart) -> str:
    return render("schedule_chart.html", chart=chart)


def test_text_one_character_a_slot() -> None:
    assert chart_text(view_of(), width=9).splitlines() == [
        "stage 0  FB0UFB1U",
        "stage 1  .FB0UFB1U",
        "         0    9 ms",
        "         F forward   B backward   U update   . waiting",
    ]


def test_text_with_room_for_numbers() -> None:
    assert chart_text(view_of(), width=27).splitlines()[:2] == [
        "stage 0  F0-B0----U0-F1-B1----U1-",  # it has no more to do
        "stage 1  ...F0-B0----U0-F1-B1----U1-",
    ]


def test_text_shows_messages() -> None:
    view = shown(
        TimedAction(0, "0F0", 0.0, 1.0),
        TimedAction(0, "0S0", 1.0, 2.0),
        TimedAction(1, "1R0", 2.0, 3.0),
        TimedAction(1, "1F0", 3.0, 4.0),
    )
    lines = chart_text(view, width=12).splitlines()
    assert lines[:2] == ["stage 0  F0->>>", "stage 1  ......>>>F0-"]
    assert lines[-1].split("   ")[-2:] == ["> message", ". waiting"]


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="no action to draw"):
        chart_text(shown())
    with pytest.raises(ValueError, match="take no time"):
        schedule_chart(View([Lane(0, 0, (TimedAction(0, "0F0", 1.0, 1.0),))], 1.0, 1.0))


def test_svg_has_a_titled_box_for_every_action() -> None:
    root = ElementTree.fromstring(svg_of(schedule_chart(view_of())))
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert len(titles) == 12
    assert titles[0] == "0F0: 1 ms"
    text = {element.text for element in root.iter(f"{SVG}text")}
    assert {"predicted", "stage 0", "stage 1", "B1", "forward", "waiting"} <= text
    assert "measured" not in text


def test_the_end_of_the_mini_batches_is_no_waiting() -> None:
    """The track behind the boxes, which reads as waiting, ends with the last box of a stage."""
    for row in schedule_chart(view_of()).rows:
        ((start, width),) = row.tracks
        assert start == ScheduleChart.LEFT
        assert start + width == pytest.approx(row.boxes[-1].x + row.boxes[-1].width, abs=1.0)
    assert [row.boxes[-1].label for row in schedule_chart(view_of()).rows] == ["U1", "U1"]


def test_svg_draws_both_on_one_scale() -> None:
    predicted = whole([Lane(0, 0, (TimedAction(0, "0F0", 0.0, 1.0),))])
    waits = (TimedAction(0, "receive_wait", 100.0, 101.0), TimedAction(0, "0F0", 101.0, 102.0))
    root = ElementTree.fromstring(svg_of(schedule_chart(predicted, whole([Lane(0, 0, waits)]))))
    boxes = [box for box in root.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    assert len(boxes) == 2
    first, second = (float(box.get("x", "")) for box in boxes)
    width = float(boxes[0].get("width", ""))
    assert first == 64.0
    assert second - first == pytest.approx(width + 0.5, abs=0.01)  # it begins one second after the measured start


def test_svg_asks_for_nothing_from_elsewhere() -> None:
    text = svg_of(schedule_chart(view_of())).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in text and "href" not in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12.3 ms"), (1.5, "1.5 s"), (4321.0, "4321 s"), (2e-5, "20 us"), (0.99996, "1 s")]
)
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text
