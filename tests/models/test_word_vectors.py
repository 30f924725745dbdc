"""Files of word vectors: the forms in use, and every way one can be damaged."""

from __future__ import annotations

from functools import partial

import pytest

from alray.core.errors import DataError
from alray.parts.blocks.embedding.block import check_vectors, read_vectors

GLOVE = "the 0.1 -2 3e-1\n, 1 2 3\nun\u00a0mot 4 5 6\ncat 7 8 9\n"


@pytest.fixture
def read(tmp_path):
    def read_text(text, words=("cat", "the", "dog"), dim=3):
        file = tmp_path / "vectors.txt"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_vectors(file, words=words, dim=dim)

    return read_text


@pytest.mark.parametrize(
    "text",
    [
        GLOVE,
        f"4 3\n{GLOVE}",
        GLOVE.replace("\n", " \n"),  # as fastText writes it
        GLOVE.replace("\n", "\r\n"),
        GLOVE.removesuffix("\n"),
        GLOVE + "cat 0 0 0\n",
        GLOVE.encode() + b"\xff\xfe 0 0 0\n",
    ],
    ids=["GloVe", "word2vec", "fastText", "Windows", "no last line break", "twice", "bytes that are no text"],
)
def test_forms(read, text):
    indices, values = read(text)
    found = dict(zip(indices.tolist(), values.tolist(), strict=True))
    assert found.keys() == {0, 1}  # cat and the
    assert found[0] == [7, 8, 9] and found[1] == pytest.approx([0.1, -2, 0.3])


def test_a_word_is_found_whatever_it_holds(read):
    indices, values = read(GLOVE, words=("un\u00a0mot", ","))
    assert indices.tolist() == [1, 0] and values.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_no_word_in_common(read):
    indices, values = read(GLOVE, words=("dog",))
    assert indices.shape == (0,) and values.shape == (0, 3)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("the 1 2 3\ncat 1 2\ndog 1 2 3\n", ":2", "2 values, but dim is 3; the lines before it have as many as dim "),
        ("the 1 2 3\ncat 1  3\n", ":2", "`` is no finite number"),
        ("the 1 2 3\n. . 1 2 3\n", ":2", "4 values, but dim is 3"),
        ("the 1 2 3\n\ncat 1 2 3\n", ":2", "0 values, but dim is 3"),
        ("the 1 2 3 4\n", ":1", "4 values, but dim is 3; set dim to 4, or give a file with vectors of 3"),
        ("2 4\nthe 1 2 3 4\n", ":1", "4 values, but dim is 3; set dim to 4"),
        (b"PK\x03\x04\x00\x00", "", "this file is a zip archive"),
        ("the 1 2 x3\n", ":1", "`x3` is no finite number; the file is damaged, or not one of word vectors"),
        ("dog 1 2 3\nthe 1 nan 3\n", ":2", "`nan` is no finite number"),
        ("the 1 1_0 3\n", ":1", "`1_0` is no finite number"),
        ("the 1 2 1e39\n", ":1", "`1e39` is no finite number"),
        ("the 1 2 " + 60 * "y", ":1", f"`{37 * 'y'}...` is no finite number"),
        (
            "3 3\nthe 1 2 3\ncat 1 2 3\n",
            ":3",
            "the first line says that there are 3 vectors, but there are 2; the file",
        ),
        ("1 3\nthe 1 2 3\ncat 1 2 3\n", ":3", "the first line says that there are 1 vectors, but there are 2"),
        ("", "", "there are no word vectors in this file; get it anew"),
    ],
)
def test_damage_is_told_with_its_line(read, tmp_path, text, place, message):
    with pytest.raises(DataError) as caught:
        read(text)
    assert str(caught.value).startswith(f"{tmp_path / 'vectors.txt'}{place}: {message}")


@pytest.mark.parametrize("look", [lambda path: read_vectors(path, words=("a",), dim=3), partial(check_vectors, dim=3)])
@pytest.mark.parametrize(("name", "reason"), [("none.txt", "No such file or directory"), (".", "Is a directory")])
def test_what_cannot_be_opened(tmp_path, look, name, reason):
    with pytest.raises(DataError) as caught:
        look(tmp_path / name)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / name}: ") and reason in message


def test_a_glance_sees_the_first_vector_only(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("2 3\nthe 1 2 3\ncat 1\n")
    check_vectors(file, dim=3)
    with pytest.raises(DataError, match=":1: 3 values, but dim is 2; set dim to 3"):
        check_vectors(file, dim=2)
    file.write_text("the 1 2 3a\n")
    with pytest.raises(DataError, match=":1: `3a` is no finite number"):
        check_vectors(file, dim=3)
