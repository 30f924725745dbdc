"""What runs doubt of their times is told of their study."""

from __future__ import annotations

from alray.studies.figures import warnings_of

from .conftest import results, trial


def test_the_doubt_of_a_trial_is_that_of_its_run() -> None:
    doubtful = trial(3, {"variant": "al"}, ran={"doubts": ["stage 1 cannot be so fast"]})
    assert warnings_of(results([doubtful])) == ["trial 3 (variant=al, seed 0): stage 1 cannot be so fast"]


def test_a_doubt_that_trials_share_is_told_once() -> None:
    """Trials of a session predict by the same measurement, which other programs may have disturbed."""
    trials = [
        trial(number, {"variant": "al"}, seed=number, ran={"doubts": ["others were busy"]}) for number in (3, 4, 5)
    ]
    assert warnings_of(results(trials)) == ["trial 3 (variant=al, seed 3) and 2 other trials: others were busy"]
