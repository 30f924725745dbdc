"""The short form of `make chaos`: a handful of faults, one run on Ray and one in this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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


@pytest.mark.full  # `make chaos` draws hundreds of them; each kind has a test of its own
@pytest.mark.timeout(300)
def test_runs_that_are_disturbed_end_in_the_undisturbed_bits_and_leave_nothing(tmp_path: Path) -> None:
    try:
        with Room(tmp_path / "trial"):
            pass
    except NoRoom as error:
        pytest.skip(f"no right to make namespaces here: {error}")
    undisturbed = Undisturbed(tmp_path, limit_s=250)
    with ThreadPoolExecutor() as threads:
        played = list(threads.map(lambda case: play(case, undisturbed, tmp_path / str(case.number), 250), CASES))
    for each, case in zip(played, CASES, strict=True):
        assert each.struck == list(case.faults), each.as_json()
        assert (each.outcome, each.left) == (RESUMED, {}), each.as_json()


def test_the_same_seed_draws_the_same_cases() -> None:
    assert [drawn(0, number) for number in range(30)] == [drawn(0, number) for number in range(30)]
    assert drawn(0, 1) != drawn(1, 1)
