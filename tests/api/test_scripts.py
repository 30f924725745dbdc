"""Scripts as people write them: without `if __name__ == "__main__"`, with loader workers."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

import alray
from alray.core.errors import RequestError, SpecError

SCRIPT = """
import alray

print("begins", flush=True)
spec = {
    "name": "unguarded",
    "data": {"source": SOURCE, "batch_size": 8, "workers": 1, "validation_fraction": 0.0},
    "model": {"components": [{"block": "mlp", "widths": [4]}]},
    "method": "backpropagation",
    "pipeline": {"costs": [{"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}]},
    "run": {"steps": 2, "evaluate_every": None, "checkpoint": None, "train": "never", "test": "end"},
}


class Samples:
    classes = ("a", "b")

    def open(self, split):
        import torch

        return [(torch.full((4,), float(index % 2)), index % 2) for index in range(40)]


run = alray.run(spec, inline=True, progress=False)
print("ends", run.summary.status, flush=True)
"""
DIGITS = SCRIPT.replace("SOURCE", '"digits"')


@pytest.mark.parametrize(
    "form",
    ["file", *(pytest.param(form, marks=pytest.mark.full) for form in ("module", "text", "standard input"))],
)
def test_a_script_without_a_guard_runs_once(tmp_path: Path, form: str) -> None:
    (tmp_path / "script.py").write_text(DIGITS, encoding="utf-8")
    arguments = {"file": ["script.py"], "module": ["-m", "script"], "text": ["-c", DIGITS], "standard input": ["-"]}
    done = subprocess.run(
        [sys.executable, *arguments[form]],
        cwd=tmp_path,
        input=DIGITS if form == "standard input" else "",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.split() == ["begins", "ends", "finished"], done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_script_that_names_a_class_of_its_own_is_told_of_the_guard(tmp_path: Path, monkeypatch) -> None:
    """The module is imported to find the class, and calls alray while it is: before, it trained within its import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = SCRIPT.replace("SOURCE", '"python:own_script.Samples"')
    (tmp_path / "own_script.py").write_text(text, encoding="utf-8")
    spec = {
        "name": "x",
        "data": {"source": "python:own_script.Samples", "batch_size": 8},
        "model": {"components": [{"block": "mlp", "widths": [4]}]},
        "method": "backpropagation",
        "run": {"steps": 1},
    }
    with pytest.raises(SpecError, match=r"own_script.py:\d+ calls alray while alray imports that file") as caught:
        alray.run(spec, inline=True, progress=False)
    assert "__main__" in str(caught.value.problems[0].hint)


def test_a_class_of_the_main_script_cannot_be_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = {"data": {"source": "python:__main__.Samples"}, "model": {"components": [{"block": "mlp", "widths": [4]}]}}
    with pytest.raises(SpecError, match="no stage can import the script that is running"):
        alray.plan({"name": "x", "method": "backpropagation", "run": {"steps": 1}, **spec}, progress=False)


def test_a_process_of_one_s_own_that_imports_the_script(tmp_path: Path, monkeypatch) -> None:
    """multiprocessing marks a process as long as it imports the script that started it."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RequestError, match="a process that multiprocessing started"):
        alray.run({}, progress=False)


FAILING = """
import alray

spec = {
    "name": "failing",
    "data": {"source": "synthetic", "shape": [6], "classes": 3, "samples": 120, "batch_size": 12},
    "model": {"components": [{"block": "python:failing.Failing"}]},
    "method": "decoupled_greedy",
    "pipeline": {"costs": [{"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}]},
    "replicas": {"count": 2},
    "run": {"steps": 4},
}
try:
    alray.run(spec, inline=True, progress=False)
except alray.AlrayError as error:
    print("the second replica" in str(error), flush=True)
"""
FAILS = """
import torch

seen = []


class Failing(torch.nn.Linear):
    def __init__(self, input):
        super().__init__(input.elements, 4)

    def forward(self, s):
        # Otherwise it is only counted, or tried with noise.
        if self.training and torch.is_grad_enabled() and type(s) is torch.Tensor and s.device.type != "meta":
            seen.append(id(self))
            if len(seen) == 2:
                raise ValueError("the second replica")
        return super().forward(s)
"""


def test_a_script_ends_after_one_of_several_replicas_has_failed(tmp_path: Path) -> None:
    """Another one has begun a sum with it, in a thread for which Python waits at its end."""
    (tmp_path / "failing.py").write_text(FAILS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", FAILING], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout.split(), done.returncode) == (["True"], 0), done.stderr
