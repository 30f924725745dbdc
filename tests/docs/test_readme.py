"""README and the pages it leads to are true: a spec trains, an error is what alray says, figures were measured."""

from __future__ import annotations

import csv
import json
import re
from math import exp, log
from pathlib import Path
from statistics import fmean
from textwrap import dedent
from typing import Any

import pytest
import torch
from torchvision.utils import save_image

from alray.cli.main import execute

ROOT = Path(__file__).parents[2]
README, SPEC = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/spec.md"))
COST = "{forward_s: 0.001, backward_s: 0.001, update_s: 0.001}"


def test_the_first_screen_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    """The loop, in one process and for two epochs; the three lines with what it made; and the spec."""
    monkeypatch.chdir(tmp_path)
    (lines, loop), (spec,) = (
        re.findall(rf"^```{kind}\n(.*?)^```$", README, re.M | re.S) for kind in ("python", "yaml")
    )
    scope: dict[str, Any] = {}
    assert '"epochs": 20' in loop
    exec(loop.replace('"epochs": 20', '"epochs": 2, "inline": True'), scope)
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    shown = [line.split() for line in re.findall(r"^    (\w+ .*)$", README.split("```")[4], re.M)]
    assert shown[0] == head and [row[:2] for row in shown[1:]] == [row[:2] for row in rows]
    for table in (shown[1:], rows):
        assert len(table) == 6 and all(one[-1] == two[-1] for one, two in zip(table[::2], table[1::2], strict=True))
    exec(lines.replace("stages=2", "stages=2, epochs=1, inline=True"), scope)
    assert scope["trained"](scope["test"][0]).shape == (397, 10)
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


def test_what_a_slow_link_costs_is_what_was_measured() -> None:
    """docs/crossover.md says how long a mini-batch takes."""
    with (ROOT / "docs/studies/slow_links/tables/points.csv").open(encoding="utf-8") as file:
        steps = {
            (row["pipeline.links.0.bandwidth"], row["variant"]): 1e3 * float(row["step_time_s"])
            for row in csv.DictReader(file)
        }
    page = (ROOT / "docs/crossover.md").read_text(encoding="utf-8")
    for link in ("10 Gbit/s", "200 Mbit/s", "100 Mbit/s"):
        cells = " | ".join(f"{steps[link, way]:.1f}" for way in ("dgl_streamed", "al_streamed", "bp_1f1b"))
        assert f"| {link} | {cells} |" in page


def test_what_a_slow_link_costs_until_a_target_is_what_was_measured() -> None:
    """README says how many times as long trials took over a slow link as over a fast one, the mean over their seeds."""
    found = json.loads((ROOT / "benchmarks/results/links.json").read_text(encoding="utf-8"))

    def longer(way: str) -> str:
        slow, fast = (
            fmean(log(each["seconds_to_target"]) for each in found[link] if each["variant"] == way)
            for link in ("50", "10000")
        )
        return f"{exp(slow - fast):.1f} times"

    said = " ".join(README.split())
    assert f"took {longer('dgl')} as long to its target by DGL as over 10 Gbit/s, {longer('1f1b')} by 1F1B" in said
    assert f"and {longer('diloco')} by such replicas" in said
