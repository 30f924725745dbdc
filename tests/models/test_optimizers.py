"""A component's optimizers: clipped, at separate rates, and fixed in how they compute."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn
from torch.utils._pytree import tree_leaves

from alray.config.sections.optimizer import Optimizer
from alray.models.optimizers import Chosen, ComponentOptimizer, Recipe, Role, recipe

from ..mini_batches import forward_step


def spec(kind: str, lr: float = 0.1, **values: Any) -> Recipe:
    """The section of a spec."""
    return recipe(TypeAdapter[Optimizer](Optimizer).validate_python({"kind": kind, "lr": lr, **values}))


def parameter(*values: float, gradient: tuple[float, ...]) -> nn.Parameter:
    made = nn.Parameter(torch.tensor(values))
    made.grad = torch.tensor(gradient)
    return made


def test_gradients_longer_than_clip_norm_are_scaled_down_to_it_over_all_parameters():
    left, right = parameter(0.0, gradient=(3.0,)), parameter(0.0, gradient=(4.0,))
    ComponentOptimizer([left, right], spec("sgd", clip_norm=1.0)).step(1.0)
    torch.testing.assert_close(torch.cat([left, right]).detach(), torch.tensor([-0.6, -0.8]))


def test_gradients_within_clip_norm_are_left_alone():
    one = parameter(0.0, gradient=(0.5,))
    ComponentOptimizer([one], spec("sgd", clip_norm=1.0)).step(1.0)
    assert one.item() == -0.5


def test_the_rate_of_a_step_is_the_one_given():
    one = parameter(0.0, gradient=(1.0,))
    optimizer = ComponentOptimizer([one], spec("sgd", lr=0.1))
    optimizer.step(0.5)
    optimizer.step(0.25)
    assert one.item() == -0.75


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("fused", [False, True])
def test_how_it_computes_is_fixed(kind, fused):
    optimizer = ComponentOptimizer([parameter(0.0, gradient=(1.0,))], spec(kind, fused=fused))
    optimizer.update_as_on(torch.device("cuda"))  # a kernel for all parameters, by either way
    on_gpu = optimizer.state_dict()["param_groups"][0]
    optimizer.update_as_on(torch.device("cpu"))
    on_cpu = optimizer.state_dict()["param_groups"][0]
    assert [(group["foreach"], group["fused"]) for group in (on_gpu, on_cpu)] == [(not fused, fused), (False, fused)]


def test_the_state_of_an_optimizer_that_keeps_less_than_a_value_is_counted_beside_gradients_that_wait():
    each, second = (
        ComponentOptimizer([nn.Parameter(torch.zeros(8, 8))], spec("torch", name="Adafactor", accumulate=number))
        for number in (1, 2)
    )
    assert 0 < each.state_bytes() < 8 * 8 * 4
    assert second.state_bytes() == each.state_bytes() + 8 * 8 * 4


def test_state_is_taken_over_but_the_values_of_the_spec_are_not():
    """A resume may have changed them, and on another device `foreach` is another."""
    one = parameter(0.0, gradient=(1.0,))
    before = ComponentOptimizer([one], spec("sgd", momentum=0.9, weight_decay=0.5))
    before.step(0.1)
    state = copy.deepcopy(before.state_dict())
    state["param_groups"][0]["foreach"] = True
    after = ComponentOptimizer([one], spec("sgd", momentum=0.8, weight_decay=0.0))
    after.load_state_dict(state)
    group = after.state_dict()["param_groups"][0]
    assert (group["momentum"], group["weight_decay"], group["foreach"]) == (0.8, 0.0, False)
    assert after.state_dict()["state"][0]["momentum_buffer"].item() == 1.0


def test_the_state_of_another_kind_or_of_other_parameters_is_refused():
    adam = ComponentOptimizer([parameter(0.0, gradient=(1.0,))], spec("adam"))
    with pytest.raises(ValueError, match="the state is that of sgd, the optimizer is adam"):
        adam.load_state_dict(ComponentOptimizer([parameter(0.0, gradient=(1.0,))], spec("sgd")).state_dict())
    one = parameter(0.0, gradient=(1.0,))
    of_torch = [ComponentOptimizer([one], spec("torch", name=name)) for name in ("RMSprop", "NAdam")]
    before = of_torch[0].state_dict()
    with pytest.raises(ValueError, match="the state is that of RMSprop, the optimizer is NAdam"):
        of_torch[1].load_state_dict(before)
    two = [parameter(0.0, gradient=(1.0,)) for _ in range(2)]
    with pytest.raises(ValueError, match="the state is that of 2 parameters, the optimizer has 1"):
        adam.load_state_dict(ComponentOptimizer(two, spec("adam")).state_dict())


def trained(optimize: Any, *shapes: tuple[int, ...], steps: int = 4) -> list[torch.Tensor]:
    """Parameters in float64 after some steps. optimize: takes them to a function that makes one step."""
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in shapes]
    step = optimize(parameters)
    for number in range(steps):
        for one in parameters:
            one.grad = torch.cos(one.detach() * (number + 1))
        step()
    return [one.detach() for one in parameters]


def by_component(kind: str, roles: Any = lambda parameters: None, **values: Any) -> Any:
    def optimize(parameters: list[nn.Parameter]) -> Any:
        optimizer = ComponentOptimizer(parameters, spec(kind, **values), roles(parameters))
        return lambda: optimizer.step(0.1)

    return optimize


def by_torch(*optimizers: Any) -> Any:
    def optimize(parameters: list[nn.Parameter]) -> Any:
        made = [make(parameters) for make in optimizers]
        return lambda: [each.step() for each in made]

    return optimize


MATRIX, BIAS, FILTERS = (4, 3), (4,), (2, 3, 3, 3)


def elements_of(optimizer: ComponentOptimizer) -> dict[str, int]:
    """How many elements of parameters each of torch's optimizers updates."""
    return {
        type(each).__name__: sum(value.numel() for group in each.param_groups for value in group["params"])
        for each in optimizer._optimizers
    }


def test_a_component_says_to_muon_what_its_matrices_are_for(make_network):
    overrides = ["method=backpropagation", "optimizer=muon", "model.components=[{block: mlp, widths: [6, 5]}]"]
    component = make_network(*overrides).component(0, "cpu")
    (optimizer,) = component.optimizers().values()
    weights = {name: value.numel() for name, value in component.named_parameters()}
    hidden = sum(count for name, count in weights.items() if name.startswith("f.") and name.endswith("weight"))
    assert elements_of(optimizer) == {"Muon": hidden, "AdamW": sum(weights.values()) - hidden}
    assert optimizer.state_bytes() == 4 * (hidden + 2 * (sum(weights.values()) - hidden))


def test_learned_positions_are_embeddings_to_muon(make_network):
    component = make_network("method=backpropagation", "optimizer=muon").component(0, "cpu")
    component.f.positions = nn.Parameter(torch.zeros(5, 3))
    weights = dict(component.f.named_parameters())
    component.train_with(spec("muon"), f=[component.f])
    hidden = sum(each.numel() for name, each in weights.items() if each.ndim == 2 and name != "positions")
    assert elements_of(component.optimizers()["f"]).get("Muon", 0) == hidden


@pytest.mark.parametrize(("values", "of_weights"), [({}, 0.01), ({"weight_decay": 0.3}, 0.3), ({"weight_decay": 0}, 0)])
@pytest.mark.parametrize("decay", ["all", "weights"])
def test_the_weight_decay_of_a_class_is_its_own_unless_the_spec_has_one(values, of_weights, decay):
    mine = by_component("torch", name="AdamW", decay=decay, **values)
    of_rest = of_weights if decay == "all" else 0
    theirs = by_torch(
        lambda those: torch.optim.AdamW(
            [{"params": those[::2]}, {"params": those[1::2], "weight_decay": of_rest}], lr=0.1, weight_decay=of_weights
        )
    )
    shapes = (MATRIX, BIAS, FILTERS, ())
    for one, other in zip(trained(mine, *shapes), trained(theirs, *shapes), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=0)


def test_parts_have_rates_of_their_own(make_network):
    """By plain SGD, a part moves as many times as far."""
    values = "optimizer={kind: sgd, lr: 0.1, rate_factors: {b: 10, h: 0.5}}"
    moved = []
    for overrides in ("optimizer={kind: sgd, lr: 0.1}", values):
        component = make_network(overrides, "run.precision=float64").component(0, "cpu")
        before = {name: value.detach().clone() for name, value in component.named_parameters()}
        generator = torch.Generator().manual_seed(1)
        samples = torch.randn(4, 2, 8, 8, generator=generator, dtype=torch.float64)
        forward_step(component, {"s": samples, "labels": torch.arange(4)}, 1)
        component.backward_step()
        component.update_step(0.1)
        moved.append({name: value.detach() - before[name] for name, value in component.named_parameters()})
    plain, scaled = moved
    for name, change in plain.items():
        factor = {"b": 10.0, "h": 0.5}.get(name[0], 1.0)
        torch.testing.assert_close(scaled[name], factor * change, rtol=1e-9, atol=1e-15)
    assert any(change.abs().max() > 0 for change in plain.values())


def test_state_follows_its_parameters_into_other_groups():
    """A resume may change which parameters decay, and the rates of parts."""

    def optimizer_of(parameters: list[nn.Parameter], **values: Any) -> ComponentOptimizer:
        return ComponentOptimizer(parameters, spec("adam", weight_decay=0.1, **values))

    def made() -> list[nn.Parameter]:
        return [nn.Parameter(torch.full(shape, 2.0)) for shape in ((2,), (2, 2), (3,))]

    one, other = made(), made()
    before, after = optimizer_of(one), optimizer_of(other, decay="weights")
    for number, each in enumerate(one):
        each.grad = torch.full_like(each, number + 1.0)
    before.step(0.1)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    state = after.state_dict()["state"]
    assert [tuple(state[number]["exp_avg"].shape) for number in range(3)] == [(2,), (2, 2), (3,)]
    back = optimizer_of(made())
    back.load_state_dict(copy.deepcopy(after.state_dict()))
    for number in range(3):
        assert torch.equal(
            back.state_dict()["state"][number]["exp_avg"], before.state_dict()["state"][number]["exp_avg"]
        )


def test_the_state_of_lars_is_taken_over_by_its_kind():
    one = parameter(0.0, gradient=(1.0,))
    before = ComponentOptimizer([one], spec("lars", momentum=0.9))
    before.step(0.5)
    after = ComponentOptimizer([one], spec("lars", momentum=0.8))
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    after.step(0.0)
    assert one.item() == pytest.approx(-0.5 - 0.8 * 0.5)
    with pytest.raises(ValueError, match="the state is that of lars, the optimizer is sgd"):
        ComponentOptimizer([one], spec("sgd", momentum=0.9)).load_state_dict(before.state_dict())


def test_without_parameters_there_is_nothing_to_do():
    frozen = nn.Parameter(torch.zeros(1), requires_grad=False)
    optimizer = ComponentOptimizer([frozen], spec("adam", clip_norm=1.0))
    optimizer.zero_grad()
    optimizer.step(0.1)
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.state_dict() == {} and optimizer.state_bytes() == 0


class Ramped(torch.optim.Optimizer):
    """Its steps grow with the number of updates, which it keeps in its groups."""

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0, over: int = 10, momentum: float = 0.8):
        defaults = {"lr": lr, "weight_decay": weight_decay, "over": over, "momentum": momentum, "updates": 0}
        super().__init__(params, defaults)

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["updates"] += 1
            group["seen"] = group.get("seen", torch.zeros(())) + 1


def test_what_an_optimizer_changes_in_its_groups_goes_on_and_the_spec_sets_the_rest():
    def ramped(**values: Any) -> ComponentOptimizer:
        section = TypeAdapter[Optimizer](Optimizer).validate_python({"kind": "python:own.Ramped", "lr": 1.0, **values})
        parameters = [parameter(0.0, gradient=(1.0,)), parameter(0.0, gradient=(1.0,))]
        roles = {each: Role(part) for each, part in zip(parameters, ("f", "g"), strict=True)}
        return ComponentOptimizer(parameters, recipe(section, lambda reference: Ramped), roles)

    def groups(optimizer: ComponentOptimizer) -> list[tuple[Any, ...]]:
        held = optimizer.state_dict()["param_groups"]
        return [tuple(group.get(key) for key in ("updates", "seen", "over", "momentum")) for group in held]

    before, same, other = ramped(), ramped(), ramped(over=20, momentum=0.4, rate_factors={"g": 0.5})
    for _ in range(3):
        before.step(1.0)
    state = copy.deepcopy(before.state_dict())
    for continued in (same, other):
        continued.load_state_dict(state)
    assert groups(same) == groups(before) == [(3, 3, 10, 0.8)]
    assert groups(other) == [(3, 3, 20, 0.4)] * 2


class Remembering(torch.optim.SGD):
    """It adds to torch's state, as optimizers that average weights do."""

    def __init__(self, params: Any, lr: float):
        super().__init__(params, lr)
        self.means: list[torch.Tensor] | None = None

    def step(self, closure: Any = None) -> None:
        self.means = [each.detach().clone() for group in self.param_groups for each in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "means": self.means}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.means = state_dict["means"]
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})


def test_what_a_class_adds_to_its_state_comes_back():
    def remembering() -> ComponentOptimizer:
        section = TypeAdapter[Optimizer](Optimizer).validate_python({"kind": "python:own.Remembering", "lr": 1.0})
        return ComponentOptimizer([nn.Parameter(torch.ones(3))], recipe(section, lambda reference: Remembering))

    before, after = remembering(), remembering()
    before.step(1.0)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    (optimizer,) = after._optimizers
    assert isinstance(optimizer, Remembering) and optimizer.means is not None
    assert torch.equal(optimizer.means[0], torch.ones(3))


class Keeping(torch.optim.SGD):
    """It keeps an object in its groups, in whose place it may put another one."""

    def __init__(self, params: Any, lr: float, make: Any):
        super().__init__(params, lr)
        self.make = make
        self.step()

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["kept"] = self.make()


def keeping(make: Any, device: str = "cpu") -> ComponentOptimizer:
    section = TypeAdapter[Optimizer](Optimizer).validate_python({"kind": "python:own.Keeping", "lr": 1.0})
    parameters = [nn.Parameter(torch.zeros(2, device=device))]
    return ComponentOptimizer(
        parameters, Recipe(section, lambda own, its, roles: [Chosen(Keeping, its, {"make": make})])
    )


def test_tensors_of_a_group_come_to_the_device_of_its_parameters_wherever_they_lie():
    before, after = keeping(list), keeping(list, device="meta")
    before._optimizers[0].make = lambda: ({"of": [torch.ones(2)]}, torch.ones(2))
    before.step(1.0)
    after.load_state_dict(before.state_dict())
    (group,) = after.state_dict()["param_groups"]
    assert [each.device.type for each in tree_leaves(group["kept"])] == ["meta", "meta"]
