"""Methods with local losses against their equations, written once more here from the paper, in plain torch.

The others have theirs in other files: AL, SCPL and DGL in `examples/one_file.py`, SOLO in test_language_models.py.

Ten mini-batches in double precision: all weights agree to 1e-10. The loops share only initial weights with alray. The
last encoder ends with tanh, because sqrt has no gradient at the length of a row of zeros, which ReLU may give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
import torch
from torch import nn
from torch.nn import functional

from alray.core.randomness.seeds import derive_seed
from alray.models.component import Component
from alray.parts.methods.auglocal.method import above
from alray.runtime.stage.assemble import work_of

from ..mini_batches import backward, forward

CLASSES = 4
WIDTHS = (8, 8, 12)
SETTING = (
    "model.components=[{block: vgg, channels: [8]}, {block: vgg, channels: [8], pool: true}, {block: mlp, widths: "
    "[12], activation: tanh}]",
    "run.precision=float64",
    "optimizer={kind: adam, lr: 0.01}",
)
Losses = Callable[[dict[str, nn.Module], torch.Tensor, torch.Tensor], list[torch.Tensor]]
"""From the parts of a component, the output of its encoder and class numbers to losses that train separate parts."""


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(step)
    samples = torch.randn(12, 2, 8, 8, generator=numbers, dtype=torch.float64)
    return samples, torch.randint(0, CLASSES, (12,), generator=numbers)


def plain_encoder(index: int) -> nn.Sequential:
    if index == 2:
        return nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(8 * 4 * 4, 12), nn.Tanh()))
    layers = [nn.Conv2d(8 if index else 2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if index else []))


def averaged(h: torch.Tensor) -> torch.Tensor:
    """Maps of 8 x 8 to 4 x 4, as a vector."""
    return functional.avg_pool2d(h, h.shape[2] // 4).flatten(1) if h.ndim == 4 else h


def features(index: int) -> int:
    return WIDTHS[index] * (16 if index < 2 else 1)


def log_softmax_of(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy by its definition."""
    return -(scores.gather(1, y[:, None])[:, 0] - scores.exp().sum(1).log()).mean()


def similarity_matrix(x: torch.Tensor) -> torch.Tensor:
    """As Nøkland and Eidnes define it, by loops over pairs of samples."""
    if x.ndim == 4:
        count = x.shape[2] * x.shape[3]
        mean = x.sum((2, 3), keepdim=True) / count
        x = ((x - mean) ** 2).sum((2, 3)).div(count - 1).sqrt()
    centred = [row - row.sum() / len(row) for row in x]
    lengths = [1e-8 + (row * row).sum().sqrt() for row in centred]
    rows = [
        torch.stack([(a * b).sum() / (la * lb) for b, lb in zip(centred, lengths, strict=True)])
        for a, la in zip(centred, lengths, strict=True)
    ]
    return torch.stack(rows)


def one_hot(y: torch.Tensor) -> torch.Tensor:
    return torch.eye(CLASSES, dtype=torch.float64)[y]


def mono_forward(parts: dict[str, nn.Module], h: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [log_softmax_of(averaged(h) @ parts["m"].weight.T, y)]


def predsim(beta: float) -> Losses:
    def losses(parts: dict[str, nn.Module], h: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        difference = similarity_matrix(parts["c"](h)) - similarity_matrix(one_hot(y))
        pred = log_softmax_of(parts["head"](averaged(h)), y)
        return [(1 - beta) * pred + beta * (difference**2).mean()]

    return losses


def pred(parts: dict[str, nn.Module], h: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [log_softmax_of(parts["head"](averaged(h)), y)]


def sim(parts: dict[str, nn.Module], h: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    difference = similarity_matrix(parts["c"](h)) - similarity_matrix(one_hot(y))
    return [(difference**2).mean(), log_softmax_of(parts["head"](averaged(h.detach())), y)]


def channel_goodness(parts: dict[str, nn.Module], h: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    groups = h.split(h.shape[1] // CLASSES, dim=1)
    goodness = torch.stack([(group**2).flatten(1).mean(1) for group in groups], 1)
    return [log_softmax_of(goodness, y)]


def decoupled_information(parts: dict[str, nn.Module], h: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    codes = parts["p"](averaged(h))
    z = codes / (codes * codes).sum(1, keepdim=True).sqrt()
    samples, width = z.shape
    centred = z - z.sum(0) / samples
    deviations = ((centred**2).sum(0) / (samples - 1) + 1e-7).sqrt()
    variance = sum(torch.clamp(1 - each, min=0) for each in deviations) / width / samples
    covariance = centred.T @ centred / samples
    others = sum(covariance[i, j] ** 2 for i in range(width) for j in range(width) if i != j) / width
    invariance = ((similarity_matrix(z) - similarity_matrix(one_hot(y))) ** 2).mean()
    return [variance + invariance + others + 0.02 * log_softmax_of(parts["head"](codes), y)]


def linear(index: int, width: int = CLASSES, *, bias: bool = True) -> nn.Module:
    return nn.Linear(features(index), width, bias=bias)


def transformation(index: int) -> nn.Module:
    return nn.Conv2d(8, 8, 3, padding=1, bias=False) if index < 2 else nn.Linear(12, 12, bias=False)


def projector(index: int) -> nn.Module:
    layers = [linear(index, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(6, 6))


def classifier_of_codes(index: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, CLASSES))


CASES: dict[str, tuple[str, Losses, dict[str, Callable[[int], nn.Module]]]] = {
    "mono_forward": ("{kind: mono_forward}", mono_forward, {"m": lambda index: linear(index, bias=False)}),
    "predsim": ("{kind: local_error_signals, beta: 0.9}", predsim(0.9), {"head": linear, "c": transformation}),
    "pred": ("{kind: local_error_signals, loss: pred}", pred, {"head": linear}),
    "sim": ("{kind: local_error_signals, loss: sim}", sim, {"head": linear, "c": transformation}),
    "channel_goodness": ("{kind: channel_goodness}", channel_goodness, {}),
    "decoupled_information": (
        "{kind: decoupled_information, projection_dim: 6, classifier_weight: 0.02}",
        decoupled_information,
        {"p": projector, "head": classifier_of_codes},
    ),
    "decoupled_information without a projector": (
        "{kind: decoupled_information, projection_dim: null, classifier_weight: 0.02}",
        decoupled_information,
        {"p": lambda index: nn.Identity(), "head": lambda index: nn.Sequential(nn.Tanh(), linear(index))},
    ),
}
"""The section `method`, the losses, and the parts of a component by name."""
BY_SGD = ("decoupled_information",)
"""Biases before a batch normalisation have a gradient of zero. What rounding leaves of it, Adam would make large."""


def weights_of(parts: Iterable[Mapping[str, torch.Tensor]]) -> torch.Tensor:
    """All weights as one vector; counters of mini-batches are among them."""
    return torch.cat([value.double().flatten() for part in parts for value in part.values()])


def plain_twin(
    component: Component,
    index: int,
    build: Mapping[str, Callable[[int], nn.Module]],
    encoder: Callable[[int], nn.Module] = plain_encoder,
) -> dict[str, nn.Module]:
    """The parts of a component as plain modules, with its weights."""
    parts = {"f": encoder(index), **{name: make(index) for name, make in build.items()}}
    given = component.weights()
    for name, part in parts.items():
        own = [value.clone() for key, value in given.items() if key.startswith(f"{name}.")]
        part.to(torch.float64).load_state_dict(dict(zip(part.state_dict(), own, strict=True)))
    assert sum(len(part.state_dict()) for part in parts.values()) == len(given)
    return parts


def optimizer_of(parts: dict[str, nn.Module], *, sgd: bool = False) -> torch.optim.Optimizer:
    parameters = [each for part in parts.values() for each in part.parameters()]
    return torch.optim.SGD(parameters, lr=0.1) if sgd else torch.optim.Adam(parameters, lr=0.01)


def close(components: Sequence[Component], before: torch.Tensor, plain: Sequence[dict[str, nn.Module]]) -> None:
    found = weights_of(component.weights() for component in components)
    expected = weights_of(part.state_dict() for parts in plain for part in parts.values())
    assert math.isfinite(float(found.norm())) and float((found - before).norm()) > 0.1
    assert float((found - expected).abs().max()) <= 1e-10


@pytest.mark.few
@pytest.mark.parametrize("case", CASES)
def test_ten_mini_batches_of_the_equations(make_network, case: str) -> None:
    section, losses, build = CASES[case]
    setting = (*SETTING[:2], "optimizer={kind: sgd, lr: 0.1}") if case in BY_SGD else SETTING
    network = make_network(f"method={section}", *setting, classes=CLASSES)
    components = [network.component(index, "cpu") for index in range(3)]
    plain = [plain_twin(component, index, build) for index, component in enumerate(components)]
    optimizers = [optimizer_of(parts, sgd=case in BY_SGD) for parts in plain]
    before = weights_of(component.weights() for component in components)
    stage = work_of(components)
    for step in range(1, 11):
        samples, y = batch(step)
        forward(stage, {"s": samples, "labels": y}, step)
        backward(stage)
        stage.update(0.1 if case in BY_SGD else 0.01, step=step)
        h = samples
        for parts, optimizer in zip(plain, optimizers, strict=True):
            h = parts["f"](h)
            optimizer.zero_grad()
            for loss in losses(parts, h, y):
                loss.backward()
            optimizer.step()
            h = h.detach()
    close(components, before, plain)


def test_ten_mini_batches_of_deep_supervision(make_network) -> None:
    """The same readouts as those of `pred`, with gradients through all components."""
    network = make_network("method={kind: backpropagation, deep_supervision: 0.3}", *SETTING, classes=CLASSES)
    assert network.depths == (1, 2, 3)
    components = [network.component(index, "cpu") for index in range(3)]
    plain = [plain_twin(component, index, {"head": linear}) for index, component in enumerate(components)]
    optimizers = [optimizer_of(parts) for parts in plain]
    before = weights_of(component.weights() for component in components)
    stage = work_of(components)
    for step in range(1, 11):
        samples, y = batch(step)
        forward(stage, {"s": samples, "labels": y}, step)
        told = backward(stage)
        stage.update(0.01, step=step)
        h, losses = samples, []
        for parts in plain:
            h = parts["f"](h)
            losses.append(log_softmax_of(parts["head"](averaged(h)), y))
        for optimizer in optimizers:
            optimizer.zero_grad()
        (losses[2] + 0.3 * losses[0] + 0.3 * losses[1]).backward()
        for optimizer in optimizers:
            optimizer.step()
        assert [float(told[index]["cross_entropy"]) for index in range(3)] == pytest.approx(
            [loss.item() for loss in losses]
        )
    close(components, before, plain)


def divided_by_root_mean_square(h: torch.Tensor) -> torch.Tensor:
    return torch.stack([row / ((row**2).mean().sqrt() + 1e-8) for row in h])


def with_label(samples: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Labels `[N, 4]` in place of the first four values of each sample."""
    rows = samples.clone().flatten(1)
    rows[:, :CLASSES] = labels
    return rows.view_as(samples)


class Means(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros([(8, 8, 8), (8, 4, 4), (12,)][index]))


def forward_forward_loss(right: torch.Tensor, wrong: torch.Tensor, *, symba: bool) -> torch.Tensor:
    """Goodness over all values, by the sigmoid of the paper or by SymBa's difference."""
    of_right, of_wrong = (h.flatten(1).pow(2).sum(1) for h in (right, wrong))
    if symba:
        return torch.log(1 + torch.exp(-0.01 * (of_right - of_wrong))).mean()
    d = right[0].numel()
    return (minus_log_sigmoid(of_right - d).mean() + minus_log_sigmoid(d - of_wrong).mean()) / 2


def minus_log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(-x)), by a form whose exponential is at most 1."""
    return torch.clamp(-x, min=0) + torch.log(1 + torch.exp(-x.abs()))


@pytest.mark.few
@pytest.mark.parametrize("symba", [False, True])
@pytest.mark.parametrize("prediction", ["goodness", "activities"])
def test_ten_mini_batches_of_forward_forward(make_network, prediction: str, symba: bool) -> None:
    loss = "symba, alpha: 0.01" if symba else "threshold"
    section = f"{{kind: forward_forward, loss: {loss}, prediction: {prediction}, peer_normalisation: 0.1}}"
    network = make_network(f"method={section}", *SETTING, classes=CLASSES)
    components = [network.component(index, "cpu") for index in range(3)]
    heads = {"head": lambda index: linear(index, bias=False)} if prediction == "activities" else {}
    plain = [plain_twin(component, index, heads | {"peers": Means}) for index, component in enumerate(components)]
    optimizers = [optimizer_of(parts) for parts in plain]
    before = weights_of(component.weights() for component in components)
    stage = work_of(components)
    for step in range(1, 11):
        samples, y = batch(step)
        forward(stage, {"s": samples, "labels": y}, step)
        backward(stage)
        stage.update(0.01, step=step)
        numbers = torch.Generator().manual_seed(derive_seed(5, "wrong labels", step))
        wrong = (y + torch.randint(1, CLASSES, (12,), generator=numbers)) % CLASSES
        assert not (wrong == y).any()
        labels = [one_hot(y), one_hot(wrong), *([torch.full((12, CLASSES), 0.25)] if heads else [])]
        h = torch.stack([with_label(samples, each) for each in labels], 1).flatten(0, 1)
        for parts, optimizer in zip(plain, optimizers, strict=True):
            h = parts["f"](divided_by_root_mean_square(h))
            rows = h.unflatten(0, (12, len(labels)))
            means = 0.9 * parts["peers"].mean + 0.1 * rows[:, 0].mean(0)
            parts["peers"].mean = means.detach()
            optimizer.zero_grad()
            spread = ((means.mean() - means) ** 2).mean()
            (forward_forward_loss(rows[:, 0], rows[:, 1], symba=symba) + 0.1 * spread).backward()
            if heads:
                activities = divided_by_root_mean_square(rows[:, 2].detach())
                log_softmax_of(parts["head"](averaged(activities)), y).backward()
            optimizer.step()
            h = h.detach()
    close(components, before, plain)
    stage.evaluation_mode(True)
    _, scores = stage.infer_up({"s": samples}, 10, 0)
    with torch.no_grad():
        expected = forward_forward_scores([part["f"].eval() for part in plain], plain if heads else None, samples)
    for found, each in zip(scores, expected, strict=True):
        torch.testing.assert_close(found, each, rtol=1e-9, atol=1e-9)


def forward_forward_scores(
    encoders: Sequence[nn.Module], heads: Sequence[dict[str, nn.Module]] | None, samples: torch.Tensor
) -> list[torch.Tensor]:
    """The scores of each depth, label by label, or from a row without a label: the first counts only alone."""
    passes = list(torch.eye(CLASSES, dtype=torch.float64)) if heads is None else [torch.full((CLASSES,), 0.25)]
    of_depths = []
    for label in passes:
        h, found = with_label(samples, label.expand(len(samples), -1)), []
        for index, f in enumerate(encoders):
            h = f(divided_by_root_mean_square(h))
            if heads is None:
                found.append(h.flatten(1).pow(2).sum(1))
            else:
                found.append(heads[index]["head"](averaged(divided_by_root_mean_square(h))))
        of_depths.append(found)
    scores = [torch.stack(each, 1) if heads is None else each[0] for each in zip(*of_depths, strict=True)]
    return [scores[0], scores[1], scores[1] + scores[2]]


class Denoiser(nn.Module):
    """Features of x and z go through a layer each, and both together through two."""

    def __init__(self, index: int) -> None:
        super().__init__()
        for name in ("noise", "start") if index == 0 else ("noise",):
            self.register_buffer(name, torch.zeros(CLASSES))
        width = 12 if index == 2 else 8 * 4 * 4
        self.x, self.z, self.both, self.last = (nn.Linear(*sizes) for sizes in ((width, 6), (4, 6), (12, 6), (6, 4)))

    def forward(self, features: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        both = torch.cat([torch.relu(self.x(features)), torch.relu(self.z(z))], 1)
        scores = self.last(torch.relu(self.both(both)))
        return scores.exp() / scores.exp().sum(1, keepdim=True)


def noise_schedule() -> tuple[list[float], list[float]]:
    """alpha_0..alpha_3 and their products from the right, of a cosine over four steps of noise."""
    kept = [math.cos((step / 4 + 0.008) / 1.008 * math.pi / 2) ** 2 for step in range(5)]
    alphas = [max(kept[step + 1] / kept[step], 0.001) for step in (3, 2, 1, 0)]
    return alphas, [math.prod(alphas[t:]) for t in range(4)]


def sample_encoder(index: int) -> nn.Sequential:
    """As `plain_encoder`, of the sample itself."""
    if index == 2:
        return nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(2 * 8 * 8, 12), nn.Tanh()))
    layers = [nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if index else []))


def test_ten_mini_batches_of_noprop(make_network) -> None:
    """Every component trains on the sample and on a draw from it; a prediction goes up the chain of draws."""
    network = make_network("method={kind: noprop, eta: 0.2, hidden: 6}", *SETTING, classes=CLASSES)
    components = [network.component(index, "cpu") for index in range(3)]
    plain = [
        plain_twin(
            component,
            index,
            {"p": Denoiser, **({"o": lambda _: nn.Linear(4, 4)} if index == 2 else {})},
            sample_encoder,
        )
        for index, component in enumerate(components)
    ]
    optimizers = [optimizer_of(parts) for parts in plain]
    before = weights_of(component.weights() for component in components)
    stage = work_of(components)
    alphas, products = noise_schedule()

    def drawn(u: torch.Tensor, t: int, step: int, name: str, index: int) -> torch.Tensor:
        numbers = torch.Generator().manual_seed(derive_seed(5, name, index, step))
        noise = torch.randn(12, CLASSES, generator=numbers).double()
        return math.sqrt(products[t]) * u + math.sqrt(1 - products[t]) * noise

    for step in range(1, 11):
        samples, y = batch(step)
        forward(stage, {"s": samples, "labels": y}, step)
        backward(stage)
        stage.update(0.01, step=step)
        u = one_hot(y)
        for index, (parts, optimizer) in enumerate(zip(plain, optimizers, strict=True)):
            t = index + 1
            v = parts["p"](averaged(parts["f"](samples)), drawn(u, t - 1, step, "noise", index))
            ratios = [products[each] / (1 - products[each]) for each in (t - 1, t)]
            loss = 3 / 2 * 0.2 * (ratios[1] - ratios[0]) * ((v - u) ** 2).sum() / 12
            if index == 2:
                loss = loss + log_softmax_of(parts["o"](drawn(u, 3, step, "last noise", index)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    close(components, before, plain)
    stage.evaluation_mode(True)
    _, (scores,) = stage.infer_up({"s": samples}, 10, 0)
    with torch.no_grad():
        z = plain[0]["p"].start.expand(12, -1)
        for index, parts in enumerate(plain):
            t, p = index + 1, parts["p"]
            left = 1 - products[t - 1]
            a = math.sqrt(products[t]) * (1 - alphas[t - 1]) / left
            b = math.sqrt(alphas[t - 1]) * (1 - products[t]) / left
            c = (1 - products[t]) * (1 - alphas[t - 1]) / left
            z = a * p(averaged(parts["f"].eval()(samples)), z) + b * z + math.sqrt(c) * p.noise
        torch.testing.assert_close(scores, plain[2]["o"](z), rtol=1e-9, atol=1e-9)


def test_ten_mini_batches_of_auglocal(make_network) -> None:
    """The first component has copies of both encoders above, the second one of the last."""
    network = make_network("method={kind: auglocal, depth: 2}", *SETTING, classes=CLASSES)
    assert network.depths == (3,)
    components = [network.component(index, "cpu") for index in range(3)]
    copies = [
        {"a1": lambda _: plain_encoder(1), "a2": lambda _: plain_encoder(2)},
        {"a1": lambda _: plain_encoder(2)},
        {},
    ]
    plain = [
        plain_twin(component, index, copies[index] | {"head": lambda _: nn.Linear(12, CLASSES)})
        for index, component in enumerate(components)
    ]
    optimizers = [optimizer_of(parts) for parts in plain]
    before = weights_of(component.weights() for component in components)
    stage = work_of(components)
    for step in range(1, 11):
        samples, y = batch(step)
        forward(stage, {"s": samples, "labels": y}, step)
        backward(stage)
        stage.update(0.01, step=step)
        h = samples
        for index, (parts, optimizer) in enumerate(zip(plain, optimizers, strict=True)):
            h = parts["f"](h)
            auxiliary = h
            for name in copies[index]:
                auxiliary = parts[name](auxiliary)
            optimizer.zero_grad()
            log_softmax_of(parts["head"](auxiliary), y).backward()
            optimizer.step()
            h = h.detach()
    close(components, before, plain)


@pytest.mark.parametrize(
    ("component", "components", "depth", "expected"),
    [
        (1, 8, 3, (3, 6, 8)),
        (4, 8, 3, (6, 8)),
        (7, 8, 3, (8,)),
        (6, 8, 6, (7, 8)),
        (8, 8, 3, ()),
        (1, 2, 3, (2,)),
        (1, 12, 6, (3, 5, 7, 8, 10, 12)),
        (11, 20, 6, (13, 15, 16, 18, 20)),
    ],
)
def test_the_encoders_of_an_auxiliary_network_by_hand(component, components, depth, expected) -> None:
    """The fourth of eight components has 3 x 0.75 + 0.25 = 2.5 layers, rounded to 2, the seventh 2, of which there is
    one. The eleventh of twenty has 6 x (1 - 5/18) + 5/18 = 4.6, rounded to 5, each 9/5 above the one before."""
    assert above(component, components, depth=depth, pyramid=0.5) == expected
