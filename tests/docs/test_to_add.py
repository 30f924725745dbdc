"""The table "to add X, touch these files" of `alray/README.md`: docs/extending.md has a whole example of each line.

All examples are made in one copy of the package, each in the files that its line names. Then runs use what was added:
all of them in one process, which takes a few seconds to begin.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import alray
from alray.core.run_folder.records import StepRecord, read

PACKAGE = Path(alray.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
SPEC = """\
name: added
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 60, batch_size: 10}
model: {components: [{block: linear, width: 6}, {block: linear, width: 5}]}
method: {kind: associated_learning, label_dim: 4}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
optimizer: {kind: adam, lr: 1.0e-2}
run: {epochs: 1}
"""


def table() -> dict[str, str]:
    """The folder or file of each line, by what is added."""
    text = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("## To add X")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| an? ([a-z-]+) \| `([^`]+)` \|", text, re.MULTILINE))


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
    sections = PAGE.read_text(encoding="utf-8").split("\n### ")[1:]
    titles = {text: re.match(r"An? (.*)\n", text) for text in sections}
    return {title[1]: text for text, title in titles.items() if title is not None}


REGRESSION = "method={kind: regression}"
RUNS: dict[str, list[tuple[str, ...]]] = {
    "block": [("model.components.0={block: sine, width: 7}", "method=backpropagation")],
    "source": [("data={source: stripes, samples: 100, batch_size: 10}", "method=backpropagation", "run.epochs=9")],
    "method": [(REGRESSION,), (REGRESSION, "pipeline.stages=2", "pipeline.schedule=overlapped")],
    "task": [("task={kind: quantile, share: 0.8}",), ("task={kind: quantile}", "method=backpropagation")],
    "optimizer": [("optimizer={kind: sign, lr: 1.0e-3}",)],
    "rate": [("lr_schedule={kind: root, over: 3}",)],
    "schedule": [(), ("pipeline.schedule=paired", "pipeline.stages=2")],
    "all-reduce": [("replicas={count: 2, all_reduce: everyone}",)],
    "compression": [("replicas={count: 2, compression: signs}",)],
    "figure": [()],
    "tracker": [("run.trackers=[{kind: tally, file: tally.txt}]",)],
}
"""The overrides of runs that use what was added."""

Found = dict[str, list[dict[str, Any]]]
"""The summaries of these runs."""


def follow(example: str, folder: Path, allowed: str) -> None:
    """Make the changes that a section of the page shows. allowed: the folder or file that may change."""
    changes = list(CHANGE.finditer(example))
    assert example.count("```python") + example.count("` becomes `") == len(changes) > 0
    for change in changes:
        new, block, inserted, anchor, code, changed, old, by = change.groups()
        file = new or inserted or changed
        assert fnmatch(file, allowed.replace("<name>", "*") + "*" * allowed.endswith("/")), (
            f"{file} is not in the table"
        )
        path = folder / "alray" / file
        if new:
            assert not path.exists()
            path.parent.mkdir(exist_ok=True)
            path.write_text(block, encoding="utf-8")
        else:
            text = path.read_text(encoding="utf-8")
            places = re.findall(re.escape(anchor or old).replace("\\ ", r"\s+"), text)
            assert len(places) == 1, f"{path} has `{anchor or old}` {len(places)} times"
            path.write_text(text.replace(places[0], by or f"{code}\n\n{places[0]}"), encoding="utf-8")


def summaries(folder: Path, runs: Sequence[tuple[str, ...]]) -> list[dict[str, Any]]:
    """What runs by the copy come to, in one process."""
    (folder / "x.yaml").write_text(SPEC, encoding="utf-8")
    commands = [["run", "x.yaml", *own, "--inline", "--output", f"run-{place}"] for place, own in enumerate(runs)]
    program = f"from alray.cli.main import execute\nfor command in {commands}: assert execute(command) == 0, command"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = [folder / f"run-{place}" / "summary.json" for place in range(len(runs))]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, folder / "alray")  # compiled files too: those of a changed file are made again
    for added, example in examples().items():
        follow(example, folder, TABLE[added])
    left = iter(summaries(folder, [run for runs in RUNS.values() for run in runs]))
    return {added: [next(left) for _ in runs] for added, runs in RUNS.items()}


def test_the_table_has_these_lines() -> None:
    assert list(TABLE) == list(examples()) == list(RUNS)


@pytest.mark.parametrize("added", TABLE)
def test_the_file_or_folder_of_a_line_is_there(added: str) -> None:
    path = PACKAGE / TABLE[added].removesuffix("/")
    assert path.parent.is_dir() if "<name>" in TABLE[added] else path.is_file()


def test_every_run_ends(found: Found) -> None:
    assert {summary["status"] for summaries in found.values() for summary in summaries} == {"finished"}


def test_a_block(found: Found) -> None:
    (summary,) = found["block"]
    assert summary["parameters"] == (16 * 7 + 7) + (7 * 5 + 5) + (5 * 3 + 3)


def test_a_source(found: Found) -> None:
    (summary,) = found["source"]
    assert summary["accuracy"]["test"] == 1.0


def test_a_method(found: Found) -> None:
    one, two = found["method"]
    assert (one["method"], len(one["accuracy_per_depth"])) == ("regression", 2)
    assert two["weights_sha256"] == one["weights_sha256"]


def test_a_task(found: Found) -> None:
    for summary in found["task"]:
        assert summary["metric"] == "pinball_loss" and summary["pinball_loss"]["test"] > 0


def test_an_optimizer(found: Found) -> None:
    (summary,) = found["optimizer"]
    assert summary["weights_sha256"] != found["schedule"][0]["weights_sha256"]


def test_a_rate(found: Found) -> None:
    (summary,) = found["rate"]
    records = read(Path(summary["run_dir"]) / "records.jsonl")
    rates = [each.lr for each in records if isinstance(each, StepRecord)]
    assert rates == sorted(rates, reverse=True) and rates[-1] < rates[0]


def test_a_compression(found: Found) -> None:
    (summary,) = found["compression"]
    assert summary["all_reduce_bytes"] > 0


def test_a_schedule(found: Found) -> None:
    streamed, paired = found["schedule"]
    assert paired["schedule"] == "paired" and paired["predicted_step_time_s"] > 0
    assert paired["weights_sha256"] == streamed["weights_sha256"]


def test_an_all_reduce(found: Found) -> None:
    (summary,) = found["all-reduce"]
    assert summary["all_reduce_bytes"] == 2 * summary["steps"] * 4 * summary["parameters"]


def test_a_figure(found: Found) -> None:
    (summary,) = found["figure"]
    page = Path(summary["report"]).read_text(encoding="utf-8")
    assert '"rate":' in page.partition('<h2 id="accuracy">')[0].partition('<h2 id="learning-rate">')[2]


def test_a_tracker(found: Found) -> None:
    (summary,) = found["tracker"]
    tally = Path(summary["run_dir"]).parent / "tally.txt"
    assert tally.read_text(encoding="utf-8") == f"finished {summary['steps']}"
