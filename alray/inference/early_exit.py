"""Early exits: predictions that end at the first depth where the network is sure enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from alray.core.run_folder.records import Exit
from alray.data.batches import EvaluationBatches
from alray.inference.network import TrainedNetwork
from alray.inference.route_costs import median_s, whole_batch
from alray.models.encoder import Tensors
from alray.models.route import Route


@dataclass(frozen=True)
class RouteAnswers:
    """The predictions of every route for the samples of a split, shallowest first.

    Attributes:
        confidence: [routes, samples], the share of the predicted class (`LearningTask.shares`).
        right: [routes, samples], whether that is the label.
    """

    confidence: torch.Tensor
    right: torch.Tensor

    def all_at(self, route: int) -> torch.Tensor:
        """Exits, [samples]: every sample leaves at this route."""
        return torch.full_like(self.right[0], route, dtype=torch.int64)

    def where_sure(self, threshold: float) -> torch.Tensor:
        """Exits, [samples]: each sample leaves at the first route with at least this confidence, or at the deepest."""
        sure = self.confidence >= threshold
        sure[-1] = True
        return sure.int().argmax(0)  # the first of the largest

    def accuracy(self, exits: torch.Tensor) -> float:
        """The share of right answers of samples that leave at these exits."""
        return float(self.right.gather(0, exits.unsqueeze(0)).double().mean())


def early_exits(network: TrainedNetwork, thresholds: Sequence[float]) -> list[Exit]:
    """Accuracy and time of predictions that end at one depth, for every depth, and of those that end where their
    confidence reaches a threshold, for every threshold.

    A time is that of predicting one sample alone, measured here. With a threshold it includes the answers of all depths
    that a sample passes; it is the mean over the test set, or else over the validation set.
    """
    splits = [split for split in ("validation", "test") if network.workload.data.splits.get(split) is not None]
    answers = {split: answers_of(network, split) for split in splits}
    routes = [network.route(depth) for depth in network.depths]
    one = _one_sample(network)
    found = []
    for number, depth in enumerate(network.depths):
        seconds = median_s(partial(_answer, routes[number : number + 1], one))
        accuracies = {split: each.accuracy(each.all_at(number)) for split, each in answers.items()}
        found.append(Exit(depth=depth, threshold=None, s_per_sample=seconds, **accuracies))
    passing_s = [median_s(partial(_answer, routes[: number + 1], one)) for number in range(len(routes))]
    depths, times = (torch.tensor(values, dtype=torch.float64) for values in (network.depths, passing_s))
    for threshold in thresholds:
        exits = {split: each.where_sure(threshold) for split, each in answers.items()}
        accuracies = {split: each.accuracy(exits[split]) for split, each in answers.items()}
        left = exits[splits[-1]]
        mean_depth, seconds = float(depths[left].mean()), float(times[left].mean())
        found.append(Exit(depth=mean_depth, threshold=threshold, s_per_sample=seconds, **accuracies))
    return found


@torch.no_grad()
def answers_of(network: TrainedNetwork, split: str) -> RouteAnswers:
    """The answers of every route to the samples of a split."""
    confidences, rights = [], []
    for number, batch in enumerate(EvaluationBatches(network.workload.data, split)):
        scores = torch.stack(network.scores(batch, number)).cpu()
        predicted = scores.argmax(-1)
        confidences.append(network.learning.shares(scores).gather(-1, predicted.unsqueeze(-1)).squeeze(-1))
        rights.append(predicted == batch.labels)
    return RouteAnswers(torch.cat(confidences, 1), torch.cat(rights, 1))


def _one_sample(network: TrainedNetwork) -> Tensors:
    """The input of the first component, for one sample."""
    inputs = whole_batch(network.workload.data).inputs(network.device, network.workload.network.dtype)
    return {name: value[:1].clone() for name, value in inputs.items()}


@torch.no_grad()
def _answer(routes: Sequence[Route], inputs: Tensors) -> None:
    """Predict by each of these routes, shallowest first. The encoders run once."""
    tensors, done = routes[0].tensors(inputs["s"], inputs.get("mask")), 0
    for route in routes:
        tensors, done = route.up(tensors, done), len(route.f)
        float(route.scores(tensors).softmax(-1).max())  # waits for a GPU
