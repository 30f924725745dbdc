"""Functions of the interface check what is most often given wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import alray
from alray.api.calls import in_python
from alray.core.errors import RequestError
from alray.runtime.options import require_launched_once


class Net:
    """What a model looks like to the interface."""

    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda: alray.run(Net()), "spec"),
        (lambda: alray.run(None), "spec"),
        (lambda: alray.run("x.yaml", 3), "overrides"),
        (lambda: alray.run("x.yaml", [3]), "overrides"),
        (lambda: alray.run("x.yaml", output=3), "output"),
        (lambda: alray.run("x.yaml", inline="no"), "inline"),
        (lambda: alray.run("x.yaml", callbacks=alray.Callback()), "callbacks"),
        (lambda: alray.run("x.yaml", callbacks=[alray.Callback]), "callbacks[0]"),
        (lambda: alray.run("x.yaml", callbacks=[alray.Callback(), Net()]), "callbacks[1]"),
        (lambda: alray.train(Net(), (), inline="no"), "inline"),
        (lambda: alray.train(Net(), (), callbacks=alray.Callback()), "callbacks"),
        (lambda: alray.plan(["x.yaml"]), "spec"),
        (lambda: alray.ways("x.yaml", devices=4), "devices"),
        (lambda: alray.study(3), "spec"),
        (lambda: alray.load_run(3), "folder"),
        (lambda: alray.load_study(None), "folder"),
        (lambda: alray.reproduce(3), "run"),
        (lambda: alray.compare(3), "runs"),
        (lambda: alray.compare([Net()]), "runs"),
    ],
)
def test_another_type_is_refused_with_the_accepted_forms(call: Callable[[], object], key: str) -> None:
    with pytest.raises(RequestError) as caught:
        call()
    problem = caught.value.problems[0]
    assert problem.key == key
    assert str(problem.hint).startswith("give ")


def test_a_crossover_takes_several_links_and_numbers(tiny: dict[str, Any]) -> None:
    links = ["host", "1 GB/s"]
    found = alray.map_ways(tiny, {"pipeline.costs": None}, link=links, devices=[2], micro_batches=[2], progress=False)
    assert [each["link"] for each in found.values["fastest"]] == links
    with pytest.raises(RequestError, match=r"devices: .*; give a text, such as '4x24GB' or '1,2,4'"):
        alray.map_ways(tiny, devices=8)


class Deaf(alray.Callback):
    def on_evaluate(self, record: object) -> None: ...


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: alray.train(Net(), (), inlin=True), "^inlin: unknown argument; did you mean `inline`"),
        (lambda: alray.train(Net(), (), losss=len), "^losss: unknown argument; did you mean `loss`"),
        (lambda: alray.train(Net(), (), lr=0.1), r"did you mean `optimizer=\{'lr': \.\.\.\}`"),
        (lambda: alray.train(Net(), (), (), data={"validation_fraction": 0.1}), "data.validation_fraction"),
        (lambda: alray.train(Net(), (), steps=3), r"did you mean `run=\{'steps': \.\.\.\}`"),
        (
            lambda: alray.run({}, callbacks=[alray.Callback(), Deaf()]),
            r"^callbacks\[1\]: `on_evaluate` of `Deaf` is never called; did you mean `on_evaluation`",
        ),
    ],
)
def test_a_misspelled_name_is_told(call: Callable[[], object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        call()


def test_an_option_of_a_command_is_told_as_an_argument(tiny: dict[str, Any]) -> None:
    run = alray.run(tiny, output="run", inline=True, progress=False)
    with pytest.raises(RequestError, match=r"^step: there is no checkpoint after 7"):
        run.trained(step=7).evaluate()
    with pytest.raises(RequestError, match=r"^step: best=True and `step` name two checkpoints"):
        run.trained(best=True, step=7).evaluate()
    assert (
        in_python("pass --allow-code, or `alray run x --inline`") == "pass allow_code=True, or `alray run x --inline`"
    )


def test_a_model_is_told_how_it_trains() -> None:
    with pytest.raises(RequestError, match=r"alray\.train"):
        alray.run(Net())  # type: ignore[arg-type]


def test_tensors_are_told_what_takes_them() -> None:
    with pytest.raises(RequestError, match=r"this is a Tensor; give a file, .* run\.network\(\)\(samples\)"):
        alray.Run("x").predict(torch.zeros(2))  # type: ignore[arg-type]


def test_torchrun_is_told_who_starts_the_processes(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ray Train and clusters set alone refuses nothing."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    require_launched_once()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(RequestError, match="torchrun started this program 2 times"):
        alray.run(tiny, inline=True, output="out", progress=False)
    assert not Path("out").exists()
    monkeypatch.setenv("WORLD_SIZE", "1")
    require_launched_once()
