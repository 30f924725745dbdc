"""Write docs/findings.md and docs/own_claims.md: what the studies of laptop size say of each claim of the publications
that alray reproduces, and of each claim of this project.

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
from alray.studies.records import Answer, Compared
from alray.studies.verdicts import compared_text, p_text

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "specs" / "studies" / "laptop"
REPORTS = ROOT / "docs" / "studies"
PAGE = ROOT / "docs" / "findings.md"
OWN_PAGE = ROOT / "docs" / "own_claims.md"
KEPT = "verdicts.json"
FIRST_RUNS = "first_runs.json"
"""In the folder of the reports: study -> the day on which its first run began, of which the report may be gone."""
NOT_RUN = "not run yet"
BESIDE = "beside other programs: its times and the curves over seconds cannot be compared"
"""In a report whose study did not have the machine to itself."""

_HOW = """\
The estimate is a ratio where it ends in *times*; in brackets is its 90 % interval, over the seeds, sessions or runs of
the next column. Variants that share seeds are compared seed by seed. A claim about several points has one estimate for
each, and *holds* if it holds at all of them. The verdict is that of the report of the study. The claims of a study are
tested together, so that one decided claim in twenty is expected to be decided in the wrong direction. Times of one
session are not tested. A claim about what chance does not move, as a number of parameters, is decided by itself. A
claim and its opposite, on one figure and one bound, are one test.
The interval of an accuracy is over seeds, for the same pictures of the test or validation set, unless the claim gives
the size of that set: another set may show another difference.
[Studies](studies.md#claims-and-verdicts) says how this is computed.

*In one session* means that the study ran once. Times of two sessions differ by more than those of one, and the interval
is that of its session alone. [In made-up studies](intervals.md), whose sessions move each variant by 3 % and whose
trials within a session differ by 1 %, 36 % of such intervals have the truth over all sessions. So one session decides
nothing, and only estimates. *Not run yet* means that the report of the study does not include this claim."""
INTRODUCTION = f"""\
# Findings

Written by `make findings` from the verdicts of the studies. It says of each claim of the publications that alray
reproduces whether it holds here, on two processor cores, with small networks and data sets. Nothing on this page says
what holds on GPUs or at the size of the publications. [Claims of this project](own_claims.md) have a page of their own.

The number behind a publication leads to what it says, below the table. {{quoted}} have its sentence, in quotation
marks. *In other words* means that the sentence itself could not be read here: then it says what the figures of the
publication, or notes of others about it, say. A claim is *estimated*, without a bound, where the publication names
none, or where one of ours would lie on the effect. Where it gives a value of the figure, the interval *contains* or
*excludes the published* one, which is of other networks, data and machines.

{_HOW}"""
OWN_INTRODUCTION = f"""\
# Claims of this project

Written by `make findings` from the verdicts of the studies. These claims have no publication. A bound that was set
after its figure was known decides nothing new, so the day of each bound stands beside the day on which the first run of
its study began. The report may be of a later run, with more seeds, sessions or points: it *ran on* the days beside it.
{{bounds}}
An estimate has no bound. Claims of publications are on the page of [findings](findings.md).

{_HOW}"""


@dataclass(frozen=True)
class Seed:
    """A line of publications. sources: how the `source` of a verdict about it begins. open: claims that no study of
    laptop size examines, each with the reason. ranks: what the publication says of the ratios of two of its claims, and
    these claims, that with the smaller ratio first."""

    title: str
    about: str
    sources: tuple[str, ...]
    open: tuple[tuple[str, str], ...] = ()
    ranks: tuple[str, str, str] | None = None


SEEDS = (
    Seed(
        "Associated Learning and its pipeline",
        "Kao & Chen 2021 (Neural Computation 33(1)), Wu et al. 2022 (ICLR), T.-H. Lin 2023 (thesis, National Central "
        "University).",
        ("Kao & Chen 2021", "Wu et al. 2022", "Lin 2023"),
        (
            (
                "AL is more accurate than BP on AG News, DBpedia and IMDb, and less accurate on Tiny-ImageNet (Lin "
                "2023, 4.2), CIFAR-10 and CIFAR-100 (another public repository)",
                "needs GPUs and these data sets: `specs/studies/methods.yaml`",
            ),
            (
                "An epoch of 12 layers on AG News is shorter on 2, 3, 4 and 6 GPUs than on one by AL, and longer by "
                "naive BP (Lin 2023, 4.4; there AL's speed-up on 1, 2, 3, 4 and 6 GPUs is 1, 1.01, 1.19, 1.30 and "
                "1.09)",
                "needs GPUs: `specs/studies/strong_scaling.yaml`",
            ),
        ),
    ),
    Seed(
        "Batch size and steps to a target",
        "Shallue et al. 2019 (JMLR 20(112)).",
        ("Shallue et al. 2019",),
        (
            (
                "Three regimes, and a largest useful batch size that differs, on the workloads of the paper",
                "needs GPUs and CIFAR-10: `specs/studies/batch_size.yaml`",
            ),
        ),
        (
            "By Shallue et al. 2019, 4.5, the data matter less for the largest useful batch size than the algorithm.",
            "Critical batch size on 54,000 pictures of clothes, divided by that on 1,400 digits",
            "SGD with momentum makes use of larger batch sizes than plain SGD",
        ),
    ),
    Seed(
        "Dynamic batch size (DBS)",
        "Ye et al. 2020 (arXiv 2007.11831).",
        ("Ye et al. 2020",),
        (
            (
                "The same with 4 and 8 workers, CNNs and CIFAR-10",
                "needs more processors: `specs/studies/dynamic_batch_size.yaml`",
            ),
        ),
    ),
    Seed(
        "Synchronous SGD with large batches",
        "Goyal et al. 2017 (arXiv 1706.02677), ISCV 2022 (Reducing the training time of deep learning models using "
        "synchronous SGD and large batch size), You et al. 2017 (LARS), Vogels et al. 2019 (PowerSGD).",
        ("Goyal et al. 2017", "ISCV 2022", "You et al. 2017", "Vogels et al. 2019"),
        (
            (
                "Time and accuracy on Dogs vs Cats over 8 workers (ISCV 2022)",
                "needs more processors and this data set: `specs/studies/large_batch.yaml`",
            ),
        ),
    ),
    Seed(
        "Pipelines of backpropagation",
        "Qi et al. 2023 (zero bubble, arXiv 2401.10241), Qi et al. 2024 (V-shaped placement, arXiv 2405.15362), "
        "Narayanan et al. 2021 (PipeDream-2BW, arXiv 2006.09503).",
        ("Qi et al. 2023", "Qi et al. 2024", "Narayanan et al. 2021"),
        (),
    ),
    Seed(
        "Local losses on a pipeline with slow links",
        "SOLO 2026 (arXiv 2609.35440, and its author's post: Splitting the learning, 2026-10-03).",
        ("SOLO 2026",),
        (
            (
                "With two stages a link of 1 Gbit/s costs SOLO 1.2 % of its throughput, and 1F1B 51 %",
                "needs GPUs",
            ),
        ),
    ),
    Seed(
        "Published accuracies of local losses",
        "Nøkland and Eidnes 2019 (arXiv 1901.06656), Mono-Forward 2025 (arXiv 2501.09238), FAUST 2025 (Forward-Forward "
        "unified with a similarity-based tuplet loss, arXiv 2509.08697).",
        ("Nøkland and Eidnes 2019", "Mono-Forward 2025", "FAUST 2025"),
        (
            ("The same for VGG8b on Fashion-MNIST and CIFAR-10 (predsim 4.65 and 5.58 % errors)", "needs GPUs"),
            (
                "Forward-Forward is less accurate than BP (FAUST 2025, abstract: “the Forward-Forward algorithm "
                "significantly trails backpropagation in accuracy”)",
                "withdrawn: its study ran with initial weights that were replaced since, because they were wrong",
            ),
        ),
    ),
    Seed(
        "Local losses by the number of components",
        "Ma et al. 2024 (ICLR, arXiv 2402.17318).",
        ("Ma et al. 2024",),
        (
            (
                "On CIFAR-10, ResNet-110 cut at every block reaches 93.96 % by AugLocal and 74.95 % by predsim",
                "needs GPUs: `specs/studies/methods_over_cuts.yaml`, with ResNet-32",
            ),
        ),
    ),
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
        yield from (Finding(verdict, study.study, None) for verdict in study.verdicts)
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


def pages(found: Sequence[Finding]) -> dict[Path, str]:
    """The texts of both pages."""
    published = [each for each in found if each.verdict.source is not None]
    own = [each for each in found if each.verdict.source is None]
    return {PAGE: page(published), OWN_PAGE: own_page(own)}


def page(found: Sequence[Finding]) -> str:
    """The text of the page about claims of publications."""
    quoted = sum(each.verdict.quote is not None for each in found)
    introduction = INTRODUCTION.format(quoted=f"{quoted} of {len(found)} claims")
    parts = [introduction, _counts(found)]
    numbers: dict[str | None, int] = {}
    for seed in SEEDS:
        of_seed = [each for each in found if _seed_of(each.verdict) is seed]
        rows, notes = [], {}
        for each in of_seed:
            note = f"[{numbers.setdefault(each.verdict.claimed_by, 1 + len(numbers))}]"
            notes[note] = each.verdict.claimed_by or ""
            rows.append((each.verdict.claim, f"{each.verdict.source} {note}", *_row(each)))
        rows += [(claim, "", "", "", "no study here", why) for claim, why in seed.open]
        parts += [f"## {seed.title}", _lines(seed.about), _table(("claim", "claimed by", *_HEAD), rows)]
        parts += ["\n".join(_item(f"{note} {text}") for note, text in notes.items())]
        parts += [*_ranked(seed, of_seed), *_doubts(of_seed)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def own_page(found: Sequence[Finding]) -> str:
    """The text of the page about claims of this project."""
    rows = [
        (each.verdict.claim, each.verdict.since or "", each.first_ran, ", ".join(each.ran), *_row(each))
        for each in found
    ]
    parts = [OWN_INTRODUCTION.format(bounds=_bounds(found)), _counts(found)]
    parts += [_table(("claim", "bound set on", "first ran on", "ran on", *_HEAD), rows), *_doubts(found)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _ranked(seed: Seed, found: Sequence[Finding]) -> list[str]:
    """Whether two ratios have the order that the publication says; nothing where one of them was not measured."""
    if seed.ranks is None:
        return []
    says, *claims = seed.ranks
    answers = [each.answer for claim in claims for each in found if each.verdict.claim == claim]
    if not all(answer is not None and len(answer.compared) == 1 for answer in answers) or len(answers) < 2:
        return []
    lower, higher = (answer.compared[0] for answer in answers if answer is not None)
    if lower.low <= higher.high and higher.low <= lower.high:
        order = "the intervals overlap, so their order is not decided"
    else:
        order = "in this order" if lower.value < higher.value else "the other way round"
    ratios = " and ".join(_estimate(each, " times") for each in (lower, higher))
    return [_lines(f"{says} Here the ratios are {ratios}: {order}.")]


def _bounds(found: Sequence[Finding]) -> str:
    """How many bounds are not older than the first run of their study, and how many decided claims these are."""
    known = [each for each in found if each.verdict.since and each.first_ran]
    later = [each for each in known if (each.verdict.since or "") > each.first_ran]
    same = sum(each.verdict.since == each.first_ran for each in known)
    decided, decided_later = (sum(each.says in ("holds", "does not hold") for each in of) for of in (known, later))
    return (
        f"Of {len(known)} bounds whose study ran, {len(later)} are later than that day, and {same} of the same day.\n"
        f"Of the {decided} of these claims that are decided here, {decided_later} have a later bound."
    )


def _counts(found: Sequence[Finding]) -> str:
    counts = Counter(each.says for each in found)
    told = ", ".join(f"{says}: {count}" for says, count in sorted(counts.items()))
    return _lines(f"{len(found)} claims; {told}.")


def _doubts(found: Sequence[Finding]) -> list[str]:
    claims: dict[str, list[str]] = {}
    for each in found:
        for doubt in each.doubts:
            claims.setdefault(_AXIS.sub("", doubt), []).append(each.verdict.claim)
    lines = [_item(f"{doubt}. This is about: {'; '.join(of)}.") for doubt, of in claims.items()]
    return ["What makes these verdicts doubtful:", "\n".join(lines)] if lines else []


def _seed_of(verdict: Verdict) -> Seed:
    """The seed that a claim belongs to. Raises ValueError for a source that none has."""
    for seed in SEEDS:
        if (verdict.source or "").startswith(seed.sources):
            return seed
    raise ValueError(f"no seed has the source `{verdict.source}` of the claim `{verdict.claim}`")


def _item(text: str) -> str:
    """An item of a list."""
    return _lines(f"- {text}", indent="  ")


def _lines(text: str, indent: str = "") -> str:
    """A text in lines of the width of a page."""
    return fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


_DAY = re.compile(r"; (\d{4}-\d\d-\d\d)\b")
"""The day on which the first trial of a machine and version began, as a report says it."""
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
    return estimate, answer.units, says, where


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
    for path, text in pages(found).items():
        path.write_text(text, encoding="utf-8")
    first = first_runs(REPORTS) | {each.study: each.first_ran for each in found if each.first_ran}
    (REPORTS / FIRST_RUNS).write_text(json.dumps(first, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
