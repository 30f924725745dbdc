"""docs/crossover.md: where one way to train becomes faster than another, for three families of networks.

    python -m benchmarks.crossover              runs each family three times, then measures its components
    python -m benchmarks.crossover --counted    no run: the costs of components are counted
    python -m benchmarks.crossover --factors    no run: the words, and alpha and rho from reports of studies

The three runs of a family stand beside its map: backpropagation alone and on two stages by 1F1B, and local losses
streamed over two stages. They end at the same validation metric, so they also say how many mini-batches each method
takes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

from alray.api.ways_map import map_report
from alray.planning.prediction.basis import HOW_SURE, PREDICTED
from alray.planning.prediction.crossover import Crossover, Way
from alray.report.crossover import factors_table, findings, kind_of, layout_of, winners_table
from alray.report.crossover_page import CrossoverReport
from alray.report.figure import Exhibit
from alray.report.folder import read_run
from alray.report.table import Table
from alray.report.text import seconds
from benchmarks.factors_table import another_day, by_the_rule, over_families, picture

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "crossover.md"
FIGURES = ROOT / "docs" / "crossover"
FAMILIES = {
    "mlp": "MLP-8: eight layers of 512",
    "resnet": "ResNet-10: ten components",
    "gpt": "GPT-8: eight layers of 64",
}
CAVEATS = {
    "gpt": (
        "These maps have the rho of one run, 0.83. With 1.69, that of GPT-4 at searched rates, DGL is the fastest in 8 "
        "places, not in 16.",
    )
}
"""What to read beside the maps of a family."""
RUNS = {
    "backpropagation-alone": ("method=backpropagation",),
    "backpropagation-by-1f1b": (
        "method=backpropagation",
        "pipeline.schedule=1f1b",
        "pipeline.stages=2",
        "pipeline.micro_batches=4",
    ),
    "local-losses-streamed": ("pipeline.stages=2",),
}


class Quiet:
    """A teller that says nothing."""

    def doing(self, what: str) -> None:
        """See `Teller`."""

    def note(self, message: str) -> None:
        """See `Teller`."""


def spec_of(family: str) -> Path:
    return Path(__file__).with_name(f"crossover_{family}.yaml")


def run_all(family: str, folder: Path) -> list[Path]:
    """The folders of the three runs."""
    found = []
    for number, (name, overrides) in enumerate(RUNS.items()):
        run = folder / f"{family}-{number}"
        words = ["run", str(spec_of(family)), *overrides, f"name={name}", "--output", str(run)]
        subprocess.run([sys.executable, "-m", "alray", *words], check=True)
        found.append(run)
    return found


def report_of(family: str, runs: list[Path], *, probe: bool) -> CrossoverReport:
    return map_report(
        spec_of(family),
        [],
        methods="",
        devices="1,2,4,8,16",
        micro_batches="4,8,16,32",
        links=[],
        memory="",
        batch_sizes="",
        steps=steps_of(runs),
        on=None,
        within=None,
        probe=probe,
        allow_code=False,
        teller=Quiet(),
    )


def steps_of(runs: list[Path]) -> list[str]:
    """The mini-batches that each method took to the target, as the command takes them: the fewest of its runs that
    ended before their last mini-batch."""
    fewest: dict[str, int] = {}
    for run in map(read_run, runs):
        assert run.summary is not None
        if run.plan.total_steps is None or run.summary.steps < run.plan.total_steps:
            fewest[run.plan.method] = min(run.summary.steps, fewest.get(run.plan.method, run.summary.steps))
    return [f"{method}={steps}" for method, steps in fewest.items()]


def measured_table(found: Crossover, runs: list[Path]) -> Table:
    """Measured steps of runs beside those that this crossover predicts of the same ways, over the first link."""
    by_way = {row.way: row.step_s for row in found.rows if row.link == found.axes.links[0] and row.memory_limit is None}
    rows = []
    for run in map(read_run, runs):
        plan, summary = run.plan, run.summary
        assert summary is not None and summary.step_time_s is not None
        counts = plan.stages, plan.replicas, plan.micro_batches, plan.virtual_stages
        way = Way(plan.method, plan.schedule_name, *counts, found.batch_size, plan.recomputes)
        layout = summary.name, kind_of(way), layout_of(found, way)
        times = seconds(summary.step_time_s), seconds(by_way[way])
        ratios = (f"{each / summary.step_time_s:.2f}" for each in (by_way[way], plan.predicted_step_time_s))
        rows.append((*layout, *times, *ratios))
    head = ("run", "way", "layout", "measured step", "step of the map", "map / measured", "its plan / measured")
    return Table(head, tuple(rows))


def section(family: str, report: CrossoverReport, runs: list[Path]) -> str:
    """The part of the page about a family; its figures are written."""
    found, folder, spec = report.found, FIGURES / family, spec_of(family).relative_to(ROOT)
    probe = "" if found.factors[0].source == "estimated" else " --probe"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "fastest.csv").write_text(winners_table(found).csv, encoding="utf-8")
    parts = [
        f"## {FAMILIES[family]}",
        f"`alray plan {spec} --map{probe}`; [the spec](../{spec}); {found.basis['times']}.",
        "\n".join(f"- {each}" for each in (*findings(found), *CAVEATS.get(family, ()))),
    ]
    for exhibit in report.exhibits:
        parts += drawn(exhibit, folder)
    if runs:
        parts += [f"### Measured: {FAMILIES[family]}", measured_table(found, runs).markdown.rstrip()]
    parts += [
        factors_table(found).markdown.rstrip(),
        f"[What would change it at each place](crossover/{family}/fastest.csv)",
    ]
    return "\n\n".join(parts)


def drawn(exhibit: Exhibit, folder: Path) -> list[str]:
    """The figures of an exhibit as files, and the lines that show them."""
    lines = []
    for figure in exhibit.figures:
        (folder / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
        lines.append(f"![{figure.title}](crossover/{folder.name}/{figure.name}.svg)")
    return lines


def page(reports: dict[str, tuple[CrossoverReport, list[Path]]]) -> str:
    """
    Args:
        reports: of each family, with its runs.
    """
    return "\n\n".join([words(), *(section(family, *each) for family, each in reports.items())]) + "\n"


def words() -> str:
    """The page before its maps."""
    factors = FACTORS.format(
        over_families=over_families(),
        by_the_rule=by_the_rule(),
        another_day=fill(f"- **Another day.** {another_day()}", 120, subsequent_indent="  "),
    )
    return "\n\n".join([INTRODUCTION, factors, MAPS])


def with_words(text: str) -> str:
    """The page with the words and the tables of today. The maps are those of the runs, and say how sure predictions are
    today."""
    maps = text[text.index(f"## {next(iter(FAMILIES.values()))}\n") :]
    said = re.escape(HOW_SURE).replace(re.escape("{:.2f}"), r"[\d.]+")
    return f"{words()}\n\n{re.sub(said, HOW_SURE.format(*PREDICTED), maps)}"


INTRODUCTION = """\
# The crossover: which way to train is fastest where

`alray plan SPEC --map` says, without a run, which method, schedule and number of replicas trains a network fastest on
so many devices, over which links, with how many micro-batches and how much memory: by how much, and what would change
it. `python -m benchmarks.crossover` made this page.

**In short.** Local losses cost time twice: a mini-batch takes longer on one device, and other numbers of mini-batches
are needed. Streamed over several devices they reach a target first where this is less than what the rival loses. [A
table](#what-follows-by-the-rule) says what follows for six small networks, at searched rates:

- Against backpropagation on one device DGL wins for all six, on two or three stages; for the Transformer this is
  doubtful. On two stages, where the rule has a limit of 2, 1.46 to 1.89 was measured.
- Against 1F1B DGL wins for the LSTM, and for the MLP with as many micro-batches as stages. It loses for the GPT, and
  for the Transformer with many micro-batches. The rest is not decided.
- Against replicas and pipelines with late gradients (2BW) no win is decided. DGL loses for the GPT and the Transformer,
  and AL for all networks but the LSTM.
- AL takes longer than DGL to the target for all six, by the middles.
- Slow links help DGL and AL until these wait for the link too. This was measured on two stages; simulations say the
  same, except for ResNet-10.

This is a rule with measured factors. None of the six was trained to its target on several stages.

**Words.** A way to train is a method in a schedule, on S stages in R replicas. *Streamed* is the schedule of local
losses, in which no stage waits for a gradient. `1f1b` cuts a mini-batch into M micro-batches; while they come and go,
stages wait: the bubble. `2bw` (PipeDream-2BW) does not run empty between mini-batches, so its gradients are an update
late. `naive` is a pipeline of whole mini-batches: one stage works at a time, and only updates overlap. DGL, AL and SCPL
are methods with [local losses](local_learning.md). `host` is a link within one machine. The number in the name of an
MLP, a ResNet or a GPT is that of its components: this page has MLP-6, MLP-8, ResNet-4, ResNet-10, GPT-4 and
GPT-8. Its VGG has four components; its LSTM and its Transformer have three, an embedding and two layers.

**The rule.** In steady state streaming takes the time of one stage, and 1F1B that of M + S - 1 micro-batches on S
stages. So streaming is faster where

    alpha x rho < 1 + (S - 1) / M

alpha is the step, the time of a mini-batch, of the method on one device over that of backpropagation; rho is its
mini-batches to the target over those of backpropagation. 1F1B needs M >= S, so the limit is below 2. It is highest with
M = S: 1.50 on two stages, 1.75 on four, 1.83 on six and 1.88 on eight. With M = 16 it is 1.06 on two stages, 1.19 on
four and 1.44 on eight. Who trains by 1F1B chooses M: more micro-batches have a smaller bubble, and smaller ones cost
more time.

Against replicas and `2bw`, which have no bubble, the limit is 1, if averages of gradients cost no time and late
gradients no mini-batches. Zero bubble has a smaller bubble than 1F1B, so its limit lies between 1 and that of 1F1B.
Against backpropagation on one device the limit is S, if all stages take the same time.

**The maps** below simulate each way as `alray plan` does it, with a device for each stage of each replica, on the
numbers of devices of the maps and their divisors. They count what the rule leaves out: messages, averages, updates,
uneven stages and what small micro-batches cost. For ways within a tenth of the fastest the best cut is searched. Each
place of a map shows the fastest way on at most so many devices: method and schedule, stages and replicas, M. The number
says how many times as long the best way of the other family takes: of backpropagation where local losses are the
fastest, and of local losses otherwise. A pale place, `~` in the CSV files, is closer than 5 %, which no prediction
tells apart. Other places can be wrong too: in the nine runs on this page the map's step is 0.70 to 1.31 of the measured
one. The figure of the rule shows its line for each M (dotted) and what the simulation says (dashed). Both factors are
in a table that says what was measured, counted, given or assumed.

**For your network.** Train it by each method to one target, and search the rate of each ([an
example](../specs/studies/laptop/crossover_factors.yaml)). Then give the command the mini-batches that each one took,
such as `alray plan SPEC --map --probe --steps decoupled_greedy=1200 --steps backpropagation=900` for a spec of
`decoupled_greedy`. `--probe` measures the components on this machine, and so alpha.

`--on 8xA100 --link 25GB/s` goes over devices that are not here. Without `--steps` every method is taken to need as many
mini-batches as backpropagation, and the page says so. With them those of backpropagation have to be among them; where
it is not compared, those of the first method. The command writes `crossover.html` with these maps, and every way as
CSV, also with other numbers of micro-batches and less memory.

What it leaves out: data loading, evaluations and checkpoints; replicas and the micro-batches of a pipeline change what
batch normalisation sees (alray refuses the latter unless the spec accepts it with `micro_batch_norm`), and replicas
what contrastive losses see; late gradients (`2bw`) train other weights. Averages of compressed gradients count only
where it is known what is sent. With several virtual stages, no cut is searched that needs less memory.
`pipeline.activation_checkpointing` is not taken from the spec: forwards are computed again where the memory is too
small without."""

FACTORS = """\
## alpha and rho, with rates that were searched

**Six networks.** Each method has eight rates of its own, drawn alike between 5e-4 and 0.2, and the same five seeds,
with Adam (GPT-4 with AdamW) and mini-batches of 64 samples (GPT-4 of 16): [study](studies/crossover_factors/README.md),
[that of GPT-4](studies/crossover_factors_gpt/README.md). No best rate is the smallest or the largest that was tried; a
star would mark it.

{over_families}

- **rho** is the mean ratio over five seeds, on a scale of logarithms, at the best of the eight rates, in brackets its
  90 % interval. The rates were chosen on the same seeds, which the interval leaves out.
- **alpha** is in processor seconds of one thread, beside other programs: the median of four turns, in brackets the
  smallest and the largest (`benchmarks/results/alpha.json`). On another day it was 1.70, 1.22 and 0.98 for DGL with
  MLP-6, the VGG and ResNet-4, and 2.46, 1.65 and 1.03 for AL: 0.86 to 1.27 times as large. A verdict that such a
  factor would change holds for that day only.
- **alpha x rho** is the product of the middles, in brackets that of the lower ends and that of the upper ends. No
  probability belongs to this range.

![alpha x rho of six networks, by DGL and by AL, with the limits of their rivals on two stages](crossover/products.svg)

**The targets are early ones.** On the digits a VGG and a ResNet of four components end at 97.8 to 99.4 % by every
method. After all epochs, on six networks, AL is 1.40 points below backpropagation to 0.47 above, and DGL within one
([accuracy](accuracy.md)). In other studies AL loses 1.2 points (0.4 to 2.0) with a [VGG](studies/methods/README.md),
and DGL makes 1.9 points more errors with a cut after each of [eight layers](studies/methods_over_cuts/README.md). Their
rates are one for all or, with the VGG, the best of three.

## What follows by the rule

It was computed, not run. Local losses **win** where the whole range of alpha x rho is below the limit of the rival,
and **lose** where the whole range is above it. Elsewhere it is open: *below* and *above* say on which side of the limit
the middle lies. The head of a column has the limit behind its colon: `1F1B 4/8: 1.375` is that of 1F1B on four stages
with M = 8, and `one device 3: 3` that of one device beside three stages. A dash: too few components, or not known.

{by_the_rule}

- **Three stages** with M = 4 and 8 have the limits of two with M = 2 and 4, 1.5 and 1.25: there too DGL wins for the
  LSTM, and with M = 4 DGL for MLP-6 and AL for the LSTM.
{another_day}
- **GPT-4** did not reach the target by AL in 300 mini-batches, 4.7 times those of backpropagation.
- **Uneven stages.** The rule takes all stages to take the same time. The LSTM and the Transformer have an embedding,
  which takes nearly none, and two layers. So on three stages the limit of one device is nearer to 2 than to 3: the win
  for the Transformer there is doubtful, and so are those for the LSTM against 1F1B on three.
- **Batch normalisation.** The VGG and the ResNet have it. Their mini-batches by backpropagation were counted on one
  device, and 1F1B normalises each micro-batch by itself: what this does to its mini-batches was not measured.
- **Wide layers** in float32 have a smaller alpha. With eight layers of 512 that of AL is 1.16 (MLP-8 below) and 1.42,
  and that of DGL 0.77 ([study](studies/methods_on_stages/README.md), on one day). On one GPU that of DGL is 0.78
  and 0.83 (two sessions) for an MLP in float32, but 1.34 in bf16; it is 1.16 for a ResNet and 1.00 for a GPT, in
  float32 (one session each; [figures](gpu_measured.md)). Their rho was not searched. Where two stages share this GPU, a
  mini-batch of a ResNet of 18 layers takes 20.7 ms by DGL streamed and 41.3 by 1F1B; backpropagation without stages
  takes 18.4.

## What was measured on two stages

**The limits.** In the three runs below 1F1B loses more than its bubble, so streaming may cost more than the rule says:

| run below | streaming over 1F1B, M = 4 | limit of 1F1B | by the rule | limit of one device | by the rule |
| --- | ---: | ---: | ---: | ---: | ---: |
| MLP-8, AL | 0.55 | 2.09 | 1.25 | 1.61 | 2 |
| ResNet-10, AL | 0.57 | 1.83 | 1.25 | 1.46 | 2 |
| GPT-8, DGL | 0.60 | 2.06 | 1.25 | 1.73 | 2 |

A measured limit is that of alpha x rho: the rival's step over that of streaming, times alpha. In all three runs 1F1B is
slower than backpropagation on one device. The limit of one device is 1.77 over five starts of a day (1.68 to 1.87) for
AL with [twelve layers of 256](studies/strong_scaling/README.md), and on one day 1.89 for AL and 1.72 for DGL with
[eight layers of 512](studies/methods_on_stages/README.md). With the least of these limits, 1.46, DGL wins against one
device on two stages for the LSTM and barely for MLP-6, and AL for the LSTM. Against 1F1B with M = 4 limits of 1.83 to
2.09 would leave the loss of DGL for GPT-4 open, and would let DGL win for MLP-6 and the LSTM, and AL for the LSTM.

The runs ended at their targets, with one seed and one rate. The time to the target, the step times rho, is 0.59 of that
of backpropagation on one device for GPT-8 and 1.49 for MLP-8. For ResNet-10 it is 6.5 of that of 1F1B.

**Times of a mini-batch**, local losses streamed over two stages, with 90 % intervals over five starts of a day. The GPT
is trained by DGL, and one device is one process on both cores. The twelve layers of 256 are trained by AL.

| network, samples | pipelines | over the fastest of them | over one device |
| --- | --- | --- | --- |
| [GPT](studies/language_pipelines/README.md) | 1F1B, zero bubble | 0.67 (0.60 to 0.71) | 0.84 (0.73 to 0.96) |
| [twelve layers](studies/strong_scaling/README.md), 512 | naive, GPipe | 1.17 (1.05 to 1.26) | 1.12 (1.05 to 1.19) |
| [the same](studies/step_time/README.md), 64 | all but those with a V and 2BW | 1.26 (1.01 to 1.42) | - |
| the same, 256 | the same | 1.09 (0.89 to 1.23) | - |
| the same, 1,024 | the same | 1.30 (1.18 to 1.37) | - |

2BW is in none of them. In [another study](studies/pipelines/README.md) 2BW is estimated at 0.85 of 1F1B (0.75 to 0.96).
With [eight Transformer components](schedules.md) AL takes 0.90 of 2BW (three repeats: 0.84 to 1.05), 0.75 of 1F1B (0.74
to 0.90) and 0.88 of zero bubble (0.67 to 0.98).

On one day DGL takes 26.9 ms on two stages for [eight layers of 512](studies/methods_on_stages/README.md), 1F1B 57.8 and
backpropagation on one stage 60.6. A day decides nothing about another one.

**What is open.** No network of the two tables of factors was trained to its target on several stages; those of the maps
were, on two. Nothing here was measured on several GPUs or on several hosts, and on more than two stages [only
components that sleep](simulated_orders.md) were. For other networks we expect the rule to hold;
their rho at searched rates is not known. Eight rates leave open what a better one would give. The validation set was
looked at every five mini-batches (GPT-4: ten), a quarter to two fifths of what the VGG and ResNet-4 took by
backpropagation and DGL: their rho is as coarse.

`python -m benchmarks.studies crossover_factors crossover_factors_gpt` runs the studies, `python -m benchmarks.alpha`
measures alpha, and after `make publish` `python -m benchmarks.crossover --factors` writes these words and tables."""

MAPS = """\
## What the maps show, and what not

The maps take rho from one run of each way, with one seed and the same learning rate for all: they show what the command
says, and are no evidence about the methods, whose rates were not searched. Where two runs of backpropagation reached
the target, the shorter one counts. In the tables of runs `local-losses-streamed` and the like are names of runs, and
*its plan* is what a run predicted of itself before it trained.

- **The second map** of a network shows the time of backpropagation to the target over that of local losses, each by its
  fastest way there. Above 1 local losses are faster. rho is counted in it. For another rho, multiply the figure by the
  rho of the map and divide it by yours: MLP-8 on eight devices of one host has 1.36 with a rho of 2.07, so with a rho
  of 2.81 both are as fast.
- **DGL** is not on the maps of MLP-8 and ResNet-10, because its components were not measured there. `--methods
  backpropagation,decoupled_greedy` adds it.
- **rho of GPT-8** is 0.83 by one run, and DGL is the fastest in 16 of 20 places. GPT-4 has 1.69 with searched rates
  (1.49 to 1.90), so the map of GPT-8 is no evidence for DGL. With 1.69 DGL would be the fastest in 8: with 16 devices
  over every link, with 8 over every link between hosts, and with 4 over 100 Mbit/s.
- **The rule and the maps differ** against replicas and `2bw`. The rule has a limit of 1. The maps count what averages
  and small micro-batches cost, and allow more. By the rule GPT-8, with 1.03, is as fast as both; by its map DGL is 1.23
  times as fast as replicas on two devices of one host, and 1.55 times as fast as `2bw` on four. By the rule AL for
  MLP-8, with 2.39, loses to both; by its map it is ahead on 8 and 16 devices, except over 100 Mbit/s. Where the maps
  are right is not known: these places were not run. With a rho of 1.69 both say that DGL loses on two and four devices
  of one host (0.61 and 0.76 by the map).
- **Order.** On two stages the maps of ResNet-10 and GPT-8 have 1F1B before one device. In the runs it is behind. And
  two maps are too good for local losses there: their time to the target over that of one device is 0.52 by the map and
  0.59 measured for GPT-8, 1.25 and 1.49 for MLP-8.
- **Micro-batches.** By the rule more of them help 1F1B. In these small networks they cost more time than they save: for
  MLP-8 on two stages the simulation allows a rho of 1.75 with M = 4, and of 7.53 with M = 32.
- **Links.** Slow ones help local losses until the link limits them too. With GPT-8 on two devices DGL is 1.23 times as
  fast as backpropagation on one host, and 1.91 times over 100 Mbit/s. With a rho of 1.69 that is 0.61 and 0.94. On
  eight devices it is then 0.98 on one host, 1.01 over 10 Gbit/s, 1.25 over 1 Gbit/s and 2.19 over 100 Mbit/s. With
  MLP-8 AL is ahead on eight devices, by 1.36, 1.44 and 1.74 (one host, 10 Gbit/s, 1 Gbit/s), and on 16 by 1.35, 1.33
  and 1.74. It is behind on four, by 1.24, 1.24 and 1.11, and on two, by 1.59, 1.57 and 1.47. Over 100 Mbit/s
  backpropagation on one device is faster than any way on several. For ResNet-10 slow links help backpropagation on 4 to
  16 devices, down to 1 Gbit/s.
- **Links, measured** on two stages over five starts of a day ([twelve layers](studies/slow_links/README.md)): a
  mini-batch takes 21.5 ms by DGL, 48.8 by AL and 47.2 by 1F1B over 10 Gbit/s; 22.4, 47.7 and 65.6 over 200 Mbit/s;
  42.2, 62.9 and 94.5 over 100 Mbit/s, where DGL and AL take as long as their messages. [Slow links](slow_links.md) has
  more."""


def main(arguments: list[str]) -> None:
    (FIGURES / "products.svg").write_text(picture().svg, encoding="utf-8")
    if arguments == ["--factors"]:
        PAGE.write_text(with_words(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    counted = arguments == ["--counted"]
    if arguments and not counted:
        raise SystemExit(__doc__)
    with TemporaryDirectory() as folder:
        runs = {family: [] if counted else run_all(family, Path(folder)) for family in FAMILIES}
        reports = {family: (report_of(family, found, probe=not counted), found) for family, found in runs.items()}
        PAGE.write_text(page(reports), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
