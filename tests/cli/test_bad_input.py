"""What a user does wrong, through the real command line: file, line and key of the message, and the exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from alray.runtime.device.machine_memory import machine_memory_bytes

from .conftest import TINY, Answer

MEASURED = "pipeline.costs=null"
"""Without given costs the probe reads the first mini-batch, before there is a run."""
DATA = "{source: synthetic, shape: [1, 4, 4], classes: 3, samples: 100, batch_size: 10}"
IMAGES = "{source: image_folder, train: images, image_size: 4, batch_size: 4}"
SOURCE = """\
import torch


class Samples:
    classes = ("cat", "dog")

    def open(self, split):
        return [(torch.zeros(1, 4, 4), number % 2) for number in range(30)] if split == "train" else None
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    """A folder of the test, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refusal(alray: Callable[..., Answer]) -> Callable[..., str]:
    """`refusal(*overrides, text=TINY)`: what `alray run x.yaml` says; it ends with 2 and leaves no run behind."""

    def run(*overrides: str, text: str | bytes = TINY, file: str = "x.yaml") -> str:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(text if isinstance(text, bytes) else text.encode())
        said = alray("run", file, *overrides, "--inline")
        assert (said.code, said.out) == (2, "")
        assert not (Path("runs").exists() and list(Path("runs").glob("*/summary.json")))
        return re.sub(r"(?m)^\d+\.\d s: .*\n", "", said.errors)  # what was being done, and for how long

    return run


def spec(old: str, new: str) -> str:
    """The spec with one place changed."""
    assert TINY.count(old) == 1
    return TINY.replace(old, new)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "x.yaml:1: "),
        (b"PK\x03\x04", "x.yaml:1: not YAML: "),
        (TINY.encode("utf-16"), "x.yaml:1: "),
    ],
    ids=["picture", "zip", "UTF-16"],
)
def test_a_file_that_is_no_spec(refusal: Callable[..., str], content: bytes, place: str) -> None:
    message = refusal(text=content)
    assert message.startswith(place) and message.count("\n") == 1


@pytest.mark.full
def test_what_is_no_spec_is_refused_before_it_is_read(alray: Callable[..., Answer], folder: Path) -> None:
    """A device has no end, a pipe waits, and PyYAML takes minutes for megabytes."""
    os.mkfifo("pipe")
    (folder / "comments.yaml").write_text("# so many comments\n" * 100_000)
    (folder / "list.yaml").write_text(f"{TINY}more: [{'1, ' * 300_000}]\n")
    (folder / "keys.yaml").write_text(TINY + "".join(f"k{number}: 1\n" for number in range(9_000)))
    begun_s = time.process_time()
    for file, message in (
        ("/dev/zero", "this is a device or a pipe, not a file; "),
        ("pipe", "this is a device or a pipe, not a file; "),
        ("comments.yaml", "the file has more than 1,000,000 bytes, which no spec needs; "),
        ("list.yaml", "the file has more than 20,000 keys and values; shorten its lists and sections"),
        ("keys.yaml", "k0: unknown key; "),
        ("9" * 5_000, "cannot be read: File name too long; "),
        ("none.yaml", "none.yaml: the file does not exist; "),
        ("lits.yaml", "lits.yaml: the file does not exist; did you mean `list.yaml`?"),
        ("optimizer.lr:0.1", "the file does not exist; give the spec first"),
        ("--optimizer.lr=0.1", "did you mean `optimizer.lr=0.1`?"),
        (".", ".: this is a folder; "),
    ):
        said = alray("validate", file)
        assert said.code == 2 and message in said.errors and len(said.errors) < 40_000, file
    assert time.process_time() - begun_s < 10


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("validate circle.yaml", "circle.yaml"),
        ("run base.yaml --inline", "circle.yaml"),
        ("plan circle/x.yaml", "circle/x.yaml"),
        ("study circle.yaml", "circle.yaml"),
        ("plan x.yaml pipeline.costs=circle.yaml", "pipeline.costs"),
        ("plan table.yaml", "circle.csv"),
        ("run x.yaml --inline --output circle/run", "circle/run"),
        ("resume circle", "circle"),
        ("evaluate circle", "circle"),
        ("report there", "there"),
    ],
)
def test_a_link_that_leads_back_to_itself(alray: Callable[..., Answer], folder: Path, command: str, named: str) -> None:
    for name in ("circle.yaml", "circle", "circle.csv"):
        (folder / name).symlink_to(name)
    (folder / "there").symlink_to("back")
    (folder / "back").symlink_to("there")
    (folder / "x.yaml").write_text(TINY)
    (folder / "base.yaml").write_text("base: circle.yaml\n")
    (folder / "table.yaml").write_text(spec(DATA, "{source: table, train: circle.csv, batch_size: 10}"))
    said = alray(*command.split())
    assert said.code == 2 and named in said.errors.splitlines()[-1], said.errors


def test_numbers_and_names_of_5000_digits(
    alray: Callable[..., Answer], refusal: Callable[..., str], folder: Path
) -> None:
    digits = "9" * 5_000
    assert refusal(f"run.steps={digits}").startswith("command line: run.steps: ")
    assert "command line: run.steps: " in alray("validate", "x.yaml", f"run.steps={digits}").errors
    for command in (("init", ""), ("init", "."), ("report", digits), ("predict", digits, "x"), ("list", digits)):
        said = alray(*command)
        assert said.code == 2 and "; " in said.errors, command
    (folder / "train.csv").write_text(f'"1","good words"\n"{digits}","bad words"\n"1","more words"\n')
    data = "{source: text_csv, train: train.csv, batch_size: 1, header: false}"
    embedding = "    - {block: embedding, dim: 4}\n    - {block: lstm, hidden: 4}\n    - {block: lstm, hidden: 4}\n"
    text = spec(DATA, data)
    before, _, after = text.partition("    - {block: vgg, channels: [2]}\n")
    text = before + embedding + after[after.index("method:") :]
    assert f"{folder / 'train.csv'}:2: " in refusal(MEASURED, text=text)


def test_windows_line_ends_are_taken_and_counted_as_lines(
    refusal: Callable[..., str], alray: Callable[..., Answer]
) -> None:
    wrong = spec("epochs: 2", "epochs: 0").replace("\n", "\r\n")
    assert refusal(text=wrong.encode()).startswith("x.yaml:10: run.epochs: ")
    Path("x.yaml").write_bytes(TINY.replace("\n", "\r\n").encode())
    assert alray("validate", "x.yaml").code == 0


def test_a_path_with_spaces_and_letters_of_any_alphabet(refusal: Callable[..., str]) -> None:
    file = "mein Ordner/größe 試.yaml"
    wrong = spec("epochs: 2", "epochs: 0")
    assert refusal(text=wrong, file=file).startswith(f"{file}:10: run.epochs: ")


def test_a_model_without_components(refusal: Callable[..., str]) -> None:
    before, _, after = TINY.partition("  components:\n")
    text = before + "  components: []\n" + after[after.index("method:") :]
    assert refusal(text=text).startswith("x.yaml:4: model.components: ")


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("optimizer.learning_rate=0.1", "optimizer.learning_rate: "),
        ("run.epochs: 3", "`run.epochs: 3` does not have the form key=value; "),
        ("run.epochs==3", "run.epochs: "),
        ("method.label_dim='4'", "method.label_dim: "),
        ('name="tiny', 'name: `"tiny`: not YAML: '),
        ("resources.device=cuda", "resources.device: "),
        ("data.batch_size=1000000000000000000000", "data.batch_size: "),
        ("data.samples=100000000000000", "data.samples: "),
    ],
)
def test_an_override_that_cannot_be(refusal: Callable[..., str], override: str, key: str) -> None:
    message = refusal(override)
    assert message.startswith(f"command line: {key}") and message.count("\n") == 1


@pytest.mark.parametrize(
    ("override", "most"),
    [
        ("method.label_dim=100000000000", 1000000),
        ("resources.threads=100000", 1024),
        ("pipeline.in_flight=1000000000000", 1024),
        ("model.components[0].repeat=1000000000", 1000),
    ],
)
def test_a_number_too_large(refusal: Callable[..., str], override: str, most: int) -> None:
    key, _, value = override.partition("=")
    assert refusal(override).startswith(f"command line: {key}: must be at most {most}, got {value}; write ")


def test_a_component_that_no_memory_holds(refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alray.runtime.planner.memory_limits.machine_memory_bytes", lambda: 16_000_000_000)
    message = refusal("method.label_dim=1000000")
    assert message.startswith("x.yaml:6: model.components[1]: ") and "8,000.1 GB" in message and "16.0 GB" in message
    assert machine_memory_bytes() > 0


def test_stages_on_gpus_where_there_are_none(refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    message = refusal("resources.per_stage={CPU: 1, GPU: 1}")
    assert message.startswith("command line: resources.device: this machine has no GPU that torch can use; ")


@pytest.mark.few
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (DATA, IMAGES, "x.yaml:2: data.train: there is no folder"),
        (DATA, "{source: 'python:mine.Nowhere', batch_size: 4}", "x.yaml:2: data.source: `python:mine.Nowhere`: "),
        ("{kind: associated_learning, label_dim: 4}", "'python:mine.Nowhere'", "x.yaml:8: method.kind: `python:mine."),
        ("epochs: 2", "epochs: 2, trackers: ['python:mine.Nowhere']", "x.yaml:10: run.trackers[0].kind: `python:mine."),
        (
            "epochs: 2",
            "epochs: 2, trackers: ['python:mine.Other']",
            "x.yaml:10: run.trackers[0]: `python:mine.Other` is ",
        ),
    ],
    ids=["folder", "source", "method", "tracker", "no tracker"],
)
def test_what_is_not_there_is_told_as_validate_tells_it(
    refusal: Callable[..., str], alray: Callable[..., Answer], folder: Path, old: str, new: str, said: str
) -> None:
    (folder / "mine.py").write_text("class Other:\n    pass\n")
    message = refusal(text=spec(old, new))
    assert message.startswith(said)
    assert alray("validate", "x.yaml", "--deep").errors.endswith(message)


TWO_LAYERS = """\
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 3))
"""


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("pipeline={stages: 4, schedule: naive}",), "pipeline.stages: 4 stages, but `python:net.Net` can be cut into"),
        (("pipeline.partition=[2, 2]",), "pipeline.partition: [2, 2] covers 4 components, but the model has 1"),
        (
            ("pipeline.schedule=interleaved_1f1b", "pipeline.virtual_stages=2"),
            "pipeline.stages: 2 stages, but `python:net.Net` can be cut into at most 1 component",
        ),
    ],
    ids=["stages", "partition", "virtual stages"],
)
def test_stages_that_do_not_suit_a_model_are_refused_before_it_is_measured(
    alray: Callable[..., Answer], folder: Path, overrides: tuple[str, ...], said: str
) -> None:
    """What a model is cut into is known once it is opened."""
    (folder / "net.py").write_text(TWO_LAYERS)
    text = "name: n\nmodel: {from: 'python:net.Net'}\nmethod: backpropagation\nrun: {steps: 1}\n"
    (folder / "x.yaml").write_text(f"{text}data: {DATA}\npipeline: {{stages: 2, micro_batches: 2}}\n")
    answer = alray("run", "x.yaml", "--inline", *overrides)
    assert answer.code == 2 and said in answer.errors and "measuring" not in answer.errors, answer.errors


def test_no_compiler_is_told_before_there_is_a_run(
    refusal: Callable[..., str], alray: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    text = spec("epochs: 2", "epochs: 2, compile: true")
    message = refusal(MEASURED, text=text)
    assert message.startswith("x.yaml:10: run.compile: torch.compile needs a C++ compiler")
    assert alray("validate", "x.yaml", "--deep", MEASURED).errors.endswith(message)
    assert refusal(text=text) == message


def test_a_last_mini_batch_with_fewer_samples_than_replicas(refusal: Callable[..., str], folder: Path) -> None:
    """Only the data tells how many samples there are. Nothing is trained before that."""
    (folder / "few_samples.py").write_text(SOURCE)
    data = "{source: 'python:few_samples.Samples', batch_size: 7, validation_fraction: 0, last_batch: keep}"
    said = refusal("replicas.count=3", text=spec(DATA, data))
    assert said.startswith("x.yaml:2: data.last_batch: ") and "2 samples" in said and "3 replicas" in said


@pytest.mark.parametrize(
    ("overrides", "key", "which"),
    [
        (("data.batch_size=1",), "data.batch_size", "a mini-batch"),
        (("data.batch_size=2", "replicas.count=2"), "data.batch_size", "a part of a mini-batch"),
        (("data.batch_size=89", "data.last_batch=keep"), "data.last_batch", "the last mini-batch of an epoch"),
        (
            ("data.batch_size=86", "data.last_batch=keep", "replicas={count: 2, balance: dynamic_batch_size}"),
            "data.last_batch",
            "a part of the last mini-batch",
        ),
    ],
    ids=["alone", "shared", "last", "dealt"],
)
def test_a_sample_of_one_pixel_is_not_normalised(
    refusal: Callable[..., str], overrides: tuple[str, ...], key: str, which: str
) -> None:
    text = spec(DATA, DATA.replace("4, 4", "1, 1")).replace("pool: true", "pool: false")
    said = refusal(*overrides, text=text)
    assert f"{key}: {which} has one sample, in which component 0 (block `vgg`) has one value of each channel" in said


def test_one_sample_of_several_pixels_is(alray: Callable[..., Answer], folder: Path) -> None:
    (folder / "x.yaml").write_text(TINY)
    assert alray("run", "x.yaml", "--inline", "data.batch_size=1", "run={steps: 2}", "--output", "run").code == 0


@pytest.mark.few
@pytest.mark.parametrize(
    ("part", "offset", "noun"),
    [
        ("component-01.safetensors", -1, "SHA-256"),
        ("component-02.safetensors", 9, "SHA-256"),
        ("manifest.json", 0, "not JSON: "),
    ],
)
def test_a_checkpoint_with_a_flipped_byte(
    alray: Callable[..., Answer], ended: Path, folder: Path, part: str, offset: int, noun: str
) -> None:
    run_dir = folder / "damaged"
    shutil.copytree(ended, run_dir)
    damaged = max(run_dir.glob(f"checkpoints/*/{part}"))
    content = bytearray(damaged.read_bytes())
    content[offset] ^= 1
    damaged.write_bytes(content)
    said = alray("evaluate", "damaged")
    assert (said.code, said.out) == (2, "") and said.errors.startswith(f"{damaged}:")
    assert noun in said.errors and "step-00000018" in said.errors
    # No command makes a damaged folder a run that failed: a resume that is refused changes nothing in it.
    before = {file: file.read_bytes() for file in run_dir.rglob("*") if file.is_file()}
    going_on = alray("resume", "damaged", "--inline", "run.epochs=3")
    assert going_on.code == 2 and noun in going_on.errors
    assert {file: file.read_bytes() for file in run_dir.rglob("*") if file.is_file()} == before


@pytest.mark.few
@pytest.mark.timeout(60)  # reading a pipe would not end
@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("checkpoints/step-00000018/component-01.safetensors", ("resume", "evaluate")),
        ("checkpoints/step-00000018/manifest.json", ("resume", "evaluate")),
        ("records.jsonl", ("resume",)),
    ],
)
@pytest.mark.parametrize("what", ["a pipe", "a link to a device", "a folder"])
def test_something_else_in_the_place_of_a_file(
    alray: Callable[..., Answer], ended: Path, folder: Path, name: str, commands: tuple[str, ...], what: str
) -> None:
    file = shutil.copytree(ended, folder / "damaged") / name
    file.unlink()
    if what == "a pipe":
        os.mkfifo(file)
    elif what == "a folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    for command in commands:
        more = ("--inline", "run.epochs=3") if command == "resume" else ()
        said = alray(command, "damaged", *more)
        links = command == "resume" and what == "a link to a device"
        told = "nothing is written through symbolic links" if links else "a folder, a pipe or a device, not a file"
        assert said.code == 2 and told in said.errors, command


def test_a_study_folder_and_trackers_that_are_damaged(alray: Callable[..., Answer], ended: Path, folder: Path) -> None:
    study = folder / "studies" / "one"
    shutil.copytree(ended, folder / "studies" / "two")
    study.mkdir()
    (study / "x.yaml").write_text(TINY)
    begun: dict[str, object] = {"study": "one", "base": "x.yaml", "spec": {"verdicts": []}, "code": {}, "objects": {}}
    begun |= {"points": [], "skipped": [], "trials": []}
    for file, bad in (
        ("trials.json", json.dumps({**begun, "trials": [{}]})),
        ("trials.json", json.dumps({**begun, "spec": {"verdicts": ["a claim"]}})),
        ("study.yaml", "study: one\nbase: x.yaml\naxes: {seed: 3}\n"),
    ):
        (study / "study.yaml").write_text("study: one\nbase: x.yaml\n")
        (study / "trials.json").write_text(json.dumps(begun))
        assert alray("report", str(study)).code == 0
        (study / file).write_text(bad)
        for command in (("report", str(study)), ("study", "--resume", str(study))):
            said = alray(*command)
            assert said.code == 2 and str(study / file) in said.errors, command
        rows = json.loads(alray("list", "--json").out)["runs"]
        assert sorted(row["state"] for row in rows) == ["damaged", "finished"]
    shutil.copytree(ended, folder / "tracked")
    (folder / "tracked" / "trackers.json").write_text("[1]")
    said = alray("resume", "tracked", "--inline", "run.epochs=3")
    assert said.code == 2 and "trackers.json: not written by alray: " in said.errors


@pytest.mark.parametrize("data", ['"x"', '{"train": "many"}', "[]"])
def test_a_checkpoint_that_no_longer_knows_its_data(
    alray: Callable[..., Answer], ended: Path, folder: Path, data: str
) -> None:
    shutil.copytree(ended, folder / "damaged")
    manifest = max(folder.glob("damaged/checkpoints/*/manifest.json"))
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "data": json.loads(data)}))
    for command in ("evaluate", "resume"):
        said = alray(command, "damaged")
        assert said.code == 2 and f"{manifest}: not written by alray: " in said.errors


def test_what_is_no_run_folder(alray: Callable[..., Answer], ended: Path, folder: Path) -> None:
    (folder / "x.yaml").write_text("")
    for command in ("report", "resume", "evaluate"):
        assert "x.yaml: this is a file, not a run folder; " in alray(command, "x.yaml").errors, command
    (folder / "empty").mkdir()
    shutil.copytree(ended, folder / "bare")
    shutil.rmtree(folder / "bare" / "checkpoints")
    for name, noun in (("nosuch", "no such run folder"), ("empty", "spec.yaml"), ("bare", "`alray resume`")):
        said = alray("evaluate", name)
        assert (said.code, said.out) == (2, "") and f"{name}: " in said.errors and noun in said.errors
