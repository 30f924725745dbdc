"""Tables of numbers in CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest
import torch
from pyarrow import parquet

import alray.data.table_file
from alray.core.errors import DataError
from alray.data.dataset import Dataset
from alray.data.form import DataForm, SampleForm
from alray.data.opening import open_data
from alray.data.table_file import TableLayout
from alray.parts.sources.table.source import TableSource
from alray.parts.tasks.multi_label.keys import MultiLabel
from alray.parts.tasks.regression.keys import Regression
from tests.data import sections as spec
from tests.data.predicted import inputs

ROWS = [(5.1, 3.5, "setosa"), (-4.9, 3.0, "setosa"), (6.4, 3.25, "virginica"), (7e1, 3.0, "setosa")]
NAMES = ("length", "width", "kind")


def write_csv(path: Path, rows: Any = ROWS, names: tuple[str, ...] | None = NAMES) -> Path:
    lines = [names, *rows] if names else rows
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in lines), encoding="utf-8")
    return path


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    parquet.write_table(pyarrow.table(columns), path)
    return path


def opened(train: Path, **keys: Any) -> Dataset:
    section = {"source": "table", "train": train, "batch_size": 2, "validation_fraction": 0.0, **keys}
    return open_data(spec.TableFiles(**section), seed=0, load=spec.no_code)


def read_by_a_run(data: Dataset, file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The rows of a table to predict, read as the run folder of these data says."""
    form = DataForm.model_validate_json(DataForm.of(data).model_dump_json()).input
    assert isinstance(form, SampleForm) and form.rows is not None
    return form.rows.read(file)


def values(data: Dataset) -> torch.Tensor:
    return torch.stack([data.train[place][0] for place in range(len(data.train))])


def normalised(rows: Any = ROWS) -> torch.Tensor:
    numbers = numpy.array([row[:2] for row in rows], dtype=numpy.float32).astype(numpy.float64)
    return torch.from_numpy((numbers - numbers.mean(0)) / numbers.std(0)).float()


def test_a_csv_file_with_names(tmp_path: Path) -> None:
    data = opened(write_csv(tmp_path / "iris.csv"), label_column="kind")
    assert (data.classes, data.sample_shape, len(data.train)) == (("setosa", "virginica"), (2,), 4)
    assert [label for _, label in (data.train[place] for place in range(4))] == [0, 0, 1, 0]
    assert torch.allclose(values(data), normalised(), atol=1e-6)


@pytest.mark.parametrize("kind", ["int8", "uint64", "float16", "double", "bool"])
def test_parquet_has_the_numbers_of_csv(tmp_path: Path, kind: str) -> None:
    numbers = [1, 0, 1, 1]
    labels = pyarrow.array(["b", "a", "b", "b"]).dictionary_encode()
    typed = (
        pyarrow.array(numbers)
        .cast(pyarrow.float32())
        .cast(getattr(pyarrow, {"double": "float64", "bool": "bool_"}.get(kind, kind))())
    )
    file = write_parquet(
        tmp_path / "a.parquet", {"x": typed, "label": labels, "y": pyarrow.array([0.5, 1.5, 2.5, 9.0])}
    )
    rows = zip(numbers, ["b", "a", "b", "b"], [0.5, 1.5, 2.5, 9.0], strict=True)
    same = opened(write_csv(tmp_path / "a.csv", rows, ("x", "label", "y")))
    data = opened(file)
    assert torch.equal(values(data), values(same))
    assert (data.classes, data.identity) == (("a", "b"), same.identity)


def test_columns_of_its_own_order_and_no_header(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [(1, 10, "x", 3), (0, 20, "y", 4)], None)
    data = opened(file, label_column=0, columns=[3, 1], classes=("no", "yes"))
    assert (data.classes, [data.train[place][1] for place in range(2)]) == (("no", "yes"), [1, 0])
    assert values(data).tolist() == [[-1.0, -1.0], [1.0, 1.0]]
    assert opened(file, label_column=0, columns=3).sample_shape == (1,)


def test_the_first_line_names_columns_unless_it_has_a_number_in_each_column_of_numbers(tmp_path: Path) -> None:
    """Where a column is given by its name, or `label` by none, it names them in any case."""
    rows = [(5, 1, "x"), (6, 2, "y")]
    for names, columns, header, count in (
        (("400", "410", "kind"), None, "auto", 3),
        (("400", "b", "kind"), None, "auto", 2),
        (("400", "b", "kind"), 0, "auto", 3),
        (("400", "410", "kind"), "400", "auto", 2),
        (("400", "410", "kind"), None, True, 2),
        (("0", "1", "2"), None, "auto", 2),
    ):
        file = write_csv(tmp_path / "a.csv", rows, names)
        assert len(opened(file, label_column=2, columns=columns, header=header).train) == count
    assert len(opened(write_csv(tmp_path / "b.csv", rows, ("400", "410", "label"))).train) == 2


def test_other_files_have_their_columns_by_name(tmp_path: Path) -> None:
    """In any order; they are normalised as the training file is."""
    names = ("label", "note", "width", "length")
    train = write_csv(tmp_path / "train.csv", names=("length", "width", "label"))
    other = [(kind, "a note", width, length) for length, width, kind in ROWS[:3]]
    test = write_csv(tmp_path / "test.csv", other, names)
    data = opened(train, test=test, validation=test)
    assert len(data.train) == 4
    for split in (data.test, data.validation):
        assert split is not None and len(split) == 3
        samples, labels = split.take([0, 1, 2])
        assert torch.equal(samples, values(data)[:3]) and labels.tolist() == [0, 0, 1]


def test_a_file_without_a_column_of_the_training_file_is_named(tmp_path: Path) -> None:
    train, test = write_csv(tmp_path / "a.csv"), write_csv(tmp_path / "b.csv", names=("length", "wide", "kind"))
    with pytest.raises(DataError, match="no column `width`") as raised:
        opened(train, test=test, label_column="kind")
    assert raised.value.problems[0].key == "data.test"


def test_a_constant_column_stays_finite(tmp_path: Path) -> None:
    data = opened(
        write_csv(tmp_path / "a.csv", [(0.1, number, number % 2) for number in range(7)], ("a", "b", "label"))
    )
    assert torch.isfinite(values(data)).all()
    assert values(data)[:, 0].abs().max() < 1e-6


def test_given_means(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv")
    data = opened(file, label_column=2, normalise={"mean": [0, 1], "deviation": [1, 2]})
    assert torch.allclose(values(data)[0], torch.tensor([5.1, 1.25]))


def test_other_numbers_are_other_data(tmp_path: Path) -> None:
    before = opened(write_csv(tmp_path / "a.csv"), label_column="kind").identity
    after = opened(write_csv(tmp_path / "b.csv", [(5.2, 3.5, "setosa"), *ROWS[1:]]), label_column="kind").identity
    assert after.changes(before) == {"contents": "other samples, or the same in another order"}


@pytest.mark.parametrize("limit", [31, 63])
def test_a_small_parquet_file_of_many_rows_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Equal values take no space in the file."""
    file = write_parquet(tmp_path / "a.parquet", {"x": [0.0] * 4, "y": [1.0] * 4, "label": [0, 1, 0, 1]})
    monkeypatch.setattr(alray.data.table_file, "_LARGEST_BYTES", limit)
    with pytest.raises(DataError, match="kept in memory"):
        opened(file)
    monkeypatch.setattr(alray.data.table_file, "_LARGEST_BYTES", 64)
    assert len(opened(file).train) == 4


@pytest.mark.parametrize(
    ("columns", "keys", "said"),
    [
        ({"x": [1.0, None], "label": [0, 1]}, {}, ":2: column `x` has no value"),
        ({"x": [True, None], "label": [0, 1]}, {}, ":2: column `x` has no value"),
        ({"x": [1.0, float("inf")], "label": [0, 1]}, {}, ":2: column `x` has `inf`"),
        ({"x": [1e300, 1.0], "label": [0, 1]}, {}, ":1: column `x` has `1e[+]300`"),
        ({"x": ["a", "b"], "label": [0, 1]}, {}, "data.columns: column `x` is of type string"),
        ({"x": [1, 2], "label": [0.5, 1.0]}, {}, "data.label_column: column `label` is of type double"),
        ({"x": [1, 2], "label": [0, None]}, {}, ":2: the class is empty"),
        ({"x": [1, 2], "kind": [0, 1]}, {}, "data.label_column: there is no column `label`"),
        ({"x": [1, 2], "label": [0, 1]}, {"columns": "y"}, "data.columns: there is no column `y`"),
        ({"label": [0, 1]}, {}, "data.columns: there is no column of numbers"),
        ({"x": pyarrow.array([], pyarrow.float32()), "label": pyarrow.array([], pyarrow.int8())}, {}, "no rows"),
    ],
)
def test_parquet_with_something_wrong(tmp_path: Path, columns: Any, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        opened(write_parquet(tmp_path / "a.parquet", columns), **keys)


def test_what_is_no_parquet(tmp_path: Path) -> None:
    whole = write_parquet(tmp_path / "a.parquet", {"x": [1.0] * 100, "label": [0, 1] * 50}).read_bytes()
    for content in (b"", b"x,label\n1,2\n", whole[:-9], whole[:40] + b"\xff" * 40 + whole[80:]):
        (tmp_path / "b.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"b\.parquet: data\.train: damaged Parquet file"):
            opened(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("train", "given", "named"),
    [
        ([("x", "label", "y"), (1, 0, 5), (2, 1, 6)], [("y", "x"), (5, 1), (6, 2)], True),
        ([("x", "label", "y"), (1, 0, 5), (2, 1, 6)], [("z", "x", "y"), (0, 1, 5), (0, 2, 6)], True),
        ([(1, 0, 5), (2, 1, 6)], [(1, 5), (2, 6)], False),
        ([(1, 0, 5), (2, 1, 6)], [(1, 1, 5), (2, 0, 6)], False),
    ],
)
def test_samples_to_predict_need_no_label(tmp_path: Path, train: Any, given: Any, named: bool) -> None:
    layout = TableLayout(header=named, label_column=None if named else 1)
    source = TableSource(train=write_csv(tmp_path / "a.csv", train, None), validation=None, test=None, layout=layout)
    samples = list(source.rows.read(write_csv(tmp_path / "b.csv", given, None)))
    assert [row.tolist() for _, row in samples] == [[1, 5], [2, 6]]
    assert [name.rpartition(":")[2] for name, _ in samples] == (["2", "3"] if named else ["1", "2"])


def test_samples_to_predict_have_the_columns_of_training(tmp_path: Path) -> None:
    source = TableSource(
        train=write_csv(tmp_path / "a.csv", [(1, 0), (2, 1)], ("x", "label")), validation=None, test=None
    )
    with pytest.raises(DataError, match=r"b\.csv:1: INPUT: there is no column `x`"):
        list(source.rows.read(write_csv(tmp_path / "b.csv", [(1,)], ("w",))))
    with pytest.raises(DataError, match=r"c\.csv:2: .*`a`"):
        list(source.rows.read(write_csv(tmp_path / "c.csv", [("a",)], ("x",))))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_of_targets_and_labels(tmp_path: Path, kind: str) -> None:
    columns = {"a": [1.0, 2.0, 4.0], "warm": [1, 0, 1], "age": [10.0, 30.0, 20.0], "round": [True, False, False]}
    if kind == "parquet":
        file = write_parquet(tmp_path / "t.parquet", columns)
    else:
        rows = [[float(value) for value in row] for row in zip(*columns.values(), strict=True)]
        file = write_csv(tmp_path / "t.csv", rows, tuple(columns))

    def of(task: Any, *names: str | int) -> Dataset:
        keys = {"label_columns": names, "columns": ["a"], "validation_fraction": 0.0}
        section = spec.TableFiles(source="table", train=file, batch_size=2, **keys)
        return open_data(section, seed=0, load=spec.no_code, task=task)

    labels = of(MultiLabel(kind="multi_label"), "warm", "round")
    assert (labels.classes, labels.sample_shape) == (("warm", "round"), (1,))
    assert labels.train.take([0, 1, 2])[1].tolist() == [[1, 1], [0, 0], [1, 0]]
    ages = of(Regression(kind="regression"), "age")
    standardised = ages.train.take([0, 1, 2])[1]
    assert ages.in_units(standardised).flatten().tolist() == pytest.approx([10.0, 30.0, 20.0])
    with pytest.raises(DataError, match="the labels are 10"):
        of(MultiLabel(kind="multi_label"), "age")
    with pytest.raises(DataError, match=r"data\.columns: column `a`"):
        of(Regression(kind="regression"), "age", 0)


@pytest.mark.parametrize(
    ("start", "kind"), [(1_700_000_000, "csv"), (1_700_000_000, "parquet"), (10**12, "csv"), (-(2.0**40), "parquet")]
)
def test_large_numbers_keep_what_they_say(tmp_path: Path, start: float, kind: str) -> None:
    """float32 would round them to steps of more than 100."""
    numbers = [start + step for step in (0, 1, 2, 3)]
    file = tmp_path / f"a.{kind}"
    if kind == "csv":
        write_csv(file, [(number, place % 2) for place, number in enumerate(numbers)], ("time", "label"))
    else:
        write_parquet(file, {"time": numbers, "label": [0, 1, 0, 1]})
    data = opened(file, test=file, validation=file)
    wanted = (torch.arange(4.0) - 1.5) / 1.25**0.5
    for split in (data.train, data.validation, data.test):
        assert split is not None
        samples, _ = split.take([0, 1, 2, 3])
        assert samples.dtype == torch.float32 and torch.allclose(samples.flatten(), wanted)
        assert torch.allclose(split.take(range(4))[0][2], split[2][0])
    predicted = torch.cat(list(inputs(data, str(file))))
    assert torch.allclose(predicted, wanted)


def test_large_targets_keep_what_they_say(tmp_path: Path) -> None:
    rows = [(float(step), 1.7e9 + 10 * step) for step in range(4)]
    section = spec.TableFiles(
        source="table",
        train=write_csv(tmp_path / "a.csv", rows, ("x", "y")),
        label_columns=("y",),
        batch_size=2,
        validation_fraction=0.0,
    )
    data = open_data(section, seed=0, load=spec.no_code, task=Regression(kind="regression"))
    _, labels = data.train.take(range(4))
    assert labels.dtype == torch.float32
    assert torch.allclose(labels.flatten(), (torch.arange(4.0) - 1.5) / 1.25**0.5)
    assert data.in_units(labels).flatten().tolist() == pytest.approx([y for _, y in rows], abs=1e-3)


@pytest.mark.parametrize("keys", [{"validation_fraction": 0.5}, {"train_fraction": 0.5}], ids=" ".join)
def test_the_training_split_alone_says_means_and_deviations(tmp_path: Path, keys: dict[str, float]) -> None:
    """Of samples and of targets: other rows may not be known in training."""
    rows = [(float(step**2), 10.0 * step**3) for step in range(20)]
    section = spec.TableFiles(
        source="table",
        train=write_csv(tmp_path / "a.csv", rows, ("x", "y")),
        label_columns=("y",),
        batch_size=2,
        **{"validation_fraction": 0.0, **keys},
    )
    data = open_data(section, seed=0, load=spec.no_code, task=Regression(kind="regression"))
    for values in data.train.take(range(len(data.train))):
        assert len(values) == 10
        torch.testing.assert_close(values.mean(0), torch.zeros(1), atol=1e-6, rtol=0)
        torch.testing.assert_close(values.std(0, unbiased=False), torch.ones(1))


def test_other_tables_keep_their_bits(tmp_path: Path) -> None:
    """Their numbers are rounded to float32 first, as they always were."""
    data = opened(
        write_csv(
            tmp_path / "a.csv", [(0.1 + step, 1 / (step + 3), step % 2) for step in range(6)], ("a", "b", "label")
        )
    )
    numbers = numpy.array([(0.1 + step, 1 / (step + 3)) for step in range(6)]).astype(numpy.float32)
    mean, deviation = numbers.mean(0, dtype=numpy.float64), numbers.std(0, dtype=numpy.float64)
    assert torch.equal(values(data), torch.from_numpy((numbers - mean.astype("f4")) / deviation.astype("f4")))


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("x", "x", "label"), {}),
        (("x", "x\u00a0", "label"), {}),
        (("body mass", "body\u00a0mass", "label"), {}),
        (("x", "kind", "kind"), {"label_column": "kind"}),
    ],
)
def test_two_columns_of_one_name(tmp_path: Path, names: Any, keys: Any) -> None:
    with pytest.raises(DataError, match=f":1: two columns are called `{names[1].strip().replace(chr(160), ' ')}`"):
        opened(write_csv(tmp_path / "a.csv", [(1, 2, 0), (3, 4, 1)], names), **keys)


@pytest.mark.parametrize("name", ["", " ", "\u00a0", "Unnamed: 0"])
def test_a_column_without_a_name_is_no_feature(tmp_path: Path, name: str) -> None:
    file = write_csv(tmp_path / "a.csv", [(0, 5, 0), (1, 7, 1)], (name, "x", "label"))
    data = opened(file)
    assert data.sample_shape == (1,)
    assert "column 0" in data.notes[0] and "has no name" in data.notes[0]
    assert opened(file, columns=[0, 1]).sample_shape == (2,)


@pytest.mark.parametrize(("delimiter", "decimal"), [(";", ","), ("\t", "."), ("\t", ","), ("|", ".")])
def test_other_delimiters_and_decimal_signs(tmp_path: Path, delimiter: str, decimal: str) -> None:
    same = opened(write_csv(tmp_path / "a.csv"), label_column="kind")
    text = "".join(delimiter.join(str(cell).replace(".", decimal) for cell in row) + "\n" for row in [NAMES, *ROWS])
    (tmp_path / "b.csv").write_text(text)
    data = opened(tmp_path / "b.csv", label_column="kind", delimiter=delimiter, decimal=decimal)
    assert data.identity == same.identity
    with pytest.raises(DataError, match=r"data\.delimiter"):
        opened(tmp_path / "b.csv", label_column="kind")
    if decimal == ",":
        with pytest.raises(DataError, match=r"data\.decimal"):
            opened(tmp_path / "b.csv", label_column="kind", delimiter=delimiter)


def test_a_class_that_is_the_only_one_is_told(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", [(1, 2, "cat")] * 20)
    section = spec.TableFiles(source="table", train=file, label_column="kind", batch_size=4)
    data = open_data(section, seed=0, load=spec.no_code)
    assert data.notes == ("`cat` is the only class, so there is nothing to tell apart",)


def test_a_class_that_is_never_trained_is_told_and_can_be_kept(tmp_path: Path) -> None:
    rows = [(float(step), "rare" if step < 3 else "usual") for step in range(60)]
    file = write_csv(tmp_path / "a.csv", rows, ("x", "label"))

    def labels(seed: int, **keys: Any) -> tuple[Dataset, list[int]]:
        section = spec.TableFiles(source="table", train=file, batch_size=2, validation_fraction=0.5, **keys)
        data = open_data(section, seed=seed, load=spec.no_code)
        return data, [data.train[place][1] for place in range(len(data.train))]

    without = [data for seed in range(40) for data, found in [labels(seed)] if 0 not in found]
    assert without and all("class `rare`" in data.notes[0] for data in without)
    assert all("data.split_by_classes=true leaves" in data.notes[0] for data in without)
    (never,) = (note for note in labels(0, classes=("rare", "usual", "none"))[0].notes if "`none`" in note)
    assert never.endswith("cannot be learnt")
    for seed in range(10):
        data, found = labels(seed, split_by_classes=True)
        assert (found.count(0), len(found), len(data.validation or ())) in {(1, 30, 30), (2, 30, 30)} and not data.notes
        assert found == labels(seed, split_by_classes=True)[1]


def test_a_label_that_no_training_sample_has_is_told(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [(float(step), step % 2, 0) for step in range(20)], ("x", "odd", "new"))
    section = spec.TableFiles(source="table", train=file, batch_size=2, label_columns=("odd", "new"))
    data = open_data(section, seed=0, load=spec.no_code, task=MultiLabel(kind="multi_label"))
    assert data.notes == ("label `new` has no sample in the training split and cannot be learnt",)
