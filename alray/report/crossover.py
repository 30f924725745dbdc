"""A crossover in words and tables: which way is fastest where, and by how much."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from alray.config.sections.method import METHODS
from alray.core.counting import counted
from alray.planning.prediction.crossover import CLOSE, REFERENCE, Crossover, Factors, Row
from alray.report.table import Table
from alray.report.text import left_out, seconds

SOURCES = {
    "probe": "measured here",
    "estimated": "counted, not measured",
    "roofline": "counted, at published speeds",
    "file": "read from a file",
    "given": "given in the spec",
}
"""Where costs come from, in words."""


@dataclass(frozen=True)
class Cell:
    """A place of a map: the fastest way there, and the fastest of the other family (local losses, or backpropagation),
    or where all are of one family, of another kind (`kind_of`).

    Attributes:
        best, other: None where no such way fits.
        ratio: the time of the other over that of the best.
        least_ratio: of the fastest ways of both sides, where what is known of the times of computations helps the other
            side most.
    """

    devices: int
    link: str
    best: Row | None
    other: Row | None
    ratio: float | None
    least_ratio: float | None = None

    @property
    def is_close(self) -> bool:
        """Whether the two differ by less than the simulation can tell."""
        return self.least_ratio is not None and self.least_ratio < CLOSE


def cell(found: Crossover, devices: int, link: str) -> Cell:
    """Which way is fastest on at most so many devices over this link."""
    ranked = found.at(devices, link)
    best = ranked[0] if ranked else None
    others = [row for row in ranked if best is not None and _rivals(found, best, row)]
    if best is None or not others:
        return Cell(devices, link, best, None, None)
    ratios = found.ratios([row for row in ranked if not _rivals(found, best, row)], others)
    return Cell(devices, link, best, others[0], ratios[0], min(ratios))


def _rivals(found: Crossover, one: Row, other: Row) -> bool:
    """Whether a place compares these two."""
    if found.one_family:
        return kind_of(one) != kind_of(other)
    return one.local_losses != other.local_losses


def cells(found: Crossover) -> list[Cell]:
    """The places of the map."""
    return [cell(found, devices, link) for link in found.axes.links for devices in found.axes.devices]


def method_name(method: str) -> str:
    """The short name of a method."""
    section = METHODS.sections.get(method)
    return section.abbreviation if section is not None else method


def kind_of(row: Row) -> str:
    """Method and schedule: what a map gives a colour."""
    name = method_name(row.method)
    if row.fit.stages == 1:
        return f"{name} replicas" if row.fit.setting.replicas > 1 else f"{name} alone"
    return f"{name} {row.fit.schedule}"


def layout_of(row: Row) -> str:
    """Stages, replicas and micro-batches, each only if there are several: `4 stages x 2, M 8`."""
    fit, setting = row.fit, row.fit.setting
    parts = [counted(fit.stages, "stage")] if fit.stages > 1 else []
    if setting.replicas > 1:
        parts.append(f"{setting.replicas} replicas")
    text = " x ".join(parts) or "1 device"
    if setting.scheduled.cuts_mini_batches:
        text += f", M {fit.micro_batches}"
    return text + (", checkpointing" if setting.recomputes else "")


def findings(found: Crossover) -> list[str]:
    """What the maps show, in sentences."""
    places = cells(found)
    wins = Counter(kind_of(each.best) for each in places if each.best is not None)
    said = ", ".join(f"{kind} in {count}" for kind, count in wins.most_common())
    close = sum(each.is_close for each in places)
    told = [f"Of {counted(wins.total(), 'place')} (devices by link) the fastest is {said}."]
    if close:
        both = (
            "the fastest way and the best of another kind" if found.one_family else "local losses and backpropagation"
        )
        ranged = any(row.fit.predicted_step_range_s is not None for row in found.rows)
        known = ", or would at one end of what is known of the times of computations" if ranged else ""
        told.append(
            f"In {counted(close, 'place')} {both} differ by less than {round(100 * (CLOSE - 1))} %{known}, which a "
            "prediction cannot tell apart."
        )
    run = {(row.method, row.fit.schedule) for row in found.rows}
    told += [
        f"Gradients of {each.schedule} are an update late, so it trains other weights; its rho is {each.rho:.2f}, "
        f"{each.rho_source}."
        for each in found.factors
        if (each.method, each.schedule) in run
    ]
    told += [_product(each) for each in found.factors if each.method != REFERENCE and each.alpha]
    return told


def refused(found: Crossover) -> list[str]:
    """Which schedules run nowhere, and why, in sentences."""
    reasons = ((method_name(method), schedule, why) for (method, schedule), why in found.refused.items())
    return left_out(reasons, "{} by {}")


def overrides_of(found: Crossover, row: Row) -> list[str]:
    """The overrides with which `alray run` of the spec trains in this way."""
    fit, setting = row.fit, row.fit.setting
    values = {
        "method": row.method if row.method != found.contenders[0].method else None,
        "pipeline.schedule": fit.schedule,
        "pipeline.stages": fit.stages,
        "pipeline.micro_batches": fit.micro_batches if setting.scheduled.cuts_mini_batches else None,
        "pipeline.activation_checkpointing": "true" if setting.recomputes else None,
        "replicas.count": setting.replicas,
    }
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def _product(factors: Factors) -> str:
    assert factors.alpha is not None
    return (
        f"{method_name(factors.method)}: a mini-batch on one device takes {factors.alpha:.2f} times as long as by "
        f"{method_name(REFERENCE)} (alpha, {SOURCES[factors.source]}), and the target {factors.rho:.2f} times as many "
        f"mini-batches (rho, {factors.rho_source}): alpha x rho = {factors.alpha * factors.rho:.2f}."
    )


def winners_table(found: Crossover) -> Table:
    """The fastest way at each place, beside the best of the others. With the size of the mini-batch where several are
    compared."""
    timed = any(found.steps_of(row.method, row.fit.schedule) is not None for row in found.rows[:1])
    of_best = ("fastest", "stages", "replicas", "M", "time to target" if timed else "step")
    rows = []
    for at in cells(found):
        best, other = at.best, at.other
        own = ["–"] * len(of_best)
        if best is not None:
            own = [kind_of(best), *_layout(best), seconds(found.seconds(best))]
        rows.append(
            (
                at.link,
                str(at.devices),
                *own,
                "–" if other is None else kind_of(other),
                "–" if at.ratio is None else f"{at.ratio:.2f}{' ~' if at.is_close else ''}",
            )
        )
    head = ("link", "devices", *of_best, "best of others", "times as long")
    return Table(head, tuple(rows))


def _layout(row: Row) -> tuple[str, str, str]:
    fit, setting = row.fit, row.fit.setting
    return str(fit.stages), str(setting.replicas), str(fit.micro_batches) if setting.scheduled.cuts_mini_batches else ""


def factors_table(found: Crossover) -> Table:
    """alpha and rho of each method, and where they come from."""
    rows = tuple(
        (
            each.method if each.schedule is None else f"{each.method}, {each.schedule}",
            seconds(each.step_s),
            "–" if each.alpha is None else f"{each.alpha:.3f}",
            SOURCES[each.source],
            f"{each.rho:.3f}",
            each.rho_source,
        )
        for each in found.factors
    )
    return Table(("method", "step on one device", "alpha", "alpha is", "rho", "rho is"), rows)


def ways(found: Crossover) -> list[dict[str, Any]]:
    """Every way over every link, the fastest first."""
    order = sorted(found.rows, key=lambda row: (found.axes.links.index(row.link), found.seconds(row)))
    return [_columns(found, row) for row in order]


def _columns(found: Crossover, row: Row) -> dict[str, Any]:
    fit, setting, steps = row.fit, row.fit.setting, found.steps_of(row.method, row.fit.schedule)
    ends = fit.predicted_step_range_s
    return {
        "method": row.method,
        "schedule": fit.schedule,
        "link": row.link,
        "devices": row.devices,
        "stages": fit.stages,
        "replicas": setting.replicas,
        "micro_batches": fit.micro_batches,
        "virtual_stages": fit.virtual_stages,
        "checkpointing": "yes" if setting.recomputes else "no",
        "fits": "yes" if fit.fits else "no",
        "partition": " ".join(map(str, fit.partition)),
        "step_s": row.step_s,
        "low_step_s": ends and ends[0],
        "high_step_s": ends and ends[1],
        "memory_bytes": max(fit.memory_bytes),
        "sent_bytes": found.sent_bytes(row),
        "steps": steps and steps.number,
        "steps_source": steps and steps.source,
        "target_s": steps and found.seconds(row),
    }


_OF_PLACE = (
    "method",
    "schedule",
    "stages",
    "replicas",
    "micro_batches",
    "virtual_stages",
    "checkpointing",
    "partition",
    "step_s",
)
"""The columns of a way that its place has too. Their values are null where nothing fits."""


def as_json(found: Crossover) -> dict[str, Any]:
    """A crossover as `alray plan --map --json` prints it."""
    return {
        "name": found.name,
        "basis": found.basis,
        "batch_size": found.batch_size,
        "devices": list(found.axes.devices),
        "micro_batches": list(found.axes.micro_batches),
        "links": list(found.axes.links),
        "factors": [asdict(each) for each in found.factors],
        "fastest": [
            {
                "link": at.link,
                "devices": at.devices,
                **{name: at.best and _columns(found, at.best)[name] for name in _OF_PLACE},
                "step_range_s": at.best and at.best.fit.predicted_step_range_s,
                "other_method": at.other and at.other.method,
                "other_schedule": at.other and at.other.fit.schedule,
                "times_as_long": at.ratio,
                "close": at.is_close,
            }
            for at in cells(found)
        ],
        "ways": ways(found),
        "refused": [
            {"method": method, "schedule": schedule, "reason": reason}
            for (method, schedule), reason in found.refused.items()
        ],
    }
