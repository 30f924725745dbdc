"""The thesis's preparation of texts, beside the code that the thesis published for it."""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alray.core.errors import DataError
from alray.data.dataset import Dataset
from alray.data.opening import open_data
from alray.data.preparation import STOP_WORDS, prepared_sets, prepared_text
from alray.data.source import TextSet
from tests.data import sections as spec
from tests.data.predicted import inputs


def published(text: str) -> str:
    """The steps of `data_preprocessing` in the thesis's `utils.py`, in their order."""
    lower = re.sub("<.*?>", "", text.lower())
    bare = "".join(character for character in lower if character not in string.punctuation)
    return " ".join(word for word in bare.split() if word not in STOP_WORDS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The CAT sat on the mat.", "cat sat mat"),
        ("It was great<br /><br />Really GREAT!", "greatreally great"),
        ("a <b>bold</b> well-known claim", "bold wellknown claim"),
        ("I don't, you won't", "dont wont"),
        ("2 < 3\n4 > 1", "2 3 4 1"),
        ("Café naïve — “quoted”", "café naïve — “quoted”"),
        ("<i></i> ... the", ""),
    ],
)
def test_a_document_of_the_thesis(text: str, expected: str) -> None:
    assert prepared_text(text, "thesis") == expected == published(text)
    assert prepared_text(text, "none") == text


@given(st.text(st.sampled_from("aAtThe <>/-'.\n\t é")))
def test_it_is_the_published_code(text: str) -> None:
    assert prepared_text(text, "thesis") == published(text)


def test_no_stop_word_has_punctuation() -> None:
    """One that has could never be removed, because punctuation goes first."""
    assert {"the", "don", "wouldn"} < STOP_WORDS
    assert all(word == prepared_text(word.upper() + "x", "thesis").removesuffix("x") for word in STOP_WORDS)


def test_short_documents_leave_the_training_set_only() -> None:
    train = TextSet(["the cat sat", "Cat!", "", "of the mat, dog"], [0, 1, 2, 3])
    test = TextSet(["the", "A cat."], [1, 0])
    chosen, kept = prepared_sets(train, test, "thesis")
    assert (chosen.texts, chosen.labels) == (["cat sat", "mat dog"], [0, 3])
    assert kept is not None
    assert (kept.texts, kept.labels) == (["", "cat"], [1, 0])
    assert prepared_sets(train, test, "none") == (train, test)
    with pytest.raises(DataError) as caught:
        prepared_sets(TextSet(["the", "cat"], [0, 1]), None, "thesis")
    assert caught.value.problems[0].key == "data.text.prepare"


def opened(folder: Path, **keys: Any) -> Dataset:
    section = spec.TextCsv(source="text_csv", train=folder / "train.csv", batch_size=2, validation_fraction=0, **keys)
    return open_data(section, seed=0, load=spec.no_code)


def test_words_lengths_and_new_documents_follow_the_preparation(tmp_path: Path) -> None:
    rows = ["The cat<br />sat hard!", "a dog ran off", "the", "A cat, and the dog"]
    lines = [f'"{index % 2 + 1}","{row}"\n' for index, row in enumerate(rows)]
    (tmp_path / "train.csv").write_text("".join(lines), encoding="utf-8")
    plain, prepared = opened(tmp_path), opened(tmp_path, text={"prepare": "thesis"})
    assert plain.sample_shape.words is not None
    assert {"the", ".", "sat"} & set(plain.sample_shape.words) == {"the", "sat"}
    assert prepared.sample_shape.words == ("<pad>", "<unk>", "dog", "cat", "catsat", "hard", "ran")
    assert (len(plain.train), len(prepared.train)) == (4, 3)
    samples, labels = prepared.train.take([0, 1, 2])
    assert samples.tolist() == [[4, 5], [2, 6], [3, 2]]
    assert labels.tolist() == [0, 1, 1]
    assert torch.equal(next(inputs(prepared, "THE cat; ran")), torch.tensor([3, 6]))
    assert plain.identity.contents != prepared.identity.contents
