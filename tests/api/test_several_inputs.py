"""Samples of several inputs, by name and by place, and padding by a loader: every method, on any stages."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

import alray
from alray.data.given import given_data
from alray.models.several import Several

DRAWN = torch.Generator().manual_seed(1)
LEFT, RIGHT = torch.randn(60, 2, 3, generator=DRAWN), torch.randn(60, 6, generator=DRAWN)
PLACES = torch.randint(5, (60,), generator=DRAWN)
Y = (LEFT[:, 0, 0] * RIGHT[:, 0] > 0).long() + (LEFT[:, 1, 1] > 0).long()
COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
TINY: dict[str, Any] = {
    "data": {"batch_size": 20},
    "optimizer": {"kind": "sgd", "lr": 0.5},
    "run": {"steps": 6, "train": "never", "checkpoint": None},
    "inline": True,
    "progress": False,
}
METHODS: dict[str, Any] = {
    "BP": "backpropagation",
    "DGL": "decoupled_greedy",
    "AL": {"kind": "associated_learning", "label_dim": 8},
    "DIL": "decoupled_information",
    "LES": "local_error_signals",
    "MF": "mono_forward",
    "SCPL": "supervised_contrastive",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(tmp_path)


class OfThree(nn.Module):
    """Numbers of two shapes, and a whole number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.both, self.places = nn.Bilinear(6, 6, 8), nn.Embedding(5, 8)
        self.inner, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        h = self.both(left.flatten(1), right).relu() + self.places(place)
        return self.last(self.inner(h).relu() + right.mean(1, keepdim=True))


class Named(Dataset[Any]):
    """In another order than the arguments, and with a label of another name."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        return {"place": int(PLACES[index]), "label": Y[index], "right": RIGHT[index].numpy(), "left": LEFT[index]}


def sha256(run: alray.Run) -> str | None:
    return run.summary.weights_sha256


@pytest.mark.parametrize("method", METHODS)
def test_inputs_by_name_and_by_place_train_alike_on_any_stages(method: str) -> None:
    train = partial(alray.train, OfThree(), method=METHODS[method], **TINY)
    run = train(((LEFT, RIGHT, PLACES), Y), stages=1)
    on_two = {"stages": 2, "pipeline": {"schedule": "naive"} if method == "BP" else {}}
    by_name = run
    for given, keys in (
        (TensorDataset(LEFT, RIGHT, PLACES, Y), on_two),
        (DataLoader(Named(), 20, shuffle=True, drop_last=True), {"stages": 1}),
        (({"left": LEFT, "place": PLACES, "right": RIGHT}, Y), {"stages": 1}),
    ):
        by_name = train(given, **keys)
        assert sha256(by_name) == sha256(run)
    inputs = {"left": LEFT[:5], "right": RIGHT[:5], "place": PLACES[:5]}
    network, of_names = run.network(), by_name.network()
    scores = network(network.input.prepare((LEFT[:5], RIGHT[:5], PLACES[:5])))
    torch.testing.assert_close(of_names(of_names.input.prepare(inputs)), scores)
    with pytest.raises(alray.AlrayError, match="inputs by place"):
        network.input.prepare(inputs)
    if method == "BP":
        model = run.model()
        torch.testing.assert_close(model(**inputs), scores)
        assert type(model) is OfThree and vars(model).keys() == vars(OfThree()).keys()


def test_inputs_in_memory_may_have_the_names_of_labels() -> None:
    found = given_data(({"label": RIGHT, "y": PLACES}, Y), pickle.dumps, None)
    sample, label = found.open("train")[3]
    assert found.several is not None and found.several.names == ("label", "y")
    again = Several.from_json(found.several.as_json())
    assert again == found.several and [each.numbers for each in again.shapes] == [None, 5]
    right, place = found.several.unpacked(sample.unsqueeze(0), torch.float32)
    assert torch.equal(right[0], RIGHT[3]) and (place.item(), label) == (PLACES[3], Y[3])


def test_a_run_of_several_inputs_is_evaluated_again_and_is_a_loop_of_torch() -> None:
    keys = {**TINY, "data": {"batch_size": 60, "validation_fraction": 0.0}, "run": {"steps": 3}}
    data = ((LEFT, RIGHT, PLACES), Y)
    run = alray.train(OfThree(), data, test=data, method="backpropagation", stages=2, **keys)
    again = alray.load_run(run.folder, model=OfThree(), data=(data, None, data))
    assert again.evaluate().scores[-1].test == run.summary.scores.test
    net = OfThree()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(net(LEFT, RIGHT, PLACES), Y).backward()
        optimizer.step()
    for name, value in run.model().state_dict().items():
        torch.testing.assert_close(value, net.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)


class Texts(Dataset[Any]):
    """Of different lengths, with a class for each token."""

    def __init__(self, count: int = 40, seed: int = 0) -> None:
        drawn = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 11, (count,), generator=drawn).tolist()
        self.rows = [torch.randint(1, 30, (length,), generator=drawn) for length in lengths]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return {"input_ids": self.rows[index].tolist(), "labels": (self.rows[index] % 4).tolist()}


def padded(entries: list[Any]) -> dict[str, torch.Tensor]:
    """To the longest entry, as collators of Hugging Face do."""

    def rows(name: str, value: int) -> torch.Tensor:
        return pad_sequence([torch.tensor(each[name]) for each in entries], batch_first=True, padding_value=value)

    ids = rows("input_ids", 0)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": rows("labels", -100)}


def without_short(entries: list[Any]) -> dict[str, torch.Tensor]:
    """Leaves entries out, and fails where none is left."""
    return padded([each for each in entries if len(each["input_ids"]) > 3])


def as_columns(entries: list[Any]) -> tuple[Any, ...]:
    """As for the detectors of torchvision."""
    return tuple(zip(*entries, strict=True))


def mixed(entries: list[Any]) -> dict[str, torch.Tensor]:
    made = padded(entries)
    return made | {"input_ids": made["input_ids"].flip(0)}


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(30, 8, padding_idx=0)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(2))
        self.last = nn.Linear(8, 4)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        h = self.table(input_ids)
        for layer in self.layers:
            h = layer(h, src_key_padding_mask=attention_mask == 0)
        return self.last(h)


@pytest.mark.parametrize("method", ["BP", "DGL", "AL"])
def test_tokens_that_a_loader_pads_train_alike_on_any_stages(method: str) -> None:
    sets = (DataLoader(Texts(), 20, shuffle=True, collate_fn=padded), DataLoader(Texts(10, 5), 5, collate_fn=padded))
    keys = {key: value for key, value in TINY.items() if key != "data"} | {"task": "dense_classification"}
    train = partial(alray.train, Tagger(), *sets, method=METHODS[method], **keys)
    run = train(stages=1)
    assert sha256(train(stages=2, pipeline={"schedule": "naive"} if method == "BP" else {})) == sha256(run)
    assert any("padded by the `collate_fn`" in note for note in run.objects.values["data"].notes)


def test_what_a_loader_pads_to_the_longest_sample_is_a_loop_of_torch_that_pads_each_mini_batch() -> None:
    """Where `forward` heeds the mask."""
    keys = {**TINY, "data": {"validation_fraction": 0.0, "batch_size": 40}, "run": {"steps": 2}}
    loader = DataLoader(Texts(), 40, shuffle=True, collate_fn=padded)
    run = alray.train(Tagger(), loader, method="backpropagation", stages=1, task="dense_classification", **keys)
    net, batch = Tagger(), padded([Texts()[index] for index in range(40)])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        cross_entropy(net(batch["input_ids"], batch["attention_mask"]).movedim(-1, 1), batch["labels"]).backward()
        optimizer.step()
    for name, value in run.model().state_dict().items():
        torch.testing.assert_close(value, net.state_dict()[name], rtol=1e-3, atol=1e-5, msg=name)


class Packed(nn.Module):
    """Tokens and their number, which is read on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.lstm = nn.Embedding(30, 8), nn.LSTM(8, 8, batch_first=True)
        self.last = nn.Linear(8, 4)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(self.table(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1])
        return self.last(h)


def test_packed_sequences_are_a_loop_of_torch() -> None:
    lengths = torch.arange(60) % 20 + 1
    tokens = torch.randint(1, 30, (60, 20), generator=DRAWN) * (torch.arange(20) < lengths[:, None])
    labels = (tokens % 4).masked_fill(tokens == 0, -100)
    keys = {**TINY, "data": {"batch_size": 60, "validation_fraction": 0.0}, "run": {"steps": 2}}
    data = ((tokens, lengths), labels)
    run = alray.train(Packed(), data, method="backpropagation", stages=1, task="dense_classification", **keys)
    net = Packed()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        cross_entropy(net(tokens, lengths).movedim(-1, 1), labels).backward()
        optimizer.step()
    for name, value in run.model().state_dict().items():
        torch.testing.assert_close(value, net.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)


class TwoTowers(nn.Module):
    """Gives one number for a sample, without a dimension for it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = (nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 4)) for _ in range(2))

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return (self.users(user) * self.items(item)).sum(-1)


def test_plain_numbers_are_inputs_and_a_loss_takes_one_number_of_each_sample() -> None:
    rows = [(int(place), number % 5, float(number % 2)) for number, place in enumerate(PLACES)]
    keys = {**TINY, "data": {"batch_size": 60, "validation_fraction": 0.0}, "run": {"steps": 2}}
    loss = nn.BCEWithLogitsLoss()
    run = alray.train(TwoTowers(), rows, test=rows, loss=loss, method="backpropagation", stages=1, **keys)
    net, (users, items, labels) = TwoTowers(), map(torch.tensor, zip(*rows, strict=True))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        loss(net(users, items), labels).backward()
        optimizer.step()
    for name, value in run.model().state_dict().items():
        torch.testing.assert_close(value, net.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    ("call", "key", "said"),
    [
        (
            lambda: train(OfThree(), ((LEFT, RIGHT), Y)),
            "model.from",
            "required positional argument: 'place'; give",
        ),
        (
            lambda: train(OfThree(), ({"left": LEFT, "right": RIGHT, "where": PLACES}, Y)),
            "model.from",
            "unexpected keyword argument 'where'; .*leave out",
        ),
        (
            lambda: train(OfThree(), [(LEFT[0], RIGHT[0], PLACES[0], 1), (LEFT[0], RIGHT[0], 1)] * 9),
            "data",
            "of the shapes .*give all samples the same inputs",
        ),
        (lambda: train(OfThree(), Texts(), task="dense_classification"), "data", "with_format"),
        (
            lambda: train(Tagger(), DataLoader(Texts(), 4, collate_fn=mixed), task="dense_classification"),
            "data",
            "it mixes or draws them",
        ),
        (
            lambda: train(Tagger(), DataLoader(Texts(), 4, collate_fn=without_short), task="dense_classification"),
            "data",
            "the train set raised .* in reading sample",
        ),
        (
            lambda: train(Tagger(), DataLoader([(LEFT[0], {"boxes": RIGHT[:2]})] * 9, 3, collate_fn=as_columns)),
            "data",
            r"makes of 1 entry a tensor of the shape \[2, 3\], which has no row for each",
        ),
        (
            lambda: alray.run(
                {"name": "x", "model": {"components": [{"block": "mlp", "widths": [4]}]}, "run": {"steps": 1}},
                {"data.batch_size": 20},
                data=((LEFT, RIGHT), Y),
                inline=True,
            ),
            "model.components",
            "blocks take one tensor",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_what_to_give(call: Any, key: str, said: str) -> None:
    with pytest.raises(alray.AlrayError, match=said) as caught:
        call()
    assert [each.key for each in caught.value.problems] == [key]


def train(net: nn.Module, data: Any, **keys: Any) -> alray.Run:
    return alray.train(net, data, **{"method": "backpropagation", "stages": 1, **TINY, **keys})
