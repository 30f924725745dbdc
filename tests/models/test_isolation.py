"""No loss of one component trains another, and neither of a component's two losses trains what the other does."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from alray.runtime.stage.assemble import work_of

from ..mini_batches import backward, forward, forward_step

METHODS = ["associated_learning", "supervised_contrastive", "decoupled_greedy"]


def batch(seed: int = 0) -> dict[str, torch.Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    return {
        "s": torch.randn(8, 2, 8, 8, generator=numbers),
        "labels": torch.randint(0, 4, (8,), generator=numbers),
    }


def gradients(module: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in module.parameters()]


def equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) > 0 and all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.few
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("loss", "smoothing"), [("cross_entropy", 0.0), ("cross_entropy", 0.2), ("mse", 0.0)])
def test_each_part_gets_the_gradient_of_its_own_loss_and_nothing_else(make_network, seed, loss, smoothing):
    network = make_network(f"method.first_label_loss={loss}", f"method.label_smoothing={smoothing}")
    components = [network.component(index, "cpu") for index in range(2)]
    incoming = batch(seed)
    for component in components:
        outgoing = component.encoder_step(incoming, 1)
        encoded = component._encoded
        outgoing |= component.label_step(incoming)
        t_in = functional.one_hot(incoming["labels"], 4).float() if component.index == 0 else incoming["t"]
        t_out = component.g(t_in)
        assert torch.equal(outgoing["t"], t_out)
        associated = functional.mse_loss(component.b(encoded["s"]), t_out.detach())
        expected = {
            "associated": torch.autograd.grad(
                associated, [*component.f.parameters(), *component.b.parameters()], retain_graph=True
            )
        }
        # Nothing between the associated loss and the label chain, nor between the other loss and the encoder.
        encoders = [*component.f.parameters(), *component.b.parameters()]
        label_chain = [*component.g.parameters(), *component.h.parameters()]
        for name, others in (("associated", label_chain), ("autoencoder", encoders)):
            none = torch.autograd.grad(component._losses[name], others, retain_graph=True, allow_unused=True)
            assert none == (None,) * len(others)
        rebuilt = component.h(t_out)
        autoencoder = (
            functional.cross_entropy(rebuilt, t_in, label_smoothing=smoothing)
            if component.index == 0 and loss == "cross_entropy"
            else functional.mse_loss(rebuilt, t_in)
        )
        if smoothing and component.index == 0:
            spread = (1 - smoothing) * t_in + smoothing / 4
            torch.testing.assert_close(autoencoder, -(spread * rebuilt.log_softmax(1)).sum(1).mean())
        expected["autoencoder"] = torch.autograd.grad(
            autoencoder, [*component.g.parameters(), *component.h.parameters()], retain_graph=True
        )
        losses = component.backward_step()
        assert torch.equal(losses["associated"], associated) and torch.equal(losses["autoencoder"], autoencoder)
        assert not any(value.requires_grad for value in losses.values())
        assert equal([*gradients(component.f), *gradients(component.b)], list(expected["associated"]))
        assert equal([*gradients(component.g), *gradients(component.h)], list(expected["autoencoder"]))
        incoming = outgoing


@pytest.mark.parametrize("method", METHODS)
def test_a_component_gives_no_gradient_to_its_neighbours(make_network, method):
    network = make_network(f"method={method}", "model.components=[{block: vgg, channels: [4], repeat: 3}]")
    components = [network.component(index, "cpu") for index in range(3)]
    incoming = batch(0)
    for component in components:
        incoming = forward_step(component, incoming, 1)
        assert not any(value.requires_grad for value in incoming.values())
    components[1].backward_step()
    assert all(gradient is not None for gradient in gradients(components[1]))
    for neighbour in (components[0], components[2]):
        assert all(gradient is None for gradient in gradients(neighbour))


def test_gradients_do_not_add_up_over_mini_batches(make_network):
    component = make_network().component(0, "cpu").eval()  # batch norm's statistics then change nothing
    forward_step(component, batch(0), 1)
    component.backward_step()
    once = [gradient.clone() for gradient in gradients(component)]
    forward_step(component, batch(0), 1)
    component.backward_step()
    assert equal(gradients(component), once)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_passed_on_was_computed_before_the_update(make_network, method):
    component = make_network(f"method={method}").component(0, "cpu")
    passed_on = forward_step(component, batch(0), 1)
    kept = {name: value.clone() for name, value in passed_on.items()}
    component.backward_step()
    component.update_step(0.1)
    assert all(torch.equal(passed_on[name], kept[name]) for name in kept)
    again = forward_step(component, batch(0), 1)
    assert not any(torch.equal(again[name], kept[name]) for name in kept.keys() - {"labels"})


def test_a_stage_updates_after_it_passed_on_whatever_the_cut(make_network):
    """Two stages of one component each, run one after the other, equal one stage of two."""
    network = make_network()
    together = work_of([network.component(0, "cpu"), network.component(1, "cpu")])
    apart = [work_of([network.component(index, "cpu")]) for index in range(2)]
    for step in range(1, 4):
        forward(together, batch(step), step)
        backward(together)
        together.update(0.05, step=step)
        passed_on = batch(step)
        for stage in apart:
            passed_on, arrived = forward(stage, passed_on, step), passed_on
            backward(stage)
            stage.update(0.05, step=step)
            del arrived
    for mine, other in zip(together.components, (apart[0].components[0], apart[1].components[0]), strict=True):
        assert equal(list(mine.weights().values()), list(other.weights().values()))
