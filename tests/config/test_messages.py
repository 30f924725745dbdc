"""No wrong value is refused in the words of pydantic or Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from alray.config.loading.load import load_spec
from alray.config.sections.spec import Replicas, Spec
from alray.core.errors import SpecError

Complaints = Callable[..., list[str]]


PATHS: list[tuple[str | int, ...]] = [
    *[(key,) for key in Spec.model_fields],
    ("data", "source"), ("data", "batch_size"), ("data", "shape"), ("data", "image_size"), ("data", "root"),
    ("model", "components"), ("model", "components", 0), ("model", "components", 0, "block"),
    ("model", "components", 0, "channels"), ("model", "components", 0, "repeat"),
    ("method", "kind"), ("method", "head"), ("method", "bridge"), ("method", "bridge", "pool"),
    ("optimizer", "kind"), ("optimizer", "lr"), ("optimizer", "betas"), ("lr_schedule", "kind"),
    ("pipeline", "partition"), ("pipeline", "costs"), ("pipeline", "stages"),
    ("resources", "per_stage"), ("resources", "labels"), ("resources", "device"),
    *[("replicas", key) for key in Replicas.model_fields], ("replicas", "compression", "kind"),
    ("run", "checkpoint"), ("run", "stop_at"), ("run", "epochs"), ("run", "precision"),
]  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers().map(lambda number: number * 10**90)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(
        [
            "python:a.B",
            "python:",
            "vgg",
            "sgd",
            "cosine",
            "backpropagation",
            "supervised_contrastive",
            "synthetic",
            "torchvision",
            "powersgd",
            "random",
            "8 steps",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["kind", "block", "every", "metric", "CPU", "forward_s", "average_every", "epochs", "x", ""]
            ),
            inner,
        )
    ),
)


def test_a_letter_that_no_name_of_a_folder_has() -> None:
    with pytest.raises(SpecError, match=r"name: the text `münster` cannot name a folder; .* letters from a to z"):
        load_spec({"name": "münster"})


HALF = "\udce9"
"""What YAML makes of the escape of half a character. A byte of a file name that is not UTF-8 is kept like this."""


@pytest.mark.full
@example([(("replicas", "all_reduce"), HALF)])
@example([(("method", "head"), HALF)])
@example([(("method", "kind"), f"python:a.{HALF}")])
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=3))
def test_no_value_is_without_plain_words(changes: list[tuple[tuple[str | int, ...], Any]]) -> None:
    document: Any = {
        "name": "small",
        "data": {"source": "digits"},
        "model": {"components": [{"block": "vgg", "channels": [4]}]},
        "method": {"bridge": {}},
        **{key: {} for key in ("optimizer", "lr_schedule", "pipeline", "resources", "replicas")},
        "run": {"epochs": 1},
    }
    for path, value in changes:
        holder = document
        for part in path[:-1]:
            holder = holder[part] if isinstance(holder, dict) and part in holder else holder
            holder = (
                holder[part] if isinstance(holder, list) and isinstance(part, int) and len(holder) > part else holder
            )
        if isinstance(holder, dict) and isinstance(path[-1], str):
            holder[path[-1]] = value
    try:
        load_spec(document)
    except SpecError as error:
        problems = error.problems
    else:
        problems = ()
    assert all(problem.hint for problem in problems)
    for jargon in ("Input", "should be", " tag", "union", "tuple", "dict", "pydantic", "NoneType"):
        assert not any(jargon in str(problem).split("`")[0] for problem in problems)
