"""Associated Learning (AL; Kao and Chen 2021, Wu et al. 2022): each component learns to predict codes of the labels."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from alray.models.component import LocalComponent, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors, pass_on
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import Features, Pooling, Readout, with_activation
from alray.models.shape import Shape
from alray.models.task import LearningTask
from alray.parts.methods.associated_learning import Bridge


class AssociatedMethod(Method):
    """The fields are the keys of the section.

    Deviation: the authors' code for texts (Hibb-bb/AL on GitHub) has tanh after every label decoder in training, that
    of component 1 included, where the cross-entropy follows (`decoder_activation`, `first_decoder_activation`), dropout
    of 0.3 on what goes into the bridges and on the codes t_l, and an embedding with weights from N(0, 1) as the first
    label encoder. Here decoders are linear, nothing is dropped, and label encoders begin as linear layers of PyTorch
    do. What these cost was not measured. It trains with Adam at 1e-3.
    """

    def __init__(
        self,
        task: NetworkFacts,
        *,
        label_dim: int,
        label_activation: str,
        decoder_activation: str,
        first_decoder_activation: str,
        bridge: Bridge,
        first_label_loss: str,
        label_smoothing: float = 0.0,
        sampled_tokens: int | None = None,
    ) -> None:
        super().__init__(task)
        self.label_dim = label_dim
        self.label_activation = label_activation
        self.decoder_activation = decoder_activation
        self.first_decoder_activation = first_decoder_activation
        self.bridge = bridge
        self.first_label_loss = first_label_loss
        self.gives_shares = first_label_loss == "mse"
        self.label_smoothing = label_smoothing
        self.sampled_tokens = sampled_tokens
        if task.learning.section.label == "class" and label_dim < task.classes:
            self.notes = (
                f"method.label_dim is {label_dim}, fewer than the {task.classes} classes: the label chain has to tell "
                "them apart in so few numbers",
            )

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> AssociatedComponent:
        first = index == 0
        learning = self.task.learning
        width = self.task.classes if first else self.label_dim
        label_dim, activation = self.label_dim, self.label_activation
        return AssociatedComponent(
            index,
            f=f,
            b=make(
                "b",
                lambda: bridge(
                    facts.output,
                    label_dim=label_dim,
                    activation=activation,
                    pool=self.bridge.pool,
                    hidden=self.bridge.hidden,
                    pooling=facts.pooling,
                ),
            ),
            g=make(
                "g",
                lambda: with_activation(
                    learning.first_label_encoder(label_dim) if first else nn.Linear(width, label_dim), activation
                ),
            ),
            h=make(
                "h",
                lambda: with_activation(
                    nn.Linear(label_dim, width), self.first_decoder_activation if first else self.decoder_activation
                ),
            ),
            learning=learning if first else None,
            label_loss=self.first_label_loss if first else "mse",
            label_smoothing=self.label_smoothing,
            sampled_tokens=self.sampled_tokens if first else None,
            ignores=learning.ignores,
            optimizer=self.task.optimizer,
        )

    def labels_in(self, index: int) -> dict[str, Shape]:
        return self.given_labels if index == 0 else {"t": self._code}

    def labels_out(self, index: int) -> dict[str, Shape]:
        return {"t": self._code}

    def ends_route(self, index: int) -> bool:
        """Every depth is a route."""
        return True

    def route(self, above: int) -> Shape:
        return super().route(above) if above == 0 else self._code

    @property
    def _code(self) -> Shape:
        return Shape((*self.task.learning.score_shape[:-1], self.label_dim), self.task.dtype)


class AssociatedComponent(LocalComponent):
    """Encoder f, bridge b, label encoder g and label decoder h.

        t_l = g(t_{l-1})      autoencoder loss   d(h(t_l), t_{l-1})
        s_l = f(s_{l-1})      associated loss    MSE(b(s_l), stop(t_l))

    t_0 is the label as the task encodes it, in classification one-hot, and s_0 the input. The associated loss trains f
    and b, the autoencoder loss g and h. d is the task's loss (in classification the cross-entropy) or the mean squared
    error in the first component, and the latter in the others. A route goes up
    through f_1..f_l, turns by b_l and comes down through h_l..h_1. Source: Wu et al., ICLR 2022, section 3.
    """

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        b: nn.Module,
        g: nn.Module,
        h: nn.Module,
        learning: LearningTask | None,
        label_loss: str,
        label_smoothing: float,
        sampled_tokens: int | None,
        ignores: bool,
        optimizer: Recipe,
    ) -> None:
        """
        Args:
            learning: the task for the first component, which encodes labels; None for the others.
            label_loss: d, "mse" or anything else for the loss of the task.
            label_smoothing: of the cross-entropy, in [0, 1).
            sampled_tokens: how many tokens estimate the cross-entropy; None: all.
            ignores: whether positions may have no class; their codes are not a number, and have no loss.
        """
        super().__init__(index, f)
        self.b = b
        self.g = g
        self.h = h
        self.learning = learning
        self.label_loss = label_loss
        self.label_smoothing = label_smoothing
        self.sampled_tokens = sampled_tokens
        self.ignores = ignores
        self.train_with(optimizer, encoder=(f, b), label=(g, h))

    @property
    def turn(self) -> nn.Module:
        return self.b

    @property
    def decoder(self) -> nn.Module:
        return self.h

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        if self.learning is not None:
            # In the type of f's output: its input may be integers, such as word numbers.
            t_in = self.learning.encoded(incoming["labels"], encoded["s"].dtype)
        else:
            t_in = incoming["t"]
        t_out: torch.Tensor = self._coded(t_in)
        associated = self._squared_error(read(self.b, encoded), t_out.detach())
        target = incoming["labels"] if self.learning is not None and self.learning.compares_labels else t_in
        return {"associated": associated, "autoencoder": self._autoencoder(t_out, target)}, {"t": pass_on(t_out)}

    def _autoencoder(self, t_out: torch.Tensor, t_in: torch.Tensor) -> torch.Tensor:
        """d(h(t_out), t_in)."""
        if self.sampled_tokens is not None:
            layer = next(self.h.children())
            assert isinstance(layer, nn.Linear), "a label decoder begins with a linear layer"
            tokens = torch.randperm(layer.out_features, generator=self.generator("tokens"))[: self.sampled_tokens]
            return sampled_cross_entropy(t_out, t_in, layer, tokens.to(t_out.device))
        reconstruction = self.h(t_out.nan_to_num() if self.ignores else t_out)
        if self.learning is not None and self.label_loss != "mse":
            return self.learning.loss(reconstruction, t_in, self.label_smoothing)
        return self._squared_error(reconstruction, t_in)

    def _squared_error(self, values: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """The mean squared error; where positions may have no class, over those that have one."""
        if not self.ignores:
            return functional.mse_loss(values, wanted)
        without = wanted.isnan()
        errors = (values - wanted.nan_to_num()).square().masked_fill(without, 0.0)
        return errors.sum() / (~without).sum().clamp(min=1)

    def _coded(self, t_in: torch.Tensor) -> torch.Tensor:
        """g(t_in). Positions without a class are not a number on both sides."""
        without = t_in.isnan().any(-1, keepdim=True) if self.ignores else None
        codes: torch.Tensor = self.g(t_in if without is None else t_in.masked_fill(without, 0.0))
        return codes if without is None else codes.masked_fill(without, torch.nan)


def bridge(
    input: Shape, *, label_dim: int, activation: str, pool: int | None, hidden: int | None, pooling: Pooling = "mean"
) -> Readout:
    """b: `[N, *input] -> [N, label_dim]`; of each position by itself, `[N, T, D] -> [N, T, label_dim]`.

    Args:
        pool: see `Features`.
        hidden: width of a hidden layer, None for none; the activation follows every layer. The thesis uses linear 1000,
            sigmoid, linear 700, sigmoid on flattened maps; and linear 128, tanh on text.
    """
    features = Features(input, pool, pooling)
    layers: list[nn.Module] = [features]
    width = features.width
    if pooling == "none":
        layers.append(nn.LayerNorm(width))  # the residual stream of Transformers is not normalised before
    if hidden is not None:
        layers.append(with_activation(nn.Linear(width, hidden), activation))
        width = hidden
    layers.append(with_activation(nn.Linear(width, label_dim), activation))
    return Readout(*layers)


def sampled_cross_entropy(
    codes: torch.Tensor, targets: torch.Tensor, layer: nn.Linear, others: torch.Tensor
) -> torch.Tensor:
    """The cross-entropy of scores `s = layer(codes)` for `targets`, whose sum over all tokens V is estimated:

        -s_y + log(exp(s_y) + (V - 1) / n * sum of exp(s_j) over the n tokens j of `others` that are not y)

    This is importance sampling with equal chances (Bengio and Senecal, "Adaptive Importance Sampling to Accelerate
    Training of a Neural Probabilistic Language Model", IEEE Transactions on Neural Networks 2008, section III). With
    all tokens in `others` it is the cross-entropy itself.

    Args:
        codes: [N, T, D].
        targets: [N, T] int64.
        layer: D -> V.
        others: [n] int64, different tokens.
    """
    weight, bias = layer.weight, layer.bias.unsqueeze(1)
    of_target = (codes * functional.embedding(targets, weight)).sum(2) + functional.embedding(targets, bias).squeeze(2)
    scores = codes @ functional.embedding(others, weight).T + functional.embedding(others, bias).squeeze(1)
    is_target = targets.unsqueeze(2) == others
    counted = (len(others) - is_target.sum(2)).clamp(min=1)
    scale = math.log(layer.out_features - 1) - counted.log()
    rest = scores.masked_fill(is_target, -math.inf).logsumexp(2) + scale
    return (torch.logaddexp(of_target, rest) - of_target).mean()
