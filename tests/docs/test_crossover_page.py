"""docs/crossover.md: its maps are what alray draws of the committed values."""

from __future__ import annotations

import re

import pytest

from alray.planning.prediction.crossover import Axes, Row, Way
from alray.report.crossover import Cell
from alray.report.crossover_page import times_map
from benchmarks import crossover

PAGE = (crossover.ROOT / "docs/crossover.md").read_text(encoding="utf-8")
STREAMED = Row(Way("any", "streamed", 2, 1, 1, 1, 1), "any", None, (1, 1), 1.0, 1.0, 1, 1.0)


@pytest.mark.parametrize("family", crossover.FAMILIES)
def test_a_map_of_times_is_what_alray_draws_of_its_values(family: str) -> None:
    """The file has its values, so a map whose words change is drawn again without a probe."""
    file = crossover.FIGURES / family / "advantage_over_links.svg"
    committed = file.read_text(encoding="utf-8")
    values = re.findall(r"devices: (\d+); link: ([^;]+); value: ([\d.]+);", committed)
    places = [Cell(int(count), link, None, STREAMED, None, float(value)) for count, link, value in values]
    devices, links = dict.fromkeys(at.devices for at in places), dict.fromkeys(at.link for at in places)
    figure = times_map(Axes(tuple(devices), (), tuple(links)), places)
    assert figure.svg == committed
    assert f"](crossover/{family}/{file.name})" in PAGE
