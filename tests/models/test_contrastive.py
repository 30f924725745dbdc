"""The supervised contrastive loss against two loops in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from alray.parts.methods.supervised_contrastive.method import supervised_contrastive

CASES = [(seed, temperature) for seed in range(3) for temperature in (0.05, 0.1, 1.0)]


def some(seed: int, *, samples: int = 9, width: int = 4, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of norm 1 in float64, and labels of which one stands alone."""
    numbers = torch.Generator().manual_seed(seed)
    codes = functional.normalize(torch.randn(samples, width, dtype=torch.float64, generator=numbers), dim=1)
    labels = torch.randint(0, classes, (samples,), generator=numbers)
    labels[-1] = classes
    return codes, labels


def by_hand(codes: torch.Tensor, labels: torch.Tensor, temperature: float) -> float:
    """The loss of the docstring, term by term."""
    losses = []
    for i in range(len(codes)):
        e = [math.exp(float(codes[i] @ code) / temperature) for code in codes]
        others = [a for a in range(len(codes)) if a != i]
        positives = [a for a in others if labels[a] == labels[i]]
        if not positives:
            continue
        terms = []
        for p in positives:
            denominator = sum(e[a] for a in others)
            terms.append(-math.log(e[p] / denominator))
        losses.append(sum(terms) / len(terms))
    return sum(losses) / len(losses) if losses else 0.0


@pytest.mark.parametrize(("seed", "temperature"), CASES)
def test_two_loops_say_the_same(seed, temperature):
    codes, labels = some(seed)
    assert supervised_contrastive(codes, labels, temperature=temperature).item() == pytest.approx(
        by_hand(codes, labels, temperature), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(3))
def test_gradients(seed):
    codes, labels = some(seed)
    raw = (3 * codes).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda raw: supervised_contrastive(functional.normalize(raw, dim=1), labels, temperature=0.1), (raw,)
    )


@pytest.mark.parametrize("temperature", [0.01, 0.05, 0.1, 1.0])
def test_float32_is_as_good_as_its_digits(temperature):
    """At 0.01 a similarity of 1 is exp(100), which float32 does not hold. Wide classes, nearly alike."""
    codes, labels = some(2, samples=64, width=16, classes=4)
    codes = functional.normalize(codes + 3 * functional.one_hot(labels, 16), dim=1)
    exact, rough = codes.clone().requires_grad_(), codes.float().requires_grad_()
    expected, found = (
        supervised_contrastive(exact, labels, temperature=temperature),
        supervised_contrastive(rough, labels, temperature=temperature),
    )
    expected.backward()
    found.backward()
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rough.grad.double(), exact.grad, rtol=1e-3, atol=1e-5 / temperature)


@pytest.mark.parametrize("labels", [[0], [0, 1], [3, 1, 2, 0]], ids=len)
def test_no_anchor_with_a_positive_gives_nothing_to_learn(labels):
    codes = some(0)[0][: len(labels)].float().requires_grad_()
    loss = supervised_contrastive(codes, torch.tensor(labels), temperature=0.1)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(codes.grad, torch.zeros_like(codes))


def test_an_anchor_without_a_positive_is_left_out_of_the_mean_and_still_pushes_others_away():
    codes, labels = some(0)
    alone = (labels == labels[-1]).sum() == 1
    assert alone
    raw = codes.clone().requires_grad_()
    loss = supervised_contrastive(raw, labels, temperature=0.1)
    assert loss.item() == pytest.approx(by_hand(codes, labels, 0.1), rel=1e-12)
    loss.backward()
    assert raw.grad[-1].abs().sum() > 0


def test_two_samples_of_one_class():
    """The positive is the only other sample: its share is 1 whatever the codes are."""
    codes = some(0)[0][:2].float().requires_grad_()
    loss = supervised_contrastive(codes, torch.tensor([1, 1]), temperature=0.1)
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    assert bool(torch.isfinite(codes.grad).all())


@pytest.mark.parametrize("temperature", [1e-3, 1e-2])
def test_collapsed_and_opposite_codes_stay_finite(temperature):
    for codes in (torch.ones(6, 4) / 2, torch.cat([torch.ones(3, 4), -torch.ones(3, 4)]) / 2):
        for labels in (torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 0, 1, 0, 1])):
            given = codes.clone().requires_grad_()
            loss = supervised_contrastive(given, labels, temperature=temperature)
            loss.backward()
            assert math.isfinite(loss.item())
            assert bool(torch.isfinite(given.grad).all())


def test_the_order_of_samples_is_nothing_to_it():
    codes, labels = some(1)
    turned = torch.randperm(len(labels), generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(
        supervised_contrastive(codes[turned], labels[turned], temperature=0.1),
        supervised_contrastive(codes, labels, temperature=0.1),
        rtol=1e-12,
        atol=0,
    )


def test_shapes_are_found_on_the_meta_device():
    codes = torch.empty(5, 3, device="meta", requires_grad=True)
    loss = supervised_contrastive(codes, torch.empty(5, dtype=torch.int64, device="meta"), temperature=0.1)
    loss.backward()
    assert loss.shape == () and codes.grad.shape == (5, 3)
