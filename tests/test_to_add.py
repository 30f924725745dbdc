"""The table "to add X, touch these files" of `alray/README.md`: each line is followed in a copy of the package.

A line may change only the files that it names. Then runs use what was added: all of them in one process, which takes a
few seconds to begin.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import alray

PACKAGE = Path(alray.__file__).parent
SPEC = """\
name: added
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 60, batch_size: 10}
model: {components: [{block: linear, width: 6}, {block: linear, width: 5}]}
method: {kind: associated_learning, label_dim: 4}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
optimizer: {kind: adam, lr: 1.0e-2}
run: {epochs: 1}
"""


def table() -> dict[str, list[str]]:
    """The files of each line, by what is added."""
    text = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("## To add X")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| an? ([a-z-]+) \| (.*) \|$", text, re.MULTILINE)
    return {added: re.findall(r"`([^`]+)`", files) for added, files in lines}


TABLE = table()


@dataclass
class Line:
    """A line of the table, followed in a copy of the package: only the files that it names may change."""

    folder: Path
    files: list[str]

    def write(self, file: str, text: str) -> None:
        """A new file."""
        path = self._allowed(file)
        assert not path.exists()
        path.write_text(text, encoding="utf-8")

    def replace(self, file: str, old: str, new: str) -> None:
        """Change one place of a file."""
        path = self._allowed(file)
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def _allowed(self, file: str) -> Path:
        assert any(fnmatch(file, named.replace("<name>", "*")) for named in self.files), f"{file} is not in the table"
        return self.folder / "alray" / file


Following = Generator[list[tuple[str, ...]], list[dict[str, Any]], None]
"""Adds something, gives the overrides of runs that use it, and looks at the summaries of these runs."""


def summaries(folder: Path, runs: Sequence[tuple[str, ...]]) -> list[dict[str, Any]]:
    """What runs by the copy come to, in one process."""
    (folder / "x.yaml").write_text(SPEC, encoding="utf-8")
    commands = [["run", "x.yaml", *own, "--inline", "--run-dir", f"run-{place}"] for place, own in enumerate(runs)]
    program = f"from alray.cli.main import execute\nfor command in {commands}: assert execute(command) == 0, command"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = [folder / f"run-{place}" / "summary.json" for place in range(len(runs))]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Following, list[dict[str, Any]]]]:
    """Every line of the table followed in one copy, in files of its own, and the summaries of its runs."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, folder / "alray")  # compiled files too: those of a changed file are made again
    lines = {added: follow(Line(folder, TABLE[added])) for added, follow in LINES.items()}
    runs = {added: next(following) for added, following in lines.items()}
    left = iter(summaries(folder, [run for own in runs.values() for run in own]))
    return {added: (following, [next(left) for _ in runs[added]]) for added, following in lines.items()}


def test_the_table_has_these_lines() -> None:
    assert list(TABLE) == list(LINES)


@pytest.mark.parametrize("added", TABLE)
def test_the_files_of_a_line_are_there(added: str) -> None:
    for file in TABLE[added]:
        path = PACKAGE / file
        assert path.parent.is_dir() if "<name>" in file else path.is_file(), file


def a_block(copy: Line) -> Following:
    copy.write(
        "nn/blocks/sine.py",
        '''\
"""A linear layer and a sine."""

import torch
from torch import nn

from alray.nn.blocks.registry import register
from alray.nn.shape import Shape


@register("sine")
class Sine(nn.Module):
    """`[N, ...] -> [N, width]`."""

    def __init__(self, input: Shape, *, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input.elements, width)

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return torch.sin(self.linear(s.flatten(1)))
''',
    )
    copy.replace("nn/blocks/__init__.py", "residual, stem,", "residual, sine, stem,")
    copy.replace(
        "spec/blocks.py",
        "class OwnBlock(",
        '''class Sine(BlockSection):
    """A linear layer and a sine."""

    block: Literal["sine"]
    """`sine`."""
    width: Width
    """Output width."""


class OwnBlock(''',
    )
    copy.replace(
        "spec/blocks.py",
        '    Annotated[Vgg, Tag("vgg")]',
        '    Annotated[Sine, Tag("sine")]\n    | Annotated[Vgg, Tag("vgg")]',
    )
    (summary,) = yield [("model.components.0={block: sine, width: 7}", "method=backpropagation")]
    assert summary["parameters"] == (16 * 7 + 7) + (7 * 5 + 5) + (5 * 3 + 3)


def a_source(copy: Line) -> Following:
    copy.write(
        "data/stripes.py",
        '''\
"""Pictures of horizontal and vertical stripes."""

import torch

from alray.data.source import Source, SplitName, TensorSet


class Stripes(Source):
    """Pictures 1 x 4 x 4 of two classes."""

    def __init__(self, *, samples: int) -> None:
        self._samples = samples

    @property
    def classes(self) -> tuple[str, ...]:
        return ("horizontal", "vertical")

    def open(self, split: SplitName) -> TensorSet:
        labels = torch.arange(self._samples) % 2
        rows = torch.tensor([1.0, -1.0, 1.0, -1.0]).expand(1, 4, 4)
        pictures = [rows if label else rows.mT for label in labels]
        return TensorSet(torch.stack(pictures), labels)
''',
    )
    copy.replace(
        "data/registry.py",
        "def _own(",
        """def _stripes(data_spec: spec.Stripes) -> Source:
    from alray.data.stripes import Stripes

    return Stripes(samples=data_spec.samples)


def _own(""",
    )
    copy.replace(
        "data/registry.py", '    "synthetic": _synthetic,', '    "stripes": _stripes,\n    "synthetic": _synthetic,'
    )
    copy.replace(
        "spec/data.py",
        "class OwnData(",
        '''class Stripes(DataSection):
    """Pictures of horizontal and vertical stripes."""

    source: Literal["stripes"]
    """`stripes`."""
    samples: PositiveInt
    """Number of training samples, and of test samples."""


class OwnData(''',
    )
    copy.replace(
        "spec/data.py",
        '    Annotated[Digits, Tag("digits")]',
        '    Annotated[Stripes, Tag("stripes")]\n    | Annotated[Digits, Tag("digits")]',
    )
    stripes = "data={source: stripes, samples: 100, batch_size: 10}"
    (summary,) = yield [(stripes, "method=backpropagation", "run.epochs=9")]
    assert summary["accuracy"]["test"] == 1.0


def a_method(copy: Line) -> Following:
    copy.write(
        "nn/methods/regression.py",
        '''\
"""A linear classifier behind every component, trained by squared errors."""

from torch import nn
from torch.nn import functional

from alray.nn.component import LocalComponent
from alray.nn.methods.method import Method


class Regression(Method):
    """Every depth is a route."""

    def component(self, index, f, facts, make):
        head = make("head", lambda: Flat(facts.output.elements, self.task.classes))
        return RegressionComponent(index, f, head, self.task)

    def ends_route(self, index):
        return True


class Flat(nn.Linear):
    def forward(self, s, mask=None):
        return super().forward(s.flatten(1))


class RegressionComponent(LocalComponent):
    def __init__(self, index, f, head, task):
        super().__init__(index, f)
        self.head, self.classes = head, task.classes
        self.train_with(task.optimizer, encoder=(f, head))

    @property
    def turn(self):
        return self.head

    def local_losses(self, encoded, incoming):
        goal = functional.one_hot(incoming["labels"], self.classes).to(encoded["s"].dtype)
        return {"squared": functional.mse_loss(self.head(encoded["s"]), goal)}, {"labels": incoming["labels"]}
''',
    )
    copy.replace(
        "spec/method.py",
        "class OwnMethod(",
        '''class Regression(MethodSection):
    """A linear classifier behind every component, trained by squared errors."""

    implementation = "alray.nn.methods.regression:Regression"

    kind: Literal["regression"]
    """`regression`."""


class OwnMethod(''',
    )
    copy.replace(
        "spec/method.py",
        '    | Annotated[Backpropagation, Tag("backpropagation")]',
        '    | Annotated[Backpropagation, Tag("backpropagation")]\n    | Annotated[Regression, Tag("regression")]',
    )
    regression = "method={kind: regression}"
    one, two = yield [(regression,), (regression, "pipeline.stages=2", "pipeline.schedule=overlapped")]
    assert (one["method"], len(one["accuracy_per_depth"])) == ("regression", 2)
    assert two["weights_sha256"] == one["weights_sha256"]


def a_schedule(copy: Line) -> Following:
    copy.write(
        "schedules/paired.py",
        '''\
"""paired: as streamed, with a barrier before the update."""

from alray.schedules.durations import Durations
from alray.schedules.local import in_order
from alray.schedules.schedule import Schedule


def bound(durations: Durations, stages: int, micro_batches: int) -> float:
    """The slowest stage."""
    return max(f + b for f, b in zip(durations.forward_s, durations.after_forward_s, strict=True))


SCHEDULE = Schedule(
    name="paired",
    methods="local losses",
    actions=in_order("R F S R.1 L S.1 B W U"),
    bound=bound,
    formula="max(F+B)",
    limited_by="{slowest}",
)
''',
    )
    copy.replace("schedules/table.py", "    parallel_backward,\n", "    paired,\n    parallel_backward,\n")
    copy.replace("schedules/table.py", "    overlapped.SCHEDULE,", "    overlapped.SCHEDULE,\n    paired.SCHEDULE,")
    streamed, paired = yield [(), ("pipeline.schedule=paired", "pipeline.stages=2")]
    assert paired["schedule"] == "paired" and paired["predicted_step_time_s"] > 0
    assert paired["weights_sha256"] == streamed["weights_sha256"]


def an_all_reduce(copy: Line) -> Following:
    copy.write(
        "channel/all_reduce/everyone.py",
        '''\
"""Everyone sends all it has to everyone, and adds up in rank order."""

import torch

from alray.channel.all_reduce.algorithm import AllReduce


class Everyone(AllReduce):
    """a + (n-1) m b."""

    name = "everyone"

    def _sum(self, tensor: torch.Tensor) -> None:
        rows = tensor.new_empty((self.size, tensor.numel()))
        rows[self.rank].copy_(tensor)
        self._gather(rows)
        tensor.zero_()
        for row in rows:
            tensor += row

    def _gather(self, rows: torch.Tensor) -> None:
        peers = [peer for peer in range(self.size) if peer != self.rank]
        self._exchange(
            receive=[(rows[peer], peer) for peer in peers], send=[(rows[self.rank], peer) for peer in peers]
        )
''',
    )
    copy.replace(
        "channel/all_reduce/registry.py",
        "from alray.channel.all_reduce.halving",
        "from alray.channel.all_reduce.everyone import Everyone\nfrom alray.channel.all_reduce.halving",
    )
    copy.replace("channel/all_reduce/registry.py", "(Backend, Ring,", "(Backend, Everyone, Ring,")
    copy.replace("spec/replicas.py", 'Literal["backend", ', 'Literal["backend", "everyone", ')
    (summary,) = yield [("replicas={count: 2, all_reduce: everyone}",)]
    assert summary["all_reduce_bytes"] == 2 * summary["steps"] * 4 * summary["parameters"]


def a_chart(copy: Line) -> Following:
    copy.replace(
        "report/run_figures.py",
        "FIGURES: tuple[",
        '''def learning_rate(run: RunFolder) -> Exhibit:
    """The learning rate of the encoders. Source: records.jsonl."""
    steps = [record for record in run.kept if isinstance(record, StepRecord)]
    rows = [{"series": "encoders", "kind": MEASURED, "step": each.step, "rate": each.lr} for each in steps]
    curves = Curves(_STEPS, Scale("rate", "learning rate"), colours_of(["encoders"]))
    return Exhibit("Learning rate", (curves.figure("rate", "Learning rate", "Rate of the encoders.", rows),))


FIGURES: tuple[''',
    )
    copy.replace("report/run_figures.py", "= (network, losses,", "= (network, losses, learning_rate,")
    (summary,) = yield [()]
    page = (copy.folder / summary["report"]).read_text(encoding="utf-8")
    assert '"rate":' in page.partition('<h2 id="accuracy">')[0].partition('<h2 id="learning-rate">')[2]


def a_tracker(copy: Line) -> Following:
    copy.write(
        "report/trackers/tally.py",
        '''\
"""Counts the points of a run."""

from pathlib import Path

from alray.report.trackers.tracker import Tracker


class Tally(Tracker):
    """Writes their number to a file at the end."""

    def __init__(self, file: str) -> None:
        self._file, self._count = Path(file), 0

    def write(self, points) -> None:
        self._count += sum("lr" in point.scalars for point in points)

    def end(self, status) -> None:
        self._file.write_text(f"{status} {self._count}")
''',
    )
    copy.replace(
        "spec/trackers.py",
        "class OwnTracker(",
        '''class Tally(TrackerSection):
    """Counts points."""

    implementation = "alray.report.trackers.tally:Tally"

    kind: Literal["tally"]
    """`tally`."""
    file: str
    """Where it writes."""


class OwnTracker(''',
    )
    copy.replace(
        "spec/trackers.py",
        'Annotated[Mlflow, Tag("mlflow")]',
        'Annotated[Tally, Tag("tally")] | Annotated[Mlflow, Tag("mlflow")]',
    )
    (summary,) = yield [("run.trackers=[{kind: tally, file: tally.txt}]",)]
    assert (copy.folder / "tally.txt").read_text(encoding="utf-8") == f"finished {summary['steps']}"


LINES: dict[str, Callable[[Line], Following]] = {
    "block": a_block,
    "source": a_source,
    "method": a_method,
    "schedule": a_schedule,
    "all-reduce": an_all_reduce,
    "chart": a_chart,
    "tracker": a_tracker,
}


@pytest.mark.parametrize("added", LINES)
def test_what_is_added_is_used(followed: dict[str, tuple[Following, list[dict[str, Any]]]], added: str) -> None:
    following, found = followed[added]
    assert {summary["status"] for summary in found} == {"finished"}
    with pytest.raises(StopIteration):
        following.send(found)
