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

from alray.api.ways_map import map_report
from alray.planning.prediction.basis import HOW_SURE, PREDICTED
from alray.planning.prediction.crossover import Crossover, Way
from alray.report.crossover import findings, kind_of, layout_of, winners_table
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
    parts.append(f"[What would change it at each place](crossover/{family}/fastest.csv)")
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
    factors = FACTORS.format(over_families=over_families(), by_the_rule=by_the_rule(), another_day=another_day())
    return "\n\n".join([INTRODUCTION, factors, MAPS])


def with_words(text: str) -> str:
    """The page with the words and the tables of today. The maps are those of the runs, and say how sure predictions are
    today."""
    maps = text[text.index(f"## {next(iter(FAMILIES.values()))}\n") :]
    said = re.escape(HOW_SURE).replace(re.escape("{:.2f}"), r"[\d.]+")
    return f"{words()}\n\n{re.sub(said, HOW_SURE.format(*PREDICTED), maps)}"


INTRODUCTION = """\
# Should I use it?

Which method, schedule and number of devices trains a network fastest. This page has an answer for six small networks
on processors, the rule behind it, and the command that answers for yours.

| you have | by these tables |
| --- | --- |
| a network that fits on one device, and several devices | replicas, with any tool. No win of local losses over replicas is decided; for the GPT and the Transformer DGL loses |
| a network that fits on one device, and replicas are no choice | DGL beats backpropagation on one device for all six, on two or three stages; for the Transformer this is doubtful |
| a network that does not fit on one device | a pipeline of backpropagation. DGL beats 1F1B for the LSTM, and for the MLP with as many micro-batches as stages; it loses for the GPT, and for the Transformer with many micro-batches. The rest is open |
| little memory | backpropagation: of 30 places of maps with little memory it fits in all and is the fastest in 20; local losses fit in 15 |
| slow links between machines | one machine, if the network fits on it. Otherwise DGL has the shorter mini-batch: [slow links](#slow-links) |
| AL or DGL to choose | DGL: it takes less time to the target for all six, by the middles of the ranges |

The rule behind it was not tested as a whole: none of the six was trained to its target on several stages. Nothing here
was measured on several GPUs or hosts.

## For your network

    alray plan SPEC --map --probe
    alray plan SPEC --map --on 8xA100 --link 25GB/s

The first measures the components on this machine, the second is for [machines that you do not
have](predictions.md#machines-that-you-do-not-have). Neither trains. `crossover.html` then shows the fastest way for so
many devices, over each link, and by how much it is ahead.

Only training tells how many mini-batches a method takes to a target. Train the network by each method, search the rate
of each ([an example](../specs/studies/laptop/crossover_factors.yaml)), and give the command what you found, such as
`alray plan SPEC --map --probe --steps decoupled_greedy=1200 --steps backpropagation=900`. Without `--steps` every
method is taken to need as many as backpropagation, and the page says so.

The maps leave out loading of data, evaluations and checkpoints; what replicas and micro-batches change of batch
normalisation and contrastive losses; and that the late gradients of `2bw` train other weights.

## The rule

Local losses cost time twice. **alpha** is the time of a mini-batch on one device over that of backpropagation. **rho**
is the number of mini-batches to the target over that of backpropagation. On S stages, streaming is faster where

    alpha x rho < limit of the rival

| rival | limit | why |
| --- | --- | --- |
| backpropagation on one device | S | all stages work at once |
| 1F1B with M micro-batches | 1 + (S - 1) / M | its stages wait while micro-batches come and go; M is at least S, so this is below 2 |
| zero bubble | between 1 and that of 1F1B | it waits less |
| replicas, 2BW | 1 | no stage waits; averages of gradients are taken to cost no time, and late gradients no mini-batches |

The rule leaves out messages, updates, uneven stages and what small micro-batches cost. The maps below count these."""  # noqa: E501

FACTORS = """\
## alpha and rho of six networks

Each method has eight rates of its own and the same five seeds, with Adam and mini-batches of 64 samples (GPT-4: AdamW
and 16). The number in a name is that of components; the LSTM and the Transformer have three, an embedding and two
layers ([study](studies/crossover_factors/README.md), [of GPT-4](studies/crossover_factors_gpt/README.md)).

{over_families}

- **rho** is at the best of the eight rates, in brackets its 90 % interval over the seeds. The rates were chosen on
  these seeds, which the interval leaves out.
- **alpha** is the median of four turns of one day, in brackets the least and the most. On another day that of three
  networks was 0.86 to 1.27 times as large. Wide layers have a smaller one: with eight layers of 512 it is 0.77 for DGL
  ([study](studies/methods_on_stages/README.md)). On one GPU that of DGL is 0.8 for an MLP in float32, 1.3 in bf16, 1.2
  for a ResNet and 1.0 for a GPT ([figures](gpu_measured.md)).
- **alpha x rho** is the product of the middles, of the lower ends and of the upper ends. No probability belongs to it.

![alpha x rho of six networks, by DGL and by AL, with the limits of their rivals on two stages](crossover/products.svg)

The targets are early ones. After all epochs AL is 1.40 points below backpropagation to 0.47 above, and DGL within one
([accuracy](accuracy.md)). With a cut after each of eight layers DGL makes 1.9 points more errors
([study](studies/methods_over_cuts/README.md)).

## What follows by the rule

Local losses **win** where the whole range of alpha x rho is below the limit, and **lose** where it is above. *below*
and *above* are open, and say where the middle lies. `1F1B 4/8: 1.375` is 1F1B on four stages with M = 8, whose limit is
1.375; `one device 3: 3` is one device beside three stages. A dash: too few components, or not known.

{by_the_rule}

- {another_day}
- AL did not reach the target with GPT-4 in 300 mini-batches.
- Stages are taken as equal. The embedding of the LSTM and of the Transformer takes nearly no time, so their wins on
  three stages are doubtful.
- The VGG and the ResNet have batch normalisation, which sees one micro-batch in 1F1B. What this does to its
  mini-batches was not measured.

## What was measured on two stages

| run of the maps below | streaming over 1F1B, M = 4 | limit of 1F1B | by the rule | limit of one device | by the rule |
| --- | ---: | ---: | ---: | ---: | ---: |
| MLP-8, AL | 0.55 | 2.09 | 1.25 | 1.61 | 2 |
| ResNet-10, AL | 0.57 | 1.83 | 1.25 | 1.46 | 2 |
| GPT-8, DGL | 0.60 | 2.06 | 1.25 | 1.73 | 2 |

So 1F1B loses more than its bubble here, which favours local losses, and streaming loses something too: by the least
limit of one device, 1.46, DGL wins on two stages for the LSTM and barely for MLP-6. The runs had one seed and one rate.
Their time to the target over that of one device was 0.59 (GPT-8) and 1.49 (MLP-8); ResNet-10 took 6.5 times as long as
1F1B.

Times of a mini-batch of local losses over two stages, with 90 % intervals over five starts of one day; the GPT is by
DGL, the twelve layers by AL:

| network, samples | over the fastest of these pipelines | over one device |
| --- | --- | --- |
| [GPT](studies/language_pipelines/README.md) | 1F1B, zero bubble: 0.67 (0.60 to 0.71) | 0.84 (0.73 to 0.96) |
| [twelve layers](studies/strong_scaling/README.md), 512 | naive, GPipe: 1.17 (1.05 to 1.26) | 1.12 (1.05 to 1.19) |
| [the same](studies/step_time/README.md), 64 | all but those with a V and 2BW: 1.26 (1.01 to 1.42) | - |
| the same, 256 | the same: 1.09 (0.89 to 1.23) | - |
| the same, 1,024 | the same: 1.30 (1.18 to 1.37) | - |

## Slow links

Over a slow link a message takes longer than computing. With local losses no gradient comes back, and a stage goes on
while its messages travel: until the link itself is the limit. A mini-batch of
[twelve layers](studies/slow_links/README.md) on two stages, in ms, over five starts of one day:

| link | DGL | AL | 1F1B |
| --- | ---: | ---: | ---: |
| 10 Gbit/s | 21.5 | 48.8 | 47.2 |
| 200 Mbit/s | 22.4 | 47.7 | 65.6 |
| 100 Mbit/s | 42.2 | 62.9 | 94.5 |

`pipeline.links` delays messages on one machine as such a link would. Two keys send less:

    alray run specs/laptop/slow_link.yaml pipeline.messages.compression=int8
    alray run specs/laptop/compressed_link.yaml     # outputs in 4 bits, gradients in 8

- **`pipeline.messages`** compresses what passes between components, and the gradients that come back: `bf16` and `fp16`
  to 16 bits a value, `int8` and `int4` to levels between the least and the largest, `top_k` to the largest values. A
  network that continues texts needs `scale: token`, or a position would learn of those after it. The network is then
  one with these compressions: every partition trains the same bits, and evaluations and exports compress too. What a
  message has lost stays lost: with `top_k` of a twentieth of the values a network learned little.
- **`method: {{kind: decoupled_greedy, group: 4}}`** trains four components together by backpropagation, with one loss
  at their end. A group lies on one stage, so nothing comes back over the link. A group of all components is
  backpropagation, bit for bit.

Four components of six layers of 512 over a link of 6.9 Mbit/s, 128 samples; ms, medians of two turns (`make
slow-links`):

| | fast link | slow link | predicted |
| --- | ---: | ---: | ---: |
| 1F1B, 4 micro-batches | 78.8 | 451 | 433 |
| the same, 3.5 bits up and down | 79.2 | 127 | 114 |
| streamed DGL | 36.0 | 303 | 303 |
| the same, 3.5 bits | 35.3 | 34.8 | 35.0 |

Where components are small, packing takes a large part of their time: the plan counts it."""

MAPS = """\
## Three maps

`alray plan SPEC --map` drew these for three networks. Each place has the fastest way on at most so many devices:
method and schedule, stages and replicas, M; and how many times as long the best way of the other family takes. A pale
place is closer than 5 %, which no prediction tells apart. The second map has the time of backpropagation to the target
over that of local losses: above 1 local losses are faster.

They show what the command says, and are no evidence about the methods: rho is of one run with one seed, at one rate for
all. In the nine runs below, the step of the map is 0.70 to 1.31 of the measured one, and on two stages two maps are too
good for local losses."""


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
