"""Words and their numbers: `basic_english`, the vocabulary of the training split, documents as rows."""

from __future__ import annotations

import pytest
import torch

from alray.core.errors import DataError
from alray.data.division import Parts
from alray.data.documents import Documents, Numbering
from alray.data.source import TextSet
from alray.data.text_data import text_splits
from alray.data.vocabulary import Vocabulary, make_tokenizer, most_frequent
from tests.data import sections as spec


def words_of(documents: Documents, words: tuple[str, ...]) -> list[list[str]]:
    rows = documents.rows(torch.arange(len(documents)))
    return [[words[number] for number in row if number] for row in rows.tolist()]


def test_basic_english() -> None:
    split = make_tokenizer("basic_english")
    assert split('Isn\'t it "New-York", (really)?  It is: yes.') == (
        ["isn", "'", "t", "it", "new-york", ",", "(", "really", ")", "?", "it", "is", "yes", "."]
    )


def test_the_most_frequent_words_and_of_equals_the_first_by_letters() -> None:
    assert most_frequent({"b": 2, "a": 2, "c": 9, "d": 1}, 5) == ("<pad>", "<unk>", "c", "a", "b")
    assert most_frequent({"<pad>": 99, "<unk>": 99, "a": 1}, 30) == ("<pad>", "<unk>", "a")
    with pytest.raises(DataError, match="the training split has no words"):
        most_frequent({"<unk>": 3}, 30)


def test_a_row_is_the_words_of_its_document_and_padding_behind() -> None:
    numbering = Numbering(str.split)
    read = numbering.read(["a b a", "", "c"])
    assert read.lengths.tolist() == [3, 1, 1]
    words, table = numbering.vocabulary(read, torch.tensor([0, 1, 2]), 30)
    assert words == ("<pad>", "<unk>", "a", "b", "c")
    documents = read.renumbered(table, 128)
    rows = documents.rows(torch.tensor([2, 0, 1]))
    assert rows.tolist() == [[4, 0, 0], [2, 3, 2], [1, 0, 0]]
    assert rows.dtype == torch.int64
    assert rows.is_contiguous()
    assert documents.rows(torch.tensor([1])).tolist() == [[1]]
    assert documents.rows(torch.tensor([1]), 4).tolist() == [[1, 0, 0, 0]]
    assert documents.numbers.dtype == torch.int32


def test_truncation_is_by_words_and_leaves_the_other_documents_alone() -> None:
    numbering = Numbering(str.split)
    read = numbering.read(["a b c d", "e", "f g h"])
    words, table = numbering.vocabulary(read, torch.arange(3), 30)
    assert words_of(read.renumbered(table, 2), words) == [["a", "b"], ["e"], ["f", "g"]]
    assert words_of(read.renumbered(table, 3), words) == [["a", "b", "c"], ["e"], ["f", "g", "h"]]


def test_a_document_that_holds_the_padding_word_has_no_hole() -> None:
    numbering = Numbering(str.split)
    read = numbering.read(["a <pad> <unk> a"])
    words, table = numbering.vocabulary(read, torch.tensor([0]), 30)
    assert words == ("<pad>", "<unk>", "a")
    assert read.renumbered(table, 128).numbers.tolist() == [2, 1, 1, 2]
    assert Vocabulary(words, "basic_english", 128).numbers("a <pad> <unk> a").tolist() == [2, 1, 1, 2]


def test_a_new_document_gets_the_numbers_it_would_have_had() -> None:
    texts = ["The cat, the DOG.", "", "a dog <pad> " * 9, "unseen words"]
    section = spec.Text(vocabulary_size=8, max_tokens=6)
    train, _, _, vocabulary = text_splits(
        TextSet(texts, [0, 1, 0, 1]),
        None,
        Parts(torch.tensor([0, 1, 2]), torch.tensor([3])),
        classes=("a", "b"),
        text=section,
        fixed_length=False,
    )
    for position, text in enumerate(texts[:3]):
        sample, _ = train[position]
        assert torch.equal(sample, vocabulary.numbers(text))
    assert vocabulary.numbers("").tolist() == [1]
    assert vocabulary.numbers("unseen").tolist() == [1]


def test_only_the_training_split_has_a_say_in_the_vocabulary() -> None:
    train, test = TextSet(["a b", "secret secret", "b c"], [0, 1, 0]), TextSet(["hidden b"], [1])

    def opened(test_set: TextSet) -> tuple[str, ...]:
        _, _, _, vocabulary = text_splits(
            train,
            test_set,
            Parts(torch.tensor([0, 2]), torch.tensor([1])),
            classes=("a", "b"),
            text=spec.Text(),
            fixed_length=False,
        )
        return vocabulary.words

    assert opened(test) == ("<pad>", "<unk>", "b", "a", "c")
    assert opened(TextSet(["hidden hidden c c c c"], [0])) == opened(test)


def test_what_stands_behind_the_cut_counts_too() -> None:
    _, _, _, vocabulary = text_splits(
        TextSet(["a b b b"], [0]),
        None,
        Parts(torch.tensor([0]), torch.tensor([], dtype=torch.int64)),
        classes=("a",),
        text=spec.Text(max_tokens=1),
        fixed_length=False,
    )
    assert vocabulary.words == ("<pad>", "<unk>", "b", "a")


def test_a_label_out_of_range() -> None:
    with pytest.raises(DataError) as caught:
        text_splits(
            TextSet(["a", "b"], [0, 2]),
            None,
            Parts(torch.tensor([0, 1]), torch.tensor([], dtype=torch.int64)),
            classes=("a", "b"),
            text=spec.Text(),
            fixed_length=False,
        )
    assert str(caught.value).startswith("data: document 1 of split `train` has label 2, ")


def test_labels_that_do_not_fit_the_documents() -> None:
    with pytest.raises(DataError, match="2 labels for 1 documents"):
        TextSet(["a"], [0, 1])
