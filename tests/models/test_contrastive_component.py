"""Components of supervised contrastive learning: what each one learns from, and what it passes on."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from alray.models.network import Network
from alray.models.shape import Shape
from alray.parts.methods.supervised_contrastive.method import (
    ContrastiveComponent,
    debiased_supervised_contrastive,
    projection,
    supervised_contrastive,
)

from ..mini_batches import forward_step
from .test_isolation import batch, equal, gradients

SCPL = "method={kind: supervised_contrastive, projection_dim: 7, temperature: 0.2}"


def test_every_component_has_a_projection_but_the_last_a_classifier(make_network):
    first, last = (make_network(SCPL).component(index, "cpu") for index in range(2))
    assert isinstance(first, ContrastiveComponent) and isinstance(last, ContrastiveComponent)
    assert [name for name in first.weights() if name[:2] != "f."] == [
        "p.1.weight",
        "p.1.bias",
        "p.3.weight",
        "p.3.bias",
    ]
    assert [name for name in last.weights() if name[:2] != "f."] == ["head.1.weight", "head.1.bias"]
    assert next(iter(first.weights())).startswith("f.")
    # 4 channels averaged to 4 x 4, then two layers of 7; 6 channels of 4 x 4, then 4 classes.
    assert [tuple(value.shape) for value in first.p.parameters()] == [(7, 64), (7,), (7, 7), (7,)]
    assert [tuple(value.shape) for value in last.head.parameters()] == [(4, 96), (4,)]
    assert list(first.optimizers()) == list(last.optimizers()) == ["encoder"]
    assert (first.ends_route, last.ends_route) == (False, True)


@pytest.mark.parametrize("debiased", [None, 0.25])
def test_f_and_p_get_the_gradient_of_the_contrastive_loss(make_network, debiased):
    component = make_network(SCPL, *([f"method.debiased={debiased}"] if debiased else [])).component(0, "cpu")
    given = batch()
    component.encoder_step(given, 1)
    encoded, labels = component._encoded, given["labels"]
    component.label_step(given)
    codes = functional.normalize(component.p(encoded["s"]), dim=1)
    torch.testing.assert_close(codes.norm(dim=1), torch.ones(8))
    if debiased is None:
        expected = supervised_contrastive(codes, labels, temperature=0.2)
    else:
        expected = debiased_supervised_contrastive(codes, labels, temperature=0.2, class_prior=debiased)
    parts = [*component.f.parameters(), *component.p.parameters()]
    by_hand = list(torch.autograd.grad(expected, parts, retain_graph=True))
    losses = component.backward_step()
    assert list(losses) == ["contrastive"] and not losses["contrastive"].requires_grad
    assert torch.equal(losses["contrastive"], expected.detach())
    assert equal([*gradients(component.f), *gradients(component.p)], by_hand)


def test_the_last_one_learns_by_cross_entropy(make_network):
    component = make_network(SCPL, "method.label_smoothing=0.1").component(1, "cpu")
    given = {"s": torch.randn(8, 4, 8, 8), "labels": batch()["labels"]}
    component.encoder_step(given, 1)
    encoded, labels = component._encoded, given["labels"]
    component.label_step(given)
    expected = functional.cross_entropy(component.head(encoded["s"]), labels, label_smoothing=0.1)
    parts = [*component.f.parameters(), *component.head.parameters()]
    by_hand = list(torch.autograd.grad(expected, parts, retain_graph=True))
    losses = component.backward_step()
    assert list(losses) == ["cross_entropy"]
    assert torch.equal(losses["cross_entropy"], expected.detach())
    assert equal([*gradients(component.f), *gradients(component.head)], by_hand)


def test_an_update_moves_every_part(make_network):
    for index, part in ((0, "p"), (1, "head")):
        component = make_network(SCPL).component(index, "cpu")
        before = {name: value.clone() for name, value in component.named_parameters()}
        s = batch()["s"] if index == 0 else torch.randn(8, 4, 8, 8, generator=torch.Generator().manual_seed(1))
        forward_step(component, {"s": s, "labels": batch()["labels"]}, 1)
        component.backward_step()
        component.update_step(0.01)
        moved = {
            name.partition(".")[0] for name, value in component.named_parameters() if (value != before[name]).any()
        }
        assert moved == {"f", part}


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
