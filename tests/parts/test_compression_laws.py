"""The laws of compressions of gradients, among ranks that are threads. One enters by its row in `SETTINGS`, and by its
bytes in `sent`.

What is special to PowerSGD and to top-k is here too.
"""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.config.sections.compression import COMPRESSIONS
from alray.core.parts import names_of
from alray.models.shape import Shape
from alray.parts.compressions.top_k.message import TopKMessages
from alray.runtime.channel.all_reduce import make_all_reduce
from alray.runtime.channel.compression import Compression, make_compression
from alray.runtime.channel.gradient_layout import GradientLayout

SHAPES = (torch.Size([24, 10]), torch.Size([24]), torch.Size([8, 3, 3, 3]), torch.Size([2, 2]))
LAYOUT = GradientLayout(SHAPES)
WEIGHTS = {1: (1.0,), 2: (0.75, 0.25), 3: (0.5, 0.3, 0.2), 5: (0.1, 0.3, 0.2, 0.15, 0.25)}
SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "fp16": {},
    "bf16": {},
    "powersgd": {"rank": 2},
    "top_k": {"fraction": 0.05},
}


def gradients(rank: int, step: int, layout: GradientLayout = LAYOUT) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(layout.num_elements, generator=generator, dtype=layout.dtype)


OF_GRADIENTS = list(SETTINGS)


def test_each_compression_of_gradients_has_a_row():
    assert SETTINGS.keys() == {kind for kind, section in COMPRESSIONS.sections.items() if section.implementation}


def make(kind: str, layout: GradientLayout = LAYOUT) -> Compression:
    return make_compression(COMPRESSIONS.section(kind, **SETTINGS[kind]), layout, seed=3)


def over_ring(group: Any) -> Any:
    return make_all_reduce(ALL_REDUCES.section("ring"), group, timeout_s=30.0)


def steps(compression: Compression, rank: int, reduction: Any, several: range, layout: GradientLayout = LAYOUT) -> Any:
    """The sums of several steps, and of the weighted gradients that went into them."""
    weight = WEIGHTS[reduction.size][rank]
    sums = []
    for step in several:
        flat = gradients(rank, step, layout) * weight
        compression.reduce(flat, weight, reduction)
        sums.append(flat)
    return torch.stack(sums)


def weighted(size: int, step: int, layout: GradientLayout = LAYOUT) -> torch.Tensor:
    parts = [gradients(rank, step, layout).double() * weight for rank, weight in enumerate(WEIGHTS[size])]
    return torch.stack(parts).sum(0)


@pytest.mark.few
@pytest.mark.parametrize("name", names_of("all_reduces"))
@pytest.mark.parametrize("kind", OF_GRADIENTS)
def test_every_rank_ends_in_the_same_bits_over_every_all_reduce(on_ranks, kind, name):
    def work(rank: int, group: Any) -> torch.Tensor:
        return steps(make(kind), rank, make_all_reduce(ALL_REDUCES.section(name), group, timeout_s=30.0), range(3))

    first, *others = on_ranks(3, work)
    assert all(torch.equal(first, other) for other in others)
    over_the_ring = on_ranks(3, lambda rank, group: steps(make(kind), rank, over_ring(group), range(3)))[0]
    rounding = {"fp16": 4e-3, "bf16": 4e-2}.get(kind, 1e-5)
    assert torch.allclose(first, over_the_ring, atol=rounding)


@pytest.mark.parametrize(("kind", "eps"), [("none", 2.0**-23), ("fp16", 2.0**-10), ("bf16", 2.0**-7)])
def test_sums_are_within_the_rounding_of_the_type_sent(on_ranks, kind, eps):
    found = on_ranks(3, lambda rank, group: steps(make(kind), rank, over_ring(group), range(1)))[0][0]
    magnitudes = torch.stack([gradients(rank, 0).abs() * weight for rank, weight in enumerate(WEIGHTS[3])]).sum(0)
    error = (found.double() - weighted(3, 0)).abs()
    assert (error <= 3 * eps * magnitudes).all()
    assert kind == "none" or error.max() > 1e-5


@pytest.mark.parametrize("kind", OF_GRADIENTS)
def test_bytes_sent_are_fewer(on_ranks, kind):
    def work(rank: int, group: Any) -> int:
        reduction = over_ring(group)
        steps(make(kind), rank, reduction, range(1))
        return reduction.bytes_sent

    size = LAYOUT.num_elements  # 24*10 + 24 + 216 + 4
    # PowerSGD compresses the two large ones: P of 24 and 8 rows, Q of 10 and 27 columns.
    sent = {"none": 4 * size, "fp16": 2 * size, "bf16": 2 * size, "powersgd": 4 * (28 + 2 * (24 + 8) + 2 * (10 + 27))}
    if kind == "top_k":  # 25 of 484: 4 bytes of index each, aligned to 8 together, and 4 of value
        assert on_ranks(2, work) == [104 + 100] * 2
    else:
        assert on_ranks(2, work) == [sent[kind]] * 2


@pytest.mark.parametrize(("fraction", "number"), [(0.07, 7), (0.55, 55), (0.071, 8), (1e-5, 1)])
def test_top_k_sends_the_fraction_that_the_spec_writes(on_ranks, fraction, number):
    """As floats, 0.07 * 100 is a little more than 7."""

    def work(rank: int, group: Any) -> int:
        compression = make_compression(
            COMPRESSIONS.section("top_k", fraction=fraction), GradientLayout((torch.Size([100]),))
        )
        compression.reduce(torch.arange(1.0, 101.0), 1.0, over_ring(group))
        return 100 - int(compression.state_dict()["error"].count_nonzero())

    assert on_ranks(1, work) == [number]
    assert TopKMessages(fraction=fraction).packed(Shape((100,))) == Shape((1, number * (4 + 2)), torch.uint8)


@pytest.mark.parametrize("kind", ["powersgd", "top_k"])
def test_what_was_applied_and_what_is_kept_are_the_gradients(on_ranks, kind):
    """Also where the ranks' weights change from step to step."""
    layout = GradientLayout(SHAPES, torch.float64)

    def work(rank: int, group: Any) -> tuple[torch.Tensor, torch.Tensor]:
        compression, reduction = make(kind, layout), over_ring(group)
        applied = layout.zeros()
        for step in range(4):
            weight = WEIGHTS[3][(rank + step) % 3]
            flat = gradients(rank, step, layout) * weight
            compression.reduce(flat, weight, reduction)
            applied += flat
        return applied, compression.state_dict()["error"]

    results = on_ranks(3, work)
    wanted = layout.zeros()
    for step in range(4):
        for rank in range(3):
            wanted += gradients(rank, step, layout) * WEIGHTS[3][(rank + step) % 3]
    found = results[0][0] + torch.stack([error for _, error in results]).sum(0)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-12)
    assert torch.stack([error for _, error in results]).abs().max() > 0.1


def test_powersgd_keeps_what_has_its_rank_and_does_not_touch_what_it_does_not_compress(on_ranks):
    layout = GradientLayout((torch.Size([30, 20]), torch.Size([20])), torch.float64)

    def low_rank(rank: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(rank)
        left = torch.randn(30, 1, generator=generator, dtype=torch.float64)
        right = torch.randn(1, 20, generator=generator, dtype=torch.float64)
        return torch.cat([(left @ right).view(-1), torch.randn(20, generator=generator, dtype=torch.float64)])

    def work(rank: int, group: Any) -> tuple[torch.Tensor, torch.Tensor]:
        compression = make_compression(COMPRESSIONS.section("powersgd", rank=2), layout)
        flat = low_rank(rank) / 2
        compression.reduce(flat, 0.5, over_ring(group))
        return flat, compression.state_dict()["error"]

    results = on_ranks(2, work)
    wanted = (low_rank(0) + low_rank(1)) / 2
    assert torch.allclose(results[0][0], wanted, rtol=0, atol=1e-12)
    assert all(torch.count_nonzero(error[600:]) == 0 for _, error in results)


@pytest.mark.parametrize("kind", OF_GRADIENTS)
def test_zeros_stay_zeros_and_the_next_gradients_are_found_again(on_ranks, kind):
    def work(rank: int, group: Any) -> list[bool]:
        compression, reduction = make(kind), over_ring(group)
        steps(compression, rank, reduction, range(1))
        zeros = make(kind)
        flat = LAYOUT.zeros()
        zeros.reduce(flat, 0.5, reduction)
        after = gradients(rank, 1) * 0.5
        zeros.reduce(after, 0.5, reduction)
        return [bool((flat == 0).all()), bool(after.isfinite().all()), bool(after.any())]

    assert on_ranks(2, work) == [[True, True, True]] * 2


def test_powersgd_waits_until_its_start_iteration_without_keeping_an_error(on_ranks):
    def work(rank: int, group: Any) -> tuple[torch.Tensor, Any]:
        compression = make_compression(COMPRESSIONS.section("powersgd", start_iteration=2), LAYOUT)
        sums = steps(compression, rank, over_ring(group), range(2))
        return sums, compression.state_dict()["error"]

    for sums, error in on_ranks(2, work):
        assert torch.allclose(sums, torch.stack([weighted(2, 0), weighted(2, 1)]).float(), atol=1e-6)
        assert not error.any()


def test_top_k_sends_each_ranks_largest_and_the_rest_later(on_ranks):
    layout = GradientLayout((torch.Size([6]),))
    given = [torch.tensor([5.0, -4.0, 1.0, 0.0, 0.0, 0.5]), torch.tensor([0.0, -3.0, 0.0, 2.0, 1.0, 0.0])]

    def work(rank: int, group: Any) -> list[list[float]]:
        compression = make_compression(COMPRESSIONS.section("top_k", fraction=0.3), layout)  # two of six
        found = []
        for _ in range(2):
            flat = given[rank].clone() if not found else torch.zeros(6)
            compression.reduce(flat, 0.5, over_ring(group))
            found.append(flat.tolist())
        return found

    first, second = on_ranks(2, work)
    assert first == second == [[5.0, -7.0, 0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 1.0, 0.5]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_top_k_of_everything_is_the_sum_in_other_types_too(on_ranks, dtype):
    layout = GradientLayout((torch.Size([7]), torch.Size([])), dtype)

    def work(rank: int, group: Any) -> torch.Tensor:
        flat = torch.arange(8).to(dtype) * (rank + 1)
        make_compression(COMPRESSIONS.section("top_k", fraction=1.0), layout).reduce(flat, 0.2, over_ring(group))
        return flat

    assert all(torch.equal(flat, torch.arange(8).to(dtype) * 15) for flat in on_ranks(5, work))


@pytest.mark.parametrize("kind", OF_GRADIENTS)
def test_a_component_without_parameters_sends_nothing(on_ranks, kind):
    def work(rank: int, group: Any) -> int:
        reduction = over_ring(group)
        make(kind, GradientLayout(())).reduce(torch.empty(0), 0.5, reduction)
        return reduction.bytes_sent

    assert on_ranks(2, work) == [0, 0]


@pytest.mark.few
@pytest.mark.parametrize("kind", OF_GRADIENTS)
def test_steps_after_a_checkpoint_are_the_same_bits(on_ranks, kind):
    def straight(rank: int, group: Any) -> torch.Tensor:
        return steps(make(kind), rank, over_ring(group), range(5))[3:]

    def resumed(rank: int, group: Any) -> torch.Tensor:
        reduction, before, after = over_ring(group), make(kind), make(kind)
        steps(before, rank, reduction, range(3))
        state, file = before.state_dict(), io.BytesIO()
        steps(before, rank, reduction, range(3, 4))  # the state is written while training goes on
        torch.save(state, file)
        file.seek(0)
        after.load_state_dict(torch.load(file, weights_only=True))
        return steps(after, rank, reduction, range(3, 5))

    for one, other in zip(on_ranks(3, straight), on_ranks(3, resumed), strict=True):
        assert torch.equal(one, other)
