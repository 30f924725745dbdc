"""Texts as tokens, and their windows: which documents, which tokens, which labels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from alray.core.errors import DataError, DataMissing
from alray.data.batches import TrainBatches
from alray.data.dataset import Dataset
from alray.data.form import DataForm
from alray.data.opening import open_data
from alray.data.tokens import Bytes, Characters, make_tokens
from alray.parts.sources.text.keys import TokenText
from alray.parts.tasks.next_token.keys import NextToken

DOCUMENTS = [f"document {chr(97 + number)} has a text of its own " * 3 for number in range(20)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty files, one of them in a folder below."""
    for number, document in enumerate(DOCUMENTS):
        place = tmp_path / "more" if number == 7 else tmp_path
        place.mkdir(exist_ok=True)
        (place / f"{number:02}.txt").write_text(document, encoding="utf-8")
    (tmp_path / "left_out.md").write_text("not a document")
    for hidden in (".ipynb_checkpoints/00-checkpoint.txt", "more/.git/07.txt", "._00.txt"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_text("a copy")
    return tmp_path


def opened(seed: int = 0, **keys: object) -> Dataset:
    section = TokenText(source="text", batch_size=4, validation_fraction=0.2, test_fraction=0.2, context=9, **keys)
    return open_data(section, seed=seed, load=lambda name: None, task=NextToken(kind="next_token"))


def stream(data: Dataset, split: str) -> str:
    chosen = data.splits[split]
    assert chosen is not None
    return data.inputs.tokens.text(chosen.stream.tolist())


def test_documents_are_divided_as_wholes(folder) -> None:
    data = opened(folder=folder)
    parts = {split: stream(data, split).split("\0")[:-1] for split in ("train", "validation", "test")}
    assert {split: len(found) for split, found in parts.items()} == {"train": 13, "validation": 3, "test": 4}
    assert sorted(document for found in parts.values() for document in found) == sorted(DOCUMENTS)
    other = opened(seed=1, folder=folder)
    assert stream(other, "test") == stream(data, "test")
    assert stream(other, "validation") != stream(data, "validation")


def test_a_file_is_divided_at_its_separator(tmp_path) -> None:
    (tmp_path / "all.txt").write_text("\n\n".join(DOCUMENTS), encoding="utf-8")
    data = opened(file=tmp_path / "all.txt", separator="\n\n")
    assert len("".join(stream(data, split) for split in ("train", "validation", "test")).split("\0")) == 21
    with pytest.raises(DataError) as error:
        opened(file=tmp_path / "all.txt")
    assert error.value.problems[0].key == "data.separator"


def test_labels_are_the_tokens_one_later(folder) -> None:
    split = opened(folder=folder).train
    samples, labels = split.take([0, 3], at=(5, 0))
    assert samples.shape == labels.shape == (2, 9) and samples.dtype == labels.dtype == torch.int64
    assert torch.equal(samples[:, 1:], labels[:, :-1])
    whole = split.stream.tolist()
    for row in torch.cat([samples, labels[:, -1:]], 1).tolist():
        assert any(whole[begin : begin + 10] == row for begin in range(len(whole)))


def test_windows_depend_on_seed_epoch_and_position_alone(folder) -> None:
    data = opened(folder=folder)
    steps = 3 * data.steps_per_epoch

    def batches(seed: int, start: int) -> list[torch.Tensor]:
        with TrainBatches(data, seed=seed, start_step=start, end_step=steps, workers=0) as found:
            return [batch.samples for batch in found]

    whole = batches(0, 0)
    assert all(torch.equal(a, b) for a, b in zip(whole[7:], batches(0, 7), strict=True))
    offsets = {int(data.train.take([0], at=(epoch, 0))[0][0, 0:9].sum()) for epoch in range(6)}
    assert len(offsets) > 1, "epochs are cut at different positions"
    assert torch.equal(data.train.take([1])[0], data.train.take([1])[0])


def test_an_epoch_has_each_window_once(folder) -> None:
    data = opened(folder=folder)
    starts = data.train.take(range(len(data.train)), at=(2, 0))[0]
    offset = data.train._offset((2, 0))
    expected = data.train.stream[offset : offset + starts.numel()].to(torch.int64)
    assert torch.equal(starts.flatten(), expected)


def test_bytes_and_characters_go_there_and_back() -> None:
    text = "naïve → def f(x):\n"
    assert Bytes().text(Bytes().numbers(text).tolist()) == text
    assert len(Bytes().names) == 256 and Bytes().numbers("é").tolist() == [195, 169]
    characters = Characters(text)
    assert characters.text(characters.numbers(text).tolist()) == text
    assert characters.text(characters.numbers("fx!").tolist()) == "fx\ufffd"
    assert len(characters.names) == len(set(text)) + 2


def test_characters_are_those_of_the_training_split(folder) -> None:
    data = opened(folder=folder, tokens="characters")
    assert set(data.classes) == set(stream(data, "train")) | {"\ufffd"}


def test_byte_pairs_are_learnt_from_the_training_split() -> None:
    pytest.importorskip("tokenizers")
    tokens = make_tokens("bpe", DOCUMENTS, vocabulary_size=300)
    numbers = tokens.numbers("document é")
    assert tokens.text(numbers.tolist()) == "document é"
    assert len(numbers) < len("document é".encode()) and len(tokens.names) <= 300
    assert tokens.names == make_tokens("bpe", DOCUMENTS, vocabulary_size=300).names
    assert int(tokens.stream(DOCUMENTS).to(torch.int64).min()) == 0


def test_a_known_tokenizer_keeps_its_numbers(tmp_path, folder) -> None:
    """With its own end of a text; otherwise token 0 is the end, and the others follow."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(DOCUMENTS, tokenizers.trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet))
    made.add_special_tokens(["<|end|>"])
    file, end = str(tmp_path / "tokenizer.json"), made.token_to_id("<|end|>")
    made.save(file)

    given = opened(folder=folder, tokens="bpe", tokenizer=file, end_token="<|end|>", vocabulary_size=300)
    shifted = opened(folder=folder, tokens="bpe", tokenizer=file)
    own = given.train.stream.to(torch.int64)
    assert torch.equal(own[own != end] + 1, (rest := shifted.train.stream.to(torch.int64))[rest != 0])
    assert torch.equal(own == end, rest == 0) and (own == end).any()
    assert len(given.classes) == 300 and given.classes[end] == "<|end|>"
    tokens = DataForm.of(given).input.inputs().tokens
    assert tokens.numbers("document é").tolist() == made.encode("document é").ids
    assert tokens.text([*made.encode("document é").ids, end]) == "document é"
    assert tokens.prompt("").tolist() == [end] and len(tokens.names) == 300
    with pytest.raises(DataError, match="no token `<end>`") as error:
        opened(folder=folder, tokens="bpe", tokenizer=file, end_token="<end>")
    assert "<|end|>" in str(error.value)
    with pytest.raises(DataError, match="the tokenizer has"):
        opened(folder=folder, tokens="bpe", tokenizer=file, end_token="<|end|>", vocabulary_size=258)


def test_what_is_missing_or_too_small_is_said(tmp_path, folder) -> None:
    with pytest.raises(DataMissing):
        opened(folder=tmp_path / "nowhere")
    with pytest.raises(DataError) as error:
        open_data(
            TokenText(source="text", folder=folder, context=5000, batch_size=1),
            seed=0,
            load=lambda name: None,
            task=NextToken(kind="next_token"),
        )
    assert error.value.problems[0].key == "data.context"
    with pytest.raises(DataError, match="leave 0 of 16 training samples"):
        opened(folder=folder, train_fraction=0.01)
