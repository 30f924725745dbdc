"""A wheel of the tree in an empty environment: no make, no git, and nothing of the tree beside it.

alray's dependencies take minutes and gigabytes, so the environment sees those of this one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from alray import __version__

pytestmark = [pytest.mark.full, pytest.mark.own_ray, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[1]
OF_THE_WHEEL = ("alray", "specs", "pyproject.toml", "README.md", "LICENSE")
SPEC = """\
name: first
data: {source: digits, batch_size: 32}
model: {components: [{block: vgg, channels: [8]}, {block: vgg, channels: [8], pool: true}]}
method: decoupled_greedy
pipeline: {stages: 2}
run: {steps: 4}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty one with the wheel, which was built from a copy because setuptools writes beside its sources."""
    folder = tmp_path_factory.mktemp("wheel")
    tree, wheels, made = (folder / name for name in ("tree", "wheels", "environment"))
    tree.mkdir()
    for name in OF_THE_WHEEL:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, tree], check=True, timeout=300)
    venv.create(made, with_pip=True)
    (wheel,) = wheels.glob("alray-*.whl")
    shutil.rmtree(tree)
    subprocess.run(
        [made / "bin/python", *pip[1:], "install", "--no-index", "--no-deps", wheel], check=True, timeout=300
    )
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(made)}))
    # A path file within it is not read, so that of an editable alray leads nowhere.
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return made


def said(environment: Path, cwd: Path, program: str, *words: str) -> str:
    """What a program of the environment prints. Nothing else is on the path."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        [environment / "bin" / program, *words],
        cwd=cwd,
        env=surroundings | {"PATH": str(environment / "bin")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_is_that_of_the_wheel(environment: Path, tmp_path: Path) -> None:
    file = said(environment, tmp_path, "python", "-c", "import alray; print(alray.__file__)")
    assert Path(file.strip()).is_relative_to(environment)
    assert said(environment, tmp_path, "alray", "--version").split()[-1] == __version__


def test_a_spec_is_checked_and_trained_on_two_processes(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(SPEC, encoding="utf-8")
    said(environment, tmp_path, "alray", "validate", "first.yaml")
    summary = json.loads(said(environment, tmp_path, "alray", "run", "first.yaml", "--output", "run", "--json"))
    assert (summary["engine"], summary["stages"], summary["steps"]) == ("ray", 2, 4)
    assert (tmp_path / "run/report.html").is_file()


def test_its_committed_specs_are_there(environment: Path, tmp_path: Path) -> None:
    said(environment, tmp_path, "alray", "init", "mine.yaml", "--from", "quickstart")
    said(environment, tmp_path, "alray", "validate", "mine.yaml")
