"""What is said of wrong specs and wrong data: the place of each problem, and the wording of all of them in one file.

After a change of wording, read the difference of `tests/golden/messages.txt` that this command makes:
`UPDATE_GOLDEN=1 pytest tests/test_messages.py`
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from alray.data.batches import EvaluationBatches, TrainBatches
from alray.data.dataset import open_data
from alray.errors import AlrayError, DataError, Problem, SpecError
from alray.spec.loading import load_spec
from alray.user_code import UserCode

from .data.bad_data import BAD_DATA, BadData
from .spec.bad_specs import BAD_SPECS, BadSpec

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"


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
    """File (unless it is the spec), line and key, as far as there are any."""
    file = (problem.file or "").removeprefix(f"{folder}/").removeprefix("x.yaml")
    line = f":{problem.line}" if problem.line else ""
    return " ".join(part for part in (f"{file}{line}".removeprefix(":"), problem.key) if part)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", BAD_SPECS, ids=lambda case: case.change[:60])
def test_a_wrong_spec_is_refused_where_it_is_wrong(case: BadSpec, folder: Path) -> None:
    problems = refused_spec(case).problems
    assert [place(problem, folder) for problem in problems] == list(case.places)
    assert all(problem.hint for problem in problems)


@pytest.mark.parametrize("case", BAD_DATA, ids=lambda case: case.place)
def test_wrong_data_is_refused_where_it_is_wrong(case: BadData, folder: Path) -> None:
    assert [place(problem, folder) for problem in refused_data(case, folder).problems] == [case.place]


def test_the_wording(folder: Path) -> None:
    entries: list[tuple[str, AlrayError]] = [(case.change, refused_spec(case)) for case in BAD_SPECS]
    for number, case in enumerate(BAD_DATA):
        entries.append((f"{case.data} ({case.place})", refused_data(case, folder / str(number))))
    text = "\n".join(f"{' '.join(what.split())}\n{_indented(said.problems, folder)}" for what, said in entries)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


def _indented(problems: Sequence[Problem], folder: Path) -> str:
    # Folders of the data are numbered; a message that names its file is the same in all of them.
    lines = [str(problem).replace(f"{folder}/", "") for problem in problems]
    return "".join(f"    {line.partition('/')[2] if line[:1].isdigit() else line}\n" for line in lines)
