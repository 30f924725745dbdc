"""Machines that are not here: which links the stages have, what their devices hold, and what cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from alray.core.errors import PlanError
from alray.planning.prediction.machines import DEVICES, Device, Machines, device_of, link_of, machines_of, parse_nodes
from alray.planning.prediction.stage_devices import slowest_of


def machines(on: str, **links: str) -> Machines:
    nodes = [(*each, None, None) for each in parse_nodes(on)]
    return machines_of(nodes, **{key: link_of(text) for key, text in links.items()})


def test_one_card_a_node_and_a_link_of_each_device_within_it() -> None:
    two = machines("2x2xA100", link="25 GB/s, 20 us", within="100GB/s")
    found, within, card = two.stage_devices(4), 1e-11, 4e-11
    assert [link.up_s_per_byte for link in found.links[:3]] == pytest.approx([within, card, within])
    assert [link.latency_s for link in found.links[:3]] == pytest.approx([0.0, 20e-6, 0.0]) and found.links[3] is None
    ring = two.stage_devices(4, ring=True).links
    assert [link.up_s_per_byte for link in ring if link is not None] == pytest.approx(
        [within, 2 * card, within, 2 * card]
    )
    assert found.nodes == ("node 0", "node 0", "node 1", "node 1") and found.cores is None
    # Two replicas, a node each: the averages of both stages share its card.
    replicas = machines("2x2xA100", link="25GB/s").stage_devices(2, 2)
    assert replicas.replica_link.up_s_per_byte == pytest.approx(2 * card)
    assert replicas.links[0].up_s_per_byte == 1 / 300e9, "NVLink, as published"


def test_the_link_of_one_node_is_that_of_its_devices() -> None:
    found = machines("8xA100", link="100Mbit/s 20ms").stage_devices(3)
    assert {(link.up_s_per_byte, link.latency_s) for link in found.links[:2]} == {(8e-8, 0.02)} and found.nodes == ()


def test_one_node_has_no_card() -> None:
    assert machines("8xA100", link="1 GB/s", within="2 GB/s") == machines("8xA100", within="2 GB/s")


def test_offices_have_a_line_and_the_smallest_replica_decides() -> None:
    office = (DEVICES["A100"], 1, 2, None, None)
    other = (DEVICES["V100"], 1, 2, None, None)
    both = machines_of([office, other], link=link_of("10 GB/s"), line=link_of("10 MB/s, 30 ms"))
    assert [link.up_s_per_byte for link in both.stage_devices(4).links if link][1] == 1e-7
    assert both.stage_devices(4).links[1].latency_s == 0.03
    assert both.memory_limits(2, 2) == (16 * 10**9, 16 * 10**9)

    def train_s(device: Device) -> float:
        return 1.0 if device is DEVICES["A100"] else 2.0

    assert both.stage_devices(2, 2, train_s=train_s).stage_speed == (0.5, 0.5)
    assert both.stage_devices(4, train_s=train_s).stage_speed == (1, 1, 0.5, 0.5)
    with pytest.raises(PlanError, match="5 stages need 5 devices"):
        both.stage_devices(5)


def test_a_device_with_fewer_samples_may_be_slower() -> None:
    assert slowest_of([1.0, 1.0, 0.5, 0.25], 2, [12, 4]) == [1.0, 0.75]
    assert slowest_of([1.0, 0.5], 1) == [0.5] and slowest_of([0.5, 1.0], 2, [7]) == [0.5, 1.0]


def test_those_who_send_through_a_part_of_the_way_share_it() -> None:
    def offices(count: int, devices: int, **links: str) -> Machines:
        groups = [(DEVICES["A100"], count, devices, None, None)] * 2
        return machines_of(groups, **{key: link_of(text) for key, text in links.items()})

    card, line = 1e-10, 8e-9
    slow = offices(2, 2, link="10 GB/s", line="1 Gbit/s").stage_devices(8).links
    assert [slow[stage].up_s_per_byte for stage in (1, 3, 5)] == pytest.approx([2 * card, line, 2 * card])
    # The rings of two stages cross the line.
    rings = offices(4, 1, link="10 GB/s", line="1 Gbit/s").stage_devices(2, 4)
    assert rings.replica_link.up_s_per_byte == pytest.approx(2 * line)
    # Four senders share a fast card. The one that they send to has a slow one for itself.
    groups = [(DEVICES["A100"], 1, 4, link_of("10 GB/s"), None), (DEVICES["A100"], 1, 1, link_of("1 GB/s"), None)]
    assert machines_of(groups).stage_devices(5).links[3].up_s_per_byte == pytest.approx(1e-9)
    # With local losses one stage of each node sends and another receives; with gradients both do both.
    three = machines("3x2xA100", link="10 GB/s")
    assert three.stage_devices(6, down=False).links[1].up_s_per_byte == pytest.approx(card)
    assert three.stage_devices(6).links[1].up_s_per_byte == pytest.approx(2 * card)


def test_processors_of_a_node_are_shared_by_its_stages() -> None:
    assert machines("2xcpu").stage_devices(2).cores == 2
    assert machines("2x2xcpu", link="1 Gbit/s").stage_devices(4).cores is None


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("A100", "how many devices"),
        ("0xA100", "how many devices"),
        ("8xA10O", "known are P40, P100, .*A100"),
        ("2x8xA100", "no link is given"),
        ("4x24GB", "how fast the link"),
        ("99999x99999xA100", "these are 9,999,800,001 devices; name 4,096 at most"),
        ("4096xA100,1xA100", "these are 4,097 devices"),
    ],
)
def test_what_cannot_be_read_says_what_to_write(on: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        machines(on)


@pytest.mark.parametrize("link", ["25", "25 GBs", "0 GB/s", "25 GB/s, 3", "20 ms"])
def test_links_that_are_none(link: str) -> None:
    with pytest.raises(PlanError, match="is not a link"):
        link_of(link)


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (link_of, "1e400GB/s", "`1e400GB/s` is too large to count with; write a number from 1.25e-10 to 1.25e+08 GB/s"),
        (link_of, "1e-320GB/s", "`1e-320GB/s` is too small"),
        (link_of, "1e-400GB/s", "`1e-400GB/s` is too small"),
        (link_of, "25GB/s, 1e400s", "`1e400s` is too large"),
        (device_of, "1e400GB", "`1e400GB` is too large"),
        (device_of, "1e-9MB", "`1e-9MB` is too small to count with; write a number from 1e-06 to 1e+12 MB"),
    ],
)
def test_numbers_that_nothing_can_be_counted_with(read: Callable[[str], object], text: str, said: str) -> None:
    with pytest.raises(PlanError, match=re.escape(said)):
        read(text)


def test_names_of_devices() -> None:
    assert device_of("a100") is DEVICES["A100"]
    assert device_of("24GB").memory_bytes == 24 * 10**9 and not device_of("24GB").peaks
    mine = replace(DEVICES["A100"], name="mine")
    assert parse_nodes("3x2xmine, 4xA100", {"mine": mine}) == [(mine, 3, 2), (DEVICES["A100"], 1, 4)]
