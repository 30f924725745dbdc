"""Every function of the interface checks what it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import alray
from alray.core.errors import RequestError


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
        (lambda: alray.plan(["x.yaml"]), "spec"),
        (lambda: alray.search_layouts("x.yaml", devices=4), "devices"),
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


def test_a_model_is_told_how_it_trains() -> None:
    with pytest.raises(RequestError, match=r"alray\.train"):
        alray.run(Net())  # type: ignore[arg-type]
