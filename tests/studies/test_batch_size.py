"""The regimes of steps to a target, and best settings at the edge of their range, on made-up figures."""

from __future__ import annotations

import pytest

from alray.config.study.section import RandomSearch
from alray.studies.batch_size import Regimes, at_the_edge, regimes
from alray.studies.table import rows_of

from .conftest import trial


@pytest.mark.parametrize(
    ("steps", "perfect", "plateau"),
    [
        # 8 to 32 are perfect, 64 diminishes, from 128 on nothing is won.
        ({8: 800, 16: 400, 32: 200, 64: 150, 128: 120, 256: 118, 512: 119}, 32, 128),
        # Perfect to the end; a bad draw at 16 does not end it.
        ({8: 800, 16: 560, 32: 200, 64: 100}, 64, None),
        # Nothing is won at all.
        ({8: 100, 16: 100, 32: 101}, 8, 8),
        # A gap in the sizes.
        ({8: 800, 64: 420, 128: 400}, 8, 64),
        ({8: 800, 64: 400, 128: 390}, 8, 64),
        # Larger batches take longer again.
        ({8: 800, 16: 400, 32: 600}, 16, 16),
    ],
)
def test_where_the_regimes_part(steps: dict[int, float], perfect: int, plateau: int | None) -> None:
    largest = max(steps)
    assert regimes(steps) == Regimes(8, largest, perfect, plateau, {}, perfect_at_least=perfect == largest)


def test_each_batch_size_is_in_one_regime() -> None:
    found = regimes({8: 800, 16: 400, 32: 200, 64: 150, 128: 120, 256: 118})
    assert found is not None
    names = [found.of(size) for size in (8, 32, 64, 128, 256)]
    assert names == ["perfect scaling"] * 2 + ["diminishing returns"] + ["maximal data parallelism"] * 2


@pytest.mark.parametrize(
    ("missed", "plateau", "at_least"),
    [
        ({64: 250}, 32, False),  # it ran more mini-batches than 32 needs, and needs still more
        ({64: 150}, None, False),  # it may need fewer than 32, but more than the line of perfect scaling
        ({64: 120}, None, True),
        ({4: 1000}, None, True),  # a smaller batch size tells nothing of larger ones
    ],
)
def test_a_larger_batch_size_that_never_reached_the_target_may_tell_where_the_regimes_end(
    missed: dict[int, int], plateau: int | None, at_least: bool
) -> None:
    found = regimes({8: 800, 16: 400, 32: 200}, missed)
    assert found is not None and (found.largest, found.perfect, found.plateau) == (32, 32, plateau)
    assert found.perfect_at_least is at_least


@pytest.mark.parametrize("steps", [{}, {8: 800}])
def test_one_batch_size_has_no_regimes(steps: dict[int, float]) -> None:
    assert regimes(steps) is None


def test_a_best_value_at_the_edge_of_its_range_is_told() -> None:
    search = RandomSearch.model_validate(
        {
            "trials": 1,
            "space": {
                "optimizer.lr": {"loguniform": [1e-4, 1.0]},
                "optimizer.momentum": {"one_minus_loguniform": [0.5, 0.999]},
                "optimizer.kind": {"choice": ["sgd", "adam"]},
            },
        }
    )
    settings = [
        {"optimizer.lr": 0.9, "optimizer.momentum": 0.99, "optimizer.kind": "sgd"},  # 1 % below, 0.05 of 4 decades
        {"optimizer.lr": 1.2e-4, "optimizer.momentum": 0.9988, "optimizer.kind": "sgd"},
        {"optimizer.lr": 0.5, "optimizer.momentum": 0.8, "optimizer.kind": "adam"},  # 0.3 of a decade from the end
    ]
    trials = [trial(n, {"data.batch_size": 8 * 2**n}, values=each) for n, each in enumerate(settings)]
    rows = rows_of(trials, target=True)
    told = [(row.point["data.batch_size"], key, sentence) for row, key, sentence in at_the_edge(search, rows)]
    assert [(size, key) for size, key, _ in told] == [
        (8, "optimizer.lr"),
        (16, "optimizer.lr"),
        (16, "optimizer.momentum"),
    ]
    assert told[1][2].startswith("data.batch_size=16: the best optimizer.lr, 0.00012, ")
    assert "[0.0001, 1]" in told[1][2]
