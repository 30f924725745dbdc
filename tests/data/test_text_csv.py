"""CSV files of documents: the layout of AG News and DBpedia, and files with headers and class names."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from alray.core.errors import DataError
from alray.data.csv_file import CsvForm
from alray.data.inputs import document
from alray.data.text_file import read_text
from alray.parts.sources.table.source import TableSource
from alray.parts.sources.text_csv.source import TextCsvSource, TextFileLayout

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


def test_ag_news(tmp_path: Path) -> None:
    source = TextCsvSource(train=write(tmp_path, AG_NEWS), test=write(tmp_path, AG_NEWS, "test.csv"))
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
    source = TextCsvSource(train=write(tmp_path, DBPEDIA), test=None)
    assert source.classes == ("Company", "EducationalInstitution", "Artist")
    train = source.open("train")
    assert train is not None
    assert list(train.labels) == [0, 1]
    assert source.open("test") is None


def test_one_column_of_text_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf"1","caf\xc3\xa9"\r\n\r\n"2","b"\r\n'
    train = TextCsvSource(train=write(tmp_path, content), test=None).open("train")
    assert train is not None
    assert train.texts == ["café", "b"]


REVIEWS = 'review,sentiment\n"Yes, really",good\nno,bad\nfine,good\n'
"""The layout of the IMDb reviews as Kaggle gives them: a header, and the class last."""


def labels_and_texts(source: TextCsvSource, split: str = "train") -> tuple[tuple[str, ...], list[int], list[str]]:
    found = source.open(split)  # type: ignore[arg-type]
    assert found is not None
    return source.classes, list(found.labels), list(found.texts)


@pytest.mark.parametrize(
    ("content", "layout", "classes", "labels", "texts"),
    [
        (REVIEWS, TextFileLayout(label_column="sentiment"), ("bad", "good"), [1, 0, 1], ["Yes, really", "no", "fine"]),
        (REVIEWS, TextFileLayout(label_column=1), ("bad", "good"), [1, 0, 1], ["Yes, really", "no", "fine"]),
        ("text,label\na,spam\nb,ham\n", TextFileLayout(), ("ham", "spam"), [1, 0], ["a", "b"]),
        ("Class Index,Title,Text\n2,a,b\n1,c,d\n", TextFileLayout(), ("1", "2"), [1, 0], ["a b", "c d"]),
        ("spam,a\nham,b\nspam,c\nham,d\n", TextFileLayout(), ("ham", "spam"), [1, 0, 1, 0], ["a", "b", "c", "d"]),
        ("spam,a\nham,b\n", TextFileLayout(header=False), ("ham", "spam"), [1, 0], ["a", "b"]),
        ("spam,a\nham,b\n", TextFileLayout(header=True), ("ham",), [0], ["b"]),
        ("0,a\n1,b\n0,c\n", TextFileLayout(), ("0", "1"), [0, 1, 0], ["a", "b", "c"]),
        (
            "id,b,kind,a\n7,1,x,2\n8,3,y,4\n",
            TextFileLayout(True, "kind", ("a", "b")),
            ("x", "y"),
            [0, 1],
            ["2 1", "4 3"],
        ),
        (
            "7,1,x,2\n8,3,y,4\n9,5,x,6\n9,7,y,8\n",
            TextFileLayout("auto", 2, (3,)),
            ("x", "y"),
            [0, 1, 0, 1],
            list("2468"),
        ),
    ],
    ids=["name", "number", "label", "Kaggle", "no header", "none said", "one said", "0 and 1", "chosen", "numbers"],
)
def test_headers_columns_and_names(
    tmp_path: Path, content: str, layout: TextFileLayout, classes: tuple[str, ...], labels: list[int], texts: list[str]
) -> None:
    source = TextCsvSource(train=write(tmp_path, content), test=None, layout=layout)
    assert labels_and_texts(source) == (classes, labels, texts)


def test_classes_in_the_order_of_the_spec(tmp_path: Path) -> None:
    """By their names, and as names for the numbers of a file, from 0 or from 1."""
    names = ("good", "bad")
    by_name = write(tmp_path, REVIEWS)
    assert labels_and_texts(
        TextCsvSource(train=by_name, test=None, layout=TextFileLayout(label_column=1), classes=names)
    )[1] == [
        0,
        1,
        0,
    ]
    for first in (0, 1):
        numbered = write(tmp_path, f"{first},a\n{first + 1},b\n", f"{first}.csv")
        assert labels_and_texts(TextCsvSource(train=numbered, test=None, classes=names)) == (names, [0, 1], ["a", "b"])


@pytest.mark.parametrize(("numbers", "told"), [((1, 2, 3), True), ((1, 2, 4), False), ((0, 2, 3), False)])
def test_numbers_that_may_count_from_0_or_from_1_are_told(tmp_path: Path, numbers: tuple[int, ...], told: bool) -> None:
    file = write(tmp_path, "label,x\n" + "".join(f"{number},5\n" for number in numbers))
    names = ("a", "b", "c", "d")
    for source in (
        TextCsvSource(train=file, test=None, classes=names),
        TableSource(train=file, validation=None, test=None, classes=names),
    ):
        assert source.classes == names
        assert ("1 is taken for `a`" in "".join(source.notes)) == told


def test_a_test_file_has_its_own_order_of_columns_and_its_own_header(tmp_path: Path) -> None:
    train = write(tmp_path, REVIEWS)
    test = write(tmp_path, "sentiment,stars,review\nbad,1,dull\n", "test.csv")
    layout = TextFileLayout(label_column="sentiment", text_columns=("review",))
    assert labels_and_texts(TextCsvSource(train=train, test=test, layout=layout), "test")[1:] == ([0], ["dull"])
    train = write(tmp_path, "text,label\na,spam\nb,ham\n")
    for content in ("text,label\nc,ham\n", "c,ham\n"):
        test = write(tmp_path, content, "test.csv")
        assert labels_and_texts(TextCsvSource(train=train, test=test), "test")[1:] == ([0], ["c"])


def test_a_test_file_has_the_columns_of_the_training_file(tmp_path: Path) -> None:
    """By name, though the spec leaves the columns of text open, and by position where the test file has no names."""
    train = write(tmp_path, "title,label,review\na,spam,b\nc,ham,d\n")
    test = write(tmp_path, "id,review,label,title\n7,d,ham,c\n", "test.csv")
    for layout in (TextFileLayout(label_column="label"), TextFileLayout(True), TextFileLayout(True, label_column=1)):
        found = TextCsvSource(train=train, test=test, layout=layout)
        assert labels_and_texts(found, "test")[1:] == ([0], ["c d"])
    train = write(tmp_path, "label,text\nspam,a\nham,b\n")
    for content in ("text,label\nc,ham\n", "id,label,text\n7,ham,c\n"):
        write(tmp_path, content, "test.csv")
        assert labels_and_texts(TextCsvSource(train=train, test=test), "test")[1:] == ([0], ["c"])
    train = write(tmp_path, "title,label,review\na,spam,b\nc,ham,d\n")
    write(tmp_path, "id,label,review\n7,ham,d\n", "test.csv")
    with pytest.raises(DataError, match=r"test\.csv:1: data\.test: there is no column `title`"):
        TextCsvSource(train=train, test=test, layout=TextFileLayout(label_column="label")).open("test")
    for header in ("T,label", "x,T,label"):
        train = write(tmp_path, "t,T,label\na,b,spam\nc,d,ham\n")
        write(tmp_path, f"{header}\n{'e,' * header.count(',')}ham\n", "test.csv")
        for layout in (TextFileLayout(label_column="label"), TextFileLayout(text_columns=("t",), label_column="label")):
            with pytest.raises(DataError, match=r"test\.csv:1: data\.test: there is no column `t`"):
                TextCsvSource(train=train, test=test, layout=layout).open("test")
    train = write(tmp_path, ",text,label\n0,a,spam\n1,b,ham\n")
    write(tmp_path, "0,c,ham\n", "test.csv")
    assert labels_and_texts(TextCsvSource(train=train, test=test), "test")[1:] == ([0], ["c"])


def test_a_long_document(tmp_path: Path) -> None:
    import csv

    limit, text = csv.field_size_limit(), "a " * 100_000
    source = TextCsvSource(train=write(tmp_path, f"1,{text}\n2,b\n"), test=None)
    assert labels_and_texts(source)[2] == [text, "b"]
    assert csv.field_size_limit() == limit


def test_texts_are_not_taken_for_classes(tmp_path: Path) -> None:
    """Without `label_column` the first column is read, which here holds the documents."""
    lines = "".join(f"review {number},positive\n" for number in range(60))
    with pytest.raises(DataError) as caught:
        TextCsvSource(train=write(tmp_path, "review,sentiment\n" + lines), test=None)
    (problem,) = caught.value.problems
    assert problem.key == "data.label_column"
    assert problem.hint == "name the column of the classes; the first line is `review`, `sentiment`"


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends_are_equal(tmp_path: Path, end: str) -> None:
    """In a file of text, in documents of a folder, in a cell of a CSV file, and in an input of a prediction."""
    text = f"one{end}line{end}{end}two"
    file = tmp_path / "a.txt"
    file.write_bytes(text.encode())
    assert read_text(file) == document(str(file)) == document(text) == "one\nline\n\ntwo"
    (tmp_path / "a.csv").write_bytes(f'0,"{text}"\n1,b\n'.encode())
    source = TextCsvSource(train=tmp_path / "a.csv", test=None)
    assert source.open("train").texts[0] == "one\nline\n\ntwo"  # type: ignore[union-attr]


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_the_line_ends_of_a_csv_file_are_those_of_any_system(tmp_path: Path, end: str) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(f'\ufefflabel,text{end}0,"a{end}b"{end}1,c{end}{end}0,d'.encode())
    source = TextCsvSource(train=file, test=None)
    assert source.open("train").texts == ["a\nb", "c", "d"]  # type: ignore[union-attr]
    for cell, message in ((b"1,2", "expected 2 columns, got 3"), (b"\xff", "not UTF-8")):
        file.write_bytes(f'label,text{end}0,"a{end}b"{end}1,'.encode() + cell + end.encode())
        with pytest.raises(DataError, match=rf"a\.csv:4: .*{message}"):
            TextCsvSource(train=file, test=None)
    with pytest.raises(DataError, match=r"a\.csv:4: .*not UTF-8"):
        read_text(file)
    file.write_bytes(b"label,text\n0,a\n1,b\r0,c\n")
    with pytest.raises(DataError, match=r"a\.csv:3: this is not a CSV record"):
        TextCsvSource(train=file, test=None)


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("gzip", gzip.compress(b"label,text\n0,a\n", mtime=0)),
        ("bzip2", bz2.compress(b"label,text\n0,a\n")),
        ("xz", lzma.compress(b"label,text\n0,a\n")),
        ("zstd", b"\x28\xb5\x2f\xfd\x20\x0f"),
        ("zip archive.*xlsx", b"PK\x03\x04\x14\x00"),
        (".xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        ("Parquet", b"PAR1\x15\x04"),
        ("picture", b"\x89PNG\r\n\x1a\n"),
        ("UTF-16", "label,text\n0,a\n".encode("utf-16")),
        ("UTF-16", "label,text\n0,a\n".encode("utf-16-le")),
        ("byte 0", "label,text\n0,a\n".encode("utf-16-be")),
    ],
)
def test_a_file_that_is_no_text_is_told_as_what_it_is(tmp_path: Path, said: str, content: bytes) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.csv: this file is .*{said}"):
        TextCsvSource(train=file, test=None)
    with pytest.raises(DataError, match=rf"a\.csv: this file is .*{said}"):
        read_text(file)


def test_the_index_of_pandas(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(",label,text\n0,x,a b\n1,y,c\n")
    source = TextCsvSource(train=tmp_path / "b.csv", test=None)
    assert source.open("train").texts == ["a b", "c"] and "no name" in source.notes[0]  # type: ignore[union-attr]
    (tmp_path / "c.csv").write_text("label;text\nx;a\ny;b\n")
    with pytest.raises(DataError, match=r"data\.delimiter"):
        TextCsvSource(train=tmp_path / "c.csv", test=None)
    layout = TextFileLayout(form=CsvForm(";"))
    assert TextCsvSource(train=tmp_path / "c.csv", test=None, layout=layout).classes == ("x", "y")


def test_classes_that_look_equal_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,text\nbig cat,a\nbig\u00a0cat,b\ndog\u200b,c\n", encoding="utf-8")
    assert TextCsvSource(train=tmp_path / "a.csv", test=None).classes == ("big cat", "dog")
