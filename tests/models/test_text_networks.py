"""Networks on text: what one prediction depends on, and what it does not."""

from __future__ import annotations

import pytest
import torch

from alray.core.errors import SpecError
from alray.models.encoder import Tensors
from alray.models.shape import Shape
from alray.runtime.stage.assemble import work_of
from alray.runtime.stage.work.work import Work

from ..mini_batches import backward, forward
from ..pairwise import first_alone

TEXT = Shape((12,), torch.int64, words=("<pad>", "<unk>", *"abcdefgh"))
CHAINS = {
    "embedding": "",
    "transformer": ", {block: transformer, heads: 3, feedforward: 5, dropout: 0.2, repeat: 2}",
    "lstm": ", {block: lstm, hidden: 4, repeat: 2}",
    "lstm with its state": ", {block: lstm, hidden: 4, layers: 2, hand_on_state: true, repeat: 3}",
    "lstm of one direction": ", {block: lstm, hidden: 4, bidirectional: false, repeat: 2}",
    "mlp": ", {block: mlp, widths: [16, 12], dropout: 0.2}",
}
METHODS = ("method.label_dim=5", "method={kind: backpropagation}")
LAST_WORD = "method={kind: backpropagation, head: {sequence: last_word}}"
LENGTHS = (4, 9, 1, 6, 12)


def text(*lengths: int, positions: int) -> Tensors:
    """The same documents however long they are padded; the one of length 1 is an empty text, one unknown word."""
    generator = torch.Generator().manual_seed(5)
    s = torch.zeros(len(lengths), positions, dtype=torch.int64)
    for row, length in enumerate(lengths):
        words = torch.randint(2, 10, (12,), generator=generator)[:length]
        s[row, :length] = words if length > 1 else 1
    return {"s": s, "mask": s != 0, "labels": torch.arange(len(lengths)) % 4}


FOR_ONE_LENGTH = """\
import torch
from torch import nn


class Mixes(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.layer = nn.Linear(input[0], input[0])

    def forward(self, s, mask):
        return self.layer(s.transpose(1, 2)).transpose(1, 2)


class Flattens(nn.Module):
    def __init__(self, input):
        super().__init__()

    def forward(self, s, mask):
        return s.flatten(1)


class Means(Flattens):
    def forward(self, s, mask):
        return s.mean(1)
"""


@pytest.fixture
def trained(make_network):
    def train(chain: str, method: str, steps: int = 10) -> Work:
        """After a few steps nothing is zero any more that only begins so."""
        network = make_network(f"model.components=[{{block: embedding, dim: 6}}{CHAINS[chain]}]", method, sample=TEXT)
        stage = work_of([network.component(index, "cpu") for index in range(len(network))])
        for step in range(1, steps + 1):
            forward(stage, text(*LENGTHS, positions=12), step)
            backward(stage)
            stage.update(0.02, step=step)
        stage.evaluation_mode(True)
        return stage

    return train


@pytest.mark.few
@pytest.mark.parametrize(
    "method", first_alone([METHODS[0], LAST_WORD, METHODS[1]], first=2), ids=["al", "bp, last word", "bp"]
)
@pytest.mark.parametrize("chain", CHAINS)
def test_predictions_do_not_depend_on_what_else_is_in_the_batch(trained, chain, method):
    stage = trained(chain, method)
    whole = text(*LENGTHS, positions=12)
    _, together = stage.infer_up(whole, 3, 0)
    assert len(together) == (1 if "back" in method else len(stage.components))
    for row, length in enumerate(LENGTHS):
        alone = {"s": whole["s"][row : row + 1, :length], "mask": torch.ones(1, length, dtype=torch.bool)}
        for depth, scores in enumerate(stage.infer_up(alone, 3, 0)[1]):
            assert scores.isfinite().all()
            assert torch.allclose(scores[0], together[depth][row], rtol=0, atol=1e-5)
            assert scores.argmax() == together[depth][row].argmax()
    assert together[-1].std(0).max() > 1e-4  # they do depend on the text


@pytest.mark.few
@pytest.mark.parametrize("chain", CHAINS)
def test_a_few_documents_are_learned(trained, chain):
    stage = trained(chain, METHODS[1], steps=60)
    _, (scores,) = stage.infer_up(text(*LENGTHS, positions=12), 60, 0)
    loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(LENGTHS)) % 4)
    assert loss < 0.7  # log(4) = 1.4 by chance


def test_an_lstm_begins_with_the_state_it_is_handed(make_network):
    network = make_network(
        f"model.components=[{{block: embedding, dim: 6}}{CHAINS['lstm with its state']}]", sample=TEXT
    )
    first, second = (network.component(index, "cpu").f for index in (1, 2))
    incoming = {"s": torch.randn(2, 5, 6), "mask": torch.ones(2, 5, dtype=torch.bool)}
    handed = first.run(incoming, 1)
    assert handed.keys() == {"s", "mask", "h", "c"} and handed["h"].shape == (2, 4, 4)
    with_state = second.run(handed, 1)["s"]
    without = second.run({"s": handed["s"], "mask": handed["mask"]}, 1)["s"]
    assert not torch.allclose(with_state, without, atol=1e-3)


def test_a_classifier_reads_the_last_word(make_network):
    """Of a bidirectional LSTM both directions beside each other, as wide as the thesis's; padding is not read."""
    network = make_network(f"model.components=[{{block: embedding, dim: 6}}{CHAINS['lstm']}]", LAST_WORD, sample=TEXT)
    features, linear = network.component(2, "cpu").head
    s, mask = torch.randn(2, 5, 8), torch.arange(5) < torch.tensor([[3], [5]])
    assert (features.width, linear.in_features) == (8, 8)
    assert torch.equal(features(s, mask), torch.stack([s[0, 2], s[1, 4]]))
    assert torch.equal(features(s), s[:, -1])


def test_pictures_have_no_last_word(make_network):
    network = make_network("model.components=[{block: vgg, channels: [3]}]", LAST_WORD, sample=(3, 8, 8))
    with pytest.raises(SpecError, match=r"there is no last word in an output of shape \(3, 8, 8\)") as caught:
        network.component(0, "meta")
    assert caught.value.problems[0].key == "method.head.sequence"


def test_what_does_not_fit_together_is_told_before_anything_runs(make_network):
    def complaint(components: str) -> str:
        with pytest.raises(SpecError) as caught:
            make_network(f"model.components=[{components}]", sample=TEXT)
        return str(caught.value)

    embedding = "{block: embedding, dim: 6}"
    assert complaint("{block: vgg, channels: [3]}").startswith("model.components[0]: block `vgg` takes images ")
    assert complaint("{block: lstm, hidden: 4}").startswith("model.components[0]: block `lstm` takes real values, ")
    assert complaint(f"{embedding}, {{block: transformer, dim: 7, heads: 1, feedforward: 5}}").startswith(
        "model.components[1]: block `transformer` keeps the width of its input, "
    )
    assert "block `lstm` starts from a state of shape (2, 5), but gets (2, 4)" in complaint(
        f"{embedding}, {{block: lstm, hidden: 4, hand_on_state: true}}, {{block: lstm, hidden: 5, hand_on_state: true}}"
    )


def test_a_pipeline_pads_every_text(make_network):
    """There a block for one length is fine, and anywhere one that reads a text of any length."""
    at = "model.components=[{block: embedding, dim: 6}, {block: 'python:own_blocks.%s'}]"
    pipeline = ("method={kind: backpropagation}", "pipeline={schedule: gpipe, stages: 2, micro_batches: 2}")
    assert make_network(at % "Mixes", *pipeline, sample=TEXT, code=FOR_ONE_LENGTH).encoders[1].output == (12, 6)
    assert make_network(at % "Means", sample=TEXT, code=FOR_ONE_LENGTH).encoders[1].output == (6,)
