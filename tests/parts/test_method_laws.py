"""The laws of methods. A method enters by a row of `ROWS`: its equations, written once more here from the paper, in
plain torch, and its keys.

The equations share only initial weights with alray: after five mini-batches in double precision all weights agree to
1e-10, and so do the scores of every depth. The last encoder ends with tanh, because sqrt has no gradient at the length
of a row of zeros, which ReLU may give.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from alray.config.sections.method import METHODS
from alray.core.randomness.seeds import derive_seed
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate
from alray.models.component import ComparingComponent, Component, CopyingComponent, LocalComponent
from alray.models.encoder import Tensors
from alray.models.network import Network
from alray.models.shape import Shape
from alray.parts.methods.auglocal.method import above
from alray.runtime.stage.assemble import work_of

from ..engine.conftest import Workshop
from ..mini_batches import backward, forward, forward_step

pytestmark = pytest.mark.long

CLASSES = 4
BATCH = 12
WIDTHS = (8, 8, 12)
COMPONENTS = (
    "[{block: vgg, channels: [8]}, {block: vgg, channels: [8], pool: true}, "
    "{block: mlp, widths: [12], activation: tanh}]"
)
CAUSAL = "[{block: transformer, causal: true, dim: 8, heads: 2, feedforward: 16, repeat: 3}]"
Parts = Mapping[str, nn.Module]
"""The parts of a component, as plain modules."""
Losses = Callable[[Parts, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of the parts, what the encoder gives and the labels: a loss, or a sum of losses that train separate parts."""


@dataclass(frozen=True)
class At:
    """Where a component is asked: its number, the mini-batch from 1, and what comes in."""

    index: int
    step: int
    incoming: Tensors


@dataclass(frozen=True)
class Row:
    """A method.

    Attributes:
        keys: further ones of the section `method`.
        parts: of a component apart from its encoder, by the component's number.
        learn: the loss of a component, and what goes up from it.
        scores: of each depth that is a route, in evaluation.
        encoder: of a component.
        sgd: biases before a batch normalisation have a gradient of zero. What rounding leaves of it, Adam would make
            large.
    """

    keys: str
    parts: Callable[[int], dict[str, nn.Module]]
    learn: Callable[[Parts, At], tuple[torch.Tensor, Tensors]]
    scores: Callable[[Sequence[Parts], torch.Tensor], list[torch.Tensor]]
    encoder: Callable[[int], nn.Module] | None = None
    sgd: bool = False


# --- What several methods have ---


def plain_encoder(index: int) -> nn.Sequential:
    if index == 2:
        return nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(8 * 4 * 4, 12), nn.Tanh()))
    layers = [nn.Conv2d(8 if index else 2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if index else []))


def sample_encoder(index: int) -> nn.Sequential:
    """As `plain_encoder`, of the sample itself."""
    if index == 2:
        return nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(2 * 8 * 8, 12), nn.Tanh()))
    layers = [nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if index else []))


def averaged(h: torch.Tensor) -> torch.Tensor:
    """Maps of 8 x 8 to 4 x 4, as a vector."""
    return functional.avg_pool2d(h, h.shape[2] // 4).flatten(1) if h.ndim == 4 else h


def linear(index: int, width: int = CLASSES, *, bias: bool = True) -> nn.Module:
    return nn.Linear(WIDTHS[index] * (16 if index < 2 else 1), width, bias=bias)


def cross_entropy(scores: torch.Tensor, y: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    """By its definition."""
    logarithms = scores - scores.exp().sum(1, keepdim=True).log()
    return -((1 - smoothing) * logarithms.gather(1, y[:, None])[:, 0] + smoothing * logarithms.mean(1)).mean()


def one_hot(y: torch.Tensor) -> torch.Tensor:
    return torch.eye(CLASSES, dtype=torch.float64)[y]


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


def read_as(turn: Callable[[Parts, torch.Tensor], torch.Tensor], *, last: bool = False) -> Any:
    """The scores of every depth, or of the last one, by the readout of its component."""

    def scores(components: Sequence[Parts], samples: torch.Tensor) -> list[torch.Tensor]:
        found, h = [], samples
        for parts in components:
            h = parts["f"](h)
            found.append(h if last and parts is not components[-1] else turn(parts, h))
        return found[-1:] if last else found

    return scores


def with_labels(losses: Losses) -> Any:
    """A method whose components send labels up as they are."""

    def learn(parts: Parts, at: At) -> tuple[torch.Tensor, Tensors]:
        h = parts["f"](at.incoming["s"])
        return losses(parts, h, at.incoming["labels"]), {"s": h, "labels": at.incoming["labels"]}

    return learn


def by_head(parts: Parts, h: torch.Tensor) -> torch.Tensor:
    return parts["head"](averaged(h))


# --- The equations of each ---


def al_learn(parts: Parts, at: At, *, first_loss: str) -> tuple[torch.Tensor, Tensors]:
    h = parts["f"](at.incoming["s"])
    t_in = at.incoming["t"] if at.index else one_hot(at.incoming["labels"])
    t = torch.tanh(parts["g"](t_in))
    associated = ((torch.tanh(parts["b"](averaged(h))) - t.detach()) ** 2).mean()
    rebuilt = parts["h"](t)
    if at.index or first_loss == "mse":
        return associated + ((rebuilt - t_in) ** 2).mean(), {"s": h, "t": t}
    return associated + cross_entropy(rebuilt, at.incoming["labels"], 0.1), {"s": h, "t": t}


def al_scores(components: Sequence[Parts], samples: torch.Tensor) -> list[torch.Tensor]:
    found, h = [], samples
    for index, parts in enumerate(components):
        h = parts["f"](h)
        t = torch.tanh(parts["b"](averaged(h)))
        for below in reversed(components[: index + 1]):
            t = below["h"](t)
        found.append(t)
    return found


def al_parts(index: int) -> dict[str, nn.Module]:
    width = 5 if index else CLASSES
    return {"b": linear(index, 5), "g": nn.Linear(width, 5), "h": nn.Linear(5, width)}


def contrastive(codes: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """L_out of Khosla et al., anchor by anchor."""
    z = codes / (codes**2).sum(1, keepdim=True).sqrt()
    e = (z @ z.T / 0.2).exp()
    of_anchors = []
    for i in range(len(y)):
        others = [a for a in range(len(y)) if a != i]
        positives = [a for a in others if y[a] == y[i]]
        if positives:
            total = torch.stack([e[i, a] for a in others]).sum()
            of_anchors.append(torch.stack([-(e[i, p] / total).log() for p in positives]).mean())
    return torch.stack(of_anchors).mean()


def scpl(parts: Parts, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return cross_entropy(by_head(parts, h), y, 0.1) if "head" in parts else contrastive(parts["p"](averaged(h)), y)


def scpl_parts(index: int) -> dict[str, nn.Module]:
    if index == 2:
        return {"head": linear(2)}
    return {"p": nn.Sequential(linear(index, 6), nn.ReLU(), nn.Linear(6, 6))}


def dgl(parts: Parts, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return cross_entropy(by_head(parts, h), y, 0.1)


def bp_learn(parts: Parts, at: At) -> tuple[torch.Tensor, Tensors]:
    h = parts["f"](at.incoming["s"])
    loss = dgl(parts, h, at.incoming["labels"]) if at.index == 2 else torch.zeros(())
    return loss, {"s": h, "labels": at.incoming["labels"]}


def mono_forward(parts: Parts, h: torch.Tensor) -> torch.Tensor:
    return averaged(h) @ parts["m"].weight.T


def mono_scores(components: Sequence[Parts], samples: torch.Tensor) -> list[torch.Tensor]:
    of_components = read_as(mono_forward)(components, samples)
    return [torch.stack(of_components[: depth + 1]).sum(0) for depth in range(3)]


def les(parts: Parts, h: torch.Tensor, y: torch.Tensor, *, pred: float, sim: float, apart: bool) -> torch.Tensor:
    loss = pred * cross_entropy(by_head(parts, h.detach() if apart else h), y)
    if not sim:
        return loss
    return loss + sim * ((similarity_matrix(parts["c"](h)) - similarity_matrix(one_hot(y))) ** 2).mean()


def les_parts(index: int) -> dict[str, nn.Module]:
    c = nn.Conv2d(8, 8, 3, padding=1, bias=False) if index < 2 else nn.Linear(12, 12, bias=False)
    return {"head": linear(index), "c": c}


def goodness_of_groups(parts: Parts, h: torch.Tensor) -> torch.Tensor:
    groups = h.split(h.shape[1] // CLASSES, dim=1)
    return torch.stack([(group**2).flatten(1).mean(1) for group in groups], 1)


def information(parts: Parts, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    codes = parts["p"](averaged(h))
    z = codes / (codes * codes).sum(1, keepdim=True).sqrt()
    samples, width = z.shape
    centred = z - z.sum(0) / samples
    deviations = ((centred**2).sum(0) / (samples - 1) + 1e-7).sqrt()
    variance = sum(torch.clamp(1 - each, min=0) for each in deviations) / width / samples
    covariance = centred.T @ centred / samples
    others = (covariance * (1 - torch.eye(width))).square().sum() / width
    invariance = ((similarity_matrix(z) - similarity_matrix(one_hot(y))) ** 2).mean()
    return variance + invariance + others + 0.001 * cross_entropy(parts["head"](codes), y)


def information_parts(index: int) -> dict[str, nn.Module]:
    first = (linear(index, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU())
    head = nn.Sequential(nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, CLASSES))
    return {"p": nn.Sequential(*first, nn.Linear(6, 6)), "head": head}


def without_projector(index: int) -> dict[str, nn.Module]:
    return {"p": nn.Identity(), "head": nn.Sequential(nn.Tanh(), linear(index))}


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


def minus_log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(-x)), by a form whose exponential is at most 1."""
    return torch.clamp(-x, min=0) + torch.log(1 + torch.exp(-x.abs()))


def ff_learn(parts: Parts, at: At, *, symba: bool) -> tuple[torch.Tensor, Tensors]:
    """Goodness over all values, by the sigmoid of the paper or by SymBa's difference."""
    y, h = at.incoming["labels"], at.incoming["s"]
    if at.index == 0:
        numbers = torch.Generator().manual_seed(derive_seed(5, "wrong labels", at.step))
        wrong = (y + torch.randint(1, CLASSES, (BATCH,), generator=numbers)) % CLASSES
        assert not (wrong == y).any()
        labels = [one_hot(y), one_hot(wrong), *([torch.full((BATCH, CLASSES), 0.25)] if "head" in parts else [])]
        h = torch.stack([with_label(h, each) for each in labels], 1)
    rows = parts["f"](divided_by_root_mean_square(h.flatten(0, 1))).unflatten(0, (BATCH, -1))
    of_right, of_wrong = (rows[:, row].flatten(1).pow(2).sum(1) for row in (0, 1))
    if symba:
        loss = torch.log(1 + torch.exp(-0.01 * (of_right - of_wrong))).mean()
    else:
        d = rows[0, 0].numel()
        loss = (minus_log_sigmoid(of_right - d).mean() + minus_log_sigmoid(d - of_wrong).mean()) / 2
    means = 0.9 * parts["peers"].mean + 0.1 * rows[:, 0].mean(0)
    parts["peers"].mean = means.detach()
    loss = loss + 0.1 * ((means.mean() - means) ** 2).mean()
    if "head" in parts:
        activities = divided_by_root_mean_square(rows[:, 2].detach())
        loss = loss + cross_entropy(by_head(parts, activities), y)
    return loss, {"s": rows, "labels": y}


def ff_scores(components: Sequence[Parts], samples: torch.Tensor) -> list[torch.Tensor]:
    """Label by label, or from a row without a label: the first component counts only alone."""
    heads = "head" in components[0]
    passes = [torch.full((CLASSES,), 0.25)] if heads else list(torch.eye(CLASSES, dtype=torch.float64))
    of_depths = []
    for label in passes:
        h, found = with_label(samples, label.expand(len(samples), -1)), []
        for parts in components:
            h = parts["f"](divided_by_root_mean_square(h))
            found.append(by_head(parts, divided_by_root_mean_square(h)) if heads else h.flatten(1).pow(2).sum(1))
        of_depths.append(found)
    scores = [each[0] if heads else torch.stack(each, 1) for each in zip(*of_depths, strict=True)]
    return [scores[0], scores[1], scores[1] + scores[2]]


def ff_parts(index: int, *, heads: bool) -> dict[str, nn.Module]:
    return {"peers": Means(index)} | ({"head": linear(index, bias=False)} if heads else {})


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


def noprop_learn(parts: Parts, at: At) -> tuple[torch.Tensor, Tensors]:
    _, products = noise_schedule()
    u, t = one_hot(at.incoming["labels"]), at.index + 1

    def drawn(level: int, name: str) -> torch.Tensor:
        numbers = torch.Generator().manual_seed(derive_seed(5, name, at.index, at.step))
        noise = torch.randn(BATCH, CLASSES, generator=numbers).double()
        return math.sqrt(products[level]) * u + math.sqrt(1 - products[level]) * noise

    v = parts["p"](averaged(parts["f"](at.incoming["s"])), drawn(t - 1, "noise"))
    ratios = [products[each] / (1 - products[each]) for each in (t - 1, t)]
    loss = 3 / 2 * 0.2 * (ratios[1] - ratios[0]) * ((v - u) ** 2).sum() / BATCH
    if at.index == 2:
        loss = loss + cross_entropy(parts["o"](drawn(3, "last noise")), at.incoming["labels"])
    return loss, at.incoming


def noprop_scores(components: Sequence[Parts], samples: torch.Tensor) -> list[torch.Tensor]:
    alphas, products = noise_schedule()
    z = components[0]["p"].start.expand(BATCH, -1)
    for t, parts in enumerate(components, start=1):
        left = 1 - products[t - 1]
        a = math.sqrt(products[t]) * (1 - alphas[t - 1]) / left
        b = math.sqrt(alphas[t - 1]) * (1 - products[t]) / left
        c = (1 - products[t]) * (1 - alphas[t - 1]) / left
        z = a * parts["p"](averaged(parts["f"](samples)), z) + b * z + math.sqrt(c) * parts["p"].noise
    return [components[-1]["o"](z)]


def noprop_parts(index: int) -> dict[str, nn.Module]:
    return {"p": Denoiser(index)} | ({"o": nn.Linear(4, 4)} if index == 2 else {})


def auglocal(parts: Parts, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for name in ("a1", "a2"):
        h = parts[name](h) if name in parts else h
    return cross_entropy(parts["head"](h), y)


def auglocal_parts(index: int) -> dict[str, nn.Module]:
    """The first component has copies of both encoders above, the second one of the last."""
    copies = {f"a{number}": plain_encoder(index + number) for number in range(1, 3 - index)}
    return copies | {"head": nn.Linear(12, CLASSES)}


ROWS = {
    "associated_learning": Row(
        "label_dim: 5, label_smoothing: 0.1", al_parts, partial(al_learn, first_loss="cross_entropy"), al_scores
    ),
    "associated_learning by squared error": Row(
        "label_dim: 5, first_label_loss: mse", al_parts, partial(al_learn, first_loss="mse"), al_scores
    ),
    "auglocal": Row(
        "depth: 2", auglocal_parts, with_labels(auglocal), read_as(lambda parts, h: parts["head"](h), last=True)
    ),
    "backpropagation": Row(
        "label_smoothing: 0.1",
        lambda index: {"head": linear(2)} if index == 2 else {},
        bp_learn,
        read_as(by_head, last=True),
    ),
    "channel_goodness": Row(
        "",
        lambda index: {},
        with_labels(lambda parts, h, y: cross_entropy(goodness_of_groups(parts, h), y)),
        read_as(goodness_of_groups),
    ),
    "decoupled_greedy": Row(
        "label_smoothing: 0.1", lambda index: {"head": linear(index)}, with_labels(dgl), read_as(by_head)
    ),
    "decoupled_information": Row(
        "projection_dim: 6",
        information_parts,
        with_labels(information),
        read_as(lambda parts, h: parts["head"](parts["p"](averaged(h)))),
        sgd=True,
    ),
    "decoupled_information without a projector": Row(
        "projection_dim: null", without_projector, with_labels(information), read_as(by_head)
    ),
    "forward_forward": Row(
        "peer_normalisation: 0.1", partial(ff_parts, heads=False), partial(ff_learn, symba=False), ff_scores
    ),
    "forward_forward by activities": Row(
        "peer_normalisation: 0.1, loss: symba, alpha: 0.01, prediction: activities",
        partial(ff_parts, heads=True),
        partial(ff_learn, symba=True),
        ff_scores,
    ),
    "local_error_signals": Row(
        "beta: 0.9", les_parts, with_labels(partial(les, pred=0.1, sim=0.9, apart=False)), read_as(by_head)
    ),
    "local_error_signals by pred": Row(
        "loss: pred",
        lambda index: {"head": linear(index)},
        with_labels(partial(les, pred=1.0, sim=0.0, apart=False)),
        read_as(by_head),
    ),
    "local_error_signals by sim": Row(
        "loss: sim", les_parts, with_labels(partial(les, pred=1.0, sim=1.0, apart=True)), read_as(by_head)
    ),
    "mono_forward": Row(
        "",
        lambda index: {"m": linear(index, bias=False)},
        with_labels(lambda parts, h, y: cross_entropy(mono_forward(parts, h), y)),
        mono_scores,
    ),
    "noprop": Row("eta: 0.2, hidden: 6", noprop_parts, noprop_learn, noprop_scores, encoder=sample_encoder),
    "supervised_contrastive": Row(
        "projection_dim: 6, temperature: 0.2, label_smoothing: 0.1",
        scpl_parts,
        with_labels(scpl),
        read_as(by_head, last=True),
    ),
}
"""By the name of the method, and what tells further rows of it apart."""
SOLO = "copy_every: 3, heads: 2"
KINDS = {name: row.keys for name, row in ROWS.items() if " " not in name} | {"solo": SOLO}


def test_every_method_has_a_row() -> None:
    assert KINDS.keys() == METHODS.sections.keys()


def method(name: str) -> str:
    keys = ROWS[name].keys if name in ROWS else SOLO
    return f"method={{kind: {name.split()[0]}, {keys}}}"


# --- The mathematics ---


def batch(step: int) -> Tensors:
    numbers = torch.Generator().manual_seed(step)
    samples = torch.randn(BATCH, 2, 8, 8, generator=numbers, dtype=torch.float64)
    return {"s": samples, "labels": torch.randint(0, CLASSES, (BATCH,), generator=numbers)}


def plain_twin(component: Component, parts: dict[str, nn.Module]) -> Parts:
    """The parts of a component as plain modules, with its weights."""
    given = component.weights()
    for name, part in parts.items():
        own = [value.clone() for key, value in given.items() if key.startswith(f"{name}.")]
        part.to(torch.float64).load_state_dict(dict(zip(part.state_dict(), own, strict=True)))
    assert sum(len(part.state_dict()) for part in parts.values()) == len(given)
    return parts


@pytest.mark.parametrize("name", ROWS)
def test_weights_and_scores_are_those_of_the_equations(make_network: Callable[..., Network], name: str) -> None:
    row, lr = ROWS[name], 0.1 if ROWS[name].sgd else 0.01
    optimizer = f"optimizer={{kind: {'sgd' if row.sgd else 'adam'}, lr: {lr}}}"
    network = make_network(method(name), f"model.components={COMPONENTS}", "run.precision=float64", optimizer)
    components = [network.component(index, "cpu") for index in range(3)]
    encoder = row.encoder or plain_encoder
    plain = [plain_twin(each, {"f": encoder(index), **row.parts(index)}) for index, each in enumerate(components)]
    weights = [[weight for part in parts.values() for weight in part.parameters()] for parts in plain]
    optimizers = [torch.optim.SGD(own, lr) if row.sgd else torch.optim.Adam(own, lr) for own in weights]
    before = [{key: value.clone() for key, value in each.weights().items()} for each in components]
    work = work_of(components)
    for step in range(1, 6):
        forward(work, batch(step), step)
        told = backward(work)
        work.update(lr, step=step)
        incoming, losses = batch(step), []
        for index, parts in enumerate(plain):
            loss, outgoing = row.learn(parts, At(index, step, incoming))
            losses.append(loss)
            local = network.method.local_losses
            incoming = {key: value.detach() if local else value for key, value in outgoing.items()}
        for each in optimizers:
            each.zero_grad()
        sum(losses).backward()
        for each in optimizers:
            each.step()
        found = [sum(float(loss) for loss in of.values()) for of in told.values()]
        assert found == pytest.approx([float(loss.detach()) for loss in losses if loss.requires_grad], rel=1e-10)
    moved = torch.zeros(())
    for component, parts, initial in zip(components, plain, before, strict=True):
        for part, module in parts.items():
            own = {key: value for key, value in component.weights().items() if key.startswith(f"{part}.")}
            for (key, mine), expected in zip(own.items(), module.state_dict().values(), strict=True):
                torch.testing.assert_close(mine, expected, rtol=0, atol=1e-10)
                moved = moved + (mine - initial[key]).double().abs().sum()
    assert float(moved) > 0.1
    work.evaluation_mode(True)
    samples = batch(9)["s"]
    _, found = work.infer_up({"s": samples}, 10, 0)
    with torch.no_grad():
        wanted = row.scores([{key: part.eval() for key, part in parts.items()} for parts in plain], samples)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_solo_learns_by_its_equations_with_a_copy_of_the_last_readout(make_network: Callable[..., Network]) -> None:
    """Its encoders and causal layers are alray's own, which have other tests; no loss moves the copy."""
    data = "data={source: text, docstrings: true, tokens: bytes, context: 6, batch_size: 4}"
    tokens, setting = 11, (data, "task=next_token", "run.precision=float64", "optimizer={kind: sgd, lr: 0.1}")
    sample = Shape((6,), torch.int64, tokens=tokens)
    network = make_network(method("solo"), f"model.components={CAUSAL}", *setting, sample=sample, classes=tokens)
    components = [network.component(index, "cpu") for index in range(3)]
    assert all(isinstance(component, CopyingComponent) for component in components)
    given = components[-1].original()
    for component in components:
        component.take_copy(given)
        component.renew_copy()
    plain = [(copy.deepcopy(component.f.body), copy.deepcopy(component.head)) for component in components]
    work, numbers = work_of(components), torch.Generator().manual_seed(0)
    for step in range(1, 4):
        h, y = (torch.randint(0, tokens, (4, 6), generator=numbers) for _ in range(2))
        forward(work, {"s": h, "labels": y}, step)
        backward(work)
        work.update(0.1, step=step)
        for index, (f, head) in enumerate(plain):
            h = f(h)
            scores = head(h) if index == 2 else head.tau * (head.phi(h) @ given["readout"].T)
            weights = [*f.parameters(), *head.parameters()]
            gradients = torch.autograd.grad(cross_entropy(scores.flatten(0, 1), y.flatten()), weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight -= 0.1 * gradient
            h = h.detach()
    for component, (f, head) in zip(components, plain, strict=True):
        found, expected = (
            torch.cat([each.flatten() for each in own])
            for own in (component.parameters(), (*f.parameters(), *head.parameters()))
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


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
def test_the_encoders_of_an_auxiliary_network_by_hand(
    component: int, components: int, depth: int, expected: tuple[int, ...]
) -> None:
    """The fourth of eight components has 3 x 0.75 + 0.25 = 2.5 layers, rounded to 2, the seventh 2, of which there is
    one. The eleventh of twenty has 6 x (1 - 5/18) + 5/18 = 4.6, rounded to 5, each 9/5 above the one before."""
    assert above(component, components, depth=depth, pyramid=0.5) == expected


@pytest.mark.parametrize("first_share", [2, 5])
@pytest.mark.parametrize(
    "keys",
    [
        "{kind: decoupled_information, projection_dim: null, gather: true}",
        "{kind: local_error_signals, gather: true}",
        "{kind: supervised_contrastive, gather: true}",
    ],
)
def test_gathered_codes_have_the_gradient_of_the_whole_mini_batch(
    make_network: Callable[..., Network], keys: str, first_share: int
) -> None:
    """Two replicas' gradients, weighted by their shares, are those of one process, also of losses that are no
    comparison."""
    components = "model.components=[{block: mlp, widths: [8], activation: tanh, repeat: 2}]"
    network = make_network(f"method={keys}", components, "run.precision=float64", sample=(20,))
    samples, labels = torch.randn(8, 20, dtype=torch.float64), torch.arange(8) % 4

    def begun(rows: slice) -> tuple[ComparingComponent, Tensors]:
        component, incoming = network.component(0, "cpu"), {"s": samples[rows], "labels": labels[rows]}
        assert isinstance(component, ComparingComponent)
        component.encoder_step(incoming, 1)
        return component, incoming

    def gradient(component: ComparingComponent, incoming: Tensors) -> torch.Tensor:
        component.label_step(incoming)
        component.backward_step()
        return torch.cat([parameter.grad.flatten() for parameter in component.parameters()])

    expected = gradient(*begun(slice(0, 8)))
    replicas = [begun(slice(0, first_share)), begun(slice(first_share, 8))]
    rows = torch.cat([component.to_gather(incoming) for component, incoming in replicas])
    found = torch.zeros_like(expected)
    for (component, incoming), first in zip(replicas, (0, first_share), strict=True):
        component.take_gathered(rows, first)
        found += gradient(component, incoming) * len(incoming["s"]) / 8
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


# --- What a method says of itself is what its components do ---


OF_CLASSES = [kind for kind in KINDS if "classification" in METHODS.sections[kind].known_tasks()]
THREE = "model.components=[{block: vgg, channels: [4], repeat: 2}, {block: mlp, widths: [8]}]"


@pytest.mark.parametrize("kind", OF_CLASSES)
def test_what_is_listed_of_a_method_is_what_it_does(make_network: Callable[..., Network], kind: str) -> None:
    network, section = make_network(f"method={kind}", THREE), METHODS.sections[kind]
    turns = [network.component(index, "cpu").turn is not None for index in range(3)]
    assert section.trains and section.source and section.abbreviation
    assert turns == [network.ends_route(index) for index in range(3)] and turns[-1]
    assert network.depths == ((1, 2, 3) if section.every_depth else (3,))
    assert [network.num_routes(above) for above in range(4)] == [sum(turns[above:]) for above in range(4)]
    assert (network.method.compares_samples() is not None) == section.compares_samples()
    if section.local_losses:
        assert section.travels.split(", ") == ["s", *network.method.labels_out(0)]


def shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    return {name: (tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in tensors.items()}


def told(edge: Mapping[str, Shape]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    return {name: (tuple(shape), shape.dtype) for name, shape in edge.items()}


@pytest.mark.parametrize("kind", [kind for kind in OF_CLASSES if METHODS.sections[kind].local_losses])
def test_what_travels_is_what_the_method_says_and_has_no_gradient(
    make_network: Callable[..., Network], kind: str
) -> None:
    network = make_network(f"method={kind}", THREE, "run.precision=float64")
    incoming = {"s": torch.randn(6, 2, 8, 8, dtype=network.dtype), "labels": torch.arange(6) % 4}
    components = [network.component(index, "cpu") for index in range(3)]
    for index, component in enumerate(components):
        assert isinstance(component, LocalComponent)
        assert told(network.labels(index)) == shapes({name: incoming[name] for name in network.labels(index)})
        assert shapes(network.training_input(index, 6, "cpu")) == shapes(incoming)
        incoming = forward_step(component, incoming, 1)
        assert next(iter(incoming)) == "s" and shapes(incoming) == told(network.edge(index))
        assert not any(value.requires_grad for value in incoming.values())
    kept = {name: value.clone() for name, value in incoming.items()}
    components[2].backward_step()
    components[2].update_step(0.1)
    assert all(torch.equal(value, kept[name]) for name, value in incoming.items())
    for below in components[:2]:
        assert all(parameter.grad is None for parameter in below.parameters())
    outgoing = {"s": torch.randn(6, 2, 8, 8, dtype=network.dtype)}
    for index, component in enumerate(components):
        outgoing = component.eval().infer(outgoing, 0)
        if network.ends_route(index):
            route = component.code(outgoing)
            for below in range(index, -1, -1):
                assert route.shape[1:] == network.route_shape(below + 1)
                route = components[below].decode(route)
            assert route.shape == (6, 4) and network.route_shape(0) == (4,)


NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        layers = [layer for width in (128, 8, 8) for layer in (nn.Linear(width, 8), nn.Tanh())]
        super().__init__(nn.Flatten(), *layers, nn.Linear(8, 4))
"""
OF_MODEL = "model={from: 'python:own_blocks.Net', components: 3, freeze: ['3']}"


@pytest.mark.parametrize("kind", [kind for kind in OF_CLASSES if kind not in ("auglocal", "noprop")])
def test_what_is_frozen_stays_and_all_else_moves(make_network: Callable[..., Network], kind: str) -> None:
    """The two others take no model."""
    network = make_network(f"method={kind}", OF_MODEL, "optimizer={kind: sgd, lr: 0.1}", code=NET)
    work = work_of([network.component(index, "cpu") for index in range(3)])
    before = [[value.clone() for value in each.parameters()] for each in work.components]
    numbers = torch.Generator().manual_seed(0)
    forward(work, {"s": torch.randn(8, 2, 8, 8, generator=numbers), "labels": torch.arange(8) % 4}, 1)
    backward(work)
    work.update(0.1, step=1)
    for index, (component, initial) in enumerate(zip(work.components, before, strict=True)):
        moved: dict[str, list[bool]] = {}
        for (name, value), of_before in zip(component.named_parameters(), initial, strict=True):
            moved.setdefault(name.partition(".")[0], []).append(not torch.equal(value, of_before))
        assert {part: any(each) for part, each in moved.items()} == {part: (index, part) != (1, "f") for part in moved}


# --- Runs ---


COST = "{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}"
SPEC = f"""
name: law
seed: 3
data: {{source: synthetic, shape: [2, 8, 8], classes: 4, samples: 60, batch_size: 8, validation_fraction: 0.2}}
model: {{components: [{{block: linear, width: 8, repeat: 3}}]}}
optimizer: {{kind: adam, lr: 0.01}}
pipeline: {{costs: [{COST}, {COST}, {COST}]}}
run: {{steps: 6, evaluate_every: null, train: never, test: end, checkpoint: {{every: 3 steps}}}}
"""
TEXT = r"""
task: next_token
data: {source: text, file: law.txt, separator: "\n\n", context: 8, batch_size: 6, test_fraction: 0.2}
"""


def workshop_of(folder: Path, kind: str) -> Workshop:
    if kind != "solo":
        return Workshop(folder, SPEC)
    (folder / "law.txt").write_text(
        "".join(f"{number} and {number * number}\n\n" for number in range(80)), encoding="utf-8"
    )
    lines = [line for line in SPEC.splitlines() if not line.startswith(("data:", "model:"))]
    return Workshop(folder, "\n".join([*lines, TEXT, f"model: {{components: {CAUSAL}}}", ""]))


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_stages_nor_on_a_resume_and_go_out(
    tmp_path: Path, one_thread: None, counted_once: None, kind: str
) -> None:
    """On one stage, and on two whose run goes on on three; evaluated again and exported at its depths."""
    cut = () if METHODS.sections[kind].local_losses else ("pipeline.schedule=gpipe", "pipeline.micro_batches=2")
    workshop, keys = workshop_of(tmp_path, kind), (method(kind), *cut)
    whole = workshop.run(*keys, "pipeline.stages=1", name="whole")
    workshop.run(*keys, "pipeline.partition=[1,2]", "run.steps=3")
    resumed = workshop.resume("run.steps=6", "pipeline.partition=[1,1,1]")
    assert resumed.summary.weights_sha256 == whole.summary.weights_sha256 is not None
    assert resumed.summary.scores_per_depth == whole.summary.scores_per_depth
    depths = [1, 2, 3] if METHODS.sections[kind].every_depth else [3]
    accuracies = [(entry.depth, entry.test) for entry in resumed.summary.scores_per_depth]
    assert [depth for depth, _ in accuracies] == depths
    trained = TrainedNetwork(tmp_path / "run", allow_code=True)
    assert [(entry.depth, entry.test) for entry in evaluate(trained).scores] == accuracies
    samples = torch.randint(0, 50, (5, 8)) if kind == "solo" else torch.randn(5, 2, 8, 8)
    for depth in {depths[0], depths[-1]}:
        file = Path(export_route(trained, depth, "safetensors", tmp_path / f"{depth}.safetensors").file)
        with torch.no_grad():
            found, wanted = (
                route(samples.clone()) for route in (ExportedRoute(file, allow_code=True).route, trained.route(depth))
            )
        assert torch.equal(found, wanted)
