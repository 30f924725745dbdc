"""Every command that README and docs show is run here, or is checked by a test that is named here, or says why not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import typer
from sklearn.datasets import load_digits
from torchvision.utils import save_image

from alray.cli.main import app, execute

from .pages import PAGES, ROOT, Command, commands, mentioned, parse, write_files

TUTORIAL = "docs/tutorial.md"
TWO_STAGES = "alray run mine/mine.yaml pipeline.stages=2 --output runs/two-stages"
COMMANDS = "docs/spec.md"
RUN = (COMMANDS, "docs/comparing.md", "docs/pipelines.md", "docs/runs.md", TUTORIAL)
"""Pages whose commands run here one after another, each page in a separate folder."""

HELD = {
    "tests/test_specs.py::test_every_point_of_a_study_is_a_spec": (r"alray study specs/studies/strong_scaling.yaml.*"),
    "tests/engine/test_studies_on_ray.py::test_a_killed_study_goes_on_to_the_same_records": (
        r"alray study --resume (studies/strong_scaling.*|DIR search.trials=40 repeats=5)"
    ),
    "tests/docs/test_commands.py::test_the_commands_of_a_page_run": (
        r"alray report studies/strong_scaling.*|python mine/make_pictures.py"
    ),
    "tests/docs/test_commands.py::test_the_tutorial_as_it_stands": (
        r"alray study mine/rates.yaml --output .*|alray report studies/rates"
    ),
    "tests/cluster/test_jobs.py::test_a_study_is_a_job_too": r"alray submit (specs/studies/.*|mine/rates.yaml)",
    "tests/cluster/test_jobs.py::test_a_run_on_object_storage_goes_on_and_comes_back": r"alray submit --resume s3:.*",
    "tests/cluster/test_jobs.py::test_a_job_that_was_killed_goes_on": r"alray submit --resume (ID.*|/mnt/.*)",
    "tests/cluster/test_jobs.py::test_the_quickstart_is_what_the_readme_says": r"alray submit specs/quickstart.yaml .*",
    "tests/cluster/test_jobs.py::test_a_job_ends_in_the_bits_of_one_process_and_its_folder_comes_back": (
        r"alray submit mine(/mine)?.yaml .*|ray job (list|logs ID)|alray fetch ID.*"
    ),
    "tests/cluster/test_jobs.py::test_ctrl_c_detaches_and_a_stop_ends_with_a_checkpoint": r"ray job (status|stop) ID",
    "tests/cluster/test_jobs.py::test_attached_with_a_token": (
        r"alray run .* --address HEAD:6379|cluster/local.sh (up|down)"
    ),
    "tests/core/storage/test_runs.py::test_a_run_as_on_a_disk": r"alray (run|resume) .*s3://.*",
    "tests/cli/test_other_data.py::test_the_same_files_in_another_place": r"alray (evaluate|resume) runs/ID .*data.*",
    "tests/test_own_methods.py::test_the_page_s_own_tests": (r"alray (validate --deep|run) mine.yaml.*"),
    "tests/test_specs.py::test_it_is_planned_and_simulated": (
        r"alray run (examples/torchvision_digits"
        r"|specs/laptop/(compressed_link|mlp_diabetes|digit_traits|rare_digits|noisy_digits|gpt_docstrings|diloco_digits)).yaml"
        r"( --output runs/\w+)?"
    ),
    "tests/docs/test_docs.py::test_one_script_runs_in_one_process_and_on_two_stages": r"python job.py( 2)?",
    "tests/docs/test_docs.py::test_the_studies_of_a_fair_comparison_are_studies": r"alray study fair/.*",
    "tests/engine/test_messages.py::test_local_losses_end_in_the_same_bits": (
        r"alray run specs/laptop/slow_link.yaml (?!method).*messages.*"
    ),
    "tests/engine/test_language_models.py::test_the_command_continues_a_text": r"alray predict .* --prompt .*",
    "tests/engine/test_imported.py::test_a_pipeline_of_torchvisions_resnet_is_plain_torch_and_goes_back": (
        r"alray export runs/torchvision_digits --format state_dict"
    ),
    "tests/cli/test_plan_command.py::test_machines_elsewhere_with_costs_that_were_measured_here": (
        r"alray plan specs/language/.*"
    ),
    "tests/test_one_file.py::test_the_weights_are_those_of_alray": r"python examples/one_file.py .*",
}
"""Tests, and by a pattern the commands that they run in another form or in another place."""

LOADED = r"alray run specs/quickstart.yaml .*"
"""On pages that are not run: the spec and its overrides are loaded, and run."""

LEFT = {
    r"pip install \.": "installs; CI does",
    r"alray run benchmarks/sleeping.*": "sleeps for minutes",
    r"alray plan SPEC --map .*": "what stands for a spec; tests/cli/test_map_command.py draws maps",
    r"alray prove torchvision:resnet18": "takes a minute; tests/api/test_proof.py proves others",
    r"make quickstart": "installs alray; what it runs then is a command of the tutorial",
    r"source .venv/bin/activate": "the shell's",
    r"export RAY_.*": "variables with which tests/cluster/test_jobs.py starts its commands",
    r"pip install 'alray\[storage\]'": "installs; `test_every_extra_is_one` holds the names",
    r"pip install ./plugins/(mlflow|wandb)": "tests/test_plugins.py installs it, and runs its spec",
    r"([A-Z_]+=\S+ )*alray run plugins/(mlflow|wandb)/spec.yaml": "the same",
    r"python job.py 2 HEAD:6379": "a cluster; tests/cluster/test_jobs.py::test_attached_with_a_token",
}
"""Commands that no test runs, and why."""


def all_commands() -> list[Command]:
    return [command for page in PAGES for command in commands(page)]


def held_by(command: Command) -> str | None:
    text = " ".join(command.words)
    return next((test for test, pattern in HELD.items() if re.fullmatch(pattern, text)), None)


def left(command: Command) -> bool:
    return any(re.fullmatch(pattern, command.text.partition(" #")[0].strip()) for pattern in LEFT)


def loaded(command: Command) -> bool:
    return command.page not in RUN and re.fullmatch(LOADED, " ".join(command.words)) is not None


def test_every_command_has_a_test_or_a_reason() -> None:
    nobody = [
        str(each)
        for each in all_commands()
        if not (held_by(each) or left(each) or loaded(each) or (each.page in RUN and each.words[0] == "alray"))
    ]
    assert nobody == []


def test_what_is_named_here_is_there() -> None:
    """No pattern is left of a command that is gone, and no test that is gone holds one."""
    texts = [" ".join(command.words) for command in all_commands()]
    lines = [command.text.partition(" #")[0].strip() for command in all_commands()]
    assert [pattern for pattern in HELD.values() if not any(re.fullmatch(pattern, text) for text in texts)] == []
    assert [pattern for pattern in LEFT if not any(re.fullmatch(pattern, line) for line in lines)] == []
    for test in HELD:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test


@pytest.mark.parametrize("page", PAGES)
def test_alray_takes_every_command(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8265")  # as the pages of clusters say
    for command in commands(page):
        if command.words[0] == "alray":
            try:
                parse(command.words[1:])
            except typer.TyperException as error:
                raise AssertionError(f"{command}: {error.format_message()}") from None


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_the_prose_names_is_one(page: str) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for text in mentioned(page):
        program, *words = text.split()
        if program == "make":
            assert words[0] in targets, text
        elif re.fullmatch("[a-z]+", words[0]):
            command = known[words[0]]
            command = command.commands.get(words[1], command) if hasattr(command, "commands") and words[1:] else command
            options = {option for each in command.params for option in each.opts} | {"--help"}
            assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options, text


def test_every_extra_is_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for page in PAGES:
        named = set(re.findall(r"alray\[([a-z,]+)\]", (ROOT / page).read_text(encoding="utf-8")))
        assert named <= set(extras) | {"X"}, page


STUDY = """\
study: tiny
base: specs/quickstart.yaml
set: {run: {steps: 2, evaluate_every: null, checkpoint: null}, data.batch_size: 32, pipeline.stages: 1}
axes: {optimizer.lr: [1.0e-3]}
"""


@pytest.fixture
def sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None, counted_once: None, nothing_measured: None
) -> Path:
    """An empty current folder with `specs/`, in which nothing is measured: that takes longer than a short run."""
    (tmp_path / "specs").symlink_to(ROOT / "specs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepare(page: str) -> None:
    """What the commands of a page find in the current folder."""
    if page == TUTORIAL:
        write_files(page, Path())
        subprocess.run([sys.executable, "mine/make_pictures.py"], check=True, timeout=100)
        return
    assert execute(["run", "specs/quickstart.yaml", "--inline", "run.steps=5", "--output", "RUN"]) == 0
    if page == COMMANDS:
        save_image(torch.tensor(load_digits().images[0], dtype=torch.float32).div(16), "digit.png")
        shutil.copytree("RUN", "OTHER")
        Path("STUDY").write_text(STUDY, encoding="utf-8")
    else:
        for name in ("al-1", "bp-1", "scpl-1"):
            shutil.copytree("RUN", Path("runs", name))


def shortened(words: list[str], number: int) -> list[str]:
    """A run of a few mini-batches in this process, and a study with a known folder."""
    if words[0] == "run":
        steps = 40 if "--profile" in words else 5  # the page shows the 40th mini-batch
        words = [word for word in words if not word.startswith("run.epochs=")]
        folder = [] if "--output" in words else ["--output", f"run-{number}"]
        inline = [] if "--inline" in words else ["--inline"]
        return [*words, *inline, f"run.steps={steps}", *folder]
    if words[0] == "resume":
        return [*(re.sub(r"^run\.epochs=.*", "run.steps=8", word) for word in words), "--inline"]
    if words[:2] == ["study", "STUDY"] and "--dry-run" not in words:
        return [*words, "--output", "FOLDER"]
    return words


def expanded(words: list[str]) -> list[str]:
    """As a shell does with patterns of files. `RUN...` is a second run."""
    found = (sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words)
    return ["OTHER" if word == "RUN..." else word for each in found for word in each]


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run(page: str, sandbox: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(page)
    said: dict[str, str] = {}
    for number, command in enumerate(commands(page)):
        if command.words[0] == "alray" and not held_by(command) and not left(command):
            capsys.readouterr()
            code = execute(expanded(shortened(command.words[1:], number)))
            out, err = capsys.readouterr()
            assert code == 0, (str(command), err)
            said[" ".join(command.words)] = out
    if page == TUTORIAL:
        assert weights(said["alray run mine/mine.yaml --output runs/mine"]) == weights(said[TWO_STAGES])


def weights(said: str) -> str:
    """The hash that a run prints at its end."""
    (found,) = re.findall(r"[0-9a-f]{64}", said)
    return str(found)


@pytest.mark.parametrize("command", [each for each in all_commands() if loaded(each)], ids=str)
def test_what_is_loaded_runs(command: Command, sandbox: Path) -> None:
    assert execute(shortened(command.words[1:], 0)) == 0


@pytest.mark.timeout(900)
def test_the_tutorial_as_it_stands(tmp_path: Path) -> None:
    """Nothing is shortened, and nothing left out but the install and the cluster: on Ray, each command a process."""
    (tmp_path / "specs").symlink_to(ROOT / "specs")
    write_files(TUTORIAL, tmp_path)
    said: dict[str, str] = {}
    for words in (command.words for command in commands(TUTORIAL)):
        if words[0] in ("alray", "python") and words[1] not in ("submit", "fetch"):
            start = [sys.executable, "-m", "alray"] if words[0] == "alray" else [sys.executable]
            done = subprocess.run(
                [*start, *words[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, (words, done.stdout + done.stderr)
            said[" ".join(words)] = done.stdout
    assert json.loads((tmp_path / "runs/mine/summary.json").read_text())["accuracy"]["test"] > 0.9
    assert weights(said["alray run mine/mine.yaml --output runs/mine"]) == weights(said[TWO_STAGES])
