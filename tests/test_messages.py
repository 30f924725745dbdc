"""Wrong specs and wrong data are refused where they are wrong: file, line and key of each problem, and a hint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import DataError, Problem, SpecError
from alray.data.batches import EvaluationBatches, TrainBatches
from alray.data.opening import open_data

from .config.bad_specs import BAD_SPECS, BadSpec
from .data.bad_data import BAD_DATA, BadData


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def refused_spec(case: BadSpec) -> SpecError:
    """In the current folder."""
    write(Path(), {"x.yaml": case.text})
    with pytest.raises(SpecError) as caught:
        load_spec("x.yaml", case.overrides)
    return caught.value


def refused_data(case: BadData, folder: Path) -> DataError:
    """What opening the data and reading all of it says."""
    text = f"name: a\ndata: {{{case.data}}}\nmodel: {{components: [{{block: linear, width: 2}}]}}\nrun: {{steps: 1}}\n"
    write(folder, {"x.yaml": text, **case.files})
    section = load_spec(folder / "x.yaml").spec.data
    with pytest.raises(DataError) as caught:
        data = open_data(section, seed=0, load=UserCode(folder))
        for split in ("train", "test"):
            list(EvaluationBatches(data, split))
        list(TrainBatches(data, seed=0, start_step=0, end_step=data.steps_per_epoch, workers=0))
    return caught.value


def place(problem: Problem, folder: Path) -> str:
    """File (unless it is the spec), line and key, if there are any."""
    file = (problem.file or "").removeprefix(f"{folder}/").removeprefix("x.yaml")
    line = f":{problem.line}" if problem.line else ""
    return " ".join(part for part in (f"{file}{line}".removeprefix(":"), problem.key) if part)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.few
@pytest.mark.parametrize("case", BAD_SPECS, ids=lambda case: case.change[:60])
def test_a_wrong_spec_is_refused_where_it_is_wrong(case: BadSpec, folder: Path) -> None:
    problems = refused_spec(case).problems
    assert [place(problem, folder) for problem in problems] == list(case.places)
    assert all(problem.hint for problem in problems)


@pytest.mark.few
@pytest.mark.parametrize("case", BAD_DATA, ids=lambda case: case.place)
def test_wrong_data_is_refused_where_it_is_wrong(case: BadData, folder: Path) -> None:
    (problem,) = refused_data(case, folder).problems
    assert place(problem, folder) == case.place and problem.hint
