"""The trained network of a run folder, for evaluation and prediction in this process."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from itertools import chain
from typing import Any

import torch

from alray.config.loading.inputs import load_own_spec, names_code
from alray.config.objects import NO_OBJECTS, Objects, require_objects
from alray.config.sections.own_code import OwnCode
from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core.errors import CheckpointError, RequestError, UserCodeError
from alray.core.run_folder.data_identity import OF_WEIGHTS
from alray.core.run_folder.records import DepthScores, model_of
from alray.core.run_folder.store import data_of, require_run_dir
from alray.core.storage.location import Location
from alray.data.batches import Batch, EvaluationBatches
from alray.data.dataset import Dataset
from alray.data.form import DataForm, SampleForm, form_in
from alray.data.inputs import Inputs
from alray.data.opening import make_source
from alray.data.source import Source
from alray.inference.chosen_weights import LAST, RequestedWeights, find_weights
from alray.inference.data_locations import OPTION, how_to_name, spec_of
from alray.models.precision import require_precision, restore
from alray.models.route import Route, route_of
from alray.models.task import LearningTask, Prediction
from alray.runtime.device import devices
from alray.runtime.stage.assemble import work_of
from alray.runtime.stage.checkpoint import CheckpointFiles, load_component
from alray.runtime.stage.inference import Evaluator
from alray.runtime.stage.work.work import Work
from alray.runtime.workload import Workload


class TrainedNetwork:
    """All components of one checkpoint of a run on one device, in evaluation mode."""

    def __init__(
        self,
        run_dir: Location,
        *,
        allow_code: bool,
        requested: RequestedWeights = LAST,
        data: Sequence[str] = (),
        compiled: bool = True,
        objects: Objects = NO_OBJECTS,
        without_data: bool = False,
        on_cpu: bool = False,
    ) -> None:
        """Raises CheckpointError if the folder holds no complete checkpoint, or a damaged one, RequestError if it holds
        none as asked, and DataError if the data are not there or the network was not trained on such data.

        Args:
            data: where files of the data lie now, as for `spec_of`.
            compiled: whether to compile as the run did. That needs a compiler and time, and gives the bits of the run.
            objects: that a Python program gave.
            without_data: whether the data stay closed. Then nothing is evaluated by this object.
            on_cpu: whether only the routes of this object are used: on the CPU, with torch's settings as they are.
        """
        self.run_dir = run_dir = require_run_dir(run_dir)
        manifest, self.weights = find_weights(run_dir, requested)
        spec = load_own_spec(run_dir).spec
        self.form = form_in(run_dir)
        # Otherwise the source reads what is predicted.
        closed = without_data and (on_cpu or self.form.reads_files or isinstance(spec.data, OwnCode))
        form = self.form if closed else None
        spec = spec_of(run_dir, data, closed=closed)
        if not compiled:
            spec = spec.model_copy(update={"run": spec.run.model_copy(update={"compile": False})})
        require_objects(spec, objects, run_dir, besides=("data",) if closed else ())
        code = UserCode.of_run(run_dir, allow=allow_code, named=names_code(spec), objects=objects)
        elsewhere = how_to_name(spec.data)
        self.workload = _opened(spec, code, elsewhere, form, run_dir)
        self.workload.require_same_model(model_of(run_dir), "this run", warnings.warn)
        self._require_same = partial(
            self.workload.facts.identity.require_same,
            data_of(manifest),
            "this run",
            key=OPTION if data else "data",
            hint="restore them" if elsewhere is None else f"restore them, or {elsewhere}",
        )
        self._require_same(fields=OF_WEIGHTS)
        self.device = torch.device("cpu") if on_cpu else self.workload.device
        if not on_cpu:
            require_precision(
                spec.run.precision, self.device, "use a newer GPU, or hide it to compute on the processor"
            )
        with nullcontext() if on_cpu else self.configured():
            self.components = [
                self.workload.network.component(index, self.device) for index in range(len(self.workload.network))
            ]
            self._load(run_dir, manifest, requested)
        self.step = self.weights.step
        self._work: Work = work_of(self.components)
        self._work.evaluation_mode(True)

    def configured(self) -> AbstractContextManager[None]:
        """Inside, this process computes as the run did; afterwards it has its settings and random numbers again. Both
        are of the whole process, so one thread at a time is inside."""
        spec = self.workload.spec
        return devices.configured(
            spec.resources.threads, spec.run.deterministic, self.device, spec.resources.tf32, keeps_memory=True
        )

    def _load(self, run_dir: Location, manifest: dict[str, Any], requested: RequestedWeights) -> None:
        """Load the weights, which are found again if a run in progress has deleted them meanwhile."""
        files = CheckpointFiles.of(run_dir, manifest)
        try:
            for component in self.components:
                load_component(component, files, optimizer=False)
        except CheckpointError:
            newer, self.weights = find_weights(run_dir, requested)
            if newer["step"] == manifest["step"]:
                raise
            self._load(run_dir, newer, requested)

    @property
    def learning(self) -> LearningTask:
        """What the network learnt."""
        return self.workload.network.method.task.learning

    @property
    def depths(self) -> tuple[int, ...]:
        """Depths of the routes, shallowest first."""
        return self.workload.network.depths

    def route(self, depth: int) -> Route:
        """The route of this depth as one module. It shares its weights with this network."""
        return route_of(self.components, self.require_depth(depth))

    def route_in_full(self, depth: int) -> Route:
        """A copy of the route of this depth, on the CPU in float32 throughout."""
        route = copy.deepcopy(self.route(depth)).to("cpu", torch.float32)
        restore(route)
        return route

    def scores(self, batch: Batch, number: int) -> list[torch.Tensor]:
        """Scores `[N, outputs]` of every route, for batch `number` of an evaluation."""
        tensors = batch.inputs(self.device, self.workload.network.dtype)
        _, routes = self._work.infer_up(tensors, self.step, number)
        return routes

    def evaluate(self, splits: Sequence[str], note: Callable[[str], None] = lambda line: None) -> list[DepthScores]:
        """The metric of every route on those of these splits that the data has.

        Raises DataError if the validation split would have other samples than in the run: it may have learnt them.

        Args:
            note: takes a sentence about what the metric says nothing of.
        """
        if "validation" in splits and self.workload.data.validation is not None:
            self._require_same()
        evaluator = Evaluator(self.workload.data, tuple(splits), depths=self.depths)
        with self.configured():
            for number, batch in enumerate(evaluator):
                evaluator.take(number, self.scores(batch, number))
        scores = evaluator.scores()
        for line in evaluator.told(scores):
            note(line)
        return scores

    def predict(self, inputs: Sequence[str], depth: int | None) -> list[Prediction]:
        """Predict each input by the route of this depth (None: the deepest).

        An input is the path of an image file, or of a table, each row of which is predicted. For text it is a document,
        or the path of a file that holds one. A language model gives the next token after its end.
        """
        depth, data = self.require_depth(depth), self.workload.data
        predictions = []
        with self.configured():
            for number, (given, sample) in enumerate(chain.from_iterable(map(self.inputs.read, inputs))):
                samples = sample.unsqueeze(0)
                mask = data.train.mask(samples)
                batch = Batch(number, samples, torch.zeros(1, dtype=torch.int64), mask)
                scores = self.scores(batch, number)[self.depths.index(depth)][0]
                if self.form.targets is not None:
                    scores = self.form.targets.in_units(scores)
                predictions.append(self.learning.prediction(given, scores, data.classes, depth))
        return predictions

    @cached_property
    def inputs(self) -> Inputs:
        """How a file or a text becomes an input. Where a class of the user reads files, its constructor is called, and
        nothing that it opens."""
        form, spec = self.form.input, self.workload.spec
        if not isinstance(form, SampleForm) or form.reads_files:
            return form.inputs()
        source = make_source(spec.data, self.workload.code, spec.task)
        return form.inputs_of(source.read_image if isinstance(source, Source) else None)

    def require_depth(self, depth: int | None) -> int:
        """The depth, or the deepest for None. Raises RequestError if there is no such route."""
        if depth is None:
            return self.depths[-1]
        if depth not in self.depths:
            raise RequestError(
                f"there is no route of depth {depth}",
                key="--depth",
                hint=f"the depths of this run are {self.depths[0]} to {self.depths[-1]}"
                if len(self.depths) > 1
                else f"this run has one route, of depth {self.depths[0]}",
            )
        return depth


def _opened(spec: Spec, code: UserCode, elsewhere: str | None, form: DataForm | None, run_dir: Location) -> Workload:
    """The data and the network.

    Args:
        elsewhere: how a request names where the files of the data lie now.
        form: as for `Workload.open`.
    """
    try:
        return Workload.open(spec, code, trained=True, form=form, of_run=run_dir)
    except UserCodeError as error:
        if elsewhere is None or error.problems[0].key != "data.source":
            raise
        raise error.with_hint(f"where its files are not there, {elsewhere}") from error


def whole_batch(data: Dataset) -> Batch:
    """The first mini-batch of the largest split, which is the one most likely to be full."""
    largest = max((name for name, split in data.splits.items() if split), key=lambda name: len(data.splits[name] or ()))
    return next(iter(EvaluationBatches(data, largest)))
