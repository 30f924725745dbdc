"""The layout of AG News and DBpedia, whole and damaged."""

from __future__ import annotations

from pathlib import Path

from alray.data.text_csv import TextCsv

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
