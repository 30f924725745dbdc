"""The figure of a schedule: what each stage does at which time, as planned and as measured, on one axis of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from alray.planning.prediction.plan import Plan
from alray.planning.prediction.timeline import TimedAction
from alray.report.drawing import colour_of, hiding, tell, zoom
from alray.report.figure import ROWS_NAME, Figure, Series
from alray.report.lanes import DATA, DISTURBANCE, View, action_of, batch_of, category

_NAMES = {
    "d": "data",
    "F": "forward",
    "C": "forward again",
    "L": "labels and losses",
    "B": "backward",
    "I": "input gradient",
    "G": "weight gradient",
    "U": "update",
    "E": "inference up",
    "D": "inference down",
    "W": "barrier",
    "X": "slowed on purpose",
    ">": "message",
    ".": "waiting",
}
WAITING = _NAMES["."]
_COLOURS = {
    "d": "--data",
    "F": "--forward",
    "C": "--again",
    "L": "--losses",
    "B": "--backward",
    "I": "--input",
    "G": "--weights",
    "U": "--update",
    "E": "--up",
    "D": "--down",
    "W": "--message",
    "X": "--soft",
    ">": "--message",
    ".": "--empty",
}
_TELLS = {
    "action": "action",
    "series": "what",
    "components": "components",
    "mini_batch": "mini-batch",
    "micro_batch": "micro-batch",
    "peer": "other stage",
}
_ROW, _REST = 26, 52  # heights in pixels: of a stage, of the axis
_WIDE = "scale('x', datum.end_ms) - scale('x', datum.start_ms) > 7 * length(datum.label) + 4"
"""Whether a slot has room for its label."""
_SAID = (
    "datum.action + ', ' + datum.series + (datum.components ? ' of ' + datum.components : '') + "
    "(isValid(datum.mini_batch) ? ', mini-batch ' + datum.mini_batch : '') + ', ' + datum.duration_ms + ' ms'"
)
"""The text of a slot for screen readers."""


def schedule_figure(views: Mapping[str, View], plan: Plan, shown_s: float | None = None) -> Figure:
    """The figure of these views (`predicted`, `measured`). Each begins at 0 ms.

    Args:
        shown_s: how much of the axis a page shows at first; None: all of it.
    """
    lanes = {
        name: [f"{name}, stage {lane.stage}" if len(views) > 1 else f"stage {lane.stage}" for lane in view.lanes]
        for name, view in views.items()
    }
    rows = [row for name, view in views.items() for row in _rows(view, lanes[name], plan, name)]
    drawn = {row["series"] for row in rows}
    series = tuple(Series(name, _COLOURS[sign]) for sign, name in _NAMES.items() if name in drawn)
    end_ms = round(1e3 * max(view.end_s - view.start_s for view in views.values()), 4)
    order = [lane for each in lanes.values() for lane in each]
    shown = (0.0, min(end_ms, 1e3 * shown_s)) if shown_s is not None else None
    described = " and ".join(views)
    return Figure(
        "schedule",
        f"Schedule, {described}",
        f"What each of {plan.stages} stages does over time, {described}: {plan.schedule_name}.",
        rows,
        _drawing(order, series, end_ms, shown),
        series,
        size=(960, _ROW * len(order) + _REST),
        scrubbed=(0.0, end_ms),
    )


def _rows(view: View, lanes: list[str], plan: Plan, kind: str) -> Iterator[dict[str, Any]]:
    """A row for each stretch of time that is known, on which a stage waits, and one for each slot upon it."""
    for name, lane in zip(lanes, view.lanes, strict=True):
        for start_s, end_s in view.traced(lane):
            yield {"series": WAITING, "kind": kind, "lane": name, **_times(start_s, end_s)}
        for bar in view.inside(lane):
            yield {
                "series": _NAMES[_letter(bar)],
                "kind": kind,
                "lane": name,
                **_times(*view.clipped(bar)),
                **_described(bar, plan),
            }


def _times(start_s: float, end_s: float) -> dict[str, float]:
    start_ms, end_ms = (round(1e3 * seconds, 4) for seconds in (start_s, end_s))
    return {"start_ms": start_ms, "end_ms": end_ms, "duration_ms": round(end_ms - start_ms, 4)}


def _described(bar: TimedAction, plan: Plan) -> dict[str, Any]:
    """Describe a slot: its action, the components that it is about, its mini-batch."""
    action, sign = action_of(bar), _letter(bar)
    described = {"action": bar.action, "label": "" if sign == ">" else _label(bar), "mini_batch": batch_of(bar)}
    if action is None:
        return described
    described["mini_batch"] = action.batch
    if sign == ">":
        return {**described, "peer": plan.stage_of(action.peer) if action.kind in "SR" else None}
    runs = plan.stage_plans[plan.stage_of(action.stage)].runs
    own = runs[action.stage // plan.stages]
    names = [f"{index} {plan.costs.components[index].name}" for index in own]
    micro_batch = action.number if plan.micro_batches > 1 else None
    return {**described, "components": ", ".join(names), "micro_batch": micro_batch}


def _letter(bar: TimedAction) -> str:
    """The letter that stands for a bar; messages between stages or replicas are `>`."""
    action = action_of(bar)
    if action is None:
        return {DATA: "d", DISTURBANCE: "X"}.get(category(bar), ">")
    return {"S": ">", "R": ">"}.get(action.kind, action.kind)


def _label(bar: TimedAction) -> str:
    """The text in a bar: its letter and mini-batch, and the micro-batch unless that is 0."""
    sign, action = _letter(bar), action_of(bar)
    batch = batch_of(bar) if action is None else action.batch
    if sign == ">" or batch is None:
        return sign
    return f"{sign}{batch}.{action.number}" if action is not None and action.number else f"{sign}{batch}"


def _drawing(
    order: list[str], series: tuple[Series, ...], end_ms: float, shown: tuple[float, float] | None
) -> dict[str, Any]:
    scale = {"domain": [0, end_ms], "nice": False, "zero": False}
    x = {"field": "start_ms", "type": "quantitative", "title": "milliseconds", "scale": scale, "axis": {"grid": False}}
    axis = {"domain": False, "ticks": False, "labelLimit": 130}
    y = {
        "field": "lane",
        "type": "nominal",
        "title": None,
        "sort": order,
        "scale": {"paddingInner": 0.18},
        "axis": axis,
    }
    placed = {"x": x, "x2": {"field": "end_ms"}, "y": y}
    times = (tell("start_ms", "begins, ms", ",.3f"), tell("duration_ms", "takes, ms", ",.3f"))
    tooltip = [*(tell(name, title) for name, title in _TELLS.items()), *times]
    label_shown = {"condition": {"test": _WIDE, "field": "label"}, "value": ""}
    waits = f"datum.series === '{WAITING}'"
    return {
        "data": {"name": ROWS_NAME},
        **hiding(),
        "layer": [
            {
                "params": [zoom("x", shown=shown)],
                "transform": [{"filter": waits}],
                "mark": {"type": "rect", "clip": True, "aria": False},
                "encoding": {**placed, "color": colour_of(series)},
            },
            {
                "transform": [{"filter": f"!({waits})"}, {"calculate": _SAID, "as": "said"}],
                "mark": {"type": "rect", "clip": True, "cornerRadius": 2, "stroke": "--paper", "strokeWidth": 0.5},
                "encoding": {
                    **placed,
                    "color": colour_of(series),
                    "tooltip": tooltip,
                    "description": {"field": "said"},
                },
            },
            {
                "transform": [
                    {"filter": f"!({waits}) && datum.label"},
                    {"calculate": "(datum.start_ms + datum.end_ms) / 2", "as": "middle_ms"},
                ],
                "mark": {"type": "text", "clip": True, "fontSize": 11, "color": "white", "aria": False},
                "encoding": {"x": {**x, "field": "middle_ms"}, "y": y, "text": label_shown},
            },
        ],
    }
