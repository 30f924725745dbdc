"""Write docs/findings.md: what the studies of laptop size say of each claim of a publication, or of this project.

    python -m benchmarks.findings_page

The claims are the `verdicts` of specs/studies/laptop/*.yaml, and the answers those of docs/studies/NAME/verdicts.json,
which `make studies` keeps. An answer counts for a claim if the same figure decided it, at the same points and bound.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from alray.config.study.load import read_study_file
from alray.config.study.section import Study, Verdict
from alray.studies.folder import question
from alray.studies.records import ESTIMATED, Answer, Compared
from alray.studies.verdicts import compared_text, p_text

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "specs" / "studies" / "laptop"
REPORTS = ROOT / "docs" / "studies"
PAGE = ROOT / "docs" / "findings.md"
KEPT = "verdicts.json"
FIRST_RUNS = "first_runs.json"
"""In the folder of the reports: study -> the day on which its first run began, of which the report may be gone."""
NOT_RUN = "not run yet"
BESIDE = "beside other programs: its times and the curves over seconds cannot be compared"
"""In a report whose study did not have the machine to itself."""

INTRODUCTION = """\
# Findings

Written by `make findings` from the verdicts of the studies, by the questions that the project began with. It says what
holds here, on two processor cores, with small networks and data sets. Nothing on this page says what holds on GPUs or
at the size of the publications.

A claim is *decided* (it holds, or it does not), *estimated* (it has no bound), or *open*. The estimate is a ratio where
it ends in *times*; in brackets is its 90 % interval, over the seeds, starts or runs of the next column, with the days
on which they ran. Variants that share seeds are compared seed by seed. A claim about several points has one estimate
for each, and *holds* if it holds at all of them. The claims of a study are tested together, so that one decided claim
in twenty is expected to be decided in the wrong direction. [Studies](studies.md#claims-and-verdicts) says how this is
computed; `make recomputed` computes it again by other code.

*In fewer than three days*: sessions of one day, or that begin within an hour, count as one, and times of one or two are
not decided, because another day may measure others. *Not run yet* means that no report has this claim. A report of a
tree with uncommitted changes does not count.

The number behind a publication leads to what it says, below the table. {quoted} have its sentence, in quotation marks;
*in other words* means that it could not be read here. Where the publication gives a value of the figure, the interval
*contains* or *excludes the published* one, which is of other networks, data and machines. *Ours* are claims without a
publication: a bound that was set after the first run of its study decides nothing new. The interval of an accuracy is
over seeds, for the same pictures of the test or validation set, unless the claim gives the size of that set."""


@dataclass(frozen=True)
class Seed:
    """A question that the project began with. studies: those whose claims are about it. open: claims that no study of
    laptop size examines, each with the reason."""

    title: str
    about: str
    studies: tuple[str, ...]
    open: tuple[tuple[str, str], ...] = ()


SEEDS = (
    Seed(
        "Local losses and backpropagation: accuracy",
        "Wu et al. 2022 (ICLR), T.-H. Lin 2023 (thesis, National Central University), Ma et al. 2024 (ICLR, arXiv "
        "2402.17318).",
        ("methods", "methods_over_cuts", "crossover_factors", "crossover_factors_gpt"),
        (
            (
                "AL is more accurate than BP on AG News, DBpedia and IMDb, and less accurate on Tiny-ImageNet (Lin "
                "2023, 4.2)",
                "needs GPUs and these data sets: `specs/studies/methods.yaml`",
            ),
            (
                "On CIFAR-10, ResNet-110 cut at every block reaches 93.96 % by AugLocal and 74.95 % by predsim",
                "needs GPUs: `specs/studies/methods_over_cuts.yaml`, with ResNet-32",
            ),
        ),
    ),
    Seed(
        "Local losses and backpropagation: time",
        "Lin 2023, Narayanan et al. 2021 (PipeDream-2BW, arXiv 2006.09503), SOLO 2026 (arXiv 2609.35440, and its "
        "author's post: Splitting the learning, 2026-10-03).",
        (
            "target",
            "long",
            "al_modes",
            "step_time",
            "language_pipelines",
            "methods_on_stages",
            "pipelines",
            "slow_links",
        ),
        (("With two stages a link of 1 Gbit/s costs SOLO 1.2 % of its throughput, and 1F1B 51 %", "needs GPUs"),),
    ),
    Seed(
        "Scaling over devices",
        "Lin 2023.",
        ("strong_scaling", "weak_scaling"),
        (
            (
                "An epoch of 12 layers on AG News is shorter on 2, 3, 4 and 6 GPUs than on one by AL, and longer by "
                "naive BP (Lin 2023, 4.4)",
                "needs GPUs: `specs/studies/strong_scaling.yaml`, `specs/studies/scaling_grid.yaml`",
            ),
        ),
    ),
    Seed(
        "Workers, all-reduce and large batches",
        "Vogels et al. 2019 (PowerSGD), Goyal et al. 2017 (arXiv 1706.02677), ISCV 2022 (Reducing the training time of "
        "deep learning models using synchronous SGD and large batch size), Shallue et al. 2019 (JMLR 20(112)).",
        ("all_reduce", "large_batch"),
        (
            (
                "Time and accuracy on Dogs vs Cats over 8 workers (ISCV 2022)",
                "needs more processors and this data set: `specs/studies/large_batch.yaml`",
            ),
        ),
    ),
    Seed(
        "Dynamic batch size",
        "Ye et al. 2020 (arXiv 2007.11831).",
        ("dynamic_batch_size",),
        (
            (
                "The same with 4 and 8 workers, CNNs and CIFAR-10",
                "needs more processors: `specs/studies/dynamic_batch_size.yaml`",
            ),
        ),
    ),
    Seed(
        "Batch size and steps to a target",
        "Shallue et al. 2019 (JMLR 20(112)).",
        ("batch_size", "batch_size_al", "budgets"),
        (
            (
                "Three regimes, and a largest useful batch size that differs, on the workloads of the paper",
                "needs GPUs and CIFAR-10: `specs/studies/batch_size.yaml`",
            ),
        ),
    ),
    Seed("Ablations of AL", "Claims of ours.", ("ablation_bridge", "ablation_label_dim")),
)


@dataclass(frozen=True)
class Finding:
    """A claim with what its study says of it. answer: None if it was not run. earlier: the study has changed since.
    ran: the days on which its trials began, in order.
    first_ran: the day on which the first run of its study began; empty if none is known."""

    verdict: Verdict
    study: str
    answer: Answer | None
    earlier: bool = False
    ran: tuple[str, ...] = ()
    first_ran: str = ""

    @property
    def says(self) -> str:
        return NOT_RUN if self.answer is None else self.answer.says

    @property
    def kind(self) -> str:
        """Decided, estimated or open."""
        if self.says in ("holds", "does not hold"):
            return "decided"
        return "estimated" if self.says.startswith(ESTIMATED) else "open"

    @property
    def says_in_full(self) -> str:
        """`says`, and of an estimate whether it contains the published value."""
        return NOT_RUN if self.answer is None else self.answer.says_in_full

    @property
    def doubts(self) -> list[str]:
        """What makes the answer doubtful."""
        return [] if self.answer is None else self.answer.doubts


def kept(study: Study, summary: dict[str, Any]) -> dict[str, Any]:
    """What `make studies` keeps of a study for this page: the version of alray, the study without the path of its base,
    and its answers.

    summary: its `study.json`.
    """
    return {"version": summary.get("version"), "study": asked(study), "verdicts": summary["verdicts"]}


def findings(specs: Path, reports: Path) -> list[Finding]:
    """Every claim of the studies in a folder, with the answers that are kept in another one."""
    known, studies = first_runs(reports), map(read_study_file, sorted(specs.glob("*.yaml")))
    return [found for study in studies for found in _of_study(study, reports, known.get(study.study))]


def first_runs(reports: Path) -> dict[str, str]:
    """Study -> the day on which its first run began, of the studies that ran when the pages were last made."""
    file = reports / FIRST_RUNS
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _of_study(study: Study, reports: Path, began: str | None) -> Iterator[Finding]:
    file = reports / study.study / KEPT
    if not file.is_file():
        yield from (Finding(verdict, study.study, None, first_ran=began or "") for verdict in study.verdicts)
        return
    of = json.loads(file.read_text(encoding="utf-8"))
    answers = [Answer.model_validate(each) for each in of["verdicts"]]
    questions = [question(each) for each in of["study"]["verdicts"]]
    now = asked(study)
    page = file.with_name("README.md")
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    ran = tuple(sorted({*_DAY.findall(text.partition("\n## Made with\n")[2])}))
    first_ran = min([*ran, *([began] if began else [])], default="")
    earlier = not is_of_today(study, of["study"])
    for verdict, asks in zip(study.verdicts, now["verdicts"], strict=True):
        same = [
            answer.model_copy(update={"published": verdict.published})
            for answer, other in zip(answers, questions, strict=True)
            if other == question(asks)
        ]
        answer = same[0] if same else None
        yield Finding(verdict, study.study, answer, earlier and bool(same), ran, first_ran)


def is_of_today(study: Study, ran: dict[str, Any], *, as_often: bool = True) -> bool:
    """Whether a study has the same trials, by the same numbers, as when its report was made.

    Args:
        ran: the study that `kept` kept.
        as_often: whether they must be as many: otherwise the numbers of seeds and sessions may differ.
    """
    left = {"verdicts": None} if as_often else {"verdicts": None, "repeats": None, "sessions": None}
    now = asked(study)
    return _axes_in_order(ran) == _axes_in_order(now) and {"sessions": 1, **ran, **left} == {**now, **left}


def _axes_in_order(study: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """Each axis with its values, or with the names of its variants: trials are numbered in this order."""
    return [(axis, list(values)) for axis, values in study["axes"].items()]


def asked(study: Study) -> dict[str, Any]:
    """A study as JSON holds it, without what answers nothing: the path of its base, words
    about it."""
    values: dict[str, Any] = study.model_dump(mode="json", exclude={"base", "doubts"})
    return values


def page(found: Sequence[Finding]) -> str:
    """The text of the page. Raises ValueError for a study that is about no seed."""
    quoted = sum(each.verdict.quote is not None for each in found)
    kinds = Counter(each.kind for each in found)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("decided", "estimated", "open"))
    parts = [INTRODUCTION.format(quoted=f"{quoted} of {len(found)} claims"), f"{len(found)} claims: {counts}."]
    numbers: dict[str | None, int] = {}
    if without := {each.study for each in found} - {study for seed in SEEDS for study in seed.studies}:
        raise ValueError(f"no seed has the studies {sorted(without)}")
    for seed in SEEDS:
        of_seed = [each for each in found if each.study in seed.studies]
        rows, notes = [], {}
        for each in of_seed:
            by = _bound(each)
            if each.verdict.source is not None:
                note = f"[{numbers.setdefault(each.verdict.claimed_by, 1 + len(numbers))}]"
                notes[note] = each.verdict.claimed_by or ""
                by = f"{each.verdict.source} {note}"
            rows.append((each.verdict.claim, by, *_row(each)))
        rows += [(claim, "", "", "", "no study here", why) for claim, why in seed.open]
        parts += [f"## {seed.title}", _lines(seed.about), _table(("claim", "claimed by", *_HEAD), rows)]
        parts += ["\n".join(_item(f"{note} {text}") for note, text in notes.items()), *_doubts(of_seed)]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _bound(found: Finding) -> str:
    """Who makes a claim without a publication, and when its bound was set."""
    since = found.verdict.since
    if since is None:
        return "ours"
    later = ", after the first run" if found.first_ran and since > found.first_ran else ""
    return f"ours, bound of {since}{later}"


def _doubts(found: Sequence[Finding]) -> list[str]:
    claims: dict[str, list[str]] = {}
    for each in found:
        for doubt in each.doubts:
            claims.setdefault(_AXIS.sub("", doubt), []).append(each.verdict.claim)
    lines = [_item(f"{doubt}. This is about: {'; '.join(of)}.") for doubt, of in claims.items()]
    return ["What makes these verdicts doubtful:", "\n".join(lines)] if lines else []


def _item(text: str) -> str:
    """An item of a list."""
    return _lines(f"- {text}", indent="  ")


def _lines(text: str, indent: str = "") -> str:
    """A text in lines of the width of a page."""
    return fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


_DAY = re.compile(r"; (\d{4}-\d\d-\d\d)\b")
"""The day on which the first trial of a machine and version began, as a report says it."""
_DAY_OF_UNITS = re.compile(r"\d{4}-\d\d-\d\d")
_AXIS = re.compile(r"\b[\w.]+=")
"""The name of an axis before its value, which says enough."""
_HEAD = ("estimate", "over", "verdict", "study")


def _row(found: Finding) -> tuple[str, str, str, str]:
    """The cells of a claim below `_HEAD`."""
    report = f"studies/{found.study}/README.md"
    answer = found.answer
    if answer is None:
        return "", "", found.says, f"`{found.study}`"
    factor = " times" if found.verdict.over else ""
    estimate = "; ".join(_estimate(each, factor) for each in answer.compared)
    says = found.says_in_full
    if p_text(answer):
        says += f" (p {_p(answer)})"
    where = f"[{found.study}]({report}){', run in an earlier form' if found.earlier else ''}"
    over = answer.units if _DAY_OF_UNITS.search(answer.units) else f"{answer.units}, {' and '.join(found.ran)}"
    return estimate, over if answer.units else "", says, where


def _estimate(each: Compared, factor: str) -> str:
    """The estimate at one point, by the values of the axes alone."""
    words = _AXIS.sub("", each.point)
    value, _, interval = compared_text(each.model_copy(update={"point": ""})).partition(" ")
    return f"{words}: {value}{factor} {interval}" if words else f"{value}{factor} {interval}"


def _p(answer: Answer) -> str:
    text = p_text(answer)
    return text if text.startswith("<") else f"= {text}"


def _table(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Links stay links, so the texts are not escaped as those of a user's table are. Empty cells have a dash."""
    lines = [tuple(head), ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell or '–' for cell in line)} |\n" for line in lines)


def main() -> None:
    found = findings(SPECS, REPORTS)
    PAGE.write_text(page(found), encoding="utf-8")
    first = {each.study: each.first_ran for each in found if each.first_ran}
    (REPORTS / FIRST_RUNS).write_text(json.dumps(first, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
