"""The layout of AG News and DBpedia, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.data.text_csv import TextCsv
from alray.errors import DataError

# Lines of the real files: all fields quoted (AG News), class bare (DBpedia); quotes doubled, backslashes as they are.
AG_NEWS = (
    '"3","Wall St. Bears Claw Back Into the Black (Reuters)","Reuters - Short-sellers, Wall Street\'s dwindling\\band '
    'of ultra-cynics, are seeing green again."\n'
    '"4","E-mail ""phishing""","A line\nthat goes on"\n'
    '"1","Unrest, again","Someone said ""no""."\n'
    '"2","Cup","Goal"\n'
)
DBPEDIA = (
    '1,"E. D. Abbott Ltd"," Abbott of Farnham E D Abbott Limited was a British coachbuilding business."\n'
    '2,"Schwan-Stabilo"," Schwan-STABILO is a German maker of pens."\n'
)


def write(folder: Path, content: str | bytes, name: str = "train.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def fault(folder: Path, content: str | bytes) -> DataError:
    with pytest.raises(DataError) as caught:
        TextCsv(train=write(folder, content), test=None)
    assert caught.value.problems[0].file == str(folder / "train.csv")
    return caught.value


def test_ag_news(tmp_path: Path) -> None:
    source = TextCsv(train=write(tmp_path, AG_NEWS), test=write(tmp_path, AG_NEWS, "test.csv"))
    assert source.classes == ("1", "2", "3", "4")
    train = source.open("train")
    assert train is not None
    assert list(train.labels) == [2, 3, 0, 1]
    assert train.texts[0].startswith("Wall St. Bears Claw Back Into the Black (Reuters) Reuters - Short-sellers, Wall")
    assert "dwindling\\band" in train.texts[0]
    assert train.texts[1] == 'E-mail "phishing" A line\nthat goes on'
    test = source.open("test")
    assert test is not None
    assert test.texts == train.texts


def test_dbpedia_with_named_classes(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("Company\nEducationalInstitution\nArtist\n\n")
    source = TextCsv(train=write(tmp_path, DBPEDIA), test=None)
    assert source.classes == ("Company", "EducationalInstitution", "Artist")
    train = source.open("train")
    assert train is not None
    assert list(train.labels) == [0, 1]
    assert source.open("test") is None


def test_one_column_of_text_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf"1","caf\xc3\xa9"\r\n\r\n"2","b"\r\n'
    train = TextCsv(train=write(tmp_path, content), test=None).open("train")
    assert train is not None
    assert train.texts == ["café", "b"]


LAYOUT = 'lines are "class","title","description" without a header, classes are counted from 1'


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ('"1","a","b"\n"2","a"\n', 2, "the line has 2 columns, and 3 were expected"),
        ('"1","a","b"\n"2","a","b","c"\n', 2, "the line has 4 columns, and 3 were expected"),
        ('"1"\n', 1, "the line has 1 columns, and there are two at least"),
        ("Class Index,Title,Description\n", 1, "`Class Index` is not the number of a class"),
        ('"1","a","b"\n"x","a","b"\n', 2, "`x` is not the number of a class"),
        ('"1","a","b"\n"-1","a","b"\n', 2, "`-1` is not the number of a class"),
        ('"1","a","b"\n"²","a","b"\n', 2, "`²` is not the number of a class"),
        ('"1","a","b"\n"0","a","b"\n', 2, "class 0 is out of range: they count from 1"),
        (b'"1","a","b"\n"2","a\xff","b"\n', 2, "byte 0xff is not text in UTF-8"),
        (b'"1","a","b\n\n"\n"2","a","b"\n"1","\xe9t\xe9","b"\n', 5, "byte 0xe9 is not text in UTF-8"),
    ],
)
def test_a_damaged_line(tmp_path: Path, content: str | bytes, line: int, message: str) -> None:
    problem = fault(tmp_path, content).problems[0]
    assert (problem.line, problem.message) == (line, message)
    assert problem.mend in (LAYOUT, "convert the file to UTF-8")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('"1","a","b"\n"2","left open\n"1","a","b"\n', 2),  # the next quote ends the field
        ('"1","a","b"\n\n"2","a","left open\n1,2,3\n', 3),  # to the end of the file
        ('"1","a","b"\n"2","a"b","c"\n', 2),
    ],
)
def test_an_open_quote_is_told_where_its_line_begins(tmp_path: Path, content: str, line: int) -> None:
    problem = fault(tmp_path, content).problems[0]
    assert problem.line == line
    assert problem.message.startswith("not a CSV record (")
    assert problem.message.endswith("): is a quote left open?")


def test_a_class_out_of_range_of_the_training_set(tmp_path: Path) -> None:
    source = TextCsv(train=write(tmp_path, AG_NEWS), test=write(tmp_path, AG_NEWS.replace('"2"', '"5"'), "test.csv"))
    with pytest.raises(DataError) as caught:
        source.open("test")
    assert str(caught.value) == (
        f"{tmp_path / 'test.csv'}:5: class 5 is out of range: they count from 1, and there are 4; {LAYOUT}"
    )


def test_a_class_without_documents_is_taken_for_a_damaged_number(tmp_path: Path) -> None:
    assert str(fault(tmp_path, '"1","a","b"\n"999","a","b"\n')) == (
        f"{tmp_path / 'train.csv'}: data.train: class 2 has no documents, and class 999 has; "
        "classes count from 1 without gaps; or name them all in classes.txt beside the file"
    )


def test_other_columns_in_the_test_file(tmp_path: Path) -> None:
    source = TextCsv(train=write(tmp_path, "1,a,b\n2,a,b\n"), test=write(tmp_path, "1,a\n", "test.csv"))
    with pytest.raises(DataError, match=r"test\.csv:1: the line has 2 columns, and 3 were expected"):
        source.open("test")


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        TextCsv(train=tmp_path / "no.csv", test=None)
    assert str(caught.value) == (
        f"{tmp_path / 'no.csv'}: data.train: file not found; give a CSV file, as AG News comes: {LAYOUT}"
    )
    source = TextCsv(train=write(tmp_path, AG_NEWS), test=tmp_path / "no.csv")
    with pytest.raises(DataError, match=r"data\.test: file not found"):
        source.open("test")


@pytest.mark.parametrize(("names", "message"), [("\n", "there is no class in it"), ("a\na\n", "two classes have one")])
def test_damaged_class_names(tmp_path: Path, names: str, message: str) -> None:
    (tmp_path / "classes.txt").write_text(names)
    with pytest.raises(DataError, match=message):
        TextCsv(train=write(tmp_path, AG_NEWS), test=None)
