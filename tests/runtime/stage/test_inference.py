"""Right answers counted per split and route."""

from __future__ import annotations

import pytest
import torch

from alray.runtime.stage.inference import Evaluator


def scores(labels: torch.Tensor, wrong: int, classes: int = 4) -> torch.Tensor:
    """Class scores that are right but for the first `wrong` samples."""
    answers = labels.clone()
    answers[:wrong] = (answers[:wrong] + 1) % classes
    return torch.nn.functional.one_hot(answers, classes).float()


def test_every_sample_of_every_split_is_counted_once(make_workload):
    data = make_workload("data.samples=100").data
    evaluator = Evaluator(data, ("train", "validation", "test"), depths=(1, 2))
    sizes: list[int] = []
    for number, batch in enumerate(evaluator):
        sizes.append(len(batch.labels))
        evaluator.take(number, [scores(batch.labels, 0), scores(batch.labels, 1)])
    splits = [len(data.splits[name]) for name in ("train", "validation", "test")]
    assert sum(sizes) == sum(splits) and len(sizes) == len(evaluator)
    shallow, deep = evaluator.scores()
    assert (shallow.depth, shallow.train, shallow.validation, shallow.test) == (1, 1.0, 1.0, 1.0)
    batches = [-(-size // 8) for size in splits]
    assert (deep.depth, deep.train, deep.validation, deep.test) == (
        2,
        *(1 - number / size for number, size in zip(batches, splits, strict=True)),
    )


def test_answers_may_come_later_than_the_next_batches_go(make_workload):
    evaluator = Evaluator(make_workload().data, ("validation", "test"), depths=(1,))
    batches = list(evaluator)
    for number in range(len(batches)):
        evaluator.take(number, [scores(batches[number].labels, 0)])
    (only,) = evaluator.scores()
    assert (only.train, only.validation, only.test) == (None, 1.0, 1.0)


def test_a_split_that_is_not_there_is_left_out(make_workload):
    evaluator = Evaluator(make_workload("data.validation_fraction=0").data, ("validation", "test"), depths=(1,))
    for number, batch in enumerate(evaluator):
        evaluator.take(number, [scores(batch.labels, 0)])
    (only,) = evaluator.scores()
    assert only.validation is None and only.test == 1.0


def test_the_one_route_of_backpropagation_is_the_whole_network(make_workload):
    evaluator = Evaluator(make_workload().data, ("test",), depths=(4,))
    for number, batch in enumerate(evaluator):
        evaluator.take(number, [scores(batch.labels, 2)])
    (only,) = evaluator.scores()
    assert only.depth == 4 and only.test is not None and 0.0 < only.test < 1.0


def test_nothing_measured_is_no_accuracy(make_workload):
    assert Evaluator(make_workload().data, (), depths=(1, 2)).scores() == []


@pytest.mark.parametrize("partition", [(2,), (1, 1)])
def test_routes_are_the_same_for_every_cut(make_workload, partition):
    """Inference by hand: f up to a depth, its bridge, then every label decoder down."""
    from alray.runtime.stage.assemble import work_of

    network = make_workload().network
    components = [network.component(index, "cpu").eval() for index in range(2)]
    samples = torch.randn(6, 2, 8, 8)
    with torch.no_grad():
        by_hand, s = [], samples
        for depth in range(2):
            s = components[depth].f.body(s)
            t = components[depth].b(s)
            for below in reversed(components[: depth + 1]):
                t = below.h(t)
            by_hand.append(t)
    stages, first = [], 0
    for count in partition:
        stages.append(work_of([network.component(first + place, "cpu") for place in range(count)]))
        stages[-1].evaluation_mode(True)
        first += count
    routes: list[list[torch.Tensor]] = []
    passed = {"s": samples}
    for stage in stages:
        passed, own = stage.infer_up(passed, 1, 0)
        routes.append(own)
    down: list[torch.Tensor] = []
    for stage, own in zip(reversed(stages), reversed(routes), strict=True):
        down = own + stage.infer_down(down)
    assert len(down) == 2 and all(torch.equal(mine, theirs) for mine, theirs in zip(down, by_hand, strict=True))
    assert not any(route.requires_grad for route in down)
