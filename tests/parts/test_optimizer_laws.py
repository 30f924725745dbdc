"""The laws of optimizers. An optimizer enters by one row: its keys, and plain code that makes the same updates."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from alray.config.sections.optimizer import OPTIMIZERS, DecayingSection, Optimizer, OptimizerSection
from alray.models.optimizers import ComponentOptimizer, Role, recipe

RATES = (0.1, 0.5, 0.02, 0.1)
SHAPES = ((4, 3), (4,), (2, 3, 3, 3), (5, 3), (2, 4), ())
"""A matrix, a bias, filters, a table of embeddings, a classifier, a scalar."""
ADAPTER = TypeAdapter[OptimizerSection](Optimizer)
Step = Callable[[float], None]
Plain = Callable[[list[nn.Parameter], Callable[[nn.Parameter], float]], Step]
"""From parameters, and from each one's weight decay, to what makes one update at a rate."""


Some = Callable[[list[nn.Parameter]], list[nn.Parameter]]


def by_torch(kind: Any, chosen: Some = list, factor: float = 1.0, **keys: Any) -> Plain:
    """A class of torch for some of the parameters, and the factor of their rate."""

    def made(parameters: list[nn.Parameter], decay: Callable[[nn.Parameter], float]) -> Step:
        groups = [{"params": [each], "weight_decay": decay(each)} for each in chosen(parameters)]
        optimizer = kind(groups, lr=1.0, **keys)

        def step(rate: float) -> None:
            for group in optimizer.param_groups:
                group["lr"] = factor * rate
            optimizer.step()

        return step

    return made


def both(*plains: Plain) -> Plain:
    def made(parameters: list[nn.Parameter], decay: Callable[[nn.Parameter], float]) -> Step:
        steps = [plain(parameters, decay) for plain in plains]
        return lambda rate: [step(rate) for step in steps] and None

    return made


def tensor_by_tensor(direction: Callable[..., Tensor], **keys: Any) -> Plain:
    """w = w - what `direction` gives of weights, gradient, rate, decay and a state of its own."""

    def made(parameters: list[nn.Parameter], decay: Callable[[nn.Parameter], float]) -> Step:
        states: list[dict[str, Any]] = [{} for _ in parameters]

        def step(rate: float) -> None:
            for each, state in zip(parameters, states, strict=True):
                assert each.grad is not None
                with torch.no_grad():
                    each -= direction(each.detach(), each.grad, rate, decay(each), state, **keys)

        return step

    return made


def lars(w: Tensor, g: Tensor, rate: float, decay: float, state: Any, momentum: float, trust: float, eps: float) -> Any:
    """Algorithm 1 of arXiv 1708.03888; a tensor of one dimension is neither adapted nor decayed."""
    if w.ndim > 1:
        g = trust * w.norm() / (g.norm() + decay * w.norm() + eps) * (g + decay * w)
    state["v"] = momentum * state.get("v", 0.0) + rate * g
    return state["v"]


def lamb(w: Tensor, g: Tensor, rate: float, decay: float, state: Any, betas: Any, eps: float) -> Tensor:
    """Algorithm 2 of arXiv 1904.00962; a tensor of one dimension is updated as by Adam, without decay."""
    n = state["n"] = state.get("n", 0) + 1
    m = state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
    v = state["v"] = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * g**2
    u = m / (1 - betas[0] ** n) / ((v / (1 - betas[1] ** n)).sqrt() + eps)
    if w.ndim > 1:
        u = u + decay * w
        u = u * w.norm() / u.norm()
    return rate * u


@dataclass(frozen=True)
class Row:
    """An optimizer.

    Attributes:
        keys: of the section.
        plain: the same updates.
        kept: how many values it keeps for each of a matrix.
    """

    keys: dict[str, Any]
    plain: Plain
    kept: int


ADAM = {"betas": (0.5, 0.9), "eps": 1e-3}
ROWS = (
    Row({"kind": "sgd"}, by_torch(torch.optim.SGD), 0),
    Row(
        {"kind": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.3},
        by_torch(torch.optim.SGD, momentum=0.9, nesterov=True),
        1,
    ),
    Row({"kind": "adam", "weight_decay": 0.3, **ADAM}, by_torch(torch.optim.Adam, **ADAM), 2),
    Row({"kind": "adam", "fused": True, **ADAM}, by_torch(torch.optim.Adam, **ADAM), 2),
    Row({"kind": "adamw", "weight_decay": 0.3, **ADAM}, by_torch(torch.optim.AdamW, **ADAM), 2),
    Row({"kind": "adamw"}, by_torch(torch.optim.AdamW), 2),
    Row(
        {"kind": "torch", "name": "RMSprop", "alpha": 0.8},
        by_torch(torch.optim.RMSprop, alpha=0.8),
        1,
    ),
    Row(
        {"kind": "muon", "lr": 0.1, "other_lr": 0.05, "momentum": 0.9, "weight_decay": 0.3, **ADAM},
        both(
            by_torch(torch.optim.Muon, lambda those: those[:1], momentum=0.9, adjust_lr_fn="match_rms_adamw"),
            by_torch(torch.optim.AdamW, lambda those: those[1:], 0.5, **ADAM),
        ),
        1,
    ),
    Row(
        {"kind": "lars", "momentum": 0.9, "weight_decay": 0.3, "trust_coefficient": 0.02, "eps": 1e-3},
        tensor_by_tensor(lars, momentum=0.9, trust=0.02, eps=1e-3),
        1,
    ),
    Row({"kind": "lars", "momentum": 0.0}, tensor_by_tensor(lars, momentum=0.0, trust=1e-3, eps=1e-8), 0),
    Row({"kind": "lamb", "weight_decay": 0.3, **ADAM}, tensor_by_tensor(lamb, **ADAM), 2),
    Row({"kind": "lamb"}, tensor_by_tensor(lamb, betas=(0.9, 0.999), eps=1e-6), 2),
)
of_each = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.keys["kind"])


def made(keys: dict[str, Any], parameters: list[nn.Parameter]) -> ComponentOptimizer:
    roles = {}
    if len(parameters) == len(SHAPES):
        roles = {parameters[3]: Role("f", hidden=False), parameters[4]: Role("head", hidden=False)}
    return ComponentOptimizer(parameters, recipe(ADAPTER.validate_python({"lr": 0.1, **keys})), roles)


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]


def train(
    those: list[nn.Parameter], step: Callable[[float], object], rates: tuple[float, ...] = RATES, parts: int = 1
) -> None:
    """Updates by the gradients of a plain function. parts: in so many mini-batches of gradients with this mean."""
    for number, rate in enumerate(rates):
        gradients = [torch.cos(each.detach() * (number + 1)) for each in those]
        for part in range(parts):
            for each, gradient in zip(those, gradients, strict=True):
                each.grad = parts * gradient if part == 0 else torch.zeros_like(gradient)
            step(rate)


def test_each_optimizer_has_a_row() -> None:
    assert {row.keys["kind"] for row in ROWS} == OPTIMIZERS.sections.keys()


@of_each
@pytest.mark.parametrize("decay", ["all", "weights"])
def test_its_updates_are_those_of_plain_code(row: Row, decay: str) -> None:
    section = ADAPTER.validate_python({"lr": 0.1, **row.keys})
    keys = row.keys
    if decay == "weights":
        if not isinstance(section, DecayingSection):
            pytest.skip("no weight decay to leave out")
        keys = {**keys, "decay": "weights"}
    mine, theirs = parameters(), parameters()
    train(mine, made(keys, mine).step)
    of_all = section.weight_decay or 0.0
    train(theirs, row.plain(theirs, lambda each: of_all if decay == "all" or each.ndim > 1 else 0.0))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@of_each
def test_it_goes_on_from_its_state_to_the_last_bit(row: Row) -> None:
    whole = parameters()
    train(whole, made(row.keys, whole).step, RATES * 2)
    those = parameters()
    before = made(row.keys, those)
    train(those, before.step)
    after = made(row.keys, those)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    for number, rate in enumerate(RATES, len(RATES)):
        for each in those:
            each.grad = torch.cos(each.detach() * (number + 1))
        after.step(rate)
    assert all(torch.equal(one, other) for one, other in zip(whole, those, strict=True))


@of_each
def test_gradients_of_several_mini_batches_make_the_update_of_their_mean(row: Row) -> None:
    one, several = parameters(), parameters()
    train(one, made(row.keys, one).step)
    train(several, made({**row.keys, "accumulate": 4}, several).step, parts=4)
    for mine, theirs in zip(one, several, strict=True):
        assert torch.equal(mine, theirs)


@of_each
def test_it_leaves_a_parameter_without_a_gradient_alone_and_counts_what_it_keeps(row: Row) -> None:
    matrix, still = nn.Parameter(torch.ones(4, 5)), nn.Parameter(torch.ones(4, 5))
    optimizer = made(row.keys, [matrix, still])
    assert optimizer.state_bytes() == 2 * row.kept * 20 * 4
    matrix.grad = torch.full((4, 5), 0.5)
    optimizer.step(0.1)
    assert torch.equal(still, torch.ones(4, 5)) and not torch.equal(matrix, torch.ones(4, 5))
    kept = optimizer.state_dict()["state"].get(0, {}).values()
    assert sum(isinstance(value, torch.Tensor) and value.numel() == 20 for value in kept) == row.kept


@of_each
def test_the_rate_of_a_part_is_multiplied_and_gradients_are_clipped(row: Row) -> None:
    """A factor is a rate so many times as large, and gradients of twice the largest norm are halved."""
    half, scaled = ([nn.Parameter(torch.ones(3, 3)) for _ in range(2)] for _ in range(2))
    section = ADAPTER.validate_python({"lr": 0.1, **row.keys, "rate_factors": {"f": 2.0}, "clip_norm": 1.0})
    mine = ComponentOptimizer(scaled, recipe(section), {each: Role("f") for each in scaled})
    theirs = made(row.keys, half)
    for one, other in zip(scaled, half, strict=True):
        one.grad, other.grad = torch.full((3, 3), 2 / 18**0.5), torch.full((3, 3), 1 / 18**0.5)
    mine.step(0.1)
    theirs.step(0.2)
    torch.testing.assert_close(scaled, half, rtol=1e-4, atol=1e-6)
