"""docs/crossover.md: where one way to train becomes faster than another, for three families of networks.

    python -m benchmarks.crossover              runs each family three times, then measures its components
    python -m benchmarks.crossover --counted    no run: the costs of components are counted
    python -m benchmarks.crossover --factors    no run: the words, and alpha and rho from reports of studies

The three runs of a family stand beside its map: backpropagation alone and on two stages by 1F1B, and local losses
streamed over two stages. They end at the same validation metric, so they also say how many mini-batches each method
takes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from alray.api.ways_map import map_report
from alray.planning.prediction.crossover import Crossover
from alray.report.crossover import findings, kind_of, layout_of, winners_table
from alray.report.crossover_page import CrossoverReport
from alray.report.folder import read_run
from alray.report.table import Table
from alray.report.text import seconds
from benchmarks.factors_table import another_day, by_the_rule, of_al, over_families, picture
from benchmarks.links_table import over_links
from benchmarks.target_table import to_the_target

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "crossover.md"
FIGURES = ROOT / "docs" / "crossover"
FAMILIES = {
    "mlp": "MLP-8: eight layers of 512",
    "resnet": "ResNet-10: ten components",
    "gpt": "GPT-8: eight layers of 64",
}
CAVEATS = {"gpt": ("With the rho of GPT-4 at searched rates, 1.69 in place of 0.83, DGL is the fastest in 8.",)}
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
        spec_of(family), [], steps=steps_of(runs), on=None, within=None, probe=probe, allow_code=False, teller=Quiet()
    )


def steps_of(runs: list[Path]) -> dict[str, int]:
    """The mini-batches that each method took to the target: the fewest of its runs that ended before their last
    mini-batch."""
    fewest: dict[str, int] = {}
    for run in map(read_run, runs):
        assert run.summary is not None
        if run.plan.total_steps is None or run.summary.steps < run.plan.total_steps:
            fewest[run.plan.method] = min(run.summary.steps, fewest.get(run.plan.method, run.summary.steps))
    return fewest


_WAY = ("schedule", "stages", "replicas", "micro_batches", "virtual_stages", "recomputes")
"""The fields of a layout that tell ways of a method apart."""


def measured_table(found: Crossover, runs: list[Path]) -> Table:
    """Measured steps of runs beside those that this crossover predicts of the same ways, over the first link."""
    by_way = {
        (row.method, *(getattr(row.fit.setting, name) for name in _WAY)): row
        for row in found.rows
        if row.link == found.axes.links[0]
    }
    rows = []
    for run in map(read_run, runs):
        plan, summary = run.plan, run.summary
        assert summary is not None and summary.step_time_s is not None
        row = by_way[plan.method, *(getattr(plan, name) for name in _WAY)]
        layout = summary.name, kind_of(row), layout_of(row)
        times = seconds(summary.step_time_s), seconds(row.step_s)
        ratios = (f"{each / summary.step_time_s:.2f}" for each in (row.step_s, plan.predicted_step_time_s))
        rows.append((*layout, *times, *ratios))
    head = ("run", "way", "layout", "measured step", "step of the map", "map / measured", "its plan / measured")
    return Table(head, tuple(rows))


def section(family: str, report: CrossoverReport, runs: list[Path]) -> str:
    """What the page says about a family; its figures and tables are written."""
    folder = FIGURES / family
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "fastest.csv").write_text(winners_table(report.found).csv, encoding="utf-8")
    if runs:
        (folder / "measured.csv").write_text(measured_table(report.found, runs).csv, encoding="utf-8")
    for exhibit in report.exhibits:
        for figure in exhibit.figures:
            (folder / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
    first, *others = (each for each in findings(report.found) if not each.startswith(OF_FACTORS))
    spec = spec_of(family).relative_to(ROOT)
    links = ", ".join(f"[{word}](crossover/{family}/{file.name})" for word, file in files_of(folder))
    return " ".join([f"- [{FAMILIES[family]}](../{spec}): {first}", *others, *CAVEATS.get(family, ()), f"See {links}."])


OF_FACTORS = ("Gradients of ", "DGL: ", "AL: ")
"""So begin the findings of a map about alpha and rho: these are of one run."""
FILES = {
    "fastest_over_links.svg": "ways",
    "fastest.csv": "table",
    "measured.csv": "runs",
}


def files_of(folder: Path) -> list[tuple[str, Path]]:
    """The files of a family, each with its word."""
    return [(word, file) for pattern, word in FILES.items() for file in sorted(folder.glob(pattern))]


def page(reports: dict[str, tuple[CrossoverReport, list[Path]]]) -> str:
    """
    Args:
        reports: of each family, with its runs.
    """
    return "\n".join([f"{words()}\n", *(section(family, *each) for family, each in reports.items())]) + "\n"


def words() -> str:
    """The page before what it says about its maps."""
    factors = FACTORS.format(
        over_families=over_families(),
        by_the_rule=by_the_rule(),
        of_al=of_al(),
        another_day=another_day(),
        to_the_target=to_the_target(),
        over_links=over_links(),
    )
    return "\n\n".join([INTRODUCTION, factors, MAPS])


def with_words(text: str) -> str:
    """The page with the words and the tables of today. What it says about its maps is that of the runs."""
    return f"{words()}\n\n{text[text.index(f'- [{next(iter(FAMILIES.values()))}]') :]}"


INTRODUCTION = """\
# Should I use it?

Which method, schedule and number of devices trains a network fastest: an answer for six small networks on processors,
the rule behind it, and the command that answers for yours.

| you have | by these tables |
|---|---|
| a network that fits on one device, and several devices | replicas, with any tool, if a mini-batch takes long enough to be shared. No win of local losses over replicas is decided; by the rule DGL loses for the GPT and the Transformer |
| a network that fits on one device, and replicas are no choice | by the rule DGL beats backpropagation on one device for all six, on two or three stages; for the Transformer only on three, of which one has hardly anything to do |
| a network that does not fit on one device | a pipeline of backpropagation. By the rule DGL beats 1F1B for the LSTM, and for the MLP with as many micro-batches as stages, and loses for the GPT, and for the Transformer with many micro-batches. Where both were measured DGL had the shorter mini-batch |
| little memory | backpropagation: with the same mini-batch eight layers of 512 need [10 % more by DGL and 49 % more by AL](studies/methods_on_stages/README.md), as predicted |
| slow links between machines | one machine, or replicas that average seldom, if the network fits on one. Otherwise compress the messages of the pipeline: [slow links](#slow-links) |
| AL or DGL to choose | DGL: by the middles of the ranges it takes less time to an early target for five of six, and AL did not reach that of the GPT. To the later target of MLP-6 AL came in 15 of 15 trials, DGL in 11 |

The second, third and last row are answers of the rule. Four networks were [trained to a target](#trained-to-a-target) on
two processor cores. There the rule was often far off. Nothing was measured on
several GPUs.

## For your network

    alray plan SPEC --map --probe
    alray plan SPEC --map --on 2x8xA100 --link 25GB/s

The first measures the components on this machine, the second is for [machines that you do not
have](predictions.md#machines-that-you-do-not-have). Neither trains. `crossover.html` shows the fastest way for each number
of devices and link, and its lead.

Only training tells how many mini-batches a method takes to a target. Search the rate of each
([an example](../specs/studies/laptop/crossover_factors.yaml)), and give what you found in
Python: `alray.map_ways(spec, steps={"decoupled_greedy": 1200, "backpropagation": 900})`. Without it all are taken to
need as many.

Maps leave out loading of data, evaluations, checkpoints, and what replicas and micro-batches change of norms and
contrastive losses.

## The rule

**alpha** is the time of a mini-batch by the method, divided by that by backpropagation, both on one device. **rho** is
the number of mini-batches to the target, divided likewise. On S stages, streaming local losses is faster where

    alpha x rho < limit of the rival

| rival | limit |
|---|---|
| backpropagation on one device | S |
| 1F1B with M micro-batches | 1 + (S - 1) / M; M is at least S |
| zero bubble | between 1 and that of 1F1B |
| replicas; 2BW, a pipeline that never runs empty and trains with slightly old weights | 1 |

The rule leaves out messages, updates, uneven stages, averages of gradients and what small micro-batches cost, which the
maps count. It also leaves out that 2BW may need more mini-batches."""  # noqa: E501

FACTORS = """\
## alpha and rho of six networks

Targets are an error of 0.10 on digits (MLP, VGG, ResNet), of 0.25 on docstrings (LSTM, Transformer), and 3.0 nats a
byte (GPT). Each method has eight rates of its own and the same five seeds
([study](studies/crossover_factors/README.md), [of the GPT](studies/crossover_factors_gpt/README.md)). A number in a
name is that of components; the LSTM and the Transformer have three.

{over_families}

- **rho** is at the best rate, with its 90 % interval over the seeds. The rates were chosen on these seeds, which the
  interval leaves out. AL did not reach the target with GPT-4.
- **alpha** is the median of four turns, in seconds of a processor. On another day that of three networks was 0.86 to
  1.27 times as large. Wide layers have a smaller one, DGL with eight layers of 512
  [0.77](studies/methods_on_stages/README.md). On [one GPU](gpu_measured.md) that of DGL is 0.8 to 1.55.
- **alpha x rho** multiplies the middles, both lower ends and both upper ends. It is no confidence interval.

![alpha x rho of six networks, with the limits of rivals on two stages](crossover/products.svg)

The targets are early ones. After all epochs AL is 1.40 points below backpropagation to 0.47 above, and DGL within one
([accuracy](accuracy.md)). With a cut after each of eight layers DGL makes 1.9 points more errors than backpropagation,
and AL 0.7 fewer ([three seeds, one rate for all](studies/methods_over_cuts/README.md)).

## What follows by the rule

DGL **wins** where the whole range of alpha x rho is below the limit, and **loses** where it is above. *below* and
*above* are not decided, and say on which side of the limit the middle lies. `1F1B 4/16: 1.188` is 1F1B on four stages
with M = 16, and its limit. A dash: too few components.

{by_the_rule}

- {of_al}
- {another_day}
- The embedding of the LSTM and of the Transformer takes nearly no time, so their wins on three stages are doubtful.
- The VGG and the ResNet have batch normalisation. What it costs 1F1B to see one micro-batch was not measured apart.

## What was measured on two stages

Below the limits of the last columns, alpha x rho wins by the times that were measured.

| run of the maps below | streaming over 1F1B, M = 4 | limit of 1F1B (rule: 1.25) | limit of one device (rule: 2) |
|---|---:|---:|---:|
| MLP-8, AL | 0.55 | 2.09 | 1.61 |
| ResNet-10, AL | 0.57 | 1.83 | 1.46 |
| GPT-8, DGL | 0.60 | 2.06 | 1.73 |

So 1F1B was slower than its waiting explains, and streaming gained less than a factor of two. With these limits the
table above changes: the losses of the GPT and the Transformer against 1F1B are open, and DGL wins over one device on
two stages for the LSTM and barely for MLP-6. The runs had one seed and one rate.

Over six starts on two days, a mini-batch of a [GPT](studies/language_pipelines/README.md) by DGL on two cores took 0.68
times (90 % interval 0.61 to 0.73) that of the fastest of 1F1B and zero bubble, and 0.81 times (0.71 to 0.92) that of
one process with both cores. [Twelve layers](studies/strong_scaling/README.md) by AL on two cores took 1.16 times (1.07
to 1.23) that of the faster of naive and GPipe, and 1.14 times (1.07 to 1.22) that of backpropagation on one core.

## Trained to a target

Seconds of training to a target on two processor cores, over those of backpropagation on one core, with the 90 %
interval over seeds and starts; in square brackets what the rule says, with the mini-batches that this study took. The
first three networks trained [on digits](studies/target/README.md), with five seeds and three starts on two dates and
two kinds of processor. The last two trained [on all of Fashion-MNIST](studies/long/README.md), with three seeds and one
start.

{to_the_target}

- **Fashion-MNIST**, on one day. With the MLP, AL on two stages took the least, 0.55 of the time of one core. DGL took
  0.67, which is not apart from two replicas that average seldom (0.71) and one process with both cores (0.73). With the
  VGG the replicas took 0.43 and both cores 0.54; DGL on two stages took as long as one core, and 2.4 times (2.16 to
  2.66) as long as the replicas. AL did not come to the target of the VGG at any of eight rates.
- **Digits.** DGL on two stages took 0.73 and 0.69 of the time of one core. For the VGG this may be chance: a seed alone
  took 0.28, others up to 1.25. All pipelines of backpropagation, and replicas that average each gradient, took longer
  than one core. These networks are so small that messages and small mini-batches cost them more than they gain.
- A target is one point of accuracy below where backpropagation on one device ends. On digits these are errors of 0.033
  (MLP-6), 0.016 (VGG) and 0.019 (ResNet-4) of 431 pictures, of which a point is four: it is reached within 20 to 800
  mini-batches, so chance decides much. On Fashion-MNIST they are 0.1145 and 0.0953 of 6,000 pictures, reached within
  800 to 3,700 mini-batches.
- A dash: not all trials of this way, or of backpropagation on one device, came to the target. For MLP-6 backpropagation
  came there in 14 of 15, DGL in 11, AL in all.
- Rate and size of mini-batch on digits are those that took the least time of 16 tried, and the rate on Fashion-MNIST,
  with 128 samples, the one that took the fewest mini-batches of eight; each with another seed, for backpropagation,
  DGL, AL, 2BW and DiLoCo. The other ways have those of backpropagation, and DGL on replicas those of DGL. 128 samples,
  the most that were tried, are the choice for all ways of MLP-6: larger ones may be better.
- What the rule says is for as many samples as the way took. For local losses on two stages it says 0.75 to 0.87 of what
  was measured on Fashion-MNIST. Everywhere else but for DGL with the VGG of digits, the measured time is 1.2 to 7 times
  what it says.
- The seeds are the same at each start. On digits two starts trained the same weights; the first one, on another kind of
  processor, took other numbers of mini-batches in a third of its trials.
- Pipelines of networks with batch normalisation see one micro-batch in it, and replicas their share of a mini-batch. So
  they train other weights.

## Slow links

With local losses no gradient comes back, and a stage goes on while its messages travel: until the link itself is the
limit. A mini-batch of [twelve layers](studies/slow_links/README.md) on two stages, in ms, over six starts on two days:

| link | DGL | AL | 1F1B |
|---|---:|---:|---:|
| 10 Gbit/s | 22.6 | 50.0 | 48.7 |
| 200 Mbit/s | 23.2 | 49.3 | 67.5 |
| 100 Mbit/s | 42.2 | 62.8 | 97.0 |

These links are imitated on one machine, as `pipeline.links` does it. What counts is the time to a target, and every
rival. The VGG of the table above trained over a real link between two hosts of one processor each. The first column is
its time to the target over 10 Gbit/s, divided by that of backpropagation on one host, with the least and the most of
three seeds. The next four are how many times as long each way takes over a slower link.

{over_links}

- **What a link costs is clear**: each way took the same mini-batches over all links, and the seeds agree. Over 50
  Mbit/s replicas that average every 20 mini-batches take 1.1 times as long as over 10 Gbit/s, 1F1B 4.6 and DGL 8.8
  times, with messages of 8 bits 1.0 and 1.9 times. While the link is slower than the stages, DGL gains nothing by not
  waiting, and 1F1B sends half of its bytes in each direction.
- **Which way is the fastest is not**: one host took 40 to 420 mini-batches. DGL, 1F1B and DiLoCo have seeds on both
  sides of one host over 10 Gbit/s. Over 5 Mbit/s every way is slower than one host with every seed.
- The hosts are namespaces of one machine, and the kernel limits what they send (`make links`). Each bandwidth ran once,
  on one day, and 5 Mbit/s beside other programs. A difference of a tenth says nothing.
- All ways have the rates of the table above, also with compressed messages. DiLoCo has no compression here.

Two keys send less. They change what is trained, and the result still does not depend on how the network is cut:
[`pipeline.messages`](pipelines.md#slow-links) compresses what passes between components, and
`method: {{kind: decoupled_greedy, group: 4}}` trains four components together by backpropagation, on one stage.

    alray run specs/laptop/compressed_link.yaml     # outputs in 4 bits, gradients in 8"""

MAPS = """\
## Three maps

`alray plan benchmarks/crossover_mlp.yaml --map --probe` draws the first. Each place has the fastest way on at most so
many devices, over a link. They show what the command says, and are no evidence about the methods: rho is of one run
with one seed, at one rate for all. The step of the map is 0.70 to 1.31 of that of nine runs. Beside one device, all
three maps are too good for local losses on two stages: 0.53 to 0.63 of its step, where the runs took 0.71 or 0.72.

![The fastest way to train MLP-8](crossover/mlp/fastest_over_links.svg)"""


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
