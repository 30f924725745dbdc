"""The scores of every depth of a model in its class, in plain torch: what `alray export --format state_dict` gives.

Nothing of alray is imported: this is what a user writes who has the class and the file. Each method below gives the
scores of one of alray's methods from the equations in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor
NORM = ("weight", "bias", "running_mean", "running_var")
ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


class PlainModel:
    """A model with its trained weights, and the readouts of its depths."""

    def __init__(self, model: nn.Module, file: Path, *, by_position: bool = False) -> None:
        """
        Args:
            by_position: whether each position has scores, as that of a token.
        """
        weights = torch.load(file, weights_only=True)
        about = weights._metadata["alray"]
        self.added = {name: weights.pop(name) for name in list(weights) if name.startswith("alray.")}
        model.load_state_dict(weights)  # strict: nothing is missing, and nothing is left
        self.model = model.eval()
        self.method: dict[str, Any] = about["spec"]["method"]
        self.classes = len(about["classes"])
        self.readouts = {each["depth"]: each for each in about["readouts"]}
        self.deepest: int = about["depth"]
        self.by_position = by_position

    @torch.no_grad()
    def scores(self, samples: Tensor, depth: int) -> Tensor:
        """By the route of this depth; of a regression, in the units of its targets."""
        if depth in self.readouts:
            found = getattr(self, f"_{self.method['kind']}", self._head)(samples, depth)
        else:
            found = self.model(samples)  # backpropagation trains the model's classifier
        if "alray.targets.mean" in self.added:
            found = found * self.added["alray.targets.std"] + self.added["alray.targets.mean"]
        return found

    # --- What a readout reads ---

    def features(self, samples: Tensor, change: Callable[[Tensor], Tensor] | None = None) -> dict[int, Tensor]:
        """What the readouts read, by depth: the output or the input of a module of the class.

        Args:
            change: makes of it what goes up to the modules above.
        """
        seen: dict[int, Tensor] = {}
        hooks = []
        for depth, readout in self.readouts.items():
            end, path = readout["reads"].split(" of ")
            module = self.model.get_submodule(path)

            def take(value: Tensor, depth: int = depth) -> Tensor:
                seen[depth] = value.movedim(3, 1) if self.readouts[depth]["channels_last"] else value.clone()
                return value if change is None else change(value)

            if end == "output":
                hooks.append(module.register_forward_hook(lambda _, __, given, take=take: take(given)))
            else:
                hooks.append(module.register_forward_pre_hook(lambda _, given, take=take: (take(given[0]), *given[1:])))
        self.model(samples)
        for hook in hooks:
            hook.remove()
        return seen

    def vector(self, value: Tensor, pool: int | None) -> Tensor:
        """`[N, features]`: maps are averaged over windows, at most `pool` in each direction, and positions too."""
        if value.ndim == 4 and pool is not None:
            for axis in (2, 3):
                size = max(value.shape[axis] // pool, 1)
                ends = [size * number for number in range(1, min(value.shape[axis], pool))]
                value = torch.stack([window.mean(axis) for window in value.tensor_split(ends, axis)], axis)
        if value.ndim == 3:
            return value if self.by_position else value.mean(1)
        return value.flatten(1)

    # --- Readouts ---

    def part(self, depth: int, name: str) -> dict[str, Tensor]:
        begins = f"alray.readout.{depth}.{name}."
        return {each.removeprefix(begins): value for each, value in self.added.items() if each.startswith(begins)}

    def layers(self, value: Tensor, weights: dict[str, Tensor], activation: str | None) -> Tensor:
        """Linear layers, and a norm of tokens, by number. A layer such as `1.0.weight` has an activation after it."""
        for layer in sorted(name.removesuffix(".weight") for name in weights if name.endswith("weight")):
            weight, bias = weights[f"{layer}.weight"], weights.get(f"{layer}.bias")
            if weight.ndim == 1:
                value = functional.layer_norm(value, weight.shape, weight, bias)
            else:
                value = functional.linear(value, weight, bias)
            if "." in layer:
                value = ACTIVATIONS.get(activation, lambda value: value)(value)
        return value

    def _head(self, samples: Tensor, depth: int) -> Tensor:
        return self._of_head(self.features(samples)[depth], self.part(depth, "head"))

    def _of_head(self, value: Tensor, weights: dict[str, Tensor]) -> Tensor:
        head = self.method.get("head", "auto")
        head = {"pool": 4, "activation": None} if head == "auto" else head
        return self.layers(self.vector(value, head["pool"]), weights, head["activation"])

    def _decoupled_information(self, samples: Tensor, depth: int) -> Tensor:
        value = self.vector(self.features(samples)[depth], 4)
        if self.method["projection_dim"] is None:
            value = value.tanh()
        for weights in (self.part(depth, "turn.p"), self.part(depth, "turn.head")):
            for layer in sorted({name.rpartition(".")[0] for name in weights}):
                value = self.normalised_layer(value, {name: weights.get(f"{layer}.{name}") for name in NORM})
        return value

    @staticmethod
    def normalised_layer(value: Tensor, named: dict[str, Tensor | None]) -> Tensor:
        """A linear layer, or a batch normalisation with ReLU behind it."""
        weight, bias, mean, variance = (named[name] for name in NORM)
        assert weight is not None
        if mean is None:
            return functional.linear(value, weight, bias)
        return functional.batch_norm(value, mean, variance, weight, bias).relu()

    def _associated_learning(self, samples: Tensor, depth: int) -> Tensor:
        value = self.vector(self.features(samples)[depth], self.method["bridge"]["pool"])
        code = self.layers(value, self.part(depth, "b"), self.method["label_activation"])
        for down in range(depth, 0, -1):
            decoder = self.part(down, "h")
            activation = self.method["decoder_activation" if down > 1 else "first_decoder_activation"]
            code = functional.linear(code, decoder["0.weight"], decoder["0.bias"])
            code = ACTIVATIONS.get(activation, lambda value: value)(code)
        return code

    def _mono_forward(self, samples: Tensor, depth: int) -> Tensor:
        features = self.features(samples)
        depths = range(1 if self.method["prediction"] == "sum" else depth, depth + 1)
        return torch.stack(
            [self.layers(self.vector(features[each], 4), self.part(each, "m"), None) for each in depths]
        ).sum(0)

    def _channel_goodness(self, samples: Tensor, depth: int) -> Tensor:
        squares = self.vector(self.features(samples)[depth].square(), 1)
        goodness: Tensor = squares.unflatten(1, (self.classes, -1)).mean(2)
        return goodness

    def _forward_forward(self, samples: Tensor, depth: int) -> Tensor:
        def of_one_length(rows: Tensor) -> Tensor:
            lengths = rows.flatten(1).square().mean(1).sqrt() + 1e-8
            return rows / lengths.view(-1, *[1] * (rows.ndim - 1))

        neutral = self.method["prediction"] == "activities"
        labels = torch.full((1, self.classes), 1 / self.classes) if neutral else torch.eye(self.classes)
        rows = samples.flatten(1).unsqueeze(1).repeat(1, len(labels), 1)
        rows[:, :, : self.classes] = labels
        features = self.features(of_one_length(rows.view(-1, *samples.shape[1:])), of_one_length)
        total = torch.zeros(())
        for each in range(min(depth, 2), depth + 1):
            if neutral:
                readout = {name.removeprefix("readout."): value for name, value in self.part(each, "head").items()}
                total = total + self._of_head(of_one_length(features[each]), readout)
            else:
                total = total + features[each].flatten(1).square().sum(1).view(-1, self.classes)
        return total

    def _solo(self, samples: Tensor, depth: int) -> Tensor:
        """Below the last depth: causal layers and a norm, and a copy of the last readout."""
        if depth == self.deepest:
            return self._head(samples, depth)
        weights, s = self.part(depth, "head"), self.features(samples)[depth]

        def linear(name: str, value: Tensor) -> Tensor:
            return functional.linear(value, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def norm(name: str, value: Tensor) -> Tensor:
            return functional.rms_norm(value, value.shape[2:], weights[f"{name}.weight"], 1e-5)

        for layer in range(2):
            path = f"phi.0.layers.{layer}"
            parts = linear(f"{path}.attention.mix", norm(f"{path}.attention_norm", s)).chunk(3, 2)
            query, key, value = (each.unflatten(2, (self.method["heads"], -1)).transpose(1, 2) for each in parts)
            mixed = (
                functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
            )
            s = s + linear(f"{path}.attention.output", mixed)
            hidden = functional.gelu(linear(f"{path}.feedforward.input", norm(f"{path}.feedforward_norm", s)))
            s = s + linear(f"{path}.feedforward.output", hidden)
        return weights["tau"] * functional.linear(norm("phi.1", s), weights["copy"])
