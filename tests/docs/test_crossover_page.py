"""docs/crossover.md and README.md: their words and pictures say what the committed tables say."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest

from alray.planning.prediction.crossover import Axes, Row, Way
from alray.report.crossover import Cell
from alray.report.crossover_page import times_map
from benchmarks import accuracy_page, crossover
from benchmarks.findings_page import REPORTS
from benchmarks.runs import RESULTS

PAGE, README = ((crossover.ROOT / name).read_text(encoding="utf-8") for name in ("docs/crossover.md", "README.md"))
WORDS, OF_README = (" ".join(text.split()) for text in (PAGE, README))
METHODS = " ".join((crossover.ROOT / "docs/method.md").read_text(encoding="utf-8").split())
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
    assert f"{mlp} (MLP-8, AL), {resnet} (ResNet-10, AL) and {gpt} (GPT-8, DGL) of that of 1F1B" in WORDS
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
    of_mlp, of_resnet, of_gpt = map(float, rows(r"^\| (?:associated|decoupled)\S+ \|.*\| ([\d.]+) \| measured: local"))
    fewest = rows(r"^\| backpropagation \|.*\| measured: backpropagation-(\S+) \|$")
    assert fewest == ["alone", "by-1f1b", "alone"]
    times = streamed[2] / alone[2] * of_gpt, streamed[0] / alone[0] * of_mlp, streamed[1] / piped[1] * of_resnet
    assert "{:.2f} of that of backpropagation on one device for GPT-8 and {:.2f} for MLP-8.".format(*times) in WORDS
    assert f"For ResNet-10 it is {times[2]:.1f} of that of 1F1B." in WORDS


def test_the_words_about_the_map_of_the_gpt_follow_from_it() -> None:
    places = fastest("gpt")
    (rho,) = rows(r"^\| decoupled\\_greedy \|.*\| (\d\.\d+) \| measured: local-losses-streamed \|$")
    (searched,) = rows(r"^\| GPT.*\| DGL \|.*\| (\d\.\d+) \(.*\| not measured \|")
    wins = [float(place["times as long"]) for place in places if place["fastest"].startswith("DGL")]
    assert f"fastest in {len(wins)} of {len(places)} places. GPT-4 has {searched}" in WORDS
    less = float(searched) / float(rho)
    still = [
        (place["devices"], place["link"].partition(",")[0])
        for place in places
        if place["fastest"].startswith("DGL") and float(place["times as long"]) > less
    ]
    assert f"With that DGL would be the fastest in {len(still)}: with 16 devices over every link, with 8" in WORDS
    links = list(dict.fromkeys(place["link"].partition(",")[0] for place in places))
    assert sorted(still) == sorted(
        [*(("16", link) for link in links), *(("8", link) for link in links[2:]), ("4", links[3])]
    )
    by = {(place["devices"], place["link"].partition(",")[0]): place for place in places}
    ratio = {at: float(place["times as long"].split()[0]) for at, place in by.items()}
    assert by["2", "host"]["best of others"] == "BP replicas" and by["4", "host"]["best of others"] == "BP 2bw"
    two, four = ratio["2", "host"], ratio["4", "host"]
    assert (
        f"On one host DGL is {two:.2f} times as fast as replicas on two devices, and {four:.2f} times as fast" in WORDS
    )
    assert f"With a rho of {searched} it is slower than both ({two / less:.2f} and {four / less:.2f})." in WORDS
    far = ratio["2", "100 Mbit/s"]
    assert f"{two:.2f} times as fast as backpropagation on one host, and {far:.2f} times over 100 Mbit/s." in WORDS
    assert f"With a rho of {searched} that is {two / less:.2f} and {far / less:.2f}, so it loses" in WORDS
    assert all(ratio["2", link] < less for link in links)
    eight = [ratio["8", link] / less for link in links]
    said = "{:.2f} on one host, {:.2f} over 10 Gbit/s, {:.2f} over 1 Gbit/s and {:.2f} over 100 Mbit/s."
    assert f"on eight devices it is {said.format(*eight)}" in WORDS


def fastest(family: str) -> list[dict[str, str]]:
    """The rows of a family's table of places."""
    with (crossover.FIGURES / family / "fastest.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_words_about_links_of_the_mlp_follow_from_its_map_and_the_study() -> None:
    over = {(place["devices"], place["link"].partition(",")[0]): place for place in fastest("mlp")}
    near = ("host", "10 Gbit/s", "1 Gbit/s")
    eight, two = ([over[devices, link] for link in near] for devices in ("8", "2"))
    assert {place["fastest"] for place in eight} == {"AL streamed"}
    assert all(place["best of others"] == "AL streamed" for place in two)
    ahead, behind = (tuple(place["times as long"] for place in places) for places in (eight, two))
    assert "ahead on eight devices, by {}, {} and {} (one host, 10 Gbit/s, 1 Gbit/s).".format(*ahead) in WORDS
    assert "On two it is behind, by {}, {} and {}.".format(*behind) in WORDS
    assert {place["fastest"] for (_, link), place in over.items() if link == "100 Mbit/s"} == {"BP alone"}
    al, dgl, piped = (
        [
            1e3 * float(point("slow_links", **{"pipeline.links.0.bandwidth": link, "variant": variant})["step_time_s"])
            for link in ("10 Gbit/s", "200 Mbit/s", "100 Mbit/s")
        ]
        for variant in ("al_streamed", "dgl_streamed", "bp_1f1b")
    )
    said = "takes {:.1f} and {:.1f} ms by AL, {:.1f} and {:.1f} by DGL, {:.1f} and {:.1f} by 1F1B"
    assert said.format(*al[:2], *dgl[:2], *piped[:2]) in WORDS
    assert f"over 100 Mbit/s {al[2]:.1f}, {dgl[2]:.1f} and {piped[2]:.1f};" in WORDS


def memory_of(family: str) -> dict[tuple[int, str], tuple[str, float | None]]:
    """By devices and memory: the fastest way there, and the time of the other family over that of it."""
    text = (crossover.FIGURES / family / "fastest_over_memory.svg").read_text(encoding="utf-8")
    found = re.findall(
        r'"devices: (\d+); memory of a device: ([^;]+); text: .*? fastest: ([^;]+);.*? the fastest: ([^"]+)"', text
    )
    return {
        (int(count), memory): (way, None if ratio in ("null", "NaN") else float(ratio))
        for count, memory, way, ratio in found
    }


def test_the_words_about_memory_follow_from_the_maps() -> None:
    gpt, mlp, resnet = (memory_of(family) for family in ("gpt", "mlp", "resnet"))
    assert all(len(found) == 20 for found in (gpt, mlp, resnet))
    only_bp = [at for at, (way, ratio) in gpt.items() if way.startswith("BP") and ratio is None]
    assert sorted(only_bp) == sorted(
        [(2, "31.0 MB"), *((n, "15.0 MB") for n in (2, 4)), *((n, "7.70 MB") for n in (2, 4, 8))]
    )
    assert (
        "with 31 MB a device DGL does not fit on two devices, with 15 MB not on four either, and with 7.7 MB" in WORDS
    )
    assert [at for at, (way, ratio) in mlp.items() if way.startswith("BP") and ratio is None] == [(2, "32.0 MB")]
    assert [mlp[count, "16.0 MB"][0] for count in (1, 2, 4)] == 3 * ["null"]
    assert [mlp[count, "16.0 MB"][0] for count in (8, 16)] == 2 * ["AL streamed"]
    eight, sixteen = (mlp[count, "16.0 MB"][1] for count in (8, 16))
    assert f"on eight and 16 AL is the fastest, and `2bw` takes {eight:.2f} and {sixteen:.2f} times as long." in WORDS
    assert {way[:2] for way, _ in resnet.values()} <= {"BP", "nu"}
    without = {
        memory: [count for count in (2, 4, 8, 16) if resnet[count, memory][1] is None]
        for memory in ("24.0 MB", "12.0 MB", "6.10 MB")
    }
    assert without == {"24.0 MB": [2], "12.0 MB": [2, 4, 8], "6.10 MB": [2, 4, 8, 16]}
    assert "AL does not fit in 24 MB on two devices, in 12 MB on two to eight, nor in 6.1 MB on any." in WORDS


def point(study: str, **values: str) -> dict[str, str]:
    """The one point of a committed report that has these values."""
    with (REPORTS / study / "tables" / "points.csv").open(encoding="utf-8") as file:
        (row,) = (row for row in csv.DictReader(file) if values.items() <= row.items())
    return row


def decided(study: str, claim: str) -> tuple[float, float, float]:
    """The middle of a claim and the ends of its interval."""
    verdicts = json.loads((REPORTS / study / "verdicts.json").read_text(encoding="utf-8"))["verdicts"]
    (found,) = (compared for each in verdicts if each["claim"] == claim for compared in each["compared"])
    return found["value"], found["low"], found["high"]


def test_the_words_about_accuracy_follow_from_the_pages_and_reports() -> None:
    measured = json.loads((RESULTS / "accuracy.json").read_text(encoding="utf-8"))
    lost: dict[str, list[float]] = {
        method: [fmean(accuracy_page.differences(runs[method], runs["backpropagation"])) for runs in measured.values()]
        for method in ("associated_learning", "decoupled_greedy")
    }
    of_al, of_dgl = lost.values()
    for words, name in ((WORDS, "backpropagation"), (OF_README, "BP")):
        assert f"AL is {-min(of_al):.2f} points below {name} to {max(of_al):.2f} above, and DGL within one" in words
    assert max(map(abs, of_dgl)) < 1.0 and len(of_al) == 6
    ends = [
        100 * fmean(run["test"] for run in of_method.values())
        for network in ("vgg_digits", "resnet_digits")
        for of_method in measured[network].values()
    ]
    assert f"end at {min(ends):.1f} to {max(ends):.1f} % by every method." in WORDS
    middle, low, high = (-100 * each for each in decided("methods", "On images AL is less accurate than BP"))
    assert f"AL loses {middle:.1f} points ({high:.1f} to {low:.1f}) with a [VGG]" in WORDS
    middle, low, high = (
        -100 * each for each in decided("methods_over_cuts", "Test accuracy of DGL at 8 components minus that of BP")
    )
    assert f"DGL {middle:.1f} ({high:.1f} to {low:.1f}) with a cut" in WORDS
    nats = [float(point("language_methods", variant=name)["validation"]) for name in ("al_4", "dgl_4", "bp")]
    assert "{:.2f} nats by AL, {:.2f} by DGL and {:.2f} by backpropagation.".format(*nats) in WORDS


def test_the_words_about_times_on_two_stages_follow_from_the_reports() -> None:
    claim = "On two stages DGL takes less time for a mini-batch than BP"
    of_1f1b, of_one = (decided("methods_on_stages", f"{claim} {words}") for words in ("by 1F1B", "in one process"))
    assert "{:.2f} ({:.2f} to {:.2f}) of one of 1F1B".format(*of_1f1b) in WORDS
    assert "{:.2f} ({:.2f} to {:.2f}) of one of backpropagation on one device".format(*of_one) in WORDS
    dgl, piped, replicas = (
        float(point("race", variant=name)["epoch_s"]) for name in ("dgl_streamed", "bp_1f1b", "bp_replicas")
    )
    assert f"and one of DGL {dgl / replicas:.2f} ([race]" in WORDS
    assert f"One of DGL takes {dgl / piped:.2f} of 1F1B and {dgl / replicas:.2f} of two replicas." in OF_README
    schedules = (crossover.ROOT / "docs/schedules.md").read_text(encoding="utf-8")
    shown = re.findall(r"([\d.]+ \([\d.]+ to [\d.]+\)) of one of `(\w+)`", schedules)
    ratios = {name: ratio for ratio, name in shown}
    assert f"{ratios['zero_bubble']} of zero bubble and {ratios['2bw']} of `2bw`" in WORDS
    for name, of in (("zero_bubble", "zero bubble"), ("naive", "naive BP"), ("2bw", "the asynchronous 2BW")):
        ratio, ends = ratios[name].split(" ", 1)
        assert f"{ratio} of {of} {ends}" in OF_README
    with_gpu = {
        row["way"]: f"{1e3 * row['step_s']:.1f}"
        for row in json.loads((RESULTS / "gpu.json").read_text(encoding="utf-8"))["rows"]
        if row["network"] == "resnet" and row["precision"] == "float32"
    }
    piped_ms, streamed_ms = (
        next(step for way, step in with_gpu.items() if word in way) for word in ("1f1b", "streamed")
    )
    alone_ms = with_gpu["backpropagation"]
    assert f"takes {streamed_ms} ms by DGL, {piped_ms} by 1F1B and {alone_ms} by backpropagation alone" in WORDS


def products() -> dict[tuple[str, str], tuple[float, float, float]]:
    """alpha x rho by network and method, with its ends."""
    pattern = r"^\| (\S+): .*\| (DGL|AL) \|.*\| (\d+\.\d+) \((\d+\.\d+) to (\d+\.\d+)\) \|$"
    return {
        (network, method): (float(middle), float(low), float(high))
        for network, method, middle, low, high in rows(pattern)
    }


def limit(stages: int, micro_batches: int) -> float:
    return 1 + (stages - 1) / micro_batches


def test_what_follows_by_the_rule_follows() -> None:
    found = products()
    resnet, vgg, mlp = (found[network, "DGL"] for network in ("ResNet-4", "VGG", "MLP-6"))
    assert resnet[0] < 1 and all(resnet[2] < limit(stages, stages) for stages in (2, 3, 4))
    assert all(resnet[1] < each < resnet[2] for each in (1.0, limit(2, 16), limit(4, 16)))
    wins = [(stages, count) for stages in (2, 3, 4) for count in range(stages, 17) if vgg[0] < limit(stages, count)]
    assert wins == [(3, 3), (4, 4), (4, 5)]
    assert f"misses the limit by {vgg[0] - limit(2, 2):.2f}" in WORDS
    wins = [(stages, count) for stages in range(2, 7) for count in range(stages, 17) if mlp[0] < limit(stages, count)]
    assert wins == [(6, 6)]
    assert [count for count in (3, 4, 5, 6) if 64 % count == 0] == [4]
    for low, high in ((vgg[1], vgg[2]), (mlp[1], mlp[2])):
        assert low < 1 and high > 2
    assert vgg[0] > 1 and mlp[0] > 1
    lowest = {network: found[network, "AL"][1] for network in ("VGG", "ResNet-4", "MLP-6")}
    assert lowest["VGG"] > limit(4, 4) < lowest["ResNet-4"] and 1 < lowest["MLP-6"] < limit(6, 6)


def test_the_products_of_two_layers_are_those_of_the_table_and_alpha() -> None:
    alphas = json.loads((RESULTS / "alpha.json").read_text(encoding="utf-8"))["families"]
    rhos = dict(over_batch_sizes())
    made = {
        (name, size): [
            rho * alpha for rho, alpha in zip(rhos[size][at], alphas[f"{size} samples"]["alpha"][kind], strict=True)
        ]
        for at, (name, kind) in {0: ("DGL", "decoupled_greedy"), 2: ("AL", "associated_learning")}.items()
        for size in ("64", "256")
    }
    words = {
        ("DGL", "256"): r"DGL has a product of {} at 256 samples \({} to {}\), and wins on two stages",
        ("DGL", "64"): r"At 64 samples it has {} \({} to {}\), and two stages allow 1.50",
        ("AL", "64"): r"MLP-2 has a product of {} at 64 samples \({} to {}\)",
        ("AL", "256"): r"and of {} at 256 \({} to {}\)",
    }
    for at, pattern in words.items():
        (found,) = re.findall(pattern.format(*3 * [r"([\d.]+)"]), WORDS)
        assert list(map(float, found)) == pytest.approx(made[at], abs=0.025)  # the table has two digits of rho
    assert all(made["DGL", size][1] < limit(2, 2) < made["DGL", size][2] for size in ("64", "256"))
    assert made["AL", "256"][1] > limit(2, 2) > made["AL", "64"][1] > 1


def test_readme_has_the_products_of_the_table() -> None:
    shown = {at: tuple(f"{each:.2f}" for each in ends) for at, ends in products().items()}
    resnet, vgg, mlp = (shown[network, "DGL"] for network in ("ResNet-4", "VGG", "MLP-6"))
    assert f"{resnet[0]} for a ResNet ({resnet[1]} to {resnet[2]}" in OF_README
    assert f"{vgg[0]} for a VGG ({vgg[1]} to {vgg[2]}) and {mlp[0]} for an MLP ({mlp[1]} to {mlp[2]})" in OF_README
    of_al = [shown[network, "AL"][0] for network in ("ResNet-4", "VGG", "MLP-6")]
    assert "For AL it is {}, {} and {}.".format(*of_al) in OF_README
    assert f"at most {limit(2, 2):.2f} on two stages and {limit(4, 4):.2f} on four; with M = 16 it is" in OF_README


def over_batch_sizes() -> Iterator[tuple[str, list[tuple[float, float, float]]]]:
    """Samples of a mini-batch, and rho of DGL, SCPL and AL with its ends."""
    ends = r"([\d.]+) \(([\d.]+) to ([\d.]+)\)"
    for size, *numbers in rows(rf"^\| ([\d,]+) \| [^|]* \| {ends} \| {ends} \| {ends} \|"):
        of = list(map(float, numbers))
        yield size, [(of[at], of[at + 1], of[at + 2]) for at in (0, 3, 6)]


def test_the_page_of_methods_says_what_batch_sizes_do() -> None:
    found = dict(over_batch_sizes())
    of_dgl, of_scpl, of_al = ({size: each[at] for size, each in found.items()} for at in range(3))
    assert [size for size, (_, low, _) in of_dgl.items() if low > 1] == ["512"]
    assert [size for size, (_, low, _) in of_scpl.items() if low > 1] == ["128", "512"]
    small = [of_dgl[size][0] for size in ("64", "128", "256")]
    assert f"takes {min(small):.2f} to {max(small):.2f} of the mini-batches of BP up to 256 samples" in METHODS
    assert f"and {of_dgl['1,024'][0]:.2f} at 1,024" in METHODS
    assert "At 512 it takes {:.2f} ({:.2f} to {:.2f}).".format(*of_dgl["512"]) in METHODS
    middles = [middle for middle, _, _ in of_scpl.values()]
    assert f"SCPL takes {min(middles):.2f} to {max(middles):.2f}, and more than BP at 128 and 512." in METHODS
    assert "{:.2f} ({:.2f} to {:.2f}) at 64 samples, and".format(*of_al["64"]) in METHODS
    assert "{:.2f} ({:.2f} to {:.2f}) at 512".format(*of_al["512"]) in METHODS
    of_two = {
        name: decided("batch_size_al", f"{name} makes use of larger batch sizes than BP") for name in ("AL", "DGL")
    }
    assert "{:.2f} of that of BP ({:.2f} to {:.2f}) by AL".format(*of_two["AL"]) in METHODS
    assert "and {:.2f} ({:.2f} to {:.2f}) by DGL".format(*of_two["DGL"]) in METHODS
