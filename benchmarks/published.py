"""Predict pipelines that other people measured, and compare: `make published`.

    python -m benchmarks.published    # prints every row; `make published` writes the section of docs/predictions.md

The figures are in `docs/published_runs`; each file's header says where they are from. A table has what all of its
rows share (`given`), and its rows. One number of a table is free: the seconds of one layer's forward for one
micro-batch. It is set so that the first row comes out right, or it is that of the table that `calibrate_from` names.
All other rows are predictions by `alray.planning.prediction`, as a plan would make them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import yaml
from scipy.optimize import brentq

from alray.planning.prediction.all_reduce import LinkCost, backend_seconds
from alray.planning.prediction.costs import ComponentCosts, Costs, Link
from alray.planning.prediction.machines import DEVICES, USUAL
from alray.planning.prediction.predict import program_of
from alray.planning.prediction.program import Program
from alray.planning.prediction.seconds import RunSeconds
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.simulate import simulate
from alray.planning.schedules.actions import Action, ActionKind
from alray.planning.schedules.durations import Durations

RUNS = Path(__file__).parents[1] / "docs" / "published_runs"
ALIKE = 0.05
"""Two rows of a table count for the ranks if their measured times differ by more than this."""
_ELEMENT_BYTES = {"fp32": 4, "fp16": 2}
AFTER_GRADIENTS = {
    "microsoft/varuna": 49 * 423_469_200 * 10 / (DEVICES["V100"].bytes_per_s * USUAL.bandwidth),
}
"""Seconds of a backward of the whole network after a stage has sent its gradients, by a timeline's source. Varuna's
worker adds each micro-batch's gradients to those of the weights in float32 when `scaled_loss.backward` is over
(apex, `unscale_with_stashed`): 10 bytes for each of the 423,469,200 parameters of a stage, which the logs' lines on the
all-reduce tell. The logs do not tell the device; four GPUs a machine were V100 in its authors' paper."""
_CHAIN_BYTES = 2**20
"""That a rank passes on at a time: 512 KiB on each of two channels (REDUCE_CHUNKSTEPS in
nccl/src/include/collectives.h)."""
_SATURATED = {2: 0.75, 3: 0.6825, 4: 0.6553, 5: 0.6399, 6: 0.6302, 7: 0.6234, 8: 0.6184, 9: 0.5858}
"""The share of its links that an exchange of all with all uses where nobody orders it: each rank sends to one other
after another, and waits for one that several send to. Karol, Hluchyj and Morgan, "Input versus output queueing on a
space-division packet switch" (1987), table I, by ranks; 9: any more."""
_AHEAD = 1 << 40
"""Bytes that a sender may be ahead of its link: these libraries keep all outputs of a mini-batch anyway."""


@dataclass(frozen=True)
class Library:
    """How a library runs a pipeline. From its code, but for one number.

    Attributes:
        waits: whether a stage waits for its messages, so that it computes nothing while they are on their way.
        by_tensor: whether replicas average tensor by tensor; otherwise all gradients of a stage lie in one buffer.
        update_s_per_byte: seconds of the update in mixed precision for each byte of gradients.
        barriers: how often all processes meet in an iteration with GPipe: so often for each pass, and in the end.
    """

    waits: bool
    by_tensor: bool
    update_s_per_byte: float = 0.0
    barriers: tuple[int, int] = (0, 0)


SET_NUMBERS: Mapping[str, Mapping[str, float]] = {
    "ds3lab.xl8.fp16.batch": {"gbit": 10},
    "ds3lab.small.gpipe.fp16.all_reduce": {},
}
"""By table, the facts of the rows that set a number, and are not counted. The first sets `update_s_per_byte`: at
10 Gbit/s its seconds are a straight line over the number of micro-batches with 7 more, which is 0.56 s at zero, for
429 MB of gradients on the first stage. The second sets how long a message of NCCL's all-reduce waits
(`backend_seconds`)."""
WITH_CONSTANT = {"ds3lab.xl8.fp16.megatron": "ds3lab.xl8.fp16.global1024"}
"""By table, the one whose layer it could take: the same network on the same GPUs on the same day, by another library.
Its own first row would then set a constant; see `with_constant`."""
# pipeline_parallel/*.py: a stream of the GPU each for computing, sending and receiving. With its profiling, which is on
# by default, each process waits for its GPU after the forwards of a pass, and then for all other processes (gloo).
_OWN_CODE = Library(waits=False, by_tensor=False, update_s_per_byte=1.3e-9, barriers=(1, 1))
_OWN_CODE_BEFORE = replace(_OWN_CODE, by_tensor=True, barriers=(1, 0))
"""Until 18 April 2022, with the tables of gpt3_small*.md: data_parallel/*.py averages each parameter for itself, and
the processes do not meet in the end."""
LIBRARIES = {
    "own code over NCCL": _OWN_CODE,
    # megatron/p2p_communication.py: torch.cuda.synchronize after each exchange.
    "Megatron-LM": Library(waits=True, by_tensor=False),
    "Megatron-DeepSpeed": Library(waits=True, by_tensor=False),
}


@dataclass(frozen=True)
class Prediction:
    """A row. ratio: predicted over measured.

    Attributes:
        sets_layer: whether the number of its table is set on it.
        sets_other: whether a number of `SET_NUMBERS` is.
    """

    file: str
    kind: str
    table: str
    given: Mapping[str, Any]
    measured_s: float
    predicted_s: float
    sets_layer: bool
    sets_other: bool

    @property
    def counts(self) -> bool:
        """Whether it is a prediction: it sets no number."""
        return not (self.sets_layer or self.sets_other)

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
        whole = self["micro_batch_size"] * self["sequence"] * self["width"] * self.element_bytes
        return float(whole / self.given.get("tensor_parallel", 1))

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

    def tensor_bytes(self, stage: int) -> list[float]:
        """Of each tensor of gradients that the replicas of a stage average."""
        if not self.library.by_tensor:
            return [self.gradient_bytes[stage]]
        matrix, vector = self["width"] ** 2 * self.element_bytes, self["width"] * self.element_bytes
        # Queries, keys, values and outputs; the two matrices of the feed-forward block; biases and two norms.
        of_layer = [*[matrix] * 4, *[4 * matrix] * 2, *[vector] * 5, 4 * vector, *[vector] * 4]
        tensors = [float(each) for each in of_layer * self.layers[stage]]
        rest = self.gradient_bytes[stage] - sum(tensors)
        return [*tensors, rest] if rest > 1 else tensors  # the embedding

    @property
    def library(self) -> Library:
        found = LIBRARIES[self["library"]]
        return _OWN_CODE_BEFORE if found is _OWN_CODE and "gpt3_small" in self.given.get("source", "") else found

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

    def reduce_s(self, stage: int) -> float:
        """Seconds in which the replicas of a stage average their gradients."""
        replicas: int = self.given.get("replicas", 1)
        if replicas == 1:
            return 0.0
        s_per_byte: float = 8 / (self.given.get("reduce_gbit", self["gbit"]) * 1e9)
        link = LinkCost(self.link.latency_s, s_per_byte, "nccl")
        how, nbytes = self["reduce"], self.gradient_bytes[stage]
        if how == "all_reduce":
            return sum(backend_seconds(replicas, each, link) for each in self.tensor_bytes(stage))
        if how.startswith("reduce then broadcast"):  # a chain passes the bytes on while more arrive
            hop_s = link.latency_s + _CHAIN_BYTES * link.s_per_byte
            return 2 * (replicas - 1) * hop_s + 2 * nbytes * link.s_per_byte
        if how.startswith("each replica averages one share"):
            share = (replicas - 1) / replicas / _SATURATED[min(replicas, 9)]
            return 2 * (link.latency_s + nbytes * link.s_per_byte * share)
        raise ValueError(f"nothing is known of `reduce: {how}`")

    def update_s(self, stage: int) -> float:
        """Seconds in which a stage updates its weights."""
        mixed = self["precision"] != "fp32"
        return self.gradient_bytes[stage] * self.library.update_s_per_byte if mixed else 0.0

    @property
    def barriers_s(self) -> float:
        """Seconds in which all processes meet: each barrier of gloo takes log2 of their number messages, rounded up."""
        if self["schedule"] != "gpipe":
            return 0.0
        each_pass, in_the_end = self.library.barriers
        times = each_pass * self.given.get("passes", 1) + in_the_end
        processes = self["stages"] * self.given.get("replicas", 1)
        return float(times * math.ceil(math.log2(processes)) * self.link.latency_s)

    def costs(self, layer_s: float, constant_s: float = 0.0) -> Costs:
        """Costs of the layers for a mini-batch of one pass.

        Args:
            layer_s: of one layer's forward for one micro-batch.
            constant_s: of a stage for one micro-batch, besides its layers.
        """
        passed = self["micro_batches"] * layer_s
        components = []
        for stage, layers in enumerate(self.layers):
            head = self.head if stage == self["stages"] - 1 else 0.0
            backward = (3 if self["recompute"] else 2) * layers + 2 * head
            components.append(
                ComponentCosts(
                    name="layers",
                    forward_s=passed * (layers + head) + self["micro_batches"] * constant_s,
                    backward_s=passed * backward,
                    update_s=self.update_s(stage),
                    infer_s=0.0,
                    route_s=0.0,
                    parameters=0,
                    parameter_bytes=0,
                    gradient_bytes=0,
                    optimizer_bytes=0,
                    activation_bytes=0,
                    output_bytes=round(self["micro_batches"] * self.message_bytes),
                    infer_bytes=0,
                    route_bytes=0,
                    output_shape=(),
                    reduce_s=self.reduce_s(stage),
                )
            )
        return Costs(
            source="given",
            device=self["device"],
            threads=1,
            batch_size=self["micro_batches"] * self["micro_batch_size"],
            components=tuple(components),
            edge_latency_s=self.link.latency_s if self.library.waits else 0.0,
            edge_s_per_byte=self.link.up_s_per_byte if self.library.waits else Costs.edge_s_per_byte,
            action_overhead_s=0.0,
        )

    def predicted_s(self, layer_s: float, constant_s: float = 0.0) -> float:
        """Seconds of an iteration: one global batch with its update. For the arguments see `costs`."""
        stages, passes = self["stages"], self.given.get("passes", 1)
        setting = StepSetting(
            schedule=self["schedule"],
            costs=self.costs(layer_s, constant_s),
            stages=stages,
            in_flight=1,
            micro_batches=self["micro_batches"],
            replicas=self.given.get("replicas", 1),
            links=(self.link,) * stages if stages > 1 and not self.library.waits else (),
        )
        durations = RunSeconds(setting).of_cuts((1,) * stages)
        program = program_of(setting, num_batches=1)
        seconds = simulate(program, durations, in_flight=1).duration_s
        if passes > 1:
            no_update = replace(durations, computing={**durations.computing, "U": [0.0] * stages}, averages_s=())
            seconds += (passes - 1) * simulate(program, no_update, in_flight=1).duration_s
        return seconds + self.barriers_s


def rows_of(table: Mapping[str, Any]) -> list[Run]:
    """The runs of a table."""
    given = {"source": table.get("source", ""), **table["given"]}
    return [Run({**given, **dict(zip(table["columns"], row, strict=True))}) for row in table["rows"]]


def predictions(folder: Path = RUNS) -> list[Prediction]:
    """All rows of the tables of `folder` that lack nothing."""
    found: list[Prediction] = []
    for file in sorted(folder.glob("*.yaml")):
        numbers: dict[str, float] = {}
        for table in _tables(file):
            runs = rows_of(table)
            told = table.get("calibrate_from")
            numbers[table["id"]] = numbers[told] if told else layer_seconds(runs[0])
            for index, run in enumerate(runs):
                predicted_s = run.predicted_s(numbers[table["id"]])
                facts = SET_NUMBERS.get(table["id"])
                found.append(
                    Prediction(
                        file.stem,
                        kind_of(run),
                        table["id"],
                        run.given,
                        run["measured_s"],
                        predicted_s,
                        sets_layer=not told and index == 0,
                        sets_other=facts is not None and facts.items() <= run.given.items(),
                    )
                )
    return found


def _tables(file: Path) -> list[dict[str, Any]]:
    """Those that lack nothing."""
    tables = yaml.safe_load(file.read_text(encoding="utf-8")).get("tables", [])
    return [table for table in tables if "lacks" not in table["given"]]


def layer_seconds(run: Run) -> float:
    """The seconds of one layer's forward with which this run is predicted as it was measured."""
    return _number(run, run.predicted_s, most=run["measured_s"] / (run["micro_batches"] * max(run.layers)))


def _number(run: Run, predicted_s: Callable[[float], float], *, most: float) -> float:
    """The number with which a run is predicted as it was measured."""
    return float(brentq(lambda number: predicted_s(number) - run["measured_s"], 0.0, most, xtol=1e-7))


@dataclass(frozen=True)
class WithConstant:
    """A table whose first row sets a constant, and whose layer is that of another one.

    Attributes:
        ratios: predicted over measured of its other rows.
    """

    table: str
    layer_of: str
    layer_s: float
    constant_s: float
    ratios: list[float]


def with_constant(folder: Path = RUNS) -> list[WithConstant]:
    """The tables of `WITH_CONSTANT`. The rule of these runs does not allow this: only a layer's seconds are free."""
    tables = {table["id"]: table for file in sorted(folder.glob("*.yaml")) for table in _tables(file)}
    found = []
    for name, layer_of in WITH_CONSTANT.items():
        first, *others = rows_of(tables[name])
        layer_s = layer_seconds(rows_of(tables[layer_of])[0])
        most = first["measured_s"] / first["micro_batches"]
        constant_s = _number(first, partial(first.predicted_s, layer_s), most=most)
        ratios = [run.predicted_s(layer_s, constant_s) / run["measured_s"] for run in others]
        found.append(WithConstant(name, layer_of, layer_s, constant_s, ratios))
    return found


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
    # The log has times of the host. A forward that is computed again takes no less than the first time: what it seems
    # to take less is in the backward, which waits for the GPU.
    again = [max(each["forward_s"], each["recompute_s"]) if each["recompute_s"] else 0.0 for each in stages]
    backward = [each["backward_s"] + each["recompute_s"] - own for each, own in zip(stages, again, strict=True)]
    library = str(found.get("source", "")).split(" ", 1)[0]
    after_s = AFTER_GRADIENTS.get(library, 0.0) / len(stages)
    durations = Durations(
        {
            "F": [each["forward_s"] for each in stages],
            "B": backward,
            "I": [seconds - after_s for seconds in backward],
            "G": [after_s] * len(stages),
            "C": again,
        },
        latency_s=message_s,
    )
    timeline = simulate(program, durations, in_flight=1)
    first_backward, last_end = [], []
    for stage, each in enumerate(stages):
        actions = list(enumerate(program.actions(stage)))
        begins = next(index for index, action in actions if action.kind in "BI")
        ends = max(index for index, action in actions if action.kind in "BG")
        first_backward.append(float(timeline.starts_s[stage][begins]) / each["first_backward_s"])
        last_end.append(float(timeline.ends_s[stage][ends]) / each["last_backward_end_s"])
    return TimelineAccuracy(name, message_s, first_backward, last_end)


def _listed(stage: int, stages: int, order: str) -> list[Action]:
    """The actions of a stage, such as of `F2 [b1 F1]3 B1`: F, b (computes again, then B) and B, each so many times.

    Above the first stage a backward is I and G: the gradient leaves before the backward has ended.
    """
    actions: list[Action] = []
    done = {"F": 0, "B": 0}

    def add(kind: ActionKind, number: int, *, down: bool = False) -> None:
        actions.append(Action(stage, kind, 0, number, down))

    for letter in _letters(order):
        kind: Literal["F", "B"] = "F" if letter == "F" else "B"
        number, down = done[kind], kind == "B"
        done[kind] += 1
        if letter == "b":
            add("C", number)
        if stage != (stages - 1 if down else 0):
            add("R", number, down=down)
        splits = down and stage > 0
        add("I" if splits else kind, number)
        if stage != (0 if down else stages - 1):
            add("S", number, down=down)
        if splits:
            add("G", number)
    return actions


def _letters(order: str) -> Iterator[str]:
    for group, times, alone in re.findall(r"\[([^\]]*)\](\d+)|([FbB]\d+)", order):
        for _ in range(int(times or 1)):
            for letter, count in re.findall(r"([FbB])(\d+)", group or alone):
                yield from letter * int(count)


def section() -> str:
    """The section of docs/predictions.md about these runs."""
    every = predictions()
    found = [each for each in every if each.counts]
    right, pairs = ranks(found)
    overall = Accuracy.of([each.ratio for each in found])
    lines = [
        "| runs | rows | predicted / measured | median error | nine in ten within | worst |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in ("kind", "file"):
        for value in sorted({getattr(each, name) for each in found}):
            ratios = [each.ratio for each in found if getattr(each, name) == value]
            lines.append(_line(value if name == "kind" else f"`{value}`", Accuracy.of(ratios)))
    lines.append(_line("**all that set no number**", overall))
    all_but_first = [each.ratio for each in every if not each.sets_layer]
    lines.append(_line("all but the first rows, which set a layer", Accuracy.of(all_but_first)))
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
    return "\n\n".join([*said, _STILL_WRONG]) + "\n"


def _line(kind: str, accuracy: Accuracy) -> str:
    return (
        f"| {kind} | {accuracy.rows} | {accuracy.ratio:.2f} | {accuracy.median:.1%} | {accuracy.nine_in_ten:.1%} | "
        f"{accuracy.worst:.1%} |"
    )


_INTRODUCTION = """\
## Pipelines that other people measured

Written by `make published` from `docs/published_runs`, whose files say where their figures are from. Of each table one
number is set, the seconds of a layer's forward, so that its first row comes out right; that row is not counted. Two
more numbers are set, for an update in mixed precision and for NCCL's all-reduce. An error is |predicted / measured - 1|. The
simulation was made with these tables in sight, so tables that nobody has seen would say more."""  # noqa: E501

_STILL_WRONG = """\
What is still wrong: Megatron-LM on eight V100, whose deeper networks are predicted too slow by up to 46 %; eight stages
over links of 1 to 5 Gbit/s, which take up to 1.5 s longer for each pass than predicted; and GPT of 39 billion
parameters with two or four GPUs a layer, by up to 24 %. No cause was found."""


def main() -> None:
    for each in predictions():
        varied = {key: value for key, value in each.given.items() if key in ("replicas", "stages", "gbit", "ms")}
        note = " (sets a number)" if not each.counts else ""
        print(f"{each.table} {varied} {each.measured_s:.2f} {each.predicted_s:.2f} {each.ratio:.2f}{note}")  # noqa: T201
    print(f"\n{section()}")  # noqa: T201


if __name__ == "__main__":
    main()
