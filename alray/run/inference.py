"""The trained network of a run folder, for evaluation and prediction in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from alray.errors import CheckpointError, RequestError
from alray.records import DepthAccuracy
from alray.run.folder import latest_manifest, require_run_dir
from alray.run.job import Job
from alray.spec.loading import load_spec
from alray.stage import device as devices
from alray.stage.assignment import start_from
from alray.stage.checkpoint import load_component
from alray.stage.evaluation import Evaluator
from alray.stage.stage import Stage, make_stage
from alray.stage.user_code import UserCode


@dataclass(frozen=True)
class Prediction:
    """What a route says of one input. `score` is the share the softmax of the class scores gives the label."""

    input: str
    label: str
    class_index: int
    score: float
    depth: int


class TrainedNetwork:
    """All components of a run's last checkpoint on one device, in evaluation mode."""

    def __init__(self, run_dir: Path, *, allow_code: bool) -> None:
        """Raises CheckpointError where the folder holds no complete checkpoint, or a damaged one."""
        run_dir = require_run_dir(run_dir)
        spec = load_spec(run_dir / "spec.yaml").spec
        manifest = latest_manifest(run_dir)
        if manifest is None:
            raise CheckpointError(
                "this run has no complete checkpoint", file=str(run_dir), mend="go on with it: `alray resume`"
            )
        # The layout of training says nothing here: all components are on one device.
        self.job = Job.of(spec, UserCode(run_dir / "code", allow_elsewhere=allow_code))
        self.step: int = manifest["step"]
        self.device = self.job.device
        devices.settle(spec.resources.threads, spec.run.deterministic)
        start = start_from(run_dir, manifest)
        assert start.folder is not None
        components = [self.job.network.component(index, self.device) for index in range(len(self.job.network))]
        for component in components:
            load_component(component, start.folder, dict(start.hashes), optimizer=False)
        self._stage: Stage = make_stage(components)
        self._stage.evaluation_mode(True)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depths of the routes, shallowest first; backpropagation has only the whole network."""
        deepest = len(self.job.network)
        return tuple(range(1, deepest + 1)) if self.job.spec.method.kind != "backpropagation" else (deepest,)

    def scores(self, samples: torch.Tensor, batch: int) -> list[torch.Tensor]:
        """Class scores `[N, classes]` of every route for samples `[N, ...]`."""
        dtype = self.job.network.dtype if samples.is_floating_point() else samples.dtype
        _, routes = self._stage.infer_up(samples.to(self.device, dtype), self.step, batch)
        return routes

    def evaluate(self, splits: Sequence[str]) -> list[DepthAccuracy]:
        """Accuracy of every route on these splits, those that the data has."""
        evaluator = Evaluator(self.job.data, tuple(splits), num_components=len(self.job.network))
        for number, batch in enumerate(evaluator):
            evaluator.take(number, self.scores(batch.samples, number))
        return evaluator.accuracies()

    def predict(self, inputs: Sequence[Path], depth: int | None) -> list[Prediction]:
        """What the route of this depth (the deepest where None) says of each picture file."""
        depth = self.require_depth(depth)
        predictions = []
        for number, path in enumerate(inputs):
            sample = self.job.data.read_image(path).unsqueeze(0)
            scores = self.scores(sample, number)[self.depths.index(depth)][0]
            shares = torch.softmax(scores.double(), 0)
            best = int(scores.argmax())
            predictions.append(Prediction(str(path), self.job.data.classes[best], best, float(shares[best]), depth))
        return predictions

    def require_depth(self, depth: int | None) -> int:
        """The depth, or the deepest for None. Raises RequestError where there is no such route."""
        if depth is None:
            return self.depths[-1]
        if depth not in self.depths:
            raise RequestError(
                f"there is no route of depth {depth}",
                key="--depth",
                mend=f"the depths of this run are {self.depths[0]} to {self.depths[-1]}"
                if len(self.depths) > 1
                else f"backpropagation has one route: {self.depths[0]}",
            )
        return depth
