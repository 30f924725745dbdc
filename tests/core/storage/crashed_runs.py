"""Tiny runs that something cuts short, and what is required of the folders they leave."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alray.config.loading.load import load_spec
from alray.core.errors import CheckpointError
from alray.core.run_folder.records import Record, effective, read
from alray.core.run_folder.store import manifests, mark, require_new
from alray.core.storage.appended import was_appended
from alray.core.storage.location import Location
from alray.core.storage.objects import ObjectPath
from alray.orchestrate import Finished, Options, open_planner, resume_run, run_spec
from alray.runtime.runner import resume
from alray.runtime.runner.recorder import Recorder
from alray.runtime.runner.resume import Resumed
from alray.runtime.stage.checkpoint import CheckpointFiles
from alray.runtime.workload import DataFacts

SPEC = """\
name: crashed
seed: 3
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 60, batch_size: 10, validation_fraction: 0.2}
model:
  components:
    - {block: vgg, channels: [2]}
    - {block: "python:own_block.Own"}
method: {kind: associated_learning, label_dim: 4}
optimizer: {kind: adam, lr: 3e-3}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
run: {steps: 17, evaluate_every: 6 steps, checkpoint: {every: 5 steps, keep: 1}}
"""
STEPS = 17
OWN = """\
from torch import nn


class Own(nn.Conv2d):
    def __init__(self, input):
        super().__init__(input[0], 2, 1)

    def forward(self, s, mask=None):
        return super().forward(s)
"""
TOKEN = "alray-0"
RUN = "runs/it"
"""The run folder, below the root."""


class Silent:
    """Neither shows nor stops a run."""

    count, reason, error = 0, "on request", None

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: None


@dataclass
class Desk:
    """Where runs are done. root: a folder for them, empty at first; run_dir: that of the run, in the root or on object
    storage; whole: the summary of the run that nothing disturbed."""

    root: Path
    run_dir: Location
    spec: Path
    facts: DataFacts
    whole: dict[str, Any]

    def begin(self, **options: Any) -> Finished:
        given = Options(inline=True, run_dir=self.run_dir, pages=False, **options)
        return run_spec(self.spec, [], given, Silent(), Silent())

    def resume(self) -> Finished:
        return resume_run(self.run_dir, [], Options(inline=True, pages=False), Silent(), Silent(), allow_change=False)

    def to_the_end(self) -> None:
        """Go on as a user would, from whatever is there, and require the bits and the records of the whole run."""
        try:
            ended = self.resume()
        except CheckpointError:
            if isinstance(self.run_dir, ObjectPath):
                self.run_dir.remove()
            ended = self.begin()
        assert ended.error is None
        assert ended.summary.weights_sha256 == self.whole["weights_sha256"]
        assert ended.summary.accuracy.model_dump() == self.whole["accuracy"]
        assert self.steps() == list(range(1, STEPS + 1))

    def steps(self) -> list[int]:
        kept = effective(read(self.run_dir / "records.jsonl"))
        return [record.step for record in kept if record.kind == "step"]

    def clear(self) -> None:
        shutil.rmtree(self.root)
        self.root.mkdir()


@contextmanager
def desk_in(folder: Path) -> Iterator[Desk]:
    """A desk, once the run was done without any trouble."""
    (folder / "own_block.py").write_text(OWN)
    (folder / "crashed.yaml").write_text(SPEC)
    spec = folder / "crashed.yaml"
    planner = open_planner(load_spec(spec), Options(inline=True), Silent())
    made = Desk(folder / "root", folder / "root" / RUN, spec, planner.workload.facts, {})
    made.root.mkdir()
    made.whole = made.begin().summary.model_dump()
    made.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "load_spec", _remembered(load_spec))
        yield made


def _remembered(load: Callable[..., Any]) -> Callable[..., Any]:
    """What a file of the same content was loaded as: of ten thousand folders there are few different specs."""
    known: dict[str, Any] = {}

    def loaded(file: Path, overrides: list[str] | None = None, **more: Any) -> Any:
        key = f"{file} {file.read_bytes()!r} {overrides} {more}"
        if key not in known:
            known[key] = load(file, *([] if overrides is None else [overrides]), **more)
        return known[key]

    return loaded


def records_of(run_dir: Location) -> list[Record]:
    """The records, if there are any."""
    file = run_dir / "records.jsonl"
    return list(read(file)) if was_appended(file) else []


def open_as_a_resume(desk: Desk, run_dir: Location, last: int) -> bool:
    """Open a folder and look at all that a resume takes from it; return whether there is a run to go on with.

    last: the newest checkpoint that must be there.
    """
    try:
        resumed = Resumed.open(run_dir, [], allow_change=False)
    except CheckpointError as error:
        assert last == 0 and not (run_dir / "spec.yaml").exists(), error
        if isinstance(run_dir, Path):
            require_new(run_dir)  # so `alray run` can begin there
        return False
    start, spent_s = resumed.start, resumed.spent_s
    assert start.step >= last
    for manifest in manifests(run_dir):
        files = CheckpointFiles.of(run_dir, manifest)
        for file in files.hashes:
            files.read(file)
    if isinstance(run_dir, ObjectPath):
        mark(run_dir, TOKEN)
    recorder = Recorder(
        run_dir,
        facts=desk.facts,
        batch_size=10,
        keep=1,
        environment={},
        started_wall_s=time.time() - spent_s,
        observers=[],
        token=TOKEN,
    )
    before = records_of(run_dir)
    if start.step > 0 or spent_s > 0:  # as in `alray.orchestrate`
        recorder.began(None, start, again=True)  # type: ignore[arg-type]
    else:
        assert before == []
    recorder.close()
    after = records_of(run_dir)
    assert after[: len(before)] == before
    kept = effective(iter(after))
    assert all(record.step <= start.step for record in kept if record.kind not in ("event", "plan"))
    assert [record.step for record in kept if record.kind == "step"] == list(range(1, start.step + 1))
    return True
