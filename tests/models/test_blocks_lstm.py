"""The LSTM: its states never run over padding, and it hands on and takes the states that it should."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alray.core.errors import SpecError
from alray.models.readout import final_states, last_state
from alray.models.shape import Shape
from tests.models.built import builder

LENGTHS = (3, 6, 1)


def build(**fields: object) -> nn.Module:
    torch.manual_seed(3)
    return builder("lstm")(Shape((8, 5)), hidden=4, **fields)


def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    """[3, 6, 5] with garbage at padded positions, and the mask."""
    mask = torch.arange(6) < torch.tensor(LENGTHS).unsqueeze(1)
    s = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(7))
    return s.masked_fill(~mask.unsqueeze(2), 1.0e3), mask


@pytest.mark.parametrize("layers", [1, 2])
def test_states_are_those_of_each_row_alone(layers):
    module = build(layers=layers, hand_on_state=True)
    s, mask = ragged()
    outputs, (h, c) = module(s, mask)
    assert outputs.shape == (3, 6, 8) and h.shape == c.shape == (3, 2 * layers, 4)
    for row, length in enumerate(LENGTHS):
        wanted, (last_h, last_c) = module.recurrence(s[row : row + 1, :length])
        assert torch.allclose(outputs[row, :length], wanted[0], atol=1e-6)
        assert torch.allclose(h[row], last_h[:, 0], atol=1e-6) and torch.allclose(c[row], last_c[:, 0], atol=1e-6)


def test_the_bridge_reads_the_final_states_off_the_output():
    module = build(layers=2, hand_on_state=True)
    s, mask = ragged()
    outputs, (h, _) = module(s, mask)
    assert module.alray_pooling == "final_states"
    assert torch.allclose(final_states(outputs, mask), h[:, 2] + h[:, 3], atol=1e-6)
    whole, (h, _) = module(s)
    assert torch.allclose(final_states(whole, None), h[:, 2] + h[:, 3], atol=1e-6)


def test_one_direction_is_read_at_its_last_word():
    module = build(bidirectional=False, hand_on_state=True)
    s, mask = ragged()
    outputs, (h, _) = module(s, mask)
    assert module.alray_pooling == "last_state" and outputs.shape == (3, 6, 4) and h.shape == (3, 1, 4)
    assert torch.allclose(last_state(outputs, mask), h[:, 0], atol=1e-6)


def test_a_state_that_comes_in_is_begun_with_in_the_row_it_belongs_to():
    module = build(hand_on_state=True)
    s, mask = ragged()
    state = (torch.randn(3, 2, 4), torch.randn(3, 2, 4))
    outputs, (h, c) = module(s, mask, state)
    assert not torch.allclose(outputs, module(s, mask)[0], atol=1e-3)
    for row, length in enumerate(LENGTHS):
        own = (state[0][row].unsqueeze(1), state[1][row].unsqueeze(1))
        wanted, (last_h, last_c) = module.recurrence(s[row : row + 1, :length], own)
        assert torch.allclose(outputs[row, :length], wanted[0], atol=1e-6)
        assert torch.allclose(h[row], last_h[:, 0], atol=1e-6) and torch.allclose(c[row], last_c[:, 0], atol=1e-6)
    zeros = (torch.zeros(3, 2, 4), torch.zeros(3, 2, 4))
    assert torch.equal(module(s, mask, zeros)[0], module(s, mask)[0])


def test_a_state_handed_on_has_the_same_output_as_one_that_is_not():
    s, mask = ragged()
    assert torch.equal(build()(s, mask), build(hand_on_state=True)(s, mask)[0])
    assert not hasattr(build(), "hands_on_state") and build(hand_on_state=True).hands_on_state


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_state_of_another_shape_is_refused(device):
    module = build(hand_on_state=True).to(device)
    state = torch.zeros(3, 1, 4, device=device)
    with pytest.raises(SpecError, match=r"block `lstm` .* \(2, 4\), but gets \(1, 4\)"):
        module(torch.zeros(3, 6, 5, device=device), None, (state, state))


def test_the_same_bits_twice_with_deterministic_algorithms():
    s, mask = ragged()
    module = build()
    gradients = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            module.zero_grad()
            module(s, mask).square().sum().backward()
            gradients.append([parameter.grad.clone() for parameter in module.parameters()])
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(first, second) for first, second in zip(*gradients, strict=True))
