"""The table "to add X, touch these files" of `alray/README.md`: docs/extending.md has a whole example of each line.

The examples are made in a copy of the package, which may be changed only in the files that the line names. Then a run
uses what was added.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import alray

PACKAGE = Path(alray.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
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
CHANGE = re.compile(
    r"^`([^`]+)` is new:\n\n```python\n(.*?)```$"
    r"|^In `([^`]+)`, before `([^`]+)`:\n\n```python\n(.*?)```$"
    r"|^In `([^`]+)`, `([^`]+)` becomes `([^`]+)`\.$",
    re.DOTALL | re.MULTILINE,
)
"""What the page says of a file, in one of three forms."""


def examples() -> dict[str, str]:
    """The sections of the page, by what is added."""
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {re.match(r"An? (.*)\n", text)[1].replace("figure", "chart"): text for text in sections}  # type: ignore[index]


@dataclass
class Copy:
    """A copy of the package in which only the files of one line may change."""

    folder: Path
    files: list[str]

    def follow(self, example: str) -> None:
        """Make the changes that a section of the page shows."""
        changes = list(CHANGE.finditer(example))
        assert example.count("```python") + example.count("` becomes `") == len(changes) > 1
        for change in changes:
            new, block, file, anchor, code, changed, old, by = change.groups()
            path = self._allowed(new or file or changed)
            if new:
                assert not path.exists()
                path.write_text(block, encoding="utf-8")
            else:
                text = path.read_text(encoding="utf-8")
                places = re.findall(re.escape(anchor or old).replace("\\ ", r"\s+"), text)
                assert len(places) == 1, f"{path} has `{anchor or old}` {len(places)} times"
                path.write_text(text.replace(places[0], by or f"{code}\n\n{places[0]}"), encoding="utf-8")

    def run(self, *overrides: str) -> dict[str, Any]:
        """The summary of a run by the copy."""
        return self.run_each(overrides)[0]

    def run_each(self, *runs: tuple[str, ...]) -> list[dict[str, Any]]:
        """The summaries of runs by the copy with these overrides, in a process of their own."""
        (self.folder / "x.yaml").write_text(SPEC, encoding="utf-8")
        commands = [
            ["run", "x.yaml", *overrides, "--inline", "--run-dir", f"run-{number}"]
            for number, overrides in enumerate(runs)
        ]
        program = (
            f"from alray.cli.main import execute; assert [execute(each) for each in {commands}] == [0] * {len(runs)}"
        )
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        files = [self.folder / f"run-{number}" / "summary.json" for number in range(len(runs))]
        summaries: list[dict[str, Any]] = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        assert {summary["status"] for summary in summaries} == {"finished"}
        return summaries

    def _allowed(self, file: str) -> Path:
        assert any(fnmatch(file, named.replace("<name>", "*")) for named in self.files), f"{file} is not in the table"
        return self.folder / "alray" / file


@pytest.fixture
def copy(tmp_path: Path, request: pytest.FixtureRequest) -> Copy:
    """With what the line that a test is about adds: `test_a_block` is about the line "a block"."""
    added = request.function.__name__.removeprefix("test_a_").removeprefix("test_an_").replace("_", "-")
    shutil.copytree(PACKAGE, tmp_path / "alray")  # compiled files too: those of a changed file are made again
    copied = Copy(tmp_path, TABLE[added])
    copied.follow(examples()[added])
    return copied


def test_the_table_has_these_lines() -> None:
    assert (
        list(TABLE) == list(examples()) == ["block", "source", "method", "schedule", "all-reduce", "chart", "tracker"]
    )


@pytest.mark.parametrize("added", TABLE)
def test_the_files_of_a_line_are_there(added: str) -> None:
    for file in TABLE[added]:
        path = PACKAGE / file
        assert path.parent.is_dir() if "<name>" in file else path.is_file(), file


def test_a_block(copy: Copy) -> None:
    summary = copy.run("model.components.0={block: sine, width: 7}", "method=backpropagation")
    assert summary["parameters"] == (16 * 7 + 7) + (7 * 5 + 5) + (5 * 3 + 3)


def test_a_source(copy: Copy) -> None:
    summary = copy.run("data={source: stripes, samples: 100, batch_size: 10}", "method=backpropagation", "run.epochs=9")
    assert summary["accuracy"]["test"] == 1.0


def test_a_method(copy: Copy) -> None:
    regression = "method={kind: regression}"
    one, two = copy.run_each((regression,), (regression, "pipeline.stages=2", "pipeline.schedule=overlapped"))
    assert (one["method"], len(one["accuracy_per_depth"])) == ("regression", 2)
    assert two["weights_sha256"] == one["weights_sha256"]


def test_a_schedule(copy: Copy) -> None:
    streamed, paired = copy.run_each((), ("pipeline.schedule=paired", "pipeline.stages=2"))
    assert paired["schedule"] == "paired" and paired["predicted_step_time_s"] > 0
    assert paired["weights_sha256"] == streamed["weights_sha256"]


def test_an_all_reduce(copy: Copy) -> None:
    summary = copy.run("replicas={count: 2, all_reduce: everyone}")
    assert summary["all_reduce_bytes"] == 2 * summary["steps"] * 4 * summary["parameters"]


def test_a_chart(copy: Copy) -> None:
    page = Path(copy.run()["report"]).read_text(encoding="utf-8")
    assert '"rate":' in page.partition('<h2 id="accuracy">')[0].partition('<h2 id="learning-rate">')[2]


def test_a_tracker(copy: Copy) -> None:
    steps = copy.run("run.trackers=[{kind: tally, file: tally.txt}]")["steps"]
    assert (copy.folder / "tally.txt").read_text(encoding="utf-8") == f"finished {steps}"
