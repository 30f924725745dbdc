"""NoProp (Li, Teh and Pascanu 2025): each component denoises an embedding of the label, from the sample itself."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from alray.models.component import LocalComponent, Passage, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import Features
from alray.models.shape import Shape

_OFFSET = 0.008  # of the cosine, and the least alpha: Nichol and Dhariwal, ICML 2021, section 3.2
_LEAST_ALPHA = 0.001


class NoPropMethod(Method):
    """The fields are the keys of the section. The only route is the whole network.

        u_y         = one-hot y                                   embedding of the label, fixed, [J]
        alpha'_t    = alpha_t * ... * alpha_T                     from near 0 (t = 0) to near 1 (t = T), by a cosine
        z_{t-1}     = sqrt(alpha'_{t-1}) u_y + sqrt(1 - alpha'_{t-1}) e,  e ~ N(0, I)      drawn directly, not computed
        v_t         = softmax(p_t(f_t(x), z_{t-1}))               what component t takes u_y to be
        L_t         = T/2 eta (SNR_t - SNR_{t-1}) |v_t - u_y|^2,  SNR_t = alpha'_t / (1 - alpha'_t); it trains f_t, p_t
        CE(o(z_T), y), z_T drawn likewise                         trains the classifier o of the last component
        pass on x
        prediction  z_0 ~ N(0, I), then z_t = a_t v_t + b_t z_{t-1} + sqrt(c_t) e_t, and argmax of o(z_T)
            a_t = sqrt(alpha'_t) (1 - alpha_{t-1}) / (1 - alpha'_{t-1})
            b_t = sqrt(alpha_{t-1}) (1 - alpha'_t) / (1 - alpha'_{t-1})
            c_t = (1 - alpha'_t) (1 - alpha_{t-1}) / (1 - alpha'_{t-1})

    It is the discrete-time form, NoProp-DT, with embeddings that do not learn. The term KL(q(z_0|y) || N(0, I)) of the
    loss is then a constant and is left out. T is the number of components. All encoders take the sample x, which goes
    up unchanged: no component needs what another one has computed. f_t reads x, and p_t has linear layers on the
    features of x and on z. In training the noise e is drawn from (seed, component, mini-batch, position). In inference
    z_0 and e_t are drawn once for each network and are the same for all samples: they are buffers of p_t, so a
    prediction depends on weights and sample alone, and an exported route gives the same one.

    Pitfalls: an encoder gets no features of another, so a block of `model.components` needs several layers. With few
    components alpha'_T is far from 1, and z_T is noisy: use ten, as the paper does. The weights of the losses grow with
    t; Adam hides that, SGD does not. The paper also learns embeddings, by the losses of all components together, which
    is not local.

    Deviation: the authors' code is not public, and reproductions differ. Where alpha'_t grows with t, as the paper's
    weights need it, they cut alpha'_t or SNR_t off near t = T. Here the levels are those of T + 1 steps without the
    first, so that SNR_T is finite. In inference the paper draws noise for each sample; here all samples have the same.
    Without code of the authors the cost of either is not known.

    Published test accuracy of NoProp-DT in percent: MNIST 99.5, CIFAR-10 79.25, CIFAR-100 46; a reproduction 99.5, 78.4
    and 53.5. arXiv 2503.24322.
    """

    encoders_take_samples = True

    def __init__(self, task: NetworkFacts, *, eta: float, hidden: int) -> None:
        super().__init__(task)
        self.eta = eta
        self.hidden = hidden

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> NoPropComponent:
        components, classes = self.task.num_components, self.task.classes
        noise = Noise(components, index + 1)
        last = index == components - 1

        def denoiser() -> Denoiser:
            return Denoiser(facts, noise, classes=classes, hidden=self.hidden, first=index == 0, last=last)

        return NoPropComponent(
            index,
            f=f,
            p=make("p", denoiser),
            o=make("o", lambda: OfEmbedding(classes, classes)) if last else None,
            noise=noise,
            eta=self.eta,
            classes=classes,
            optimizer=self.task.optimizer,
        )

    def goes_up(self, facts: EncoderFacts, *, training: bool = True) -> dict[str, Shape]:
        sample = {"s": facts.input} | facts.takes_along
        return sample if training else sample | {"z": self.route(0)}


class Noise:
    """The noise of component t of T: how much its input and its output have, and what its step of inference adds."""

    def __init__(self, components: int, t: int) -> None:
        """
        Args:
            components: T.
            t: from 1.
        """
        levels = noise_levels(components)
        before, self.after = levels[t - 1], levels[t]
        self.before = before
        alpha = before / self.after  # alpha_{t-1}
        self.of_estimate = math.sqrt(self.after) * (1 - alpha) / (1 - before)
        self.of_input = math.sqrt(alpha) * (1 - self.after) / (1 - before)
        self.added = math.sqrt((1 - self.after) * (1 - alpha) / (1 - before))
        self.weight = components / 2 * (self.after / (1 - self.after) - before / (1 - before))


def noise_levels(components: int) -> list[float]:
    """alpha'_0, ..., alpha'_T: the share of the signal in the variance of z_t."""

    def cosine(share: float) -> float:
        return math.cos((share + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2

    levels = [cosine(1 / (components + 1)) / cosine(0)]
    for t in range(components - 1, -1, -1):
        alpha = cosine((components + 1 - t) / (components + 1)) / cosine((components - t) / (components + 1))
        levels.append(levels[-1] * max(alpha, _LEAST_ALPHA))
    return levels[::-1]


def noised(embedding: torch.Tensor, level: float, noise: torch.Tensor) -> torch.Tensor:
    """A draw of q(z|y): `[N, J]`.

    Args:
        level: alpha'.
        noise: from N(0, I), like `embedding`.
    """
    return math.sqrt(level) * embedding + math.sqrt(1 - level) * noise


class Denoiser(Passage):
    """p: from features of the sample and a noised embedding to the embedding; and the step of inference by it."""

    start: torch.Tensor
    noise: torch.Tensor

    def __init__(
        self, facts: EncoderFacts, noise: Noise, *, classes: int, hidden: int, first: bool, last: bool
    ) -> None:
        """
        Args:
            hidden: width of all layers but the last.
            first: whether inference begins here.
            last: whether it ends here.
        """
        super().__init__()
        self.features = Features(facts.output, 4, facts.pooling)
        self.of_sample = nn.Linear(self.features.width, hidden)
        self.of_embedding = nn.Linear(classes, hidden)
        self.of_both = nn.Linear(2 * hidden, hidden)
        self.scores = nn.Linear(hidden, classes)
        self.register_buffer("noise", torch.randn(classes))
        if first:
            self.register_buffer("start", torch.randn(classes))
        self.by = noise
        self.first = first
        self.last = last
        self.writes_input = facts.writes_input

    def forward(self, s: torch.Tensor, z: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """v: `[N, J]`.

        Args:
            s: what the encoder gives.
            z: [N, J].
            mask: [N, T] bool, where `s` is a sequence [N, T, D] whose rows differ in length.
        """
        of_sample = functional.relu(self.of_sample(self.features(s, mask)))
        of_embedding = functional.relu(self.of_embedding(z))
        both = functional.relu(self.of_both(torch.cat([of_sample, of_embedding], 1)))
        v: torch.Tensor = self.scores(both).softmax(1)
        return v

    def before(self, incoming: Tensors) -> Tensors:
        taken = _sample(incoming)
        if self.writes_input:
            taken["s"] = taken["s"].clone()  # the components above need it
        return taken

    def after(self, incoming: Tensors, encoded: Tensors) -> Tensors:
        s = encoded["s"]
        z = self.start.expand(s.shape[0], -1) if self.first else incoming["z"]
        v = self(s, z, encoded.get("mask"))
        z = self.by.of_estimate * v + self.by.of_input * z + self.by.added * self.noise
        return {"s": z} if self.last else _sample(incoming) | {"z": z}


def _sample(incoming: Tensors) -> Tensors:
    return {name: incoming[name] for name in ("s", "mask") if name in incoming}


class OfEmbedding(nn.Linear):
    """o: `[N, J] -> [N, classes]`."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: of the texts that were read; it has no meaning here.
        """
        return super().forward(s)


class NoPropComponent(LocalComponent):
    """Encoder f of the sample and denoiser p; the last component also has a classifier o of embeddings."""

    apart = ("o",)

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        p: nn.Module,
        o: nn.Module | None,
        noise: Noise,
        eta: float,
        classes: int,
        optimizer: Recipe,
    ) -> None:
        """
        Args:
            p: a `Denoiser`.
            o: None for all components but the last.
        """
        super().__init__(index, f)
        assert isinstance(p, Denoiser)
        self.p = p
        self.o = o
        self.by = noise
        self.eta = eta
        self.classes = classes
        self.train_with(optimizer, encoder=(f, p) if o is None else (f, p, o))

    @property
    def passage(self) -> Denoiser:
        return self.p

    @property
    def turn(self) -> nn.Module | None:
        return self.o

    def passed_up(self, incoming: Tensors, encoded: Tensors) -> Tensors:
        return _sample(incoming)

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels = incoming["labels"]
        embedding = functional.one_hot(labels, self.classes).to(encoded["s"].dtype)
        z = noised(embedding, self.by.before, self._noise(embedding, "noise"))
        v = self.p(encoded["s"], z, encoded.get("mask"))
        losses = {"denoising": self.eta * self.by.weight * (v - embedding).square().sum(1).mean()}
        if self.o is not None:
            z = noised(embedding, self.by.after, self._noise(embedding, "last noise"))
            losses["cross_entropy"] = functional.cross_entropy(read(self.o, {"s": z}), labels)
        return losses, {"labels": labels}

    def _noise(self, like: torch.Tensor, purpose: str) -> torch.Tensor:
        def draw(samples: int, generator: torch.Generator) -> torch.Tensor:
            return torch.randn(samples, self.classes, generator=generator, device="cpu")

        return self.drawn(draw, purpose, self.index).to(like.dtype)
