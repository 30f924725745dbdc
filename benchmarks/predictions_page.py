"""Write docs/predictions.md: predicted over measured step times of every setting in the reports of docs/studies, and of
pipelines that other people measured.

    python -m benchmarks.predictions_page

A report counts if its trials ran one at a time, and if its study has not changed since. Trials that other programs
disturbed are left out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from statistics import fmean, median, quantiles

from alray.config.study.load import read_study_file
from alray.config.study.points import series_label
from alray.planning.prediction.basis import PREDICTED
from alray.planning.prediction.machines import DEVICES, Device
from alray.runtime.planner.costs_file import PUBLISHED
from benchmarks import published
from benchmarks.committed import taken_from
from benchmarks.findings_page import BESIDE, KEPT, REPORTS, SPECS, is_of_today

PAGE = Path(__file__).parents[1] / "docs" / "predictions.md"
_LEFT_OUT = ("dynamic_batch_size",)
"""Studies that slow their replicas on purpose, which no plan knows."""

INTRODUCTION = """\
# Predictions

`alray plan SPEC` says without a run how long a mini-batch takes, how much memory each stage needs, and how the network
is cut. It counts the operations of each component; with `--probe` it measures the components, as every run does before
it trains. This page has how right the measured ones are, and how to plan for [machines that you do not
have](#machines-that-you-do-not-have).

## How right they are

Predicted over measured step time of the trials of the [studies](studies.md) that had the machine to themselves, on two
processor cores; below 1 the step took longer than predicted. The step time is [the median from one mini-batch to the
next](runs.md#results-in-files). A setting is a row of a report. Of memory the prediction
is 0.91 to 1.16 of what was counted ([speed](benchmarks.md#memory)), on [a GPU](gpu_measured.md) once 0.86."""

MACHINES = """\
Some kinds are predicted badly: two replicas of a small network, and pipelines of backpropagation of small parts, take
up to 1.6 times as long as predicted, because other things than computing take their time.
What is missing lies in the times of the actions, not in their order: with the mean times that the actions of ten
pipelines took in their runs, the same simulation gives 0.90 to 1.03 of the step, and with their medians 0.86 to 0.98.
A probe of two seconds does not see that the machine changes its pace, here by 15 % within minutes, and that a run
interrupts stages which leave no processor free. The table is of plans that counted no interruptions.
A checkpoint is written beside the mini-batches after it. With one every ten short mini-batches, as after each epoch of
few samples, these took up to a fifth longer than predicted (`run.checkpoint.every` says how often).

## Machines that you do not have

    alray plan specs/language/gpt_340m.yaml --on 8xA100
    alray plan specs/language/gpt_340m.yaml --on 2x4xA100 --link '100Mbit/s, 20ms' --compare
    alray plan specs/language/gpt_two_offices.yaml

`--on 2x4xA100` are two nodes of four devices; `8xA100,4xV100` is a node of each. Each stage of each replica has a
device of its own, in this order; `pipeline.stages` says how many stages there are. `--link` is the network card of a node, which its devices share; `--within` is what
connects those of a node, where the published link is not meant. With one node `--link` is the same as `--within`.
`--compare` searches schedules, stages, cuts and micro-batches within the memory of the devices, and `--map` replicas
and [methods too](crossover.md#for-your-network). In Python: `alray.plan(spec, on="2x4xA100", link="25GB/s")`, for
a module of yours [with `model=` and `data=`](python.md#your-own-objects).

A spec can hold the same:

    machines:
      nodes:
        - {{device: A100, devices: 4}}
        - {{device: workstation, count: 2, devices: 2, link: 10 Gbit/s, within: 16 GB/s}}
      link: 25 GB/s, 20 us          # the network card of a node where it says no other
      line: 1 Gbit/s, 10 ms         # between groups of nodes, two offices say
      devices:
        workstation: {{memory: 48 GB, bandwidth: 960 GB/s, float32: 90 TFLOP/s, bf16: 360 TFLOP/s}}

**A run ignores this section**, and says so: it measures the machine that it runs on. The command that `--compare`
prints asks Ray for the accelerators that were planned.

Every plan says where its times come from and how sure they are:

| times | from | how sure |
|---|---|---|
| counted | the operations of each component, and the peaks and bandwidth of the device | 45 to 85 % of the peak, 50 to 90 % of the bandwidth, 5 to 50 us an operation; `predicted_step_range_s` has the ends |
| measured | `alray probe SPEC --output costs.json` on one such device, then `--costs costs.json` | nine times in ten {low:.2f} to {high:.2f} of the measured step, on processors |
| published | `--costs chain.yaml`: components that others profiled, as in [published_runs/chains](published_runs/chains) | nine in ten rows of published pipelines are predicted within {published:.1%} |
| given | `pipeline.costs` in the spec | as sure as you are |

Counted times can be wrong by far: on one H200 those of a GPT came out right, a ResNet of small pictures took three
times as long, and an MLP in bf16 four times. So trust the order of two plans more than their seconds, and measure on
one device before you budget. Attention is counted as separate operations, not as a fused kernel.

A file of `alray probe` suits its spec on any number of stages and replicas. Another method, precision, optimizer or
network is refused, and what else differs is told. A processor (`--on 2xcpu`) always needs such a file.

### Devices

Peaks in 10^12 operations a second without sparsity, as published; links to another device of the node in one
direction. `V100` has one link of NVLink here; behind a switch write
`--within 150GB/s`. `machines.devices` describes others, and `4x24GB` is a device of which the memory alone is known.

| device | memory, GB | its speed, GB/s | float32 | tf32 | bf16 | float64 | to another, GB/s | source |
|---|---:|---:|---:|---:|---:|---:|---:|---|
{devices}"""  # noqa: E501


def _row(device: Device) -> str:
    assert device.memory_bytes is not None
    tera = [device.peaks.get(name, 0.0) / 1e12 for name in ("float32", "tf32", "bf16", "float64")]
    giga = [each / 1e9 for each in (device.memory_bytes, device.bytes_per_s)]
    cells = (f"{each:.6g}" if each else "" for each in (*giga, *tera, device.link_bytes_per_s / 1e9))
    return f"| `{device.name}` | {' | '.join(cells)} | {device.source} |"


@dataclass(frozen=True)
class Setting:
    """A row of a report.

    Attributes:
        runs: predicted and measured seconds of a mini-batch of each of its runs, by session.
    """

    study: str
    name: str
    runs: dict[str, list[tuple[float, float]]]

    @property
    def ratio(self) -> float:
        """Predicted over measured step time."""
        predicted, measured = map(fmean, zip(*chain.from_iterable(self.runs.values()), strict=True))
        return predicted / measured


def near_pairs(found: Sequence[Setting]) -> tuple[int, int, int]:
    """How often runs of two settings differ by 2 to 20 %, how often the plan has their order, and how often the next
    two runs of the same session have it."""
    near = by_plan = by_runs = 0
    for one, other in combinations(found, 2):
        if one.study != other.study:
            continue
        for session in one.runs.keys() & other.runs.keys():
            runs = list(zip(one.runs[session], other.runs[session], strict=False))
            for (ours, theirs), (our_next, their_next) in zip(runs, runs[1:] + runs[:1], strict=True):
                apart = ours[1] / theirs[1]
                if len(runs) > 1 and 1.02 <= max(apart, 1.0 / apart) <= 1.2:
                    near += 1
                    by_plan += (ours[0] < theirs[0]) == (apart < 1.0)
                    by_runs += (our_next[1] < their_next[1]) == (apart < 1.0)
    return near, by_plan, by_runs


def settings(specs: Path, reports: Path) -> list[Setting]:
    """The settings of all studies in `specs` whose report in `reports` counts."""
    found = []
    for file in sorted(specs.glob("*.yaml")):
        study = read_study_file(file)
        report = reports / study.study
        if study.max_concurrent != 1 or study.study in _LEFT_OUT or not (report / KEPT).is_file():
            continue
        ran = json.loads((report / KEPT).read_text(encoding="utf-8"))["study"]
        page = (report / "README.md").read_text(encoding="utf-8")
        if not is_of_today(study, ran, as_often=False) or BESIDE in page:
            continue
        times: dict[str, dict[str, list[tuple[float, float]]]] = {}
        with (report / "tables" / "trials.csv").open(encoding="utf-8") as rows:
            for row in csv.DictReader(rows):
                predicted_s, measured_s = row["predicted_step_time_s"], row["step_time_s"]
                if predicted_s and measured_s and taken_from(page, int(row["trial"])) is None:
                    name = series_label({axis: row[axis] for axis in study.axes})
                    of_session = times.setdefault(name, {}).setdefault(row.get("session", ""), [])
                    of_session.append((float(predicted_s), float(measured_s)))
        found += [Setting(study.study, name, runs) for name, runs in times.items()]
    return found


def page(found: list[Setting], elsewhere: str) -> str:
    """The page's text.

    Args:
        elsewhere: its section about pipelines that other people measured.
    """
    ratios = sorted(each.ratio for each in found)
    least, *_, most = quantiles(ratios, n=20, method="inclusive")
    near = sum(abs(ratio - 1.0) <= 0.1 for ratio in ratios) / len(ratios)
    names = sorted({each.study for each in found})
    over_all = (
        f"Over all {len(ratios)} settings of {len(names)} studies the median is **{median(ratios):.2f}**. Nine "
        f"in ten lie between **{least:.2f}** and **{most:.2f}**; {100 * near:.0f} % are within 10 % of 1. Of 19 runs "
        "on [a GPU](gpu_measured.md) 16 lie there too."
    )
    pairs, by_plan, by_runs = near_pairs(found)
    over_all += (
        f"\n\nTwo runs that differ by 2 to 20 % ({pairs:,} pairs of the same session) are in the order of the plan in "
        f"{100 * by_plan / pairs:.0f} %. The next two runs of the same two settings are in this order in "
        f"{100 * by_runs / pairs:.0f} %: it takes several runs to tell such settings apart."
    )
    lines = ["| study | settings | median | lowest | highest |", "| --- | ---: | ---: | --- | --- |"]
    for name in names:
        own = sorted((each for each in found if each.study == name), key=lambda each: each.ratio)
        middle = f"{median(each.ratio for each in own):.2f}"
        ends = " | ".join(f"{end.ratio:.2f}: {end.name}" for end in (own[0], own[-1]))
        lines.append(f"| [{name}](studies/{name}/README.md) | {len(own)} | {middle} | {ends} |")
    low, high = PREDICTED
    machines = MACHINES.format(low=low, high=high, published=PUBLISHED, devices="\n".join(map(_row, DEVICES.values())))
    return "\n\n".join([INTRODUCTION, over_all, "\n".join(lines), machines, elsewhere])


def main() -> None:
    PAGE.write_text(page(settings(SPECS, REPORTS), published.section()), encoding="utf-8")


if __name__ == "__main__":
    main()
