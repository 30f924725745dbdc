"""A run that learns nothing is no success: it is refused, or it says so."""

from __future__ import annotations

import pytest

from alray.core.errors import PlanError

from .conftest import Watching, Workshop

FROZEN = """

class Frozen(nn.Module):
    '''Features that nothing trains.'''

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, s):
        return self.layers(s)


class NoRate:
    def __call__(self, at):
        return 0.0


class FrozenInside(Frozen):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)
"""
ONE = "pipeline={stages: 1}"
OF_MODEL = (ONE, "method=backpropagation", "model={from: 'python:own_blocks.%s'%s}")


@pytest.mark.few
@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("optimizer.accumulate=22",), "optimizer.accumulate"),
        (("optimizer.accumulate=2", "run.epochs=null", "run.steps=1"), "optimizer.accumulate"),
        (("optimizer.accumulate=8", "run.epochs=null", "run.samples=100"), "optimizer.accumulate"),
        (("lr_schedule={kind: 'python:own_blocks.NoRate'}",), "lr_schedule"),
        ((*OF_MODEL[:2], OF_MODEL[2] % ("Frozen", ", freeze: [layers]")), "model"),
        ((*OF_MODEL[:2], OF_MODEL[2] % ("FrozenInside", "")), "model"),
    ],
    ids=["epochs", "steps", "samples", "a rate of 0", "freeze", "frozen by itself"],
)
def test_a_run_without_an_update_is_refused(workshop: Workshop, overrides: tuple[str, ...], key: str) -> None:
    with (workshop.folder / "own_blocks.py").open("a") as file:
        file.write(FROZEN)
    with pytest.raises(PlanError) as caught:
        workshop.run(*overrides)
    assert caught.value.problems[0].key == key
    assert not (workshop.folder / "run" / "records.jsonl").exists()


@pytest.mark.full
def test_the_rest_of_a_window_is_told(workshop: Workshop) -> None:
    watching = Watching()
    workshop.run("run.epochs=1", "optimizer.accumulate=4", watching=watching)
    (told,) = [note for note in watching.notes if "optimizer.accumulate" in note]
    assert told.startswith("the last 3 mini-batches of 7 make no update")
    whole = Watching()
    workshop.run("run.epochs=1", "optimizer.accumulate=7", name="whole", watching=whole)
    assert not [note for note in whole.notes if "make no update" in note]
