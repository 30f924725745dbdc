"""A stranger's folder runs no code and leads alray nowhere else: recorded origins, planted links, bytecode."""

from __future__ import annotations

import json
import marshal
import multiprocessing
import os
import pickle
import py_compile
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alray.cli.main import execute
from alray.cli.terminal import INTERRUPTED
from alray.config.known_code import sha256
from alray.core.errors import SpecError
from alray.data.batches import TrainBatches
from alray.data.opening import open_data
from alray.inference.generation import Generated
from alray.models.imported.sources import made
from alray.models.shape import Shape
from alray.parts.sources.synthetic.keys import Synthetic
from alray.runtime.probe.contention import companions
from alray.runtime.runner.provenance import _WITH_PASSWORD
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


def test_which_of_two_files_runs_is_said_and_the_other_can_be_had(
    alray: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user has edited the module since the run began."""
    says = "\nimport os\nos.environ['EDITION'] = "
    Path("proj/mine.py").write_text(f"{BLOCK}{says}'mine'\n", encoding="utf-8")
    monkeypatch.setenv("EDITION", "of the run")
    code, said = alray("resume", "ours", "run.epochs=2", "--inline")
    assert code == 2 and os.environ["EDITION"] == "of the run"
    copy, root = tmp_path / "ours/code", tmp_path / "proj"
    assert f"runs the copy in {copy}" in said and f"To run the files of {root}, copy them" in said
    code, said = alray("resume", "ours", "run.epochs=2", "--inline", "--allow-code")
    assert code == 0 and f"the code that runs is the copy in {copy}" in said
    assert os.environ["EDITION"] == "of the run"
    shutil.copy("proj/mine.py", copy)
    code, said = alray("resume", "ours", "run.epochs=3", "--inline")
    assert code == 0 and os.environ["EDITION"] == "mine", said
    # A file more in the run folder is still asked for.
    Path(copy, "more.py").write_text("", encoding="utf-8")
    code, said = alray("resume", "ours", "run.epochs=4", "--inline")
    assert code == 2 and ": more.py (changed in the run folder)" in said


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
    assert code == 2 and "sent/mine.py; put the modules next to the file, read them, and pass --allow-code" in said
    assert not list(Path().rglob("ran"))


@pytest.mark.few
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


def test_a_study_goes_on_with_the_code_it_began_with(
    alray: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("study.yaml").write_text(STUDY, encoding="utf-8")
    began: list[Path] = []

    def no_trials(loaded: Any, specs: Any, folder: StudyFolder, *others: Any) -> None:
        began.append(folder.path)

    monkeypatch.setattr(
        study_module, "connect", lambda address, bundle: nullcontext(SimpleNamespace(warnings=[], own=False))
    )
    monkeypatch.setattr(study_module, "has_room", lambda *asked: True)
    monkeypatch.setattr(study_module, "_require_shared", lambda *asked: None)
    monkeypatch.setattr(study_module, "_run_trials", no_trials)
    assert alray("study", "study.yaml", "--output", "begun")[0] == INTERRUPTED
    assert alray("study", "--resume", "begun")[0] == INTERRUPTED and len(began) == 2
    # A stranger's folder that names a spec with code on this machine: that of the user, or one that came along.
    shutil.copytree("begun", "theirs")
    Path("theirs/study.yaml").write_text(Path("begun/study.yaml").read_text() + "# other\n", encoding="utf-8")
    Path("proj/ran").unlink(missing_ok=True)
    code, said = alray("study", "--resume", "theirs")
    assert code == 2 and "theirs: --allow-code: code that this study has not run here" in said
    assert str(tmp_path / "proj/mine.py") in said and "; read these files" in said
    Path("proj/mine.py").write_text(BLOCK + "# later\n", encoding="utf-8")
    for folder in ("theirs", "begun"):
        code, said = alray("study", "--resume", folder, "--allow-code")
        assert code == 2 and "the code is no longer that which the study began with: mine.py" in said
    assert len(began) == 2 and not Path("proj/ran").exists()
    Path("proj/mine.py").write_text(BLOCK, encoding="utf-8")
    assert alray("study", "--resume", "theirs", "--allow-code")[0] == INTERRUPTED and len(began) == 3
    Path("begun/trials").rename("elsewhere")
    Path("begun/trials").symlink_to(tmp_path / "elsewhere")
    code, said = alray("study", "--resume", "begun", "--allow-code")
    assert code == 2 and "nothing is written through symbolic links: begun/trials ->" in said


PLAIN = SPEC.replace('{block: "python:mine.Block"}', "{block: mlp, widths: [8]}, {block: mlp, widths: [8]}")
"""A spec without code."""
SYNTHETIC = re.compile("data: .*")


class Stranger:
    """A folder that a stranger made: it is full of what some program would run. Each of these leaves a mark."""

    def __init__(self, folder: Path, marks: Path) -> None:
        self.folder, self.marks = folder, marks
        marks.mkdir()

    @property
    def ran(self) -> list[str]:
        return sorted(mark.name for mark in self.marks.iterdir())

    def write(self, name: str, content: str | bytes) -> Path:
        """A file in the folder and another one in the run folder."""
        for folder in (self.folder / "run", self.folder):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def program(self, way: str, name: str = "") -> str:
        """A program that leaves a mark."""
        file = self.write(name or f"bin/{way}", f"#!/bin/sh\n: > '{self.marks / way}'\n")
        for folder in (self.folder / "run", self.folder):
            (folder / (name or f"bin/{way}")).chmod(0o755)
        return str(file)

    def python(self, way: str) -> str:
        return f"open({str(self.marks / way)!r}, 'w')\n"

    def pickle(self, way: str) -> bytes:
        return pickle.dumps(Leaves(self.marks / way))


@dataclass
class Leaves:
    """Leaves a mark when it is unpickled."""

    mark: Path

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def _setting(key: str) -> Callable[[Stranger], None]:
    """A program that a setting of git names."""
    section, _, rest = key.partition(".")
    middle, _, last = rest.rpartition(".")
    heading = f'[{section} "{middle}"]' if middle else f"[{section}]"

    def plant(stranger: Stranger) -> None:
        named = stranger.program(key)
        shell = "!" if section == "alias" else ""
        _configure(stranger, f"{heading}\n\t{last} = {shell}'{named}'\n")

    return plant


def _configure(stranger: Stranger, text: str) -> None:
    for folder in (stranger.folder, stranger.folder / "run"):
        with (folder / ".git/config").open("a", encoding="utf-8") as file:
            file.write(text)


def _hooks(stranger: Stranger) -> None:
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"):
        stranger.program(f"hook {hook}", f".git/hooks/{hook}")


def _hooks_elsewhere(stranger: Stranger) -> None:
    stranger.program("core.hooksPath", "more/hooks/post-index-change")
    _configure(
        stranger, f"[include]\n\tpath = {stranger.folder}/hooks.config\n"
    )  # read before it is set to another one
    stranger.write("hooks.config", f"[core]\n\thooksPath = {stranger.folder}/more/hooks\n")


def _filter(name: str, kind: str, file: str) -> Callable[[Stranger], None]:
    """A filter of one file."""

    def plant(stranger: Stranger) -> None:
        _setting(f"filter.{name}.{kind}")(stranger)
        for folder in (stranger.folder, stranger.folder / "run"):
            with (folder / ".git/info/attributes").open("a", encoding="utf-8") as attributes:
                attributes.write(f"{file} filter={name}\n")

    return plant


def _own_filter(stranger: Stranger) -> None:
    """The user's own filter, as Git LFS is: what it starts is written in the repository."""
    stranger.write(".gitattributes", "*.yaml filter=users\n")
    Path("gitconfig").write_text(
        f'[filter "users"]\n\tclean = {stranger.program("filter of the user")}\n', encoding="utf-8"
    )


def _included(stranger: Stranger) -> None:
    stranger.write("more.config", f"[core]\n\tfsmonitor = {stranger.program('includeIf')}\n")
    _configure(stranger, f'[includeIf "gitdir:**"]\n\tpath = {stranger.folder}/more.config\n')


def _worktree_config(stranger: Stranger) -> None:
    _configure(stranger, "[extensions]\n\tworktreeConfig = true\n")
    stranger.write(".git/config.worktree", f"[core]\n\tfsmonitor = {stranger.program('config.worktree')}\n")


def _modules(stranger: Stranger) -> None:
    """Those of Python, of libraries and of what alray may import only if it is there."""
    for name in (*PLANTED_MODULES, "sitecustomize", "usercustomize", "conftest", "setup", "hubconf", "obstore", "yaml"):
        stranger.write(f"{name}.py", stranger.python(f"module {name}") + "raise SystemExit(3)\n")
    stranger.write("mlp/__init__.py", stranger.python("module mlp"))


def _path_file(stranger: Stranger) -> None:
    stranger.write("theirs.pth", "import sys; " + stranger.python("theirs.pth"))


def _entry_points(stranger: Stranger) -> None:
    groups = "".join(f"[alray.{kind}]\nmlp = theirs:X\n" for kind in ("blocks", "methods", "sources", "schedules"))
    stranger.write("theirs-1.0.dist-info/entry_points.txt", groups)
    stranger.write("theirs-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    stranger.write("theirs.py", stranger.python("entry point"))


def _bytecode(stranger: Stranger) -> None:
    code = marshal.dumps(compile(stranger.python("bytecode"), "theirs.py", "exec"))
    for name in ("theirs", "numpy"):
        stranger.write(cache_from_source(f"{name}.py"), MAGIC_NUMBER + b"\1" + bytes(11) + code)


def _environment(stranger: Stranger) -> None:
    named = stranger.program("environment")
    stranger.write(".env", f"PAGER={named}\nGIT_PAGER={named}\nPYTHONSTARTUP={named}\nRAY_RUNTIME_ENV_HOOK=theirs.X\n")
    for name in (".gitconfig", ".bashrc", ".profile", ".netrc", ".lesskey", ".pythonrc.py", ".pdbrc", "ray.yaml"):
        stranger.write(name, stranger.python("environment"))
    stranger.write("pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = 'theirs'\nbackend-path = ['.']\n")


def _programs(stranger: Stranger) -> None:
    for name in ("git", "gs", "less", "g++", "nvidia-smi", "xdg-open", "ray", "python3", "uname", "ldconfig"):
        stranger.program(f"program {name}", name)


def _templates(stranger: Stranger) -> None:
    text = "{{ ().__class__.__base__.__subclasses__()[0]('x') }}" + "{{ cycler.__init__.__globals__.os.system('"
    text += stranger.program("template") + "') }}"
    for name in ("run.html", "base.html", "tables.html", "figures.html"):
        stranger.write(f"templates/{name}", text)


def _yaml_tags(stranger: Stranger) -> None:
    call = f"!!python/object/apply:os.system [{json.dumps(stranger.program('YAML'))}]"
    stranger.write("tags.yaml", SPEC.replace("own", call, 1))
    stranger.write("costs.yaml", f"stages: {call}\n")


def _schedule(stranger: Stranger) -> None:
    cell = f"=cmd|' /C {stranger.program('schedule')}'!A0,{{{{ 7*7 }}}},__import__('os').system('x')\n"
    stranger.write("schedule.csv", cell * 2)


def _pickles(stranger: Stranger) -> None:
    for name in ("weights.pt", "weights.pth", "weights.pt2", "weights.ckpt", "table.npy", "costs.pkl"):
        stranger.write(name, stranger.pickle(f"pickle {name}"))
    data = "{source: synthetic, shape: [3, 32, 32], classes: 3, samples: 40, batch_size: 4}"
    model = "{from: torchvision:resnet18, weights: weights.pth}"
    stranger.write(
        "weights.yaml", f"name: x\ndata: {data}\nmodel: {model}\nmethod: {{kind: backpropagation}}\nrun: {{steps: 1}}\n"
    )


def _checkpoints(stranger: Stranger) -> None:
    for name in ("component-00.optimizer.pt", "component-00.safetensors"):
        file = stranger.folder / "damaged/checkpoints/step-00000003" / name
        assert file.is_file()
        content = stranger.pickle(f"checkpoint {name}")
        manifest = file.with_name("manifest.json").read_text(encoding="utf-8")
        assert sha256(file.read_bytes()) in manifest
        text = manifest.replace(sha256(file.read_bytes()), sha256(content))
        file.with_name("manifest.json").write_text(text, encoding="utf-8")
        file.write_bytes(content)


def _pictures(stranger: Stranger) -> None:
    """PostScript: Pillow would start Ghostscript to draw it."""
    starts = f"(%pipe%{stranger.program('picture')}) (r) file\n"
    text = f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{starts}"
    for number in range(4):
        stranger.write(f"pictures/{'ab'[number % 2]}/{number}.png", text)
    pictures = "{source: image_folder, train: pictures, size: [4, 4], batch_size: 2}"
    stranger.write("pictures.yaml", SYNTHETIC.sub(f"data: {pictures}", PLAIN))
    ghostscript = Path("path/gs")
    ghostscript.write_text(f"#!/bin/sh\n: > {stranger.marks / 'Ghostscript'}\n", encoding="utf-8")
    ghostscript.chmod(0o755)


def _records(stranger: Stranger) -> None:
    """Texts that a page, a shell, LaTeX or a template would run, in the files of the run folder."""
    text = PLANTED_TEXT + "$(" + stranger.program("text of a record") + ")"
    file = stranger.folder / "run/environment.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    told |= {"git": {"commit": text, "dirty": True}, "command": ["alray", text], "device": text, "host": text}
    file.write_text(json.dumps(told), encoding="utf-8")


def _plan(stranger: Stranger) -> None:
    file = stranger.folder / "damaged/plan.json"
    text = file.read_text(encoding="utf-8")
    call = f"__import__('os').system({stranger.program('plan')!r})"
    file.write_text(text.replace('"streamed"', json.dumps(call)), encoding="utf-8")


PLANTED_MODULES = ("alray", "multiprocessing", "numpy", "pydantic", "select", "signal", "struct", "torch", "typer")
PLANTED_TEXT = "</script><script>ran()</script><img src=x onerror=ran()>\\immediate\\write18{ran}{{ 7*7 }}"
SETTINGS = (
    "alias.rev-parse",
    "core.askPass",
    "core.editor",
    "core.fsmonitor",
    "core.gitProxy",
    "core.pager",
    "core.sshCommand",
    "credential.helper",
    "diff.external",
    "diff.theirs.textconv",
    "gpg.program",
    "merge.theirs.driver",
    "pager.status",
)
FILTERS = {
    "a filter": _filter("theirs", "clean", "1.txt"),
    "a filter with a name of many signs": _filter("a=b.c", "clean", "2.txt"),
    "a filter that stays": _filter("stays", "process", "3.txt"),
    "a filter of what is written": _filter("writes", "smudge", "4.txt"),
}
WAYS: dict[str, Callable[[Stranger], None]] = {
    **{f"the setting {key} of git": _setting(key) for key in SETTINGS},
    "hooks": _hooks,
    "hooks in another folder": _hooks_elsewhere,
    "a filter of the user": _own_filter,
    "a setting that another file brings": _included,
    "a setting of one working tree": _worktree_config,
    "modules": _modules,
    "a path file": _path_file,
    "entry points": _entry_points,
    "bytecode": _bytecode,
    "settings of the environment": _environment,
    "programs with usual names": _programs,
    "templates": _templates,
    "tags of YAML": _yaml_tags,
    "a schedule": _schedule,
    "pickles": _pickles,
    "checkpoints": _checkpoints,
    "pictures": _pictures,
    "texts of records": _records,
    "a plan": _plan,
}
"""How a stranger's folder could have a command run something."""


COMMANDS = {
    "validate spec.yaml --deep": 0,
    "validate tags.yaml": 2,
    "plan spec.yaml --probe": 0,
    "plan spec.yaml pipeline.stages=2 --costs costs.yaml": 2,
    "plan spec.yaml pipeline.stages=2 pipeline.schedule=schedule.csv": 2,
    "plan spec.yaml --devices 2x24GB": 0,
    "probe spec.yaml --output ../costs.json": 0,
    "run spec.yaml --inline --output ../run": 0,
    "run run/spec.yaml --inline --output ../copied": 0,
    "run ../own.yaml --inline --output ../own": 0,
    "run pictures.yaml --inline --output ../pictures": 2,
    "run weights.yaml --inline --output ../weights": 2,
    "resume run run.epochs=2 --inline": 0,
    "resume damaged run.epochs=2 --inline": 2,
    "reproduce run --output ../again": 0,
    "reproduce damaged --output ../damaged": 2,
    "evaluate run": 0,
    "evaluate damaged": 2,
    "predict run pictures/a/0.png": 2,
    "predict weights.pt2 pictures/a/0.png": 2,
    "export run --format safetensors --output ../route.safetensors": 0,
    "export damaged --output ../damaged.onnx": 2,
    "report run": 0,
    "report damaged": 0,
    "compare run ../run": 0,
    "list .": 0,
    "study study.yaml name=": 2,
    "study --resume run": 2,
}
"""Each command that reads a spec or a folder, with its exit code."""
ASKING_GIT = [
    command for command in COMMANDS if command.startswith(("run ../own", "run spec", "resume r", "reproduce r"))
]


def _as_file(folder: Path) -> None:
    """`.git` is a file that names another folder."""
    elsewhere = folder.with_name(f"{folder.name}.elsewhere")
    (folder / ".git").rename(elsewhere)
    (folder / ".git").write_text(f"gitdir: {elsewhere}\n", encoding="utf-8")


def _as_bare(folder: Path) -> None:
    """The folder itself looks like a repository without a working tree, whose configuration names one."""
    with (folder / ".git/config").open("a", encoding="utf-8") as file:
        file.write(f"[core]\n\tbare = false\n\tworktree = {folder}\n")
    shutil.copytree(folder / ".git", folder, dirs_exist_ok=True)
    shutil.rmtree(folder / ".git")


def _as_partial(folder: Path) -> None:
    """Objects are missing, and the remote that has them is a program."""
    remote = f'[remote "theirs"]\n\turl = ext::{folder}/bin/core.pager\n\tpromisor\n[protocol]\n\tallow = always\n'
    with (folder / ".git/config").open("a", encoding="utf-8") as file:
        file.write(f"[extensions]\n\tpartialClone = theirs\n{remote}")
    (folder / ".git/index").unlink()
    for each in (folder / ".git/objects").glob("??/*"):
        if not zlib.decompress(each.read_bytes()).startswith(b"commit"):
            each.unlink()


LAYOUTS = {"folder": None, "filters": None, "file": _as_file, "bare": _as_bare, "partial": _as_partial}
"""What is in `.git`, in place of a repository as it is usually."""


@pytest.mark.few
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_command_runs_what_a_strangers_folder_says(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = _planted(tmp_path, layout, monkeypatch)
    head = _git(tmp_path, "rev-parse", "HEAD")
    if layout == "folder":
        monkeypatch.setenv("GIT_DIR", str(stranger.folder / ".git"))  # as in a hook
    monkeypatch.chdir(stranger.folder)
    for command in COMMANDS if layout == "folder" else ASKING_GIT:
        done, told = execute(command.split()), capsys.readouterr()
        assert not stranger.ran, (command, stranger.ran)
        assert done == COMMANDS[command], (command, told.err)
    own = json.loads(Path("../own/environment.json").read_text(encoding="utf-8"))
    assert own["git"] == {"commit": head, "dirty": False}
    _require_no_script_of_text(stranger.folder / "run/report.html")
    monkeypatch.delenv("GIT_DIR", raising=False)
    for folder in (stranger.folder, stranger.folder / "run"):
        _touch(folder)
        subprocess.run(
            ["git", "status"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30
        )
        assert stranger.ran, "the programs would have run"


def _planted(home: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    """A stranger's folder within a repository of the user: it has a spec, a run, a damaged run, and all ways."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home / "home"))
    monkeypatch.setenv("PATH", f"{home / 'path'}:{os.environ['PATH']}")
    theirs = home / "theirs"
    for folder in (theirs, home / "home", home / "path"):
        folder.mkdir()
    Path("own.yaml").write_text(PLAIN, encoding="utf-8")
    (theirs / "spec.yaml").write_text(PLAIN, encoding="utf-8")
    (theirs / "study.yaml").write_text("study: x\nbase: spec.yaml\naxes: {seed: [1]}\n", encoding="utf-8")
    assert execute(["run", "theirs/spec.yaml", "--inline", "--output", "theirs/run"]) == 0
    shutil.copytree(theirs / "run", theirs / "damaged")
    for folder in (theirs / "run", theirs, home):
        _git(folder, "init", "--quiet")
        tracked = ["own.yaml"] if folder == home else ["spec.yaml", "1.txt", "2.txt", "3.txt", "4.txt"]
        for name in tracked[1:]:
            (folder / name).write_text("text", encoding="utf-8")
        _git(folder, "add", "--force", *tracked)
        _git(folder, "commit", "--quiet", "--message", "first")
    head = _git(theirs, "rev-parse", "HEAD")
    _git(home, "update-index", "--add", "--cacheinfo", f"160000,{head},theirs")
    _git(home, "commit", "--quiet", "--message", "with a repository in it")
    stranger = Stranger(theirs, home / "marks")
    for plant in (WAYS | FILTERS if layout == "filters" else WAYS).values():
        plant(stranger)
    for folder in (theirs / "run", theirs):
        if (change := LAYOUTS[layout]) is not None:
            change(folder)
        _touch(folder)
    assert not stranger.ran
    return stranger


def _touch(folder: Path) -> None:
    """Have git compare the content of the files that it keeps."""
    for file in (folder / "spec.yaml", *folder.glob("*.txt")):
        os.utime(file, (time.time() - 1e6,) * 2)


def _git(folder: Path, *arguments: str) -> str:
    """What git answers as it is usually called."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _require_no_script_of_text(page: Path) -> None:
    """No script of a page begins in a text of a record."""
    text = page.read_text(encoding="utf-8")
    assert "ran()" in text, "the text is shown"
    found: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            found.extend(value or "" for name, value in attributes if name.startswith("on"))
            found.append(tag)

        def handle_data(self, data: str) -> None:
            if found[-1:] == ["script"]:
                found.append(data)

    Tags().feed(text)
    assert not [each for each in found if each.strip() == "ran()"]


@pytest.mark.full
def test_processes_of_commands_run_nothing_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that Ray, a measurement and loaders of data start; and Python itself as it starts."""
    stranger = _planted(tmp_path, "folder", monkeypatch)
    (stranger.folder / "alray.py").unlink()
    for command in ("plan spec.yaml --probe", "run spec.yaml data.workers=1 --output ../ray", "study study.yaml"):
        words = [sys.executable, "-m", "alray", *command.split()]
        done = subprocess.run(words, cwd=stranger.folder, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0 and not stranger.ran, (command, stranger.ran, done.stderr)
    subprocess.run([sys.executable, "-c", "import torch"], cwd=stranger.folder, capture_output=True, check=False)
    assert stranger.ran, "the modules would have run"


def test_no_record_keeps_a_password() -> None:
    words = ["alray", "run", "x", "--address", "https://me:secret@head:1/a@b", "s3://bucket/a"]
    assert [_WITH_PASSWORD.sub("://", word) for word in words][4:] == ["https://head:1/a@b", words[5]]


@pytest.fixture
def planted_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a stranger's: it has modules with the names of Python's, of libraries and of alray."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in PLANTED_MODULES:
        text = f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit(3)\n"
        (theirs / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(theirs)
    return tmp_path / "ran"


def test_neighbours_of_a_measurement_import_nothing_from_the_current_folder(planted_modules: Path) -> None:
    with companions(1, threads=1) as others:
        others.wait_until_ready()
        with others.working():
            pass
    assert not planted_modules.exists()


@pytest.mark.full
def test_loader_workers_import_nothing_from_the_current_folder(planted_modules: Path) -> None:
    section = Synthetic(source="synthetic", shape=(1, 4, 4), classes=3, samples=40, batch_size=10)
    data = open_data(section, seed=1, load=lambda reference: None)
    with TrainBatches(data, seed=1, start_step=0, end_step=1, workers=1) as batches:
        assert len(multiprocessing.active_children()) == 1
        assert len(next(batches).samples) == 10
    assert not planted_modules.exists() and "PYTHONSAFEPATH" not in os.environ


def test_python_m_alray_imports_nothing_from_the_current_folder(planted_modules: Path) -> None:
    """Python itself takes alray from there, so a stranger's alray.py runs; nothing else does."""
    Path("alray.py").unlink()
    done = subprocess.run([sys.executable, "-m", "alray", "--version"], capture_output=True, text=True, check=False)
    ran = planted_modules.read_text(encoding="utf-8") if planted_modules.exists() else ""
    assert done.returncode == 0 and done.stdout.startswith("alray ") and not ran, (ran, done.stderr)


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("timm:resnet18", {"checkpoint_path": "x.pth"}),
        ("timm:resnet18", {"pretrained": True, "pretrained_cfg": {"file": "x"}}),
        ("timm:resnet18", {"block_args": {"init": ["somewhere/x"]}}),
        ("timm:resnet18", {"norm_layer": "planted"}),
        ("torchvision:resnet18", {"weights": "DEFAULT"}),
        ("torchvision:resnet18", {"weights_backbone": "DEFAULT"}),
    ],
)
def test_a_library_is_given_no_file_unasked(
    source: str, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("planted").touch()
    given: list[dict[str, Any]] = []

    def create_model(name: str, **arguments: Any) -> torch.nn.Module:
        given.append(arguments)
        return torch.nn.Linear(2, 2)

    timm = SimpleNamespace(create_model=create_model, list_models=lambda: ["resnet18"])
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setattr("torchvision.models.get_model", create_model)
    name = list(arguments)[-1] if "pretrained" not in arguments else "pretrained"
    with pytest.raises(SpecError) as caught:
        made(source, arguments, lambda reference: None, sample=Shape((3, 32, 32)))
    assert caught.value.problems[0].key == f"model.with.{name}" and "--allow-code" in str(caught.value.problems[0].hint)
    assert not given
    made(source, arguments, lambda reference: None, sample=Shape((3, 32, 32)), allow_files=True)
    harmless = {"pretrained": False, "weights": None, "act_layer": "silu", "num_classes": 3}
    made(source, harmless, lambda reference: None, sample=Shape((3, 32, 32)))
    assert given == [arguments, harmless]


@pytest.mark.few
@pytest.mark.parametrize("name", ["x.pt2", "x.pt", "x.pth"])
def test_files_of_weights_run_nothing(name: str, tmp_path: Path, alray: Callable[..., Any]) -> None:
    """An exported program and TorchScript are code, and so is a pickle."""
    if name == "x.pt2":
        program = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
        torch.export.save(program, name)
    elif name == "x.pt":
        torch.jit.script(torch.nn.Linear(2, 2)).save(name)
    else:
        torch.save({"weight": Runs()}, name)
    code, said = alray("predict", name, "proj/spec.yaml")
    assert code == 2 and "neither a run folder nor" in said, said
    network = "model={from: torchvision:resnet18, weights: " + name + "}"
    data = "{source: synthetic, shape: [3, 32, 32], classes: 3, samples: 40, batch_size: 4}"
    spec = f"name: whole\ndata: {data}\nmethod: {{kind: backpropagation}}\nrun: {{steps: 1}}\n"
    Path("whole.yaml").write_text(spec, encoding="utf-8")
    code, said = alray("run", "whole.yaml", network, "--inline", "--output", "whole")
    assert code == 2 and f"{name}` is not a file of weights" in said
    assert not Path("pickle ran").exists()


class Runs:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("pickle ran"),)


ACTING = "\x1b]0;title\x07\x1b[8m\x9b2J\u202e\r"


@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_network_says_does_not_act_on_a_terminal(
    as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Generated(prompt="a", text=f"b\n{ACTING}c", tokens=3, depth=1)
    monkeypatch.setattr("alray.inference.early.require_request", lambda *args, **kwargs: None)
    network = SimpleNamespace(weights=SimpleNamespace(as_json=lambda: {}, __str__=lambda: ""))
    monkeypatch.setattr("alray.inference.requests.open_network", lambda *asked, **how: network)
    monkeypatch.setattr("alray.inference.generation.generate", lambda *asked, **how: said)
    assert execute(["predict", "x", "--prompt", "a", *(["--json"] if as_json else [])]) == 0
    printed = capsys.readouterr().out
    assert not set(ACTING) & set(printed.replace("\n", "")) - set(ascii(ACTING)), ascii(printed)
    assert json.loads(printed)["generated"]["text"] == said.text if as_json else printed.startswith("ab\n")


def test_no_name_or_error_acts_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Here those of a key, a value, a file, a command and a column."""
    spec = tmp_path / f"{ACTING}.yaml"
    spec.write_text(json.dumps({"name": f"a{ACTING}", f"key{ACTING}": ACTING}), encoding="utf-8")
    table = tmp_path / "table.csv"
    table.write_text(f"label,{ACTING[:-1]}\na,1\nb,x{ACTING[:-1]}\n", encoding="utf-8")
    data = f"data={{source: csv, train: {table}, label_column: label}}"
    for words in (["validate", str(spec)], [ACTING], ["run", ACTING], ["validate", str(spec), "--json"]):
        assert execute(words) == 2
    assert execute(["validate", "specs/quickstart.yaml", data, "--deep"]) == 2
    out, err = capsys.readouterr()
    assert not set(ACTING) & set((out + err).replace("\n", "")) - set(ascii(ACTING)), ascii(out + err)
