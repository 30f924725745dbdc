"""What the system refuses a run: each ends as one error with what, where and hint, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.config.user_code import named
from alray.core.errors import RequestError, UserCodeError
from alray.core.system_errors import from_system
from alray.runtime.local_ray.start import private_folder

from .test_interrupts import wait_for_a_step

LONG = ("run.steps=100000", "run.evaluate_every=null", "run.checkpoint={every: 1 s}", "--output", "out")
LEAKY = """\
import torch


class Leaky(torch.nn.Module):
    def __init__(self, input):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 1, 1)
        self.files = []

    def forward(self, s, mask=None):
        self.files.append(open("/dev/null"))
        return self.layer(s)
"""
UNPRIVILEGED = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""Root may write to any folder. This takes that right from a command."""


def under(command: list[str], flag: str, limit: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """One command line under a limit of the shell."""
    return subprocess.run(
        ["bash", "-c", f'ulimit {flag} {limit}; exec "$@"', "bash", *command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def the_problem(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert "Traceback" not in done.stderr, done.stderr
    (problem,) = json.loads(done.stdout)["errors"]
    assert isinstance(problem, dict) and problem["hint"]
    return problem


@pytest.mark.full
def test_too_little_address_space(spec: Path, command: list[str]) -> None:
    done = under(command, "-v", 1_500_000, "run", spec, "--inline", "--output", "out", "--json")
    problem = the_problem(done)
    assert done.returncode == 1
    assert problem["message"] == "ran out of address space: `ulimit -v` allows 1,500,000 kB"
    assert not Path("out").exists()


@pytest.mark.few
def test_ray_is_not_started_where_it_would_crash(spec: Path, command: list[str]) -> None:
    done = under(command, "-v", 9_000_000, "run", spec, "--output", "out", "--json")
    problem = the_problem(done)
    lacks = "too little address space for Ray: `ulimit -v` allows 9,000,000 kB"
    assert (done.returncode, problem["message"], "--inline" in problem["hint"]) == (2, lacks, True)
    assert not Path("out").exists()


@pytest.mark.full
def test_file_descriptors_that_run_out_in_mid_run(spec: Path, command: list[str]) -> None:
    """In a user's code, or wherever alray opens the next file: which of them comes first is chance."""
    Path("mine.py").write_text(LEAKY)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.Leaky'}", 1))
    done = under(command, "-n", 200, "run", spec, "run.steps=1000", "--inline", "--output", "out")
    assert done.returncode == 1
    assert "ran out of file descriptors: `ulimit -n` allows 200" in done.stderr
    assert "allow more, such as" in done.stderr


@pytest.mark.full
def test_a_disk_that_takes_no_output(spec: Path, command: list[str]) -> None:
    """The run comes to its end. The exit code says that what it told was lost."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, "run", spec, "run={steps: 2}", "--inline", "--output", "out"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "error: the output could not be written: No space left on device",
    )
    assert json.loads(Path("out/summary.json").read_text())["status"] == "finished"


def test_a_users_code_that_runs_out_of_file_descriptors_is_named() -> None:
    with pytest.raises(UserCodeError) as caught, named("block `python:mine.Leaky`", "its constructor", key="model"):
        raise OSError(errno.EMFILE, "Too many open files", "/dev/null")
    (problem,) = caught.value.problems
    assert problem.message.startswith("block `python:mine.Leaky` raised OSError in its constructor: ")
    assert problem.hint is not None and problem.hint.startswith("ran out of file descriptors: `ulimit -n` allows ")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (MemoryError(), "ran out of memory"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "ran out of memory"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes."), "ran out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB."), "the GPU ran out of memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "the GPU ran out of memory"),
        (RuntimeError("can't start new thread"), "no new thread or process could be started: `ulimit -u` allows "),
        (OSError(errno.ENOSPC, "No space left on device", "/a"), "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "/a"), "Permission denied"),
    ],
)
def test_what_ran_out_is_told(fault: Exception, message: str) -> None:
    error = from_system(fault)
    assert error is not None
    (problem,) = error.problems
    assert problem.message.startswith(message) and problem.hint
    assert problem.file == ("/a" if isinstance(fault, OSError) else None)


def test_other_faults_keep_their_traceback() -> None:
    assert from_system(RuntimeError("a bug")) is None
    assert from_system(ImportError("No module named `x`")) is None


def running(command: list[str], *arguments: str | Path) -> subprocess.Popen[str]:
    """A run on its way, past its first mini-batch."""
    process = subprocess.Popen(
        [*command, "run", *map(str, arguments), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_a_step(process)
    return process


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def deleted(problem: dict[str, Any]) -> bool:
    """Whether it is that of a run whose folder somebody deleted, and which left none."""
    assert problem["file"] == str(Path("out").resolve()) and not Path("out").exists()
    return problem["message"] == "the run folder was deleted during the run"


def delete_the_folder() -> None:
    """The run may write a file into it meanwhile; then it is no longer empty when it is to go."""
    while Path("out").exists():
        shutil.rmtree("out", ignore_errors=True)


def test_a_run_folder_that_is_deleted(alray: Callable[..., Any], spec: Path) -> None:
    deleting = threading.Thread(target=lambda: (wait_for_a_step(), delete_the_folder()))
    deleting.start()
    said = alray("run", spec, *LONG, "--inline", "--json")
    deleting.join()
    (problem,) = said.json["errors"]
    assert said.code == 1 and deleted(problem)


@pytest.mark.full
def test_a_run_folder_that_is_deleted_in_a_run_on_ray(spec: Path, command: list[str]) -> None:
    process = running(command, spec, *LONG)
    delete_the_folder()
    done = ended(process)
    assert done.returncode == 1 and deleted(the_problem(done))


@pytest.mark.full
@pytest.mark.skipif(bool(UNPRIVILEGED) and shutil.which("setpriv") is None, reason="root may write everywhere")
def test_a_run_folder_that_becomes_read_only(spec: Path, command: list[str]) -> None:
    process = running([*UNPRIVILEGED, *command], spec, *LONG, "--inline")
    for folder in (Path("out"), Path("out/checkpoints")):
        if folder.exists():
            folder.chmod(0o555)
    try:
        done = ended(process)
    finally:
        Path("out").chmod(0o755)
    problem = the_problem(done)
    assert (done.returncode, problem["file"]) == (1, str(Path("out").resolve()))
    assert problem["message"] == "the run folder can no longer be written: Permission denied"


@pytest.mark.full
def test_a_closed_standard_output_is_no_reason_not_to_run(spec: Path, command: list[str]) -> None:
    words = [*command, "run", str(spec), "--inline", "run.steps=1", "--output", "out"]
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" >&-', "bash", *words], stderr=subprocess.PIPE, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert json.loads(Path("out/summary.json").read_text(encoding="utf-8"))["status"] == "finished"


def test_a_current_folder_that_was_deleted(spec: Path, command: list[str]) -> None:
    gone = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
    words = [*command, "run", str(spec.resolve()), "--json"]
    done = subprocess.run(["bash", "-c", gone, "bash", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and the_problem(done)["message"] == "the current folder was deleted"


@pytest.mark.full
def test_a_limit_on_the_size_of_files(spec: Path, command: list[str]) -> None:
    done = under(command, "-f", 8, "run", spec, "--inline", "run.steps=1", "--output", "out", "--json")
    problem = the_problem(done)
    assert (
        done.returncode == 1 and "a file may not become so large: `ulimit -f` allows 8,192 bytes" in problem["message"]
    )
    assert "ulimit -f unlimited" in problem["hint"]


def test_a_folder_for_temporary_files_that_ray_cannot_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "größe"))
    with pytest.raises(RequestError, match="beyond ASCII") as caught, private_folder():
        pass
    assert "RAY_TMPDIR" in str(caught.value.problems[0].hint)
