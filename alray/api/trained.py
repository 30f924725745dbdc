"""`Run.trained`: the trained network of a run, and what it can do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

from alray.api.arguments import checked
from alray.api.calls import api_errors, require_one_of
from alray.config.loading.inputs import load_own_spec
from alray.config.objects import NO_OBJECTS, Objects
from alray.core.storage.location import Location, location_of
from alray.inference.export import FORMATS, Exported, Format, export_route
from alray.inference.generation import Generated, generate
from alray.inference.network import TrainedNetwork
from alray.inference.requests import Evaluated, evaluate
from alray.inference.weights import RequestedWeights, Weights
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
        self._folder = folder
        self._open = partial(
            TrainedNetwork, folder, requested=requested, data=data, allow_code=allow_code, objects=objects
        )

    @cached_property
    def _opened(self) -> TrainedNetwork:
        return self._open(compiled=False)

    @property
    def _network(self) -> TrainedNetwork:
        self._opened.configure()
        return self._opened

    @property
    def weights(self) -> Weights:
        """Which weights these are: after how many mini-batches, and how they were found."""
        with api_errors():
            return self._opened.weights

    @checked
    def evaluate(self, *, depth: int | None = None) -> Evaluated:
        """Measure the metric, time and size of each route of inference, as `alray evaluate` does.

        Args:
            depth: that of one route; None: all.
        """
        compiled = load_own_spec(self._folder).spec.run.compile  # then it is, to measure what the run measured
        return evaluate(self._open() if compiled else self._network, depth)

    @checked
    def predict(self, inputs: str | Path | Sequence[str | Path], *, depth: int | None = None) -> list[Prediction]:
        """Predict pictures (files), rows of tables (files), or texts (files, or the texts themselves).

        Args:
            depth: that of the route; None: the deepest.
        """
        texts = [str(each) for each in ([inputs] if isinstance(inputs, str | Path) else inputs)]
        return self._network.predict(texts, depth)

    @checked
    def generate(
        self,
        prompt: str,
        *,
        tokens: int = 200,
        temperature: float = 1.0,
        seed: int = 0,
        threshold: float | None = None,
        depth: int | None = None,
    ) -> Generated:
        """Continue a text with a language model, as `alray predict --prompt`.

        Args:
            tokens: how many follow the prompt.
            temperature: the scores are divided by it; 0: always the most probable token.
            seed: of the tokens that are drawn.
            threshold: in 0..1; a token leaves at the first depth whose most probable token has this probability.
            depth: as for `predict`.
        """
        return generate(
            self._network, prompt, tokens=tokens, temperature=temperature, depth=depth, seed=seed, threshold=threshold
        )

    @checked
    def export(self, format: Format, output: str | Location | None = None, *, depth: int | None = None) -> Exported:
        """Write the inference route to a file, as `alray export` does.

        Args:
            output: the file, on a disk; None: export/route-<depth> in the run folder, with the format's ending.
            depth: as for `predict`.

        Raises:
            RequestError: for an unknown format.
        """
        require_one_of(format, FORMATS, key="format")
        return export_route(self._network, depth, format, None if output is None else location_of(output))
