"""Predict with a route that `alray export --format safetensors` wrote, without the run folder and its data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from alray.config.loading.own_files import own_files
from alray.config.sections.grammar import marked
from alray.config.sections.own_code import OwnClass
from alray.config.user_code import UserCode
from alray.core.errors import CheckpointError, RequestError
from alray.data.form import TextForm
from alray.inference.chosen_weights import Weights
from alray.inference.route_header import HEADER, RouteHeader, parse_header
from alray.models.route import route_of
from alray.models.task import LearningTask, Prediction
from alray.models.token_embedding import PADDING


class ExportedRoute:
    """One route, loaded from a file onto the CPU."""

    def __init__(self, file: Path, *, allow_code: bool) -> None:
        """The user's blocks are loaded from the file's folder, if that is allowed.

        Raises CheckpointError if alray did not export the file, or if it is damaged. Raises RequestError if the route
        has blocks of a user and `allow_code` is not set: nothing tells whose files these are.
        """
        text, weights = _read(file)
        self.header: RouteHeader = parse_header(text, str(file))
        self.weights = Weights(self.header.step, "exported")
        folder = file.resolve().parent
        references = [reference for _, reference, _ in marked(self.header.whole_spec(), OwnClass)]
        if references and not allow_code:
            files = sorted(map(str, own_files(references, folder)))
            raise RequestError(
                f"code of a user does not run unless it is allowed: {', '.join(references)}"
                + (f", in {', '.join(files)}" if files else ""),
                file=str(file),
                key="--allow-code",
                hint="put the modules next to the file, read them, and pass --allow-code",
            )
        network = self.header.network(UserCode(folder, allow_elsewhere=allow_code, is_copy=True))
        self.learning: LearningTask = network.method.task.learning
        depth = self.header.depth
        self.route = route_of([network.component(index, "cpu") for index in range(depth)], depth)
        try:
            self.route.load_state_dict(weights)
        except RuntimeError as error:
            raise CheckpointError(
                f"the weights do not fit the header: {error}", file=str(file), hint="export the run anew"
            ) from error

    @torch.no_grad()
    def predict(self, inputs: Sequence[str], depth: int | None) -> list[Prediction]:
        """Predict each input (see `TrainedNetwork.predict`).

        Args:
            depth: the depth of the route in the file, or None.

        Raises:
            RequestError: for another one.
        """
        header = self.header
        self.require_depth(depth)
        predictions = []
        for given, sample in chain.from_iterable(map(header.input.inputs().read, inputs)):
            samples = sample.unsqueeze(0)
            mask = samples != PADDING if isinstance(header.input, TextForm) else None
            scores = self.route(samples, mask)[0]
            scores = scores if header.targets is None else header.targets.in_units(scores)
            predictions.append(self.learning.prediction(given, scores, header.classes, header.depth))
        return predictions

    def require_depth(self, depth: int | None) -> int:
        """The depth of the route. Raises RequestError if another one is asked for."""
        if depth not in (None, self.header.depth):
            raise RequestError(
                f"this file holds only the route of depth {self.header.depth}",
                key="--depth",
                hint="leave it out, or export that depth",
            )
        return self.header.depth


def _read(file: Path) -> tuple[str, dict[str, torch.Tensor]]:
    """The header's text and the weights by name."""
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # not a mapping
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"this is neither a run folder nor a safetensors file: {error}",
            file=str(file),
            hint="give a run folder, or what `alray export RUN --format safetensors` wrote",
        ) from error
    if HEADER not in metadata:
        raise CheckpointError(
            "this safetensors file was not written by `alray export`",
            file=str(file),
            hint="give a run folder, or what `alray export RUN --format safetensors` wrote",
        )
    return metadata[HEADER], weights
