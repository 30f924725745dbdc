"""`Run.trained`: the trained network of a run, and what it can do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import nn

from alray.api.calls import api_errors, checked, defaults_of_torch
from alray.config.objects import NO_OBJECTS, Objects
from alray.core.errors import RequestError
from alray.core.storage.location import Location, location_of
from alray.data.form import SampleForm
from alray.inference.chosen_weights import RequestedWeights, Weights
from alray.inference.early import Format, format_of
from alray.inference.export import Exported, export_route
from alray.inference.generation import Generated, generate
from alray.inference.network import TrainedNetwork
from alray.inference.plain_network import PlainNetwork, plain_network
from alray.inference.requests import Evaluated, evaluate
from alray.inference.whole_model import model_alone
from alray.models.task import Prediction


class Trained:
    """The network of a run with the weights of one checkpoint.

    It is read from the run folder when it is first used, and stays in memory.
    """

    def __init__(
        self,
        folder: Location,
        requested: RequestedWeights,
        data: Sequence[str],
        *,
        allow_code: bool,
        objects: Objects = NO_OBJECTS,
    ) -> None:
        """The arguments as for `TrainedNetwork`."""
        self._requested = requested
        self._weights: Weights | None = None
        self._open = partial(TrainedNetwork, folder, data=data, allow_code=allow_code, objects=objects)

    def _read(self, **how: Any) -> TrainedNetwork:
        """The network, with the weights that were read before if any were; the arguments as for `TrainedNetwork`."""
        requested = self._requested if self._weights is None else RequestedWeights(step=self._weights.step)
        network = self._open(requested=requested, **how)
        if self._weights is None:
            self._weights = network.weights
        else:
            network.weights = self._weights  # which says how they were found
        return network

    @cached_property
    def _evaluating(self) -> TrainedNetwork:
        return self._read()

    @cached_property
    def _on_cpu(self) -> TrainedNetwork:
        return self._read(compiled=False, without_data=True, on_cpu=True)

    @cached_property
    def _predicting(self) -> TrainedNetwork:
        """On the device of the run."""
        return self._read(compiled=False, without_data=True)

    @property
    def weights(self) -> Weights:
        """Which weights these are: after how many mini-batches, and how they were found."""
        with api_errors(), defaults_of_torch():
            return self._weights or self._on_cpu.weights

    @checked
    def evaluate(self, *, depth: int | None = None) -> Evaluated:
        """Measure the metric of each route of inference, as `alray evaluate` does.

        Args:
            depth: that of one route; None: all.
        """
        return evaluate(self._evaluating, depth)

    @checked
    def network(self, depth: int | None = None) -> PlainNetwork:
        """The network as an ordinary `nn.Module` on the CPU, in evaluation mode: one that predicts what `evaluate`
        measures. The data are not opened.

        Args:
            depth: that of the route; None: the deepest.
        """
        return plain_network(self._on_cpu, depth)

    @checked
    def model(self) -> nn.Module:
        """The class that `model.from` names with the trained weights, on the CPU in float32, in evaluation mode.

        It gives the scores of the deepest route, which is compared on noise; of a regression they are standardised
        (`network().header.targets` has the numbers). The data are not opened.

        Raises:
            RequestError: if the class does not compute what the network does, as where a method trained readouts of its
                own; use `network` then.
        """
        return model_alone(self._on_cpu)

    @checked
    def activations(self, batch: ArrayLike | torch.Tensor, depth: int | None = None) -> list[torch.Tensor]:
        """What each component passes on for these samples, in order; see `PlainNetwork.activations`. No gradients.

        Args:
            batch: `[N, *sample]`, prepared as the network takes it: see `PlainNetwork.input`; on any device.
            depth: the number of components; None: those of the deepest route.

        Raises:
            RequestError: if the samples have another shape or type than those of the training.
        """
        network = self.network(depth)
        samples = torch.as_tensor(batch).cpu()
        _require_samples(samples, network)
        with torch.no_grad():
            return network.activations(samples)

    @checked
    def predict(self, inputs: str | Path | Sequence[str | Path], *, depth: int | None = None) -> list[Prediction]:
        """Predict pictures (files), rows of tables (files), or texts (files, or the texts themselves). The data of the
        training are not opened.

        Args:
            depth: that of the route; None: the deepest.
        """
        texts = [str(each) for each in ([inputs] if isinstance(inputs, str | Path) else inputs)]
        return self._predicting.predict(texts, depth)

    @checked
    def generate(
        self,
        prompt: str,
        *,
        tokens: int = 200,
        temperature: float = 1.0,
        seed: int = 0,
        depth: int | None = None,
    ) -> Generated:
        """Continue a text with a language model, as `alray predict --prompt`.

        Args:
            tokens: how many follow the prompt.
            temperature: the scores are divided by it; 0: always the most probable token.
            seed: of the tokens that are drawn.
            depth: as for `predict`.
        """
        return generate(
            self._predicting,
            prompt,
            tokens=tokens,
            temperature=temperature,
            depth=depth,
            seed=seed,
        )

    @checked
    def export(self, format: Format, output: str | Location | None = None, *, depth: int | None = None) -> Exported:
        """Write the inference route to a file, as `alray export` does. The data are not opened.

        Args:
            output: the file, on a disk; None: export/route-<depth> in the run folder, with the format's ending.
            depth: as for `predict`.

        Raises:
            RequestError: for an unknown format.
        """
        return export_route(self._on_cpu, depth, format_of(format), None if output is None else location_of(output))


def _require_samples(samples: torch.Tensor, network: PlainNetwork) -> None:
    """Raise RequestError if these are no samples of the network."""
    wanted = network.header.sample
    varies = not isinstance(network.input, SampleForm)  # a text may be shorter than the longest
    fits = samples.ndim == 1 + len(wanted) and (varies or tuple(samples.shape[1:]) == tuple(wanted))
    if not fits or samples.is_floating_point() != wanted.dtype.is_floating_point:
        sizes = "T" if varies else ", ".join(map(str, wanted))
        kind = "floating-point numbers" if wanted.dtype.is_floating_point else "whole numbers"
        raise RequestError(
            f"this is {list(samples.shape)} of {samples.dtype}; the network takes [N, {sizes}] of {kind}",
            key="batch",
            hint="prepare samples as in training: network().input says how",
        )
