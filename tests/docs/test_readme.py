"""README and the pages it leads to are true: a spec trains, an error is what alray says, figures were measured."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from statistics import median
from textwrap import dedent
from typing import Any

import pytest
import torch
from torchvision.utils import save_image

from alray.cli.main import execute
from benchmarks.runs import RESULTS
from benchmarks.schedules_page import step_ratios

ROOT = Path(__file__).parents[2]
README, SPEC, MEASURED = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/spec.md", "docs/measured.md")
)
COST = "{forward_s: 0.001, backward_s: 0.001, update_s: 0.001}"


def test_the_first_screen_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    """The lines of Python as they stand, and the spec."""
    monkeypatch.chdir(tmp_path)
    (python,), (spec,) = (re.findall(rf"^```{kind}\n(.*?)^```$", README, re.M | re.S) for kind in ("python", "yaml"))
    exec(python, {})
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.8
    Path("first.yaml").write_text(spec, encoding="utf-8")
    assert execute(["run", "first.yaml", "--inline"]) == 0, capsys.readouterr().err


def section(title: str) -> str:
    return SPEC.split(f"## {title}\n")[1].split("\n## ")[0]


def picture(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).div(16)


def test_the_spec_trains_and_the_error_is_the_one_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    text = section("Write a spec")
    spec = "\n".join(line[4:] for line in re.search(r"((?:^    .*\n)+)", text, re.M)[1].splitlines())  # type: ignore[index]
    Path("mine.yaml").write_text(spec, encoding="utf-8")
    Path("my_blocks.py").write_text(GATED, encoding="utf-8")
    for split in ("train", "test"):
        for label, values in (("cat", 0.0), ("dog", 1.0)):
            folder = Path("photos", split, label)
            folder.mkdir(parents=True)
            for number in range(8):
                save_image(picture([[16 * values] * 32] * 32), folder / f"{number}.png")
    small = ["run.epochs=1", "data.batch_size=4", f"pipeline.costs=[{', '.join([COST] * 3)}]"]
    assert execute(["run", "mine.yaml", *small, "--inline", "--output", "out"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    Path("mine.yaml").write_text(spec.replace("channels: [64]", "chanels: [64]"), encoding="utf-8")
    assert execute(["validate", "mine.yaml"]) == 2
    (shown,) = re.findall(r"^    error: mine(?:.*\n)+?(?=\n|\Z)", text, re.M)
    assert dedent(shown) == capsys.readouterr().err


GATED = """\
from torch import nn
from torch.nn import functional


class Gated(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.both = nn.Conv2d(input[0], 2 * width, 3, padding=1)

    def forward(self, s, mask=None):
        return functional.glu(self.both(s), dim=1)
"""


def result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def of_study(name: str, column: str, stages: str, variant: str) -> float:
    """A figure of the committed report of a study, at one of its points."""
    with (ROOT / f"docs/studies/{name}/tables/points.csv").open(encoding="utf-8") as file:
        (found,) = (
            row[column] for row in csv.DictReader(file) if (row["pipeline.stages"], row["variant"]) == (stages, variant)
        )
    return float(found)


def test_the_figures_are_the_measured_ones() -> None:
    """Each measured figure is on one of the pages, however the sentence around it reads."""
    shown = {float(number) for number in re.findall(r"\d+\.\d+", README + MEASURED)}
    streamed, steps = result("streamed"), result("schedules")["runs"]
    measured = {
        **{
            f"streamed over {schedule}": (median(step_ratios(steps["streamed"], steps[schedule])), 2)
            for schedule in ("1f1b", "zero_bubble", "naive", "2bw")
        },
        "streamed over sequential": (streamed["over_sequential"], 2),
        "streamed over two threads": (streamed["over_two_threads"], 2),
        "over an even cut": (median(result("uneven")["over_uniform"]), 1),
        "start over a plain Ray script": (result("start")["over_plain"], 2),
        "speed-up by streamed": (of_study("strong_scaling", "speed_up", "2", "al_streamed"), 2),
        "speed-up by naive": (of_study("strong_scaling", "speed_up", "2", "bp_naive"), 2),
        **{
            f"ms of {variant} on {stages}": (1e3 * of_study("strong_scaling", "step_time_s", stages, variant), 1)
            for stages, variant in (("2", "al_streamed"), ("1", "bp_naive"), ("2", "bp_gpipe"))
        },
    }
    assert [
        name
        for name, (value, digits) in measured.items()
        if not any(number == pytest.approx(value, abs=0.6 * 10**-digits) for number in shown)
    ] == []
    predictions = re.findall(r"\*\*([\d.]+)\*\*", (ROOT / "docs/predictions.md").read_text(encoding="utf-8"))
    assert len(predictions) == 3 and all(each in README and each in MEASURED for each in predictions)
    assert result("uneven")["best"] in result("uneven")["chosen"]


def test_what_is_said_of_the_executor_is_the_median_on_two_stages() -> None:
    text = " ".join(MEASURED.split())
    on_two = [median(case["ratios"]) for case_of, case in result("engines").items() if "sleeping" not in case_of]
    assert f"{len(on_two)} comparisons on two stages" in text
    assert re.findall(r"alray's executor takes ([\d.]+) of (?:its|the) step", text) == [f"{median(on_two):.2f}"]
