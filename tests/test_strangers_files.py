"""A stranger's folder runs no code and leads alray nowhere else: recorded origins, planted links, bytecode."""

from __future__ import annotations

import json
import multiprocessing
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import cache_from_source
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alray.cli.main import execute
from alray.cli.terminal import INTERRUPTED
from alray.core.errors import SpecError
from alray.data.batches import TrainBatches
from alray.data.opening import open_data
from alray.inference.generation import Generated
from alray.models.imported.sources import made
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


@pytest.fixture
def planted_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a stranger's: it has modules with the names of Python's, of libraries and of alray."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("alray", "multiprocessing", "numpy", "pydantic", "select", "signal", "struct", "torch", "typer"):
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
        made(source, arguments, lambda reference: None)
    assert caught.value.problems[0].key == f"model.with.{name}" and "--allow-code" in str(caught.value.problems[0].hint)
    assert not given
    made(source, arguments, lambda reference: None, allow_files=True)
    harmless = {"pretrained": False, "weights": None, "act_layer": "silu", "num_classes": 3}
    made(source, harmless, lambda reference: None)
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
    said = Generated(prompt="a", text=f"b\n{ACTING}c", tokens=3, depth=1, exits=())
    monkeypatch.setattr("alray.cli.trained._require_run", lambda folder: None)
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
