"""A stranger's folder runs no code and leads alray nowhere else: recorded origins, planted links, bytecode."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import cache_from_source
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alray.cli.main import execute
from alray.cli.terminal import INTERRUPTED
from alray.runner.provenance import _WITH_PASSWORD
from alray.studies import study as study_module
from alray.studies.folder import StudyFolder

from .told import in_lines

BLOCK = """\
from pathlib import Path
import torch
Path(__file__).with_name("ran").touch()
class Block(torch.nn.Module):
    def __init__(self, input):
        super().__init__()
        self.linear = torch.nn.Linear(input.sizes[0] if hasattr(input, "sizes") else 16, 4)
    def forward(self, s, mask=None):
        return self.linear(s.flatten(1))
"""
SPEC = """\
name: own
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 40, batch_size: 10, validation_fraction: 0.2}
model: {components: [{block: "python:mine.Block"}]}
method: {kind: associated_learning, label_dim: 4}
run: {epochs: 1}
"""


@pytest.fixture
def alray(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command in a folder with a run of code that lies in `proj`: gives its exit code and its standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = execute(list(arguments))
        return code, in_lines(capsys.readouterr().err)

    Path("proj").mkdir()
    Path("proj/mine.py").write_text(BLOCK, encoding="utf-8")
    Path("proj/spec.yaml").write_text(SPEC, encoding="utf-8")
    assert run("run", "proj/spec.yaml", "--inline", "--output", "ours")[0] == 0
    return run


def forget_ran() -> None:
    for mark in Path().rglob("ran"):
        mark.unlink()


def test_code_runs_without_asking_only_where_this_user_ran_it(alray: Callable[..., Any], tmp_path: Path) -> None:
    record = json.loads(Path("ours/code.json").read_text(encoding="utf-8"))
    assert record["root"] == str(tmp_path / "proj") and list(record["files"]) == ["mine.py"]
    shutil.copytree("ours", "moved")
    for command in (
        ["evaluate", "moved"],
        ["resume", "moved", "--inline"],
        ["reproduce", "moved", "--output", "again"],
    ):
        assert alray(*command)[0] == 0, command
    assert json.loads(Path("again/code.json").read_text(encoding="utf-8")) == record, "where it came from at first"
    # The same files with a record that no run here wrote: another user, or both came in one archive.
    shutil.copytree("proj", "theirs")
    shutil.copytree("ours", "stranger")
    Path("stranger/code.json").write_text(json.dumps(record | {"root": str(tmp_path / "theirs")}), encoding="utf-8")
    shutil.copytree("stranger", "unrecorded")
    Path("unrecorded/code.json").unlink()
    # A file more, a file that is a link, a file that was changed, in a folder with the record of a run here.
    for name in ("more", "linked", "changed"):
        shutil.copytree("ours", name)
    Path("more/code/torchvision_extra.py").write_text("", encoding="utf-8")
    Path("linked/code/mine.py").unlink()
    Path("linked/code/mine.py").symlink_to(tmp_path / "proj" / "mine.py")
    Path("changed/code/mine.py").write_text(BLOCK + "# and more\n", encoding="utf-8")
    named = {"more": "torchvision_extra.py (changed", "linked": "mine.py (ch", "changed": "mine.py (changed in the run"}
    forget_ran()
    for folder in ("stranger", "unrecorded", "more", "linked", "changed"):
        for command in ("evaluate", "export --format=torch_export", "predict", "resume --inline", "reproduce"):
            verb, *options = command.split()
            code, said = alray(verb, folder, *(["proj/spec.yaml"] if verb == "predict" else []), *options)
            linked = folder == "linked" and "nothing is written through symbolic links: linked/code/mine.py ->" in said
            asked = "--allow-code" in said and named.get(folder, ": mine.py;") in said
            assert code == 2 and (linked or asked), (command, said)
    assert not list(Path().rglob("ran"))
    assert not list(Path("runs").glob("*")) if Path("runs").exists() else True
    assert alray("evaluate", "changed", "--allow-code")[0] == 0
    assert Path("changed/code/ran").exists()
    # What the user changes is asked for, too.
    Path("proj/mine.py").write_text(BLOCK + "# later\n", encoding="utf-8")
    code, said = alray("evaluate", "ours")
    assert code == 2 and f"mine.py (changed or missing in {tmp_path / 'proj'})" in said


def test_code_that_is_allowed_is_what_its_text_says(alray: Callable[..., Any]) -> None:
    """Bytecode that names no time of its source would run whatever the text beside it says."""
    shutil.copytree("ours", "theirs")
    Path("theirs/code.json").unlink()
    evil = Path("evil.py")
    evil.write_text(BLOCK + "Path('evil ran').touch()\n", encoding="utf-8")
    cached = cache_from_source("theirs/code/mine.py")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(evil), cfile=cached, doraise=True, invalidation_mode=mode)
    for folder in ("ours", "theirs"):
        assert alray("evaluate", folder, "--allow-code")[0] == 0
    assert Path("theirs/code/ran").exists() and not Path("evil ran").exists()
    assert alray("export", "ours", "--format", "safetensors", "--output", "sent/route.safetensors")[0] == 0
    shutil.copy("proj/mine.py", "sent")
    forget_ran()
    code, said = alray("predict", "sent/route.safetensors", "proj/spec.yaml")
    assert code == 2 and "sent/mine.py; read these files; if they may run, pass --allow-code" in said
    assert not list(Path().rglob("ran"))


@pytest.mark.parametrize(
    "planted", [".lock", "checkpoints", "figures", "tensorboard", "logs", "export", "summary.json"]
)
def test_a_planted_link_leads_nowhere(alray: Callable[..., Any], planted: str) -> None:
    target = Path("home")
    if "." in planted:
        target.write_text("precious", encoding="utf-8")
    elif Path("ours", planted).is_dir():
        shutil.copytree(Path("ours", planted), target)
    else:
        target.mkdir()
        (target / "x.svg").write_text("precious", encoding="utf-8")
    link = Path("ours", planted)
    shutil.rmtree(link) if link.is_dir() else link.unlink(missing_ok=True)
    link.symlink_to(target.resolve())

    def held() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in [target, *target.rglob("*")] if path.is_file()}

    before = held()
    for command in ("resume ours run.epochs=2 --inline", "report ours", "export ours --format safetensors"):
        code, said = alray(*command.split())
        assert code == 2 and f"nothing is written through symbolic links: ours/{planted} -> " in said, said
    assert held() == before and link.is_symlink()


STUDY = """\
study: widths
base: proj/spec.yaml
axes: {optimizer.lr: [0.01, 0.02]}
"""


TUNERS = """\
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from pathlib import Path
Path(__file__).with_name("ran").touch()
class Mine(FIFOScheduler):
    pass
class Search(Searcher):
    pass
"""
TUNED = """\
search: {kind: "python:tuners.Search", trials: 2, space: {optimizer.lr: {uniform: [0.01, 0.02]}}}
trial_scheduler: {kind: "python:tuners.Mine"}
"""
TUNED_STUDY = STUDY.partition("axes")[0] + TUNED


@pytest.mark.parametrize("tuned", [False, True], ids=["blocks", "tuners"])
def test_a_study_goes_on_with_the_code_it_began_with(
    alray: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuned: bool
) -> None:
    Path("study.yaml").write_text(TUNED_STUDY if tuned else STUDY, encoding="utf-8")
    code_file = "tuners.py" if tuned else "mine.py"
    Path("proj/tuners.py").write_text(TUNERS, encoding="utf-8")
    began: list[Path] = []

    def no_trials(loaded: Any, specs: Any, folder: StudyFolder, *others: Any) -> None:
        began.append(folder.path)

    monkeypatch.setattr(study_module, "connect", lambda address, bundle: nullcontext(SimpleNamespace(warnings=[])))
    monkeypatch.setattr(study_module, "has_room", lambda *asked: True)
    monkeypatch.setattr(study_module, "_require_shared", lambda *asked: None)
    monkeypatch.setattr(study_module, "_run_trials", no_trials)
    assert alray("study", "study.yaml", "--output", "begun")[0] == INTERRUPTED
    assert alray("study", "--resume", "begun")[0] == INTERRUPTED and len(began) == 2
    # A stranger's folder that names a spec with code on this machine: the user's own, or one that came along.
    shutil.copytree("begun", "theirs")
    Path("theirs/study.yaml").write_text(Path("begun/study.yaml").read_text() + "# other\n", encoding="utf-8")
    Path("proj", code_file).write_text((TUNERS if tuned else BLOCK) + "# later\n", encoding="utf-8")
    Path("proj/ran").unlink(missing_ok=True)
    for folder in ("theirs", "begun"):
        code, said = alray("study", "--resume", folder)
        assert code == 2 and f"{folder}: --allow-code: code that this study has not run here" in said
        assert str(tmp_path / "proj" / code_file) in said and "; read these files" in said
    assert len(began) == 2 and not Path("proj/ran").exists()
    assert alray("study", "--resume", "begun", "--allow-code")[0] == INTERRUPTED and len(began) == 3
    Path("begun/trials").rename("elsewhere")
    Path("begun/trials").symlink_to(tmp_path / "elsewhere")
    code, said = alray("study", "--resume", "begun", "--allow-code")
    assert code == 2 and "nothing is written through symbolic links: begun/trials ->" in said


def test_a_strangers_repository_runs_no_program(alray: Callable[..., Any], tmp_path: Path) -> None:
    """git runs what the configuration of a repository names to find out which files were changed."""

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd="ours", check=True)

    git("init", "--quiet")
    git("add", "spec.yaml")
    git("commit", "--quiet", "--message", "a run")
    environment = Path("ours/environment.json")
    for key, program in (("core.fsmonitor", "touch"), ("filter.evil.clean", "tee")):
        git("config", key, f"{program} {tmp_path / 'evil ran'}".replace("evil ran", "evil_ran"))
        Path("ours/.git/info/attributes").write_text("* filter=evil\n", encoding="utf-8")
        os.utime("ours/spec.yaml", (1, 1))
        told = alray("resume", "ours", f"run.epochs={3 if program == 'tee' else 2}", "--inline", "--allow-change")
        assert told[0] == 0 and not Path("evil_ran").exists()
        assert environment.is_file()
    git("status", "--porcelain", "--untracked-files=no")
    assert Path("evil_ran").exists(), "the programs would have run"
    words = ["alray", "run", "x", "--address", "https://me:secret@head:1/a@b", "s3://bucket/a"]
    assert [_WITH_PASSWORD.sub("://", word) for word in words][4:] == ["https://head:1/a@b", words[5]]
