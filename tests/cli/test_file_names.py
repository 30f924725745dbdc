"""Files and folders whose names are not UTF-8: every command works, and every error is one error of alray."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

NAME = os.fsdecode(b"caf\xe9")
SPEC = """\
name: tiny
data: {source: image_folder, train: train, image_size: 4, batch_size: 4}
model: {components: [{block: vgg, channels: [2]}, {block: vgg, channels: [2]}]}
method: {kind: associated_learning, label_dim: 4}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
run: {steps: 4}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec and pictures of two classes below the current folder; all names have a byte that is not UTF-8."""
    folder = tmp_path / NAME
    for number, kind in enumerate(("cat", NAME)):
        pictures = folder / "train" / kind
        pictures.mkdir(parents=True)
        for index in range(12):
            with (pictures / f"{index}{NAME}.png").open("wb") as file:
                Image.new("RGB", (4, 4), (200 * number, 20 * index, 0)).save(file, "PNG")
    monkeypatch.chdir(folder)
    path = Path(f"{NAME}.yaml")
    path.write_text(SPEC)
    return path


@pytest.mark.full
def test_a_run_and_what_is_done_with_it(alray: Callable[..., Any], spec: Path) -> None:
    run = f"run{NAME}"
    finished = alray("run", spec, "--inline", "--output", run, "--json")
    assert (finished.code, finished.json["status"]) == (0, "finished"), finished.err
    assert (Path(run) / "report.html").exists()
    assert finished.json["run_dir"].endswith(r"/caf\udce9/runcaf\udce9")
    resumed = alray("resume", run, "run.steps=6", "--inline", "--json")
    assert resumed.json.get("steps") == 6, resumed.out
    picture = spec.parent / "train" / NAME / f"3{NAME}.png"
    for command in (
        ("report", run),
        ("evaluate", run),
        ("compare", run, run),
        ("predict", run, picture),
        ("plan", spec, "--svg", f"{NAME}.svg"),
        ("init", f"new{NAME}.yaml"),
        ("export", run, "--format", "safetensors"),
    ):
        assert alray(*command).code == 0, command
    (prediction,) = alray("predict", run, picture, "--json").json["predictions"]
    assert prediction["label"] in ("cat", r"caf\udce9")


@pytest.mark.full
def test_what_torch_would_write_itself(alray: Callable[..., Any], spec: Path) -> None:
    run = f"run{NAME}"
    assert alray("run", spec, "--inline", "--output", run, "--profile", "2").code == 0
    assert (Path(run) / "profile").is_dir()
    assert alray("export", run, "--format", "torch_export").code == 0


def test_a_damaged_picture_is_told(alray: Callable[..., Any], spec: Path) -> None:
    picture = spec.resolve().parent / "train" / NAME / f"3{NAME}.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n damaged")
    failed = alray("run", spec, "run.steps=20", "--inline", "--output", "run")
    shown = str(picture).encode("utf-8", "backslashreplace").decode()
    assert failed.code == 2 and shown in failed.errors, "pictures are looked at before the run"
    assert not Path("run").exists()
    missing = alray("validate", f"missing{NAME}.yaml", "--json")
    assert (missing.code, missing.json["errors"][0]["file"]) == (2, r"missingcaf\udce9.yaml")
