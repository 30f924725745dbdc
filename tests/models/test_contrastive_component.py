"""Components of supervised contrastive learning: what each one learns from, and what it passes on."""

from __future__ import annotations

import torch
from torch.nn import functional

from alray.models.network import Network
from alray.models.shape import Shape
from alray.parts.methods.supervised_contrastive.method import (
    projection,
)

from ..mini_batches import forward_step

SCPL = "method={kind: supervised_contrastive, projection_dim: 7, temperature: 0.2}"


def test_a_projection_of_sequences_does_not_see_their_padding():
    p = projection(Shape((5, 3)), projection_dim=4, pool=4)
    s = torch.randn(2, 5, 3)
    mask = torch.tensor([[True, True, False, False, False], [True] * 5])
    other = s.clone()
    other[0, 2:] = 99.0
    assert p(s, mask).shape == (2, 4)
    assert torch.equal(p(s, mask), p(other, mask)) and not torch.equal(p(s), p(other))


TEXT = """model.components=[{block: embedding, dim: 6}, {block: lstm, hidden: 3, hand_on_state: true, repeat: 2}, \
{block: transformer, heads: 2, feedforward: 5, dropout: 0.2}]"""
WORDS = ("<pad>", "<unk>", *"abcdef")


def test_text_goes_with_its_mask_and_states_and_its_padding_is_nothing_to_any_loss(load_small, one_thread):
    spec = load_small(SCPL, TEXT).spec
    network = Network(spec, sample=Shape((7,), torch.int64, words=WORDS), classes=4, load=lambda reference: None)
    numbers = torch.Generator().manual_seed(1)
    words = torch.randint(2, len(WORDS), (8, 5), generator=numbers)
    mask = torch.arange(5) < torch.randint(1, 6, (8, 1), generator=numbers)
    labels = torch.arange(8) % 4
    told = []
    for padding in (0, 2):
        incoming = {
            "s": functional.pad(words.where(mask, 0), (0, padding)),
            "mask": functional.pad(mask, (0, padding)),
            "labels": labels,
        }
        losses = []
        for index in range(4):
            component = network.component(index, "cpu").eval()  # without dropout
            incoming = forward_step(component, incoming, 1)
            assert set(incoming) == {"s", "mask", "labels"} | ({"h", "c"} if index in (1, 2) else set())
            (loss,) = component.backward_step().values()
            losses.append(loss)
        told.append(torch.stack(losses))
    torch.testing.assert_close(told[1], told[0])
