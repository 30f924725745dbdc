"""torch's DDP over a stage's network: in plain processes, and once by Ray Train, as one process on the whole
mini-batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.core.errors import RequestError

from ..pairwise import first_alone
from .conftest import Workshop
from .test_replicas import ADAM, BP, DRAWN, OWN, SGD, SHARING, SOMETIMES, SPEC, distance, replicas
from .test_same_bits import same
from .test_sync_batch_norm import SHARED
from .test_sync_batch_norm import SPEC as NORMALISED

DDP = [*BP, "replicas.engine=ray_train"]


@pytest.fixture
def replicated(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


@pytest.mark.full
@pytest.mark.parametrize("setting", first_alone([ADAM, SGD]), ids=["adam", "sgd"])
def test_equals_one_process_and_goes_on(replicated, processes, setting) -> None:
    overrides, tolerance = setting
    one = replicated.run(*overrides, *BP, name="one")
    replicated.run(*overrides, *DDP, *replicas(2), "run.steps=5", inline=False)
    run = replicated.resume("run.steps=10", inline=False)
    assert distance(run, one) <= tolerance
    assert run.summary.accuracy == one.summary.accuracy


@pytest.mark.full
def test_one_replica_has_none_to_average_with(replicated, processes) -> None:
    """As where nodes were lost."""
    one = replicated.run(*ADAM[0], *BP, name="one")
    same(replicated.run(*ADAM[0], *DDP, inline=False), one)


@pytest.mark.full
def test_with_statistics_over_all_replicas(replicated, processes) -> None:
    replicated.spec.write_text(NORMALISED)
    one = replicated.run(*ADAM[0], *BP, name="one")
    run = replicated.run(*ADAM[0], *DDP, *replicas(2), SHARED, inline=False)
    assert distance(run, one) <= ADAM[1]


@pytest.mark.full
def test_a_parameter_without_a_gradient_stays(replicated, processes) -> None:
    (replicated.folder / "own.py").write_text(OWN)
    one = replicated.run(*ADAM[0], *BP, *DRAWN, name="one")
    run = replicated.run(*ADAM[0], *DDP, *DRAWN, *replicas(2), inline=False)
    assert distance(run, one) <= ADAM[1]


@pytest.mark.full
def test_gradients_of_several_components_that_share_memory(replicated, processes) -> None:
    (replicated.folder / "own.py").write_text(OWN)
    one = replicated.run(*SHARING, *BP, name="one")
    assert distance(replicated.run(*SHARING, *DDP, *replicas(2), inline=False), one) <= 1e-10


@pytest.mark.full
def test_a_gradient_of_one_replica_in_the_memory_of_another_one(replicated, processes) -> None:
    """DDP's average is that of replicas as actors."""
    (replicated.folder / "own.py").write_text(OWN)
    asked = [*SOMETIMES, *replicas(2)]
    actors = replicated.run(*asked, *BP, name="actors")
    assert distance(replicated.run(*asked, *DDP, inline=False), actors) <= 1e-10


@pytest.mark.few
@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("fp16", 0.5, 0.5), ("bf16", 0.5, 0.5), ("{kind: powersgd, rank: 1, start_iteration: 3}", 0.3, 0.8)],
)
def test_compressions_send_less(replicated, processes, kind, least, most) -> None:
    one = replicated.run(*SGD[0], *BP, name="one")
    run = replicated.run(*SGD[0], *DDP, *replicas(2, f"replicas.compression={kind}"), inline=False)
    assert 0.0 < distance(run, one) < 0.3, "something is lost, and not everything"
    uncompressed = 2 * 10 * 4 * run.summary.parameters  # replicas, mini-batches, bytes of a gradient
    assert least <= run.summary.all_reduce_bytes / uncompressed <= most


def test_not_in_one_process(replicated) -> None:
    with pytest.raises(RequestError, match="--inline: `ray_train` runs in processes of Ray Train"):
        replicated.run(*DDP, *replicas(2))
    assert not (replicated.folder / "run").exists()
