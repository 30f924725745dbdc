"""Predict pipelines that other people measured, and compare: `make published`.

    python -m benchmarks.published    # prints every row; `make published` writes the section of docs/predictions.md

The figures are in `benchmarks/published_runs`; each file's header says where they are from. A table has what all of its
rows share (`given`), and its rows. One number of a table is free: the seconds of one layer's forward for one
micro-batch. It is set so that the first row comes out right, or it is that of the table that `calibrate_from` names.
All other rows are predictions by `alray.planning.prediction`, as a plan would make them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from scipy.optimize import brentq

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.planning.prediction.all_reduce import LinkCost
from alray.planning.prediction.costs import ComponentCosts, Costs, Link
from alray.planning.prediction.durations import action_durations
from alray.planning.prediction.predict import program_of
from alray.planning.prediction.program import Program
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.simulate import simulate
from alray.planning.schedules.actions import Action, ActionKind
from alray.planning.schedules.durations import Durations
from alray.runtime.channel.all_reduce import all_reduce_class

RUNS = Path(__file__).parent / "published_runs"
ALIKE = 0.05
"""Two rows of a table count for the ranks if their measured times differ by more than this."""
_ELEMENT_BYTES = {"fp32": 4, "fp16": 2}
_AHEAD = 1 << 40
"""Bytes that a sender may be ahead of its link: these libraries keep all outputs of a mini-batch anyway."""


@dataclass(frozen=True)
class Prediction:
    """A row. ratio: predicted over measured. Rows that set the number of their table have none to show."""

    file: str
    kind: str
    table: str
    given: Mapping[str, Any]
    measured_s: float
    predicted_s: float
    sets_the_number: bool

    @property
    def ratio(self) -> float:
        return self.predicted_s / self.measured_s


class Run:
    """One measured run: the facts of its table and of its row."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def __getitem__(self, key: str) -> Any:
        return self.given[key]

    @cached_property
    def layers(self) -> list[int]:
        """Layers of each stage."""
        stages = self["stages"]
        if (each := self.given.get("layers_per_stage")) is not None:
            return [each] * stages
        if "layers" in self.given:
            return list(self["layers"])
        each, left = divmod(self["layers_total"], stages)
        return [each + (stage < left) for stage in range(stages)]

    @property
    def element_bytes(self) -> int:
        return _ELEMENT_BYTES[self["precision"]]

    @property
    def message_bytes(self) -> float:
        """Of the output of a stage for one micro-batch; its gradient has as many."""
        if "message_bytes" in self.given:
            return float(self["message_bytes"])
        return float(self["micro_batch_size"] * self["sequence"] * self["width"] * self.element_bytes)

    @property
    def gradient_bytes(self) -> list[float]:
        """That the replicas of each stage average."""
        width, shared_by = self["width"], self.given.get("tensor_parallel", 1)
        of_layer = (12 * width**2 + 13 * width) * self.element_bytes / shared_by
        told = self.given.get("gradient_bytes")
        if isinstance(told, list):
            return [float(each) for each in told]
        sizes = [layers * of_layer for layers in self.layers]
        if told == "of the layers":
            sizes[0] += 113 * 2**20
        if "vocabulary" in self.given:  # the embedding, and the logits which share it
            sizes[0] += self["vocabulary"] * width * self.element_bytes / shared_by
            sizes[-1] += self["vocabulary"] * width * self.element_bytes / shared_by
        return sizes

    @property
    def head(self) -> float:
        """Operations of the logits over those of a layer, in a forward."""
        if "vocabulary" not in self.given:
            return 0.0
        width = self["width"]
        return float(2 * self["vocabulary"] * width / (24 * width**2 + 4 * self["sequence"] * width))

    @property
    def link(self) -> Link:
        s_per_byte = 8 / (self["gbit"] * 1e9)
        return Link(self["ms"] / 1e3, s_per_byte, s_per_byte, buffer_bytes=_AHEAD)

    def reduce_s(self, nbytes: float) -> float:
        """Seconds in which the replicas of a stage average their gradients."""
        replicas = self.given.get("replicas", 1)
        if replicas == 1:
            return 0.0
        link = LinkCost(self.link.latency_s, 8 / (self.given.get("reduce_gbit", self["gbit"]) * 1e9))
        how = self["reduce"]
        if how == "all_reduce":
            return all_reduce_class(ALL_REDUCES.section("backend")).seconds(replicas, nbytes, link)
        if how.startswith("reduce then broadcast"):  # a chain passes the bytes on while more arrive
            return 2 * (replicas - 1) * link.latency_s + 2 * nbytes * link.s_per_byte
        if how.startswith("each replica averages one share"):
            return 2 * (link.latency_s + nbytes * link.s_per_byte * (replicas - 1) / replicas)
        raise ValueError(f"nothing is known of `reduce: {how}`")

    def costs(self, layer_s: float) -> Costs:
        """Costs of the layers for a mini-batch of one pass.

        Args:
            layer_s: of one layer's forward for one micro-batch.
        """
        passed = self["micro_batches"] * layer_s
        components = []
        for stage, (layers, gradient_bytes) in enumerate(zip(self.layers, self.gradient_bytes, strict=True)):
            head = self.head if stage == self["stages"] - 1 else 0.0
            backward = (3 if self["recompute"] else 2) * layers + 2 * head
            components.append(
                _component(
                    forward_s=passed * (layers + head),
                    backward_s=passed * backward,
                    output_bytes=self["micro_batches"] * self.message_bytes,
                    reduce_s=self.reduce_s(gradient_bytes),
                )
            )
        return Costs(
            source="given",
            device=self["device"],
            threads=1,
            batch_size=self["micro_batches"] * self["micro_batch_size"],
            components=tuple(components),
            edge_latency_s=0.0,
            edge_s_per_byte=0.0,
            action_overhead_s=0.0,
        )

    def predicted_s(self, layer_s: float) -> float:
        """Seconds of an iteration: one global batch with its update."""
        stages, passes = self["stages"], self.given.get("passes", 1)
        setting = StepSetting(
            schedule=self["schedule"],
            costs=self.costs(layer_s),
            stages=stages,
            in_flight=1,
            micro_batches=self["micro_batches"],
            replicas=self.given.get("replicas", 1),
            links=(self.link,) * stages if stages > 1 else (),
        )
        durations = action_durations(setting, (1,) * stages)
        program = program_of(setting, num_batches=1)
        seconds = simulate(program, durations, in_flight=1).duration_s
        if passes > 1:
            no_update = replace(durations, update_s=[0.0] * stages)
            seconds += (passes - 1) * simulate(program, no_update, in_flight=1).duration_s
        return seconds


def _component(*, forward_s: float, backward_s: float, output_bytes: float, reduce_s: float) -> ComponentCosts:
    return ComponentCosts(
        name="layers",
        forward_s=forward_s,
        backward_s=backward_s,
        update_s=0.0,
        infer_s=0.0,
        route_s=0.0,
        parameters=0,
        parameter_bytes=0,
        gradient_bytes=0,
        optimizer_bytes=0,
        activation_bytes=0,
        output_bytes=round(output_bytes),
        infer_bytes=0,
        route_bytes=0,
        output_shape=(),
        reduce_s=reduce_s,
    )


def rows_of(table: Mapping[str, Any]) -> list[Run]:
    """The runs of a table."""
    return [Run({**table["given"], **dict(zip(table["columns"], row, strict=True))}) for row in table["rows"]]


def predictions(folder: Path = RUNS) -> list[Prediction]:
    """All rows of the tables of `folder` that lack nothing."""
    found: list[Prediction] = []
    for file in sorted(folder.glob("*.yaml")):
        numbers: dict[str, float] = {}
        for table in yaml.safe_load(file.read_text(encoding="utf-8")).get("tables", []):
            if "lacks" in table["given"]:
                continue
            runs = rows_of(table)
            told = table.get("calibrate_from")
            numbers[table["id"]] = numbers[told] if told else layer_seconds(runs[0])
            for index, run in enumerate(runs):
                predicted_s = run.predicted_s(numbers[table["id"]])
                sets = not told and index == 0
                found.append(
                    Prediction(file.stem, kind_of(run), table["id"], run.given, run["measured_s"], predicted_s, sets)
                )
    return found


def layer_seconds(run: Run) -> float:
    """The seconds of one layer's forward with which this run is predicted as it was measured."""
    measured_s: float = run["measured_s"]
    most = measured_s / (run["micro_batches"] * max(run.layers))
    return float(brentq(lambda layer_s: run.predicted_s(layer_s) - measured_s, 0.0, most, xtol=1e-9))


def kind_of(run: Run) -> str:
    """What the tables of the page have a line for."""
    how = run.given.get("reduce", "")
    if run.given.get("replicas", 1) == 1:
        averaged = "one replica"
    else:
        averaged = (
            "all-reduce" if how == "all_reduce" else "average " + ("over one" if "one replica" in how else "shares")
        )
    return f"{run['library']}, {run['schedule']}, {averaged}"


@dataclass(frozen=True)
class Accuracy:
    """Of predictions: the median, the nine in ten and the worst of |predicted / measured - 1|, and the median ratio."""

    rows: int
    ratio: float
    median: float
    nine_in_ten: float
    worst: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Accuracy:
        errors = np.abs(np.array(ratios) - 1.0)
        return cls(
            len(ratios), median(ratios), float(np.median(errors)), float(np.quantile(errors, 0.9)), float(errors.max())
        )


def ranks(rows: Sequence[Prediction]) -> tuple[int, int]:
    """Of the pairs of rows of one table that measured differently, how many are predicted in the right order, and how
    many there are."""
    pairs = [
        (first, second)
        for first, second in combinations(rows, 2)
        if first.table == second.table
        and max(first.measured_s, second.measured_s) > (1 + ALIKE) * min(first.measured_s, second.measured_s)
    ]
    right = sum(
        (first.predicted_s < second.predicted_s) == (first.measured_s < second.measured_s) for first, second in pairs
    )
    return right, len(pairs)


@dataclass(frozen=True)
class TimelineAccuracy:
    """Of a timeline: of each stage, predicted over measured of its first backward and of the end of its last one."""

    file: str
    message_s: float
    first_backward: list[float]
    last_end: list[float]


def timelines(folder: Path = RUNS) -> list[TimelineAccuracy]:
    """The measured timelines of `folder`."""
    files = ((file, yaml.safe_load(file.read_text(encoding="utf-8"))) for file in sorted(folder.glob("*.yaml")))
    return [_timeline(file.stem, found) for file, found in files if "timeline" in found]


def _timeline(name: str, found: Mapping[str, Any]) -> TimelineAccuracy:
    """One number is free, the seconds of a message: with it the first forward of the last stage begins as measured."""
    stages = [dict(zip(found["columns"], row, strict=True)) for row in found["timeline"]]
    program = Program.of(_listed(stage, len(stages), each["order"]) for stage, each in enumerate(stages))
    passed_s = sum(each["forward_s"] for each in stages[:-1])
    message_s = (stages[-1]["first_forward_s"] - stages[0]["first_forward_s"] - passed_s) / (len(stages) - 1)
    nothing = [0.0] * len(stages)
    durations = Durations(
        forward_s=[each["forward_s"] for each in stages],
        backward_s=[each["backward_s"] for each in stages],
        update_s=nothing,
        recompute_s=[each["recompute_s"] for each in stages],
        latency_s=message_s,
    )
    timeline = simulate(program, durations, in_flight=1)
    first_backward, last_end = [], []
    for stage, each in enumerate(stages):
        backwards = [index for index, action in enumerate(program.actions(stage)) if action.kind == "B"]
        first = each["first_backward_s"]
        first_backward.append(float(timeline.starts_s[stage][backwards[0]]) / first)
        last_end.append(float(timeline.ends_s[stage][backwards[-1]]) / each["last_backward_end_s"])
    return TimelineAccuracy(name, message_s, first_backward, last_end)


def _listed(stage: int, stages: int, order: str) -> list[Action]:
    """The actions of a stage, such as of `F2 [b1 F1]3 B1`: F, b (computes again, then B) and B, each so many times."""
    actions: list[Action] = []
    done = {"F": 0, "B": 0}

    def add(kind: ActionKind, number: int, *, down: bool = False) -> None:
        actions.append(Action(stage, kind, 0, number, down))

    for letter in _letters(order):
        kind: ActionKind = "F" if letter == "F" else "B"
        number, down = done[kind], kind == "B"
        done[kind] += 1
        if letter == "b":
            add("C", number)
        if stage != (stages - 1 if down else 0):
            add("R", number, down=down)
        add(kind, number)
        if stage != (0 if down else stages - 1):
            add("S", number, down=down)
    return actions


def _letters(order: str) -> Iterator[str]:
    for group, times, alone in re.findall(r"\[([^\]]*)\](\d+)|([FbB]\d+)", order):
        for _ in range(int(times or 1)):
            for letter, count in re.findall(r"([FbB])(\d+)", group or alone):
                yield from letter * int(count)


def section() -> str:
    """The section of docs/predictions.md about these runs."""
    every = predictions()
    found = [each for each in every if not each.sets_the_number]
    right, pairs = ranks(every)
    overall = Accuracy.of([each.ratio for each in found])
    lines = [
        "| runs | rows | predicted / measured | median error | nine in ten within | worst |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in sorted({each.kind for each in found}):
        lines.append(_line(kind, Accuracy.of([each.ratio for each in found if each.kind == kind])))
    lines.append(_line("**all**", overall))
    said = [
        _INTRODUCTION,
        "\n".join(lines),
        f"Of {pairs} pairs of rows of one table that differ by more than {ALIKE:.0%}, {right / pairs:.1%} are "
        "predicted in the right order.",
    ]
    for each in timelines():
        first, last = Accuracy.of(each.first_backward), Accuracy.of(each.last_end)
        said.append(
            f"The timeline `{each.file}` has {first.rows} stages. One number is set, the seconds of a message "
            f"({1e3 * each.message_s:.1f} ms). Each stage's first backward is predicted within {first.worst:.1%} "
            f"(median {first.median:.1%}), and the end of its last one within {last.worst:.1%} (median "
            f"{last.median:.1%})."
        )
    return "\n\n".join(said) + "\n"


def _line(kind: str, accuracy: Accuracy) -> str:
    return (
        f"| {kind} | {accuracy.rows} | {accuracy.ratio:.2f} | {accuracy.median:.1%} | {accuracy.nine_in_ten:.1%} | "
        f"{accuracy.worst:.1%} |"
    )


_INTRODUCTION = """\
## Pipelines that other people measured

Written by `make published` from `benchmarks/published_runs`, whose files say where their figures are from. Nothing was
run for it. Of each table one number is set: the seconds of one layer's forward for one micro-batch, so that its first
row comes out right, or the number of another table that it names. These first rows are not counted. An error is
|predicted / measured - 1|."""


def main() -> None:
    for each in predictions():
        varied = {key: value for key, value in each.given.items() if key in ("replicas", "stages", "gbit", "ms")}
        note = " (sets the number)" if each.sets_the_number else ""
        print(f"{each.table} {varied} {each.measured_s:.2f} {each.predicted_s:.2f} {each.ratio:.2f}{note}")
    print(f"\n{section()}")


if __name__ == "__main__":
    main()
