"""docs/crossover.md: where one way to train becomes faster than another, for three families of networks.

    python -m benchmarks.crossover              runs each family three times, then measures its components
    python -m benchmarks.crossover --counted    no run: the costs of components are counted
    python -m benchmarks.crossover --factors    no run: the tables of alpha and rho alone, from reports of studies

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

from alray.api.crossover import crossover_report
from alray.report.crossover import factors_table, findings, measured_table, winners_table
from alray.report.crossover_page import CrossoverReport
from alray.report.figure import Exhibit
from benchmarks.factors_table import over_batch_sizes, over_families

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "crossover.md"
FIGURES = ROOT / "docs" / "crossover"
FAMILIES = {"mlp": "An MLP", "resnet": "A ResNet", "gpt": "A GPT"}
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
    return crossover_report(
        spec_of(family),
        [],
        methods="",
        devices="1,2,4,8,16",
        micro_batches="4,8,16,32",
        links=[],
        memory="",
        batch_sizes="",
        steps=[],
        folders=runs,
        on=None,
        within=None,
        probe=probe,
        allow_code=False,
        teller=Quiet(),
    )


def section(family: str, report: CrossoverReport) -> str:
    """The part of the page about a family; its figures are written."""
    found, folder, spec = report.found, FIGURES / family, spec_of(family).relative_to(ROOT)
    probe = "" if found.factors[0].source == "estimated" else " --probe"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "fastest.csv").write_text(winners_table(found).csv, encoding="utf-8")
    parts = [
        f"## {FAMILIES[family]}",
        f"`alray crossover {spec}{probe}`; [the spec](../{spec}); {found.basis['times']}.",
        "\n".join(f"- {each}" for each in findings(found)),
    ]
    for exhibit in report.exhibits:
        parts += drawn(exhibit, folder)
        if exhibit.title == "Measured":
            parts += [f"### Measured: {FAMILIES[family]}", measured_table(found).markdown.rstrip()]
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


def page(reports: dict[str, CrossoverReport]) -> str:
    return "\n\n".join([INTRODUCTION, factors(), *(section(*each) for each in reports.items())]) + "\n"


def factors() -> str:
    """The part of the page about alpha and rho."""
    return FACTORS.format(over_batch_sizes=over_batch_sizes(), over_families=over_families())


def with_factors(text: str) -> str:
    """The page with the tables of today."""
    first = f"## {next(iter(FAMILIES.values()))}\n"
    before, rest = text[: text.index(TITLE)], text[text.index(first) :]
    return f"{before}{factors()}\n\n{rest}"


INTRODUCTION = """\
# The crossover: which way to train is fastest where

`alray crossover SPEC` says, without a run, which method, schedule and number of replicas trains a network fastest on
so many devices, over which links, with how many micro-batches and how much memory: by how much, and what would change
it. `python -m benchmarks.crossover` made this page.

A way to train is a method in a schedule, on S stages in R replicas. Each one is simulated as `alray plan` does it,
with a device for each stage of each replica, and with the best cut. In a map, each place shows the fastest way on at
most so many devices: method and schedule, stages and replicas, M micro-batches, and how many times as long the best
way of the other family takes (local losses, or backpropagation). A pale place is closer than 5 %, which the
simulation cannot tell apart.

**The rule.** In steady state streaming takes the time of one stage, and 1F1B that of M + S - 1 micro-batches on S
stages. So streaming is faster where

    alpha x rho < 1 + (S - 1) / M

alpha is the step of the method on one device over that of backpropagation; rho is its mini-batches to the target over
those of backpropagation. The figure of the rule shows its line for each M (dotted) and what the simulation says
(dashed), which also counts messages, uneven stages and what small micro-batches cost. Both factors are in a table,
with their sources: what was measured, counted, given or assumed.

The command takes the mini-batches to a target from `--steps associated_learning=1200 --steps backpropagation=900`, or
from runs and studies (`--from FOLDER`), whose step times then stand beside the map. `--on 8xA100 --link 25GB/s` goes
over devices that are not here, `--probe` measures the components on this machine. Without steps every method is taken
to need as many as backpropagation, and the page says so. It writes `crossover.html` with these maps, and every way as
CSV.

What it leaves out: data loading, evaluations and checkpoints; replicas change what contrastive losses and batch
normalisation see; late gradients (`2bw`) train other weights. Averages of compressed gradients count only where it is
known what is sent. With several virtual stages, no cut is searched that needs less memory.

The maps at the end of this page take rho from one run of each way, with one seed and the same learning rate for all:
they show what the command says, and are no evidence about the methods, whose rates were not searched. Where two runs of
backpropagation reached the target, the shorter one counts."""

TITLE = "## alpha and rho, with rates that were searched"
FACTORS = """\
## alpha and rho, with rates that were searched

**rho by the size of the mini-batch.** An MLP of two layers of 128 on Fashion-MNIST, until 84 of 100 validation
samples are right: Adam, for each method and size the best of twelve rates between 1e-4 and 0.1, three paired seeds,
in brackets 90 % intervals ([study](studies/batch_size_al/README.md)). No best rate is the smallest or the largest
that was tried.

{over_batch_sizes}

**Six families.** Each method has the same search of six rates between 5e-4 and 0.05, with Adam (the GPT with AdamW).
A star marks a best rate that is the smallest or the largest that was tried: it is not bracketed. A rho without an
interval is of one seed. alpha is the median over turns of processor seconds of one thread, with the smallest and the
largest.

{over_families}

**When local losses win.** Against 1F1B with four micro-batches alpha x rho may be 1.25 on two stages, 1.75 on four
and 2.75 on eight; with sixteen 1.06, 1.19 and 1.44. A pipeline that needs no flush (2bw) and replicas have no bubble:
there it may be 1, if late gradients cost no mini-batches and averages no time. By the second table alpha x rho of DGL
is 0.9 for the ResNet, 1.5 for the VGG and 1.8 for the MLP, so it would win on two, four and eight stages. All three
intervals of rho contain 1, and their ends move this by a factor of two either way; the validation set was looked at
every five mini-batches, a quarter of what the VGG and the ResNet needed. The best rate of DGL for the MLP is not
bracketed. For the GPT rho of DGL is 1.7, and it too is not told from 1. What the table does show is AL: for the VGG
and the ResNet it takes at least 2.3 times the mini-batches, so with four micro-batches it does not win on four
stages, and it misses the target of the GPT. alpha was measured beside another program: for DGL in the MLP of the
first table that gave 1.35, and a run alone 1.03. The study was stopped before its LSTM and Transformer. For other
networks, GPUs and several hosts we expect the rule to hold; their rho at searched rates was not measured.

`python -m benchmarks.studies crossover_factors crossover_factors_gpt` runs the studies, `python -m benchmarks.alpha`
measures alpha, and after `make publish` `python -m benchmarks.crossover
--factors` writes these tables."""


def main(arguments: list[str]) -> None:
    if arguments == ["--factors"]:
        PAGE.write_text(with_factors(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    counted = arguments == ["--counted"]
    if arguments and not counted:
        raise SystemExit(__doc__)
    with TemporaryDirectory() as folder:
        runs = {family: [] if counted else run_all(family, Path(folder)) for family in FAMILIES}
        reports = {family: report_of(family, found, probe=not counted) for family, found in runs.items()}
    PAGE.write_text(page(reports), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
