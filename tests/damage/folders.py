"""Damages files of a run folder and of a study folder, and opens the folder with each command, in this process.

    python -m tests.damage.folders SEED CASES FOLDER

FOLDER is empty. The last line printed is a JSON list of all that is wrong.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random

import torch

from alray.config.study.load import load_study
from alray.core.run_folder.records import Summary
from alray.studies.folder import StudyFolder
from alray.studies.records import TrialRecord
from tests.damage.mutations import as_json, mutate_bytes, mutate_json, mutate_lines, mutate_value, mutate_yaml
from tests.damage.specs import said_by
from tests.damage.watching import watched

SPEC = """\
name: tiny
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 100, batch_size: 10}
model:
  components:
    - {block: vgg, channels: [2]}
    - {block: vgg, channels: [2]}
method: {kind: associated_learning, label_dim: 4}
optimizer: {kind: adam, lr: 1.0e-3}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
run: {steps: 8, checkpoint: {every: 4 steps, keep: 2}, evaluate_every: 4 steps}
"""
STUDY = """\
study: pair
base: tiny.yaml
axes: {optimizer.lr: [1.0e-3, 2.0e-3]}
"""
TRACKERS = {"mlflow": "0123456789abcdef"}


class Touches:
    """Unpickled, it makes a file: code was run."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._file,)


def make(folder: Path) -> None:
    """Write a run, its exported route, a second run and a study of two trials into the folder."""
    (folder / "tiny.yaml").write_text(SPEC)
    (folder / "pair.yaml").write_text(STUDY)
    run = folder / "run"
    _succeed("run", str(folder / "tiny.yaml"), "--inline", "--output", str(run))
    _succeed("export", str(run), "--format", "safetensors", "--output", str(folder / "route.safetensors"))
    (run / "trackers.json").write_bytes(as_json(TRACKERS))
    shutil.copytree(run, folder / "other")
    shutil.copytree(run, folder / "killed")
    (folder / "killed" / "summary.json").unlink()
    loaded = load_study(folder / "pair.yaml")
    study = StudyFolder.make(loaded, folder / "study")
    summary = Summary.model_validate_json((run / "summary.json").read_text())
    for trial in loaded.trials:
        shutil.copytree(run, study.trial_dir(trial.number))
        study.write(
            TrialRecord(
                number=trial.number,
                point=dict(trial.point.values),
                index=trial.index,
                values=dict(trial.values),
                seed=trial.seed,
                overrides=list(trial.overrides),
                status="finished",
                summary=summary,
            )
        )


def _succeed(*arguments: str) -> None:
    code, _, err = said_by(*arguments)
    assert code == 0, err


def damage(random: Random, file: Path) -> str:
    """Damage a file by its kind; return how."""
    content = file.read_bytes()
    if random.random() < 0.04:
        file.unlink()
        return "removed"
    if file.suffix == ".json":
        file.write_bytes(mutate_json(random, content))
    elif file.suffix == ".jsonl":
        file.write_bytes(mutate_lines(random, content))
    elif file.suffix == ".yaml":
        file.write_bytes(mutate_yaml(random, content.decode()))
    elif file.suffix == ".safetensors" and random.random() < 0.7:
        file.write_bytes(_header_damaged(random, content))
    elif file.suffix == ".pt" and random.random() < 0.5:
        file.write_bytes(_state_damaged(random, file))
    else:
        file.write_bytes(mutate_bytes(random, content))
    return "damaged"


def _header_damaged(random: Random, content: bytes) -> bytes:
    """A safetensors file whose header is another one; the tensors stay."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if "alray" in header["__metadata__"] and random.random() < 0.7:
        inner = mutate_value(random, json.loads(header["__metadata__"]["alray"]))
        header["__metadata__"]["alray"] = as_json(inner).decode()
    else:
        header = mutate_value(random, header)
    text = as_json(header)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def _state_damaged(random: Random, file: Path) -> bytes:
    """The state of optimizers as other values, or as something that runs code when it is loaded."""
    if random.random() < 0.3:
        return pickle.dumps(Touches(file.with_name("PLANTED")))
    state = torch.load(file, weights_only=True)
    wrong = (
        {},
        [],
        3,
        dict.fromkeys(state, 3),
        {name: {} for name in state},
        {name: {**value, "state": {0: {}}} for name, value in state.items()},
        {name: {**value, "param_groups": []} for name, value in state.items()},
        {name: dict.fromkeys(value, 0) for name, value in state.items()},
        {name: {**value, "state": {n: {"exp_avg": torch.zeros(2)} for n in range(2)}} for name, value in state.items()},
    )
    torch.save(random.choice(wrong), file)
    return file.read_bytes()


def _rehashed(folder: Path) -> None:
    """Give each manifest the hashes that the files of its checkpoint have now: whoever plants a file can do so."""
    for manifest in folder.glob("checkpoints/*/manifest.json"):
        value = json.loads(manifest.read_text())
        for entry in value["files"]:
            file = manifest.parent / entry["file"]
            entry["sha256"] = sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
        manifest.write_bytes(as_json(value))


def _answered(arguments: Sequence[str]) -> str | None:
    """What is wrong with the answer of a command."""
    code, _, err = said_by(*arguments)
    if code == 0 or (code in (1, 2) and ("error: " in err)):
        return None
    return f"exit code {code}: {err[:500]}"


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "report": lambda run: ["report", str(run)],
    "list": lambda run: ["list", str(run.parent)],
    "evaluate": lambda run: ["evaluate", str(run)],
    "evaluate best": lambda run: ["evaluate", str(run), "--best"],
    "predict": lambda run: ["predict", str(run), str(run / "nowhere.png")],
    "export": lambda run: ["export", str(run), "--format", "safetensors", "--output", str(run / "out.safetensors")],
    "compare": lambda run: ["compare", str(run), str(run.parent.parent / "made" / "other"), "--output", str(run / "c")],
    "resume": lambda run: ["resume", str(run), "--inline", "--allow-change"],
    "go on": lambda run: ["resume", str(run), "run.steps=9", "--inline", "--allow-change"],
    "resume strictly": lambda run: ["resume", str(run), "--inline"],
}
OF_A_STUDY: dict[str, Callable[[Path], list[str]]] = {
    "report": lambda study: ["report", str(study)],
    "list": lambda study: ["list", str(study)],
    "list around": lambda study: ["list", str(study.parent)],
    "resume": lambda study: ["study", "--resume", str(study)],
}
READ = (".json", ".jsonl", ".yaml", ".safetensors", ".pt")


def main(seed: int, cases: int, folder: Path) -> list[str]:
    made, case = folder / "made", folder / "case"
    made.mkdir(parents=True)
    make(made)
    # Loading the libraries that draw figures takes longer than most cases. It is done before the first case is timed.
    shutil.copytree(made / "study", case)
    wrong = [said] if (said := _answered(["report", str(case)])) else []
    for number in range(cases):
        random = Random(f"{seed} {number}")
        shutil.rmtree(case, ignore_errors=True)
        title = f"case {number} of seed {seed}"
        kind = random.choice(("run", "run", "run", "killed", "study", "route"))
        if kind == "route":
            case.mkdir()
            route = case / "route.safetensors"
            shutil.copy(made / "route.safetensors", route)
            damage(random, route)
            commands = {"predict": ["predict", str(route), str(case / "nowhere.png")]}
        elif kind == "study":
            study = case / "study"
            shutil.copytree(made / "study", study)
            files = [*study.glob("*.*"), *study.glob("trials/0000/*.*")]
            file = random.choice([file for file in files if file.suffix in (".json", ".jsonl", ".yaml")])
            title += f", {file.relative_to(case)} {damage(random, file)}"
            commands = {name: make_command(study) for name, make_command in OF_A_STUDY.items()}
            if (study / "trials" / "0000").is_dir() and not (study / "trials" / "0000" / "trial.json").is_file():
                del commands["resume"]  # it would start Ray
        else:
            run = case / "run"
            shutil.copytree(made / kind, run)
            files = sorted(each for each in run.rglob("*") if each.suffix in READ)
            file = random.choice(files)
            title += f", {kind}, {file.relative_to(run)} {damage(random, file)}"
            if file.suffix in (".safetensors", ".pt") and random.random() < 0.7:
                _rehashed(run)
            commands = {name: COMMANDS[name](run) for name in random.sample(list(COMMANDS), 4)}
        for name, arguments in commands.items():
            found = watched(f"{title}, {name}", partial(_answered, arguments))
            if found:
                keep = folder / f"kept-{number}"
                if not keep.exists():
                    shutil.copytree(case, keep)
            wrong += found
    wrong += [f"code was run: {each}" for each in folder.rglob("PLANTED")]
    return wrong


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
