"""What a run prints at its end are the rows of the page about GPUs, and says no other thing of them."""

from __future__ import annotations

import pytest

from .mutations import MUTATIONS, PACKAGE, changed
from .shown import SHOWN, filled_in, rows_of_page


@pytest.mark.parametrize("simulated", [True, False])
def test_the_rows_are_those_of_the_page(simulated: bool) -> None:
    assert list(SHOWN) == list(rows_of_page(simulated=simulated))


@pytest.mark.parametrize("simulated", [True, False])
def test_a_run_whose_tests_all_pass_prints_what_the_page_says(simulated: bool) -> None:
    said = rows_of_page(simulated=simulated)
    named = {f"{each}[case]": "passed" for what, says in said.items() if "shown" in says for each in SHOWN[what]}
    assert filled_in(named, said, one_gpu=True) == said


def test_each_mutation_has_a_place() -> None:
    """A line that moves takes its mutation with it: the whole list is tried now and then only."""
    for mutation in MUTATIONS:
        changed(mutation, PACKAGE.joinpath(mutation.file).read_text(encoding="utf-8"))


def test_what_the_tests_of_a_row_come_to() -> None:
    said = dict.fromkeys(SHOWN, "shown")
    outcomes = {"a::test_compiled[x]": "passed", "b::test_nccl.py": "failed"}
    outcomes |= {"c::test_stages_stream[one]": "passed", "c::test_stages_stream[two]": "skipped"}
    assert set(filled_in(outcomes, said).values()) == {"shown", "in part", "failed", "not run"}


def test_what_a_device_cannot_show_or_nobody_has_run() -> None:
    said = {"torch.compile": "cannot show it", "times of a stage are those of the GPU": "missing"}
    outcomes = {"a::test_compiled[x]": "skipped", "a::test_what_a_stage_computes_is": "skipped"}
    assert filled_in(outcomes, said) == said
    passed = dict.fromkeys(outcomes, "passed")
    assert list(filled_in(passed, said).values()) == ["cannot show it", "shown"]


@pytest.mark.parametrize(
    "says", ["shown, one GPU as two", "missing", "the bubble of two stages on one GPU: shown; the others: missing"]
)
def test_several_gpus_stand_for_themselves(says: str) -> None:
    """What the page says was shown on one GPU, which stood for several or could not."""
    said = {"torch.compile": says}
    outcomes = {"a::test_compiled[x]": "passed"}
    assert filled_in(outcomes, said) == {"torch.compile": "shown"}
    outcomes["a::test_compiled[y]"] = "skipped"
    assert filled_in(outcomes, said) == {"torch.compile": "in part"}
    assert filled_in(outcomes, said, one_gpu=True) == said
