"""A user's trackers, which may fail. Those of packages are in `tests/test_plugins.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from alray.cli.main import execute
from alray.config.user_code import UserCode
from alray.core.errors import SpecError
from alray.core.run_folder.records import Record
from alray.report.trackers import make
from alray.report.trackers.follow import watched
from alray.report.trackers.tracker import TrackedPoint, TrackedRun, Tracker

SPEC = """\
name: tracked
seed: 5
data: {source: synthetic, shape: [2, 4, 4], classes: 4, samples: 200, batch_size: 8}
model: {components: [{block: vgg, channels: [4]}, {block: vgg, channels: [6], pool: true}]}
optimizer: {kind: adam, lr: 1.0e-2}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 2e-3, update_s: 1e-3}, *cost]}
run:
  epochs: 1
  trackers: [{kind: "python:lines.Lines", file: LINES}]
"""
STEPS_PER_EPOCH = 22

LINES = '''\
"""A tracker that writes lines of JSON."""

import json
from pathlib import Path

from alray.report.trackers.tracker import Tracker


class Lines(Tracker):
    def __init__(self, file):
        self._file = Path(file)

    def start(self, run):
        self._tell("start", run.name, run.id, run.study, run.parameters["optimizer.lr"])
        return "mine"

    def write(self, points):
        for point in points:
            self._tell("point", point.step, sorted(point.scalars))

    def end(self, status):
        self._tell("end", status)

    def _tell(self, *words):
        with self._file.open("a") as file:
            file.write(json.dumps(words) + "\\n")
'''


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run of one epoch that was resumed for another one, and all that its trackers wrote."""
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "lines.py").write_text(LINES)
    (folder / "spec.yaml").write_text(SPEC.replace("LINES", str(folder / "lines.jsonl")))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert execute(["run", "spec.yaml", "--inline", "--output", "out"]) == 0
        assert execute(["resume", "out", "--inline", "run.epochs=2"]) == 0
        yield folder


@pytest.mark.full
def test_a_tracker_of_ones_own_goes_on_after_a_resume(tracked: Path) -> None:
    lines = [json.loads(line) for line in (tracked / "lines.jsonl").read_text().splitlines()]
    assert [line for line in lines if line[0] != "point"] == [
        ["start", "out", None, None, 0.01],
        ["end", "finished"],
        ["start", "out", "mine", None, 0.01],
        ["end", "finished"],
    ]
    points = [line[1:] for line in lines if line[0] == "point"]
    assert [step for step, tags in points if "lr" in tags] == list(range(1, 2 * STEPS_PER_EPOCH + 1))
    assert [step for step, tags in points if not tags] == [STEPS_PER_EPOCH], "the restart"


class Mine(Tracker):
    """Keeps what it is given, and does something before."""

    def __init__(self, before: Callable[[str], None] = lambda what: None) -> None:
        self.before = before
        self.run: TrackedRun | None = None
        self.points: list[TrackedPoint] = []
        self.ended: str | None = None

    def start(self, run: TrackedRun) -> str:
        self.before("start")
        self.run = run
        return "7"

    def write(self, points: Sequence[TrackedPoint]) -> None:
        self.before("write")
        self.points += points

    def end(self, status: str) -> None:
        self.before("end")
        self.ended = status


@pytest.fixture
def watch(load_small: Callable[..., Any], tmp_path: Path, given: ModuleType) -> Callable[..., list[str]]:
    """Gives the records of a run to a tracker; returns the notes."""

    (tmp_path / "0003").mkdir()

    def give(tracker: Tracker, records: Sequence[Record] | None = None, study: Path | None = None) -> list[str]:
        notes: list[str] = []
        spec, trackers = load_small().spec, {"python:mine.Mine": tracker}
        with watched(tmp_path / "0003", spec, trackers, pages=False, study=study, note=notes.append) as take:
            for record in given.example_records(given.example_plan()) if records is None else records:
                take(record)
        return notes

    return give


def test_it_is_told_everything_and_how_the_run_ended(watch: Any, given: ModuleType) -> None:
    tracker = Mine()
    records = given.example_records(given.example_plan())
    assert watch(tracker, [*records, given.event("interrupted", 40, 2.0)]) == []
    assert [point.step for point in tracker.points if "lr" in point.scalars] == list(range(1, 41))
    assert tracker.ended == "interrupted"


@pytest.mark.parametrize("when", ["start", "write", "end"])
def test_one_that_fails_is_told_once_and_then_left_alone(watch: Any, when: str) -> None:
    called: list[str] = []

    def fail(what: str) -> None:
        called.append(what)
        if what == when and called.count(what) == (2 if when == "write" else 1):
            raise ConnectionError("the server is gone")

    (note,) = watch(Mine(fail))
    assert note.startswith(f"{__file__}:")
    assert f": tracker `python:mine.Mine` raised ConnectionError in {when}: the server is gone; " in note
    assert note.endswith("it gets nothing more of this run; records.jsonl has everything")
    assert called[-1] == when


def test_a_trial_has_the_name_of_its_study_and_ids_of_other_trackers_stay(watch: Any, tmp_path: Path) -> None:
    ids = tmp_path / "0003/trackers.json"
    ids.write_text('{"mlflow": "5"}')
    for known in (None, "7"):
        tracker = Mine()
        assert watch(tracker, study=tmp_path / "widths-1") == []
        assert tracker.run is not None
        assert (tracker.run.name, tracker.run.study, tracker.run.id) == ("widths-1-0003", "widths-1", known)
        assert json.loads(ids.read_text()) == {"mlflow": "5", "python:mine.Mine": "7"}


def test_a_run_without_points_begins_none(watch: Any) -> None:
    tracker = Mine()
    assert watch(tracker, []) == []
    assert tracker.ended is None


@pytest.mark.parametrize(
    ("trackers", "code", "said"),
    [
        ("['python:own_blocks.Its']", "class Its: pass", "is not a subclass of alray.Tracker"),
        (
            "[{kind: 'python:own_blocks.Its', size: 3}]",
            "from alray.report.trackers.tracker import Tracker\nclass Its(Tracker):\n    def write(self, points): ...",
            "cannot be made: TypeError: Its() takes no arguments",
        ),
    ],
)
def test_what_is_wrong_with_one_is_told_before_anything_runs(
    load_small: Callable[..., Any], trackers: str, code: str, said: str
) -> None:
    loaded = load_small(f"run.trackers={trackers}", code=code)
    with pytest.raises(SpecError) as caught:
        make.make_trackers(loaded.spec, UserCode(loaded.folder))
    assert said in str(caught.value)


def test_each_is_named_once(load_small: Callable[..., Any]) -> None:
    with pytest.raises(SpecError, match=r"`python:mine\.Mine` is there twice"):
        load_small("run.trackers=['python:mine.Mine', 'python:mine.Mine']")
