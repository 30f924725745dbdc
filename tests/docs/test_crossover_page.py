"""docs/crossover.md and README.md: their words and pictures say what the committed tables say."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest

from alray.planning.prediction.crossover import Axes, Row, Way
from alray.report.crossover import Cell
from alray.report.crossover_page import times_map
from benchmarks import crossover

PAGE, README = ((crossover.ROOT / name).read_text(encoding="utf-8") for name in ("docs/crossover.md", "README.md"))
WORDS = " ".join(PAGE.split())
STREAMED = Row(Way("any", "streamed", 2, 1, 1, 1, 1), "any", None, (1, 1), 1.0, 1.0, 1, 1.0)


def rows(pattern: str) -> list[Any]:
    """What the groups of a pattern find in each line of the page."""
    return re.findall(pattern, PAGE, re.M)


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
    assert f"![{figure.title}](crossover/{family}/{file.name})" in PAGE


def test_the_words_about_runs_on_two_stages_follow_from_their_tables() -> None:
    runs = rows(r"^\| \S+ \| (?:BP|AL|DGL) \w+ \| .* \| ([\d.]+) ms \| [\d.]+ ms \| ([\d.]+) \| [\d.]+ \|$")
    assert len(runs) == 3 * len(crossover.FAMILIES)
    over = [float(map_over_measured) for _, map_over_measured in runs]
    assert f"{min(over):.2f} to {max(over):.2f} of the measured one" in WORDS
    steps = [float(step) for step, _ in runs]
    alone, piped, streamed = steps[::3], steps[1::3], steps[2::3]
    mlp, resnet, gpt = (f"{own / other:.2f}" for own, other in zip(streamed, piped, strict=True))
    assert f"{mlp} (MLP, AL), {resnet} (ResNet, AL) and {gpt} (GPT, DGL) of that of 1F1B" in WORDS
    alphas = rows(r"^\| (?:associated|decoupled)\S+ \| .* ms \| ([\d.]+) \| measured here \|")
    allowed, by_rule, of_alone = (
        "{:.2f}, {:.2f} and {:.2f}".format(*each)
        for each in (
            [other / own for own, other in zip(streamed, piped, strict=True)],
            [(1 + 1 / 4) / float(alpha) for alpha in alphas],
            [own / other for own, other in zip(streamed, alone, strict=True)],
        )
    )
    assert f"so rho may be {allowed}; the rule allows {by_rule}." in WORDS
    assert f"of which streaming takes {of_alone}." in WORDS


def test_the_words_about_the_map_of_the_gpt_follow_from_it() -> None:
    with (crossover.FIGURES / "gpt" / "fastest.csv").open(encoding="utf-8") as file:
        places = list(csv.DictReader(file))
    (rho,) = rows(r"^\| decoupled\\_greedy \|.*\| (\d\.\d+) \| measured: local-losses-streamed \|$")
    (searched,) = rows(r"^\| GPT.*\| DGL \|.*\| (\d\.\d+) \(.*\| not measured \|")
    wins = [float(place["times as long"]) for place in places if place["fastest"].startswith("DGL")]
    assert f"fastest in {len(wins)} of {len(places)} places. The smaller GPT above has {searched}" in WORDS
    still = sum(ratio > float(searched) / float(rho) for ratio in wins)
    assert f"With that DGL would be the fastest in {still}." in WORDS


def test_readme_has_the_products_of_the_table() -> None:
    found = {
        (network, method): ends
        for network, method, *ends in rows(
            r"^\| (\w+): .*\| (DGL|AL) \|.*\| (\d+\.\d+) \((\d+\.\d+) to (\d+\.\d+)\) \|$"
        )
    }
    words = " ".join(README.split())
    resnet, vgg, mlp = (found[network, "DGL"] for network in ("ResNet", "VGG", "MLP"))
    assert f"{resnet[0]} for a ResNet ({resnet[1]} to {resnet[2]}" in words
    assert f"{vgg[0]} for a VGG ({vgg[1]} to {vgg[2]}) and {mlp[0]} for an MLP ({mlp[1]} to {mlp[2]})" in words
    of_al = [found[network, "AL"][0] for network in ("ResNet", "VGG", "MLP")]
    assert "For AL it is {}, {} and {}.".format(*of_al) in words
