"""Plays the inputs through this tree's alray and writes all answers as JSON: `python -m tests.replay.play FILE`.

An answer is a text. Its name says which input it is of and what was asked: `specs/quickstart.yaml: plan`. What differs
from one run of the same commit to the next (times, dates, folders) is left out of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from typer.main import get_command

from alray import load_run
from alray.config.loading.load import load_spec
from alray.studies.figures import exhibits_of, warnings_of
from alray.studies.table import table_of
from alray.studies.verdicts import answers_of
from benchmarks.committed import Report, report_of
from benchmarks.findings_page import KEPT, REPORTS
from tests.config.bad_specs import BAD_SPECS
from tests.counting import counting_once
from tests.damage import folders
from tests.damage.specs import said_by
from tests.data.bad_data import BAD_DATA
from tests.engine import ledger
from tests.stand_ins import Overrides, find_stand_ins, overrides_on_stand_in, write_stand_ins
from tests.test_specs import ROOT, SPECS, STUDIES

INPUTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("inputs.yaml").read_text(encoding="utf-8"))
Answers = dict[str, str]

STEPS = 3
_MEASURED = {
    *("duration_s", "time_s", "times_s", "date", "samples_per_s", "step_time_s", "step_time_quartiles_s", "bubble"),
    *("peak_memory_bytes", "s_per_sample", "time_per_sample_s", "data_s", "training_s", "trials_s", "bytes", "doubts"),
    *("version", "threads", "device"),
}
"""Keys of measurements, and of what names the machine."""
_NUMBERS = re.compile(r"\d[\d,]*(\.\d+)?(e-?\d+)?( ?(s|ms|us|µs|h|min|kB|MB|GB|B/s|samples/s|processors)\b)")
_PROGRESS = re.compile(
    r"^(\s*[\d.]+ s: .*| *epoch .*, mini-batch .*|.* (examples|files)/s\]\s*|.*other programs .*|run folder .*)\n",
    re.MULTILINE,
)

_EVENTS = re.compile(r"(?<=events\.out)\S+")
"""What TensorBoard adds to the names of its files: time, machine and process."""


class Player:
    """Asks this tree's alray, and keeps its answers.

    Attributes:
        folder: a new one, which becomes `<folder>` in answers.
    """

    def __init__(self, folder: Path, only: re.Pattern[str]) -> None:
        self.folder = folder
        self._only = only
        self.answers: Answers = {}

    def play(self, name: str, ask: Callable[[Path], Iterable[tuple[str, str]]]) -> None:
        """Ask all about one input, in a folder of its own. An exception is an answer too. Prints the seconds of a
        processor that it took."""
        if not self._only.search(name):
            return
        begun = time.process_time()
        here = self.folder / "input"
        here.mkdir()
        before = Path.cwd()
        os.chdir(here)
        try:
            for question, answer in ask(here):
                self.answers[f"{name}: {question}"] = self._told(answer)
        except Exception as error:  # noqa: BLE001  # a fault of either side is a difference like any other
            self.answers[f"{name}: fault"] = self._told(f"{type(error).__name__}: {error}")
        finally:
            os.chdir(before)
            shutil.rmtree(here)
            sys.stderr.write(f"{time.process_time() - begun:6.1f} s  {name}\n")

    def _told(self, answer: str) -> str:
        return answer.replace(str(self.folder), "<folder>").replace(str(ROOT), "<tree>")


def said(*arguments: str | Path, timed: bool = False) -> str:
    """What one command line says: its exit code, standard output and standard error.

    Args:
        timed: whether it says how long things took, which is left out.
    """
    code, out, err = said_by(*map(str, arguments))
    if out.startswith("{"):
        out = as_text(json.loads(out)) + "\n"
    out, err = _PROGRESS.sub("", out), _PROGRESS.sub("", err)
    if timed:
        out, err = out if out.startswith("{") else _NUMBERS.sub("#", out), _NUMBERS.sub("#", err)
    return f"exit code {code}\n{out}{err}"


def as_text(value: Any) -> str:
    """JSON without measurements, its numbers rounded: processors of other kinds differ in the last digits."""
    return json.dumps(_lasting(value), sort_keys=True, indent=1)


def _lasting(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lasting(each) for key, each in value.items() if key not in _MEASURED}
    if isinstance(value, list | tuple):
        return [_lasting(each) for each in value if not (isinstance(each, str) and "other programs took" in each)]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def costs_of(count: int) -> str:
    """Given costs of so many components, no two neighbours alike."""
    entries = [
        f"{{forward_s: {1 + index % 3}e-3, backward_s: {2 + index % 2}e-3, update_s: 1e-4}}" for index in range(count)
    ]
    return f"pipeline.costs=[{', '.join(entries)}]"


def ask_spec(
    folder: Path,
    *,
    file: Path,
    overrides: list[str],
    small: list[str],
    runs: bool,
    counts: bool = True,
    resumes: bool = False,
) -> Iterator[tuple[str, str]]:
    """Of a spec: how it is spelled out, its plan, its run of three mini-batches, and a run that ends and resumes.

    Args:
        counts: whether the plan counts its memory, which takes longer than all else; else it is a guess.
    """
    yield "spec", said("validate", "--show", file, *overrides)
    with counting_once(rough=not counts):
        yield "plan", said("plan", file, *overrides, "--json")
    if not runs:
        return
    here = [*overrides, *small]
    steps = f"run.steps={STEPS}"
    with counting_once():
        yield "run", said("run", file, *here, steps, "--inline", "--json", "--output", folder / "run", timed=True)
        yield from ask_run(folder / "run")
        if resumes:
            yield from ask_resumed(folder, file, here)


def ask_committed(folder: Path, *, name: str, stand_ins: Mapping[str, Overrides]) -> Iterator[tuple[str, str]]:
    """Of a spec of this tree, with its data's stand-in and with given costs."""
    file = ROOT / name
    overrides = overrides_on_stand_in(file, stand_ins, *INPUTS["overrides"].get(name, ()))
    overrides.append(costs_of(load_spec(file, overrides).spec.model.num_components or 1))
    yield from ask_spec(
        folder,
        file=file,
        overrides=overrides,
        small=INPUTS["small"],
        runs=name not in INPUTS["planned"],
        counts=name in INPUTS["soonest"]["specs"],
    )


def ask_run(run: Path) -> Iterator[tuple[str, str]]:
    """Of a run folder: its weights, each stage's actions, its records and its plan."""
    if not (run / "summary.json").is_file():
        return
    summary = json.loads((run / "summary.json").read_text())
    yield "weights", summary["weights_sha256"]
    plan = load_run(run).plan
    yield "actions", as_text([" ".join(map(str, plan.actions(stage))) for stage in range(plan.stages)])
    kinds: dict[str, set[str]] = {}
    trained: dict[str, list[float]] = {}
    for line in (run / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        kinds.setdefault(record["kind"], set()).update(record)
        if record["kind"] == "steps":
            for component, losses in record["losses"].items():
                for name, values in losses.items():
                    trained.setdefault(f"{component} {name}", []).extend(values)
    yield "records", as_text({"kinds": {kind: sorted(keys) for kind, keys in kinds.items()}, "losses": trained})
    yield "plan of the run", as_text(plan.as_json())
    yield "files", "\n".join(sorted(_EVENTS.sub("", str(file.relative_to(run))) for file in run.rglob("*")))


def ask_resumed(folder: Path, file: Path, here: list[str]) -> Iterator[tuple[str, str]]:
    """Of a run that is one mini-batch shorter, and goes on with another number of stages."""
    run = folder / "stopped"
    plan = json.loads((folder / "run" / "plan.json").read_text())
    stages, steps = plan["stages"], plan["total_steps"] - 1
    others = ["pipeline.stages=1" if stages > 1 else "pipeline.stages=2", "pipeline.partition=auto"]
    stopped = said("run", file, *here, f"run.steps={steps}", "--inline", "--output", run, timed=True)
    if not stopped.startswith("exit code 0"):
        yield "run before a resume", stopped
        return
    yield "resume", said("resume", run, f"run.steps={steps + 1}", *others, "--inline", "--json", timed=True)
    summary = run / "summary.json"
    if summary.is_file():
        yield "weights after a resume", json.loads(summary.read_text())["weights_sha256"]


def ask_ledger(folder: Path, *, spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    ledger.write_files(folder)
    file = folder / "spec.yaml"
    file.write_text(yaml.safe_dump(spec))
    yield from ask_spec(folder, file=file, overrides=[], small=[], runs=True, resumes=True)
    if (folder / "run" / "summary.json").is_file():
        yield from ask_exports(folder / "run", folder, "state_dict" if "from" in spec["model"] else "safetensors")


def ask_exports(run: Path, folder: Path, form: str) -> Iterator[tuple[str, str]]:
    """Of what a run exports: what plain torch reads."""
    file = folder / f"exported.{form}"
    yield f"export {form}", said("export", run, "--format", form, "--output", file, timed=True)
    if file.is_file():
        tensors = load_file(file) if form == "safetensors" else torch.load(file, weights_only=True)
        yield f"{form} read by torch", "\n".join(f"{name} {digest(each)}" for name, each in sorted(tensors.items()))


def digest(tensor: torch.Tensor) -> str:
    """Type, shape and values of a tensor."""
    content = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype} {list(tensor.shape)} {sha256(content).hexdigest()[:12]}"


def ask_study(folder: Path, *, name: str) -> Iterator[tuple[str, str]]:
    yield "spec", said("validate", "--show", ROOT / name)
    yield "dry run", said("study", ROOT / name, "--dry-run", "--json")


def ask_report(folder: Path, *, name: str) -> Iterator[tuple[str, str]]:
    """Of a committed report: all rows of its figures and tables, its verdicts and its warnings, from its trials."""
    report: Report = report_of(name)
    results = report.results
    exhibits = exhibits_of(results)
    yield "verdicts", as_text([answer.model_dump(mode="json") for answer in answers_of(results)])
    yield "warnings", as_text(warnings_of(results))
    times_only = results.study.measures == "times"
    study = results.study
    table = table_of(results.rows, target=study.target is not None, times_only=times_only)
    yield "points", as_text([table.head, table.rows])
    for exhibit in exhibits:
        yield f"{exhibit.title}, words", "\n".join([*exhibit.findings, exhibit.note])
        for figure in exhibit.figures:
            yield f"{exhibit.title}, figure {figure.name}", _rounded(figure.csv)
        for title, each in exhibit.tables.items():
            yield f"{exhibit.title}, table {title}", as_text([each.head, each.rows])


def _rounded(csv: str) -> str:
    return re.sub(r"\d+\.\d{9,}(e-?\d+)?", lambda found: f"{float(found[0]):.9g}", csv)


def ask_folders(folder: Path) -> Iterator[tuple[str, str]]:
    """Of runs and a study that are there: what each command says that reads them."""
    folders.make(folder)
    run, other, study = folder / "run", folder / "other", folder / "study"
    for question, *arguments in (
        ("list", "list", folder, "--json"),
        ("compare", "compare", run, other, "--json"),
        ("report of a run", "report", run, "--json"),
        ("report of a study", "report", study, "--json"),
        ("table of a study", "report", study),
        ("evaluate", "evaluate", run, "--json"),
        ("evaluate each depth", "evaluate", run, "--json"),
        ("resume of a finished run", "resume", run, "--inline", "--json"),
        ("resume with another method", "resume", run, "run.steps=9", "method=backpropagation", "--inline"),
        ("methods", "methods", "--json"),
        ("schema", "schema"),
        ("schema of records", "schema", "--records"),
        ("comparison of plans", "plan", folder / "tiny.yaml", "--compare", "--json"),
        ("plan elsewhere", "plan", folder / "tiny.yaml", "pipeline.costs=null", "--on", "2xa100", "--json"),
    ):
        yield question, said(*arguments, timed=True)
    yield from ask_exports(run, folder, "safetensors")
    said("export", run, "--format", "torch_export", "--output", folder / "route.pt2")
    if (folder / "route.pt2").is_file():
        samples = torch.linspace(-1, 1, 32).reshape(2, 1, 4, 4)
        scores = torch.export.load(folder / "route.pt2").module()(samples)
        yield "torch_export read by torch", as_text(scores.tolist())


def ask_bad_specs(folder: Path) -> Iterator[tuple[str, str]]:
    for number, case in enumerate(BAD_SPECS):
        (folder / "x.yaml").write_text(case.text)
        yield f"{number} {case.change[:80]}", said("validate", "x.yaml", *case.overrides)


def ask_bad_data(folder: Path) -> Iterator[tuple[str, str]]:
    for number, case in enumerate(BAD_DATA):
        here = folder / str(number)
        rest = "model: {components: [{block: linear, width: 2}]}\nrun: {steps: 1}\n"
        text = f"name: a\ndata: {{{case.data}}}\n{rest}"
        for name, content in {"x.yaml": text, **case.files}.items():
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_bytes(content.encode() if isinstance(content, str) else content)
        yield f"{number} {case.place} {case.data[:60]}", said("validate", "--deep", here / "x.yaml", timed=True)


def chosen(part: str, all_of_them: Iterable[str], soonest: bool) -> list[str]:
    return [each for each in all_of_them if not soonest or each in INPUTS["soonest"][part]]


def play(*, soonest: bool, only: str = "") -> Player:
    """Play everything, or what `make test` plays.

    Args:
        only: a pattern of the inputs' names; others are left out.
    """
    with TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patches:
        player = Player(Path(made).resolve(), re.compile(only))
        stand_ins = write_stand_ins(player.folder / "stand-ins")
        find_stand_ins(player.folder / "stand-ins", patches)
        patches.setattr(os, "fsync", lambda descriptor: None)  # nobody cuts the power
        patches.setattr("typer.main.get_command", cache(get_command))  # the same for each command line
        gc.freeze()  # alray searches for garbage before it measures memory, which would take a second each time
        player.play("bad specs", ask_bad_specs)
        player.play("bad data", ask_bad_data)
        for name in chosen("specs", SPECS, soonest):
            player.play(name, partial(ask_committed, name=name, stand_ins=stand_ins))
        for name, spec in ledger.specs().items():
            if name in chosen("ledger", [name], soonest):
                player.play(f"ledger {name}", partial(ask_ledger, spec=spec))
        player.play("folders", ask_folders)
        for name in STUDIES if not soonest else ():
            player.play(name, partial(ask_study, name=name))
        names = {file.parent.name for file in REPORTS.glob(f"*/{KEPT}")}
        for name in chosen("reports", sorted(names - {*INPUTS["left_out"]}), soonest):
            player.play(f"report {name}", partial(ask_report, name=name))
    return player


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.replay.play")
    parser.add_argument("file", type=Path, help="where the answers go")
    parser.add_argument("--soonest", action="store_true", help="what `make test` plays")
    parser.add_argument("--only", default="", metavar="PATTERN", help="inputs whose names have this regular expression")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"  # a bar says files a second
    player = play(soonest=arguments.soonest, only=arguments.only)
    arguments.file.write_text(json.dumps(player.answers, indent=1))


if __name__ == "__main__":
    main()
