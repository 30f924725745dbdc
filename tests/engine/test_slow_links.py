"""Links that are slower than this machine: they change times as predicted, and no bits."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from alray.config.loading.load import load_spec
from alray.core.errors import SpecError
from alray.orchestrate import Finished
from alray.runtime.channel import slow_link
from alray.runtime.channel.message import HEADER_BYTES, Message, MessageKind, Slot
from alray.runtime.channel.slow_link import SlowLink, wait_until_arrived

from ..pairwise import first_alone
from .conftest import Workshop
from .test_same_bits import same

SPEC = """
name: links
seed: 3
data: {source: synthetic, shape: [6], classes: 3, samples: 150, batch_size: 16, validation_fraction: 0.2}
model: {components: [{block: mlp, widths: [9], repeat: 4}]}
method: {kind: backpropagation}
optimizer: {kind: sgd, lr: 0.05}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {steps: 14, evaluate_every: 7 steps}
"""
SLOW = "pipeline.links=[{bandwidth: 100 kbit/s, latency: 30 ms}]"
"""A message of 9 x 16 numbers takes it for 46 ms, and then travels for 30 ms."""
TRAVEL_S = 9 * 16 * 4 * 8 / 100e3 + 0.03


@pytest.fixture
def links(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


def message(numbers: int) -> Message:
    return Message(MessageKind.TRAIN, 1, {"s": torch.zeros(numbers)})


def test_messages_share_the_bandwidth_and_overlap_their_latencies(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 250 numbers take 1 s, and a message travels for 10 s."""
    now = itertools.chain([100.0, 100.0, 100.5, 200.0])
    monkeypatch.setattr(slow_link.time, "monotonic", lambda: next(now))
    link = SlowLink(s_per_byte=1e-3, latency_s=10.0)
    sent = [message(250), message(500), message(250), message(250)]
    for each in sent:
        link.take(each)
    assert [each.arrives_s for each in sent] == [111.0, 113.0, 114.0, 211.0]


def test_a_message_carries_its_arrival_and_waits_for_it() -> None:
    sent = message(4)
    SlowLink(s_per_byte=0.0, latency_s=0.05).take(sent)
    slot = Slot(torch.zeros(HEADER_BYTES + 64, dtype=torch.uint8))
    slot.write(sent, edge="0->1")
    came = slot.read(edge="0->1")
    assert came.arrives_s == sent.arrives_s
    wait_until_arrived(came)
    assert slow_link.time.monotonic() >= sent.arrives_s


@pytest.mark.full
@pytest.mark.parametrize(
    "keys",
    first_alone(
        [
            ("method={kind: associated_learning, label_dim: 8}", "pipeline.schedule=streamed"),
            ("pipeline.schedule=interleaved_1f1b", "pipeline.micro_batches=2"),
            ("method={kind: associated_learning, label_dim: 8}", "pipeline.schedule=overlapped"),
            ("method={kind: decoupled_greedy}", "pipeline.partition=cyclic"),
            ("pipeline.schedule=1f1b", "pipeline.micro_batches=2"),
        ],
        first=1,
    ),
)
def test_a_slow_link_changes_no_bits(links, processes, keys) -> None:
    fast = links.run(*keys, inline=False, name="fast")
    same(links.run(*keys, SLOW, inline=False, name="slow"), fast)


@pytest.mark.full
def test_backpropagation_waits_for_the_link_and_local_losses_do_not(links, processes) -> None:
    """Naive backpropagation sends up and down in each mini-batch. Local losses send up only, one after another."""

    def run(*keys: str) -> Finished:
        return links.run(*keys, SLOW, "run={steps: 30}", inline=False, name=keys[0].split("=")[1].strip("{}: "))

    naive = run("pipeline.schedule=naive")
    assert naive.summary.step_time_s >= 2 * TRAVEL_S
    assert naive.summary.predicted_step_time_s == pytest.approx(2 * TRAVEL_S + 0.012, abs=0.01)
    greedy = run("method={kind: decoupled_greedy}")
    on_the_link_s = TRAVEL_S - 0.03 + 16 * 8 * 8 / 100e3  # a mini-batch of samples and labels
    assert greedy.summary.step_time_s >= on_the_link_s - 0.005
    assert greedy.summary.predicted_step_time_s == pytest.approx(on_the_link_s, rel=0.1)
    assert greedy.summary.step_time_s < naive.summary.step_time_s


@pytest.mark.parametrize(
    "link",
    ["{bandwidth: 0 Mbit/s}", "{bandwidth: fast}", "{bandwidth: 1 Gbit/s, latency: 20}", "{latency: 20 ms}"],
)
def test_what_is_no_link_is_refused(links, link) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(links.spec, [f"pipeline.links=[{link}]"])
    assert error.value.problems[0].key.startswith("pipeline.links[0]")
