"""The short form of `make chaos`: a handful of faults, one run on Ray and one in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from .faults import Case, Fault, drawn
from .play import RESUMED, Undisturbed, play
from .room import NoRoom, Room
from .scenarios import SCENARIOS

pytestmark = pytest.mark.own_ray


def fault(kind: str, target: str | None, moment: str, *, part: float = 0.0, delay_s: float = 0.0) -> Fault:
    return Fault(kind, target, moment, part, delay_s, lasts_s=None, chance=0.5)


CASES = (
    Case(
        0,
        SCENARIOS["streamed, inline"],
        (
            fault("full disk", None, "middle", part=0.1),
            fault("SIGKILL", "driver", "checkpoint"),
        ),
        patient=True,
    ),
    Case(
        1,
        SCENARIOS["streamed"],
        (fault("SIGKILL", "GCS", "middle", part=0.3), fault("SIGKILL", "driver", "checkpoint", delay_s=0.1)),
        patient=False,
    ),
)


@pytest.mark.timeout(300)
@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=["inline", "on Ray"])
def test_a_run_that_is_disturbed_ends_in_the_undisturbed_bits_and_leaves_nothing(case: Case, tmp_path: Path) -> None:
    try:
        with Room(tmp_path / "trial"):
            pass
    except NoRoom as error:
        pytest.skip(f"no right to make namespaces here: {error}")
    undisturbed = Undisturbed(tmp_path, limit_s=250)
    played = play(case, undisturbed, tmp_path / "played", 250)
    assert played.struck == list(case.faults), played.as_json()
    assert (played.outcome, played.left) == (RESUMED, {}), played.as_json()


def test_the_same_seed_draws_the_same_cases() -> None:
    assert [drawn(0, number) for number in range(30)] == [drawn(0, number) for number in range(30)]
    assert drawn(0, 1) != drawn(1, 1)
