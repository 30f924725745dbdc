"""Models of Hugging Face's transformers train as others do, and go back to their class. All are of small configs."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import alray
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import RequestError, SpecError
from alray.runtime.workload import Workload
from benchmarks.huggingface import FAMILIES, METHODS, is_of_language, looked_at, spec_of

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed: pip install 'alray[transformers]'"
)

REFUSED = ("AlbertForSequenceClassification", "DebertaV2ForSequenceClassification")
"""Of which all layers share weights: each is one component."""
ROUNDS = ("ResNetForImageClassification",)
"""Whose class gives the scores of the route up to rounding."""
ARE_BITS = {"GPT2LMHeadModel": ("backpropagation",), "BertForSequenceClassification": ()}
"""What `make test` runs; the proof that the chain is the whole belongs to each."""


@pytest.mark.parametrize("name", ARE_BITS)
def test_a_model_is_cut_and_goes_back_to_its_class(name: str, one_thread: None) -> None:
    found = looked_at(name, ARE_BITS[name], components=2)
    assert "refused" not in found and found["components"] == 2
    assert [found.get(key) for key in (*ARE_BITS[name], "loaded")] == ["bits", "bits"] or not ARE_BITS[name]


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_by_every_method(name: str, one_thread: None) -> None:
    found = looked_at(name)
    if name in REFUSED:
        assert "share the parameter" in found["refused"]
    else:
        methods = METHODS if is_of_language(name) else METHODS[:3]
        assert {found[key] for key in methods} == {"bits"}
        assert found["loaded"] == "bits" or (name in ROUNDS and float(found["loaded"]) < 1e-6)


def test_an_export_replaces_a_folder_of_an_export_alone(tmp_path: Path, one_thread: None) -> None:
    spec = spec_of("GPT2LMHeadModel", tmp_path, components=2)
    run = alray.run(spec, inline=True, output=tmp_path / "run", progress=False)
    for _ in range(2):
        written = run.export("pretrained", tmp_path / "out" / "gpt2")
    assert written.bytes == sum(file.stat().st_size for file in Path(written.file).iterdir())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(RequestError, match="no export wrote"):
        run.export("pretrained", tmp_path / "mine")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["gpt2"]
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def opened(folder: Path, name: str, **model: Any) -> Workload:
    spec = spec_of(name, folder)
    spec |= {"model": {**spec["model"], **model}, "pipeline": {}}
    return Workload.open(load_spec(spec).spec, UserCode(folder))


@pytest.mark.parametrize(
    ("model", "key", "said"),
    [
        ({"untie": False}, "model.from", "model.untie=true"),
        ({"with": {"n_layers": 4}}, "model.with.n_layers", "n_layer"),
        ({"with": {"trust_remote_code": True}}, "model.with.trust_remote_code", "has no key"),
        ({"cut": ["transformer.h.9"], "components": "auto"}, "model.cut", "transformer.h"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused(model: dict[str, Any], key: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        opened(tmp_path, "GPT2LMHeadModel", **model)
    (problem,) = caught.value.problems
    assert problem.key == key and said in f"{problem.message} {problem.hint}"


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SpecError, match=r"transformers is not installed.*alray\[transformers\]"):
        opened(tmp_path, "GPT2LMHeadModel")
