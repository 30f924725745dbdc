"""Methods with local losses end in the same bits between processes, and in turns on two stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from alray.orchestrate import Finished

from ..pairwise import first_alone
from .conftest import Workshop
from .test_same_bits import same

pytestmark = pytest.mark.long

METHODS = {
    "decoupled_greedy": "head: {pool: 2, hidden: 8}, label_smoothing: 0.1",
    "mono_forward": "pool: 2",
    "local_error_signals": "beta: 0.9",
    "channel_goodness": "",
    "decoupled_information": "projection_dim: 6",
    "forward_forward": "",
    "noprop": "hidden: 6",
    "auglocal": "depth: 2",
    "forward_forward by activities": "loss: symba, alpha: 0.01, prediction: activities",
    "supervised_contrastive": "projection_dim: 6",
}
"""The further keys of each method."""
SOME = first_alone(
    ["forward_forward", "noprop", *(kind for kind in METHODS if kind not in ("forward_forward", "noprop"))], first=2
)
"""The two whose messages are unlike those of all others come first."""
WIDTHS = ("model.components.0.channels=[8]", "model.components.2.width=8", "model.components.3.width=8")
"""Each of the four classes has a group of channels."""


def by(kind: str) -> list[str]:
    return [f"method={{kind: {kind.split()[0]}, {METHODS[kind]}}}", "data.last_batch=keep", *WIDTHS]


@pytest.fixture(scope="module")
def reference_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """A run by a method, sequential, on one stage: what the other runs must equal."""

    @cache
    def run(kind: str) -> Finished:
        workshop = Workshop(tmp_path_factory.mktemp(kind.split()[0]))
        return workshop.run(*by(kind), "pipeline.schedule=sequential", "pipeline.stages=1")

    return run


@pytest.mark.few
@pytest.mark.parametrize("partition", [[1, 2, 1], [1, 3]], ids=str)
@pytest.mark.parametrize("kind", SOME)
def test_the_same_bits_between_processes(workshop, reference_by, processes, kind, partition) -> None:
    same(workshop.run(*by(kind), f"pipeline.partition={partition}", inline=False), reference_by(kind))


@pytest.mark.few
@pytest.mark.parametrize("kind", SOME)
def test_the_same_bits_in_turns_on_two_stages(workshop, reference_by, kind) -> None:
    run = workshop.run(*by(kind), "pipeline.partition=[1,1,1,1]", "pipeline.virtual_stages=2")
    same(run, reference_by(kind))
