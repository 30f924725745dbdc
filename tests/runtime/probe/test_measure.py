"""What the probe measures beside whole mini-batches: micro-batches, split backwards, messages, contention."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from alray.core.errors import RunError, UserCodeError
from alray.data.batches import TrainBatches
from alray.models.component import LocalComponent
from alray.models.optimizers import ComponentOptimizer
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.planning.prediction.seconds import RunSeconds
from alray.planning.prediction.setting import StepSetting
from alray.runtime.channel.gradient_reducer import GradientReducer
from alray.runtime.probe import estimate, measure
from alray.runtime.probe.all_reduce import time_reduction
from alray.runtime.probe.component_work import ComponentWork
from alray.runtime.probe.contention import Companions, companions, measure_contention
from alray.runtime.probe.estimate import estimate_costs
from alray.runtime.probe.measure import Surroundings, divide, probe_costs, time_micro_batches
from alray.runtime.probe.other_programs import processor_seconds
from alray.runtime.probe.timing import MOST_REPEATS, WARM_UPS, ComponentTimings, ProbedAction, Timing, time_actions

CPU = torch.device("cpu")
BACKPROPAGATION = ("method={kind: backpropagation}", "pipeline.micro_batch_norm=accept")
COUNTED = ComponentCosts("vgg", 0.001, 0.002, 0.001, 0.001, 0.001, 9, 36, 36, 72, 640, 160, 160, 40, (1, 4, 4))
PARTS = ("forward_s", "backward_s", "input_gradient_s", "weight_gradients_s")


@pytest.fixture(autouse=True)
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)


def probe(workload, **changes: Any) -> Costs:
    with TrainBatches(workload.data, seed=0, start_step=0, end_step=1, workers=0) as batches:
        return probe_costs(workload.network, next(batches), Surroundings(CPU, **changes))


def incoming(workload, index: int, samples: int) -> dict[str, torch.Tensor]:
    shape = (samples, *workload.network.encoders[index].input)
    return {"s": torch.randn(shape), "labels": torch.zeros(samples, dtype=torch.int64)}


def work_of(workload, index: int, samples: int) -> ComponentWork:
    return ComponentWork(workload.network, workload.network.component(index, "cpu"), incoming(workload, index, samples))


def rounds_of(monkeypatch: pytest.MonkeyPatch, seconds: Iterator[float]) -> int:
    """How many rounds of one part are timed if the rounds take these seconds."""
    clock, rounds = [0.0], [0]

    def part() -> None:
        clock[0] += next(seconds)
        rounds[0] += 1

    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 1e9)
    monkeypatch.setattr("alray.runtime.probe.timing.time.perf_counter", lambda: clock[0])
    time_actions([ProbedAction(0, "forward_s", part)], Timing())
    return rounds[0]


def test_a_probe_ends_when_its_median_is_steady(monkeypatch):
    assert rounds_of(monkeypatch, itertools.cycle([1.0, 1.01])) < 20
    assert rounds_of(monkeypatch, itertools.cycle([1.0, 2.0])) == WARM_UPS + MOST_REPEATS


def test_interruptions_count_in_the_round_that_they_fall_in(monkeypatch):
    """Each of four parts is interrupted in one round of four: every median misses it, every round has one."""
    clock = [0.0]

    def part(number: int) -> ProbedAction:
        rounds = itertools.count(number)

        def run() -> None:
            clock[0] += 2.0 if next(rounds) % 4 == 0 else 1.0

        return ProbedAction(number, "forward_s", run)

    monkeypatch.setattr("alray.runtime.probe.timing.time.perf_counter", lambda: clock[0])
    timed = time_actions([part(number) for number in range(4)], Timing())
    assert [timed[number].seconds["forward_s"] for number in range(4)] == pytest.approx([1.25] * 4)


def test_times_are_measured_when_no_other_process_starts_any_more(make_planner, monkeypatch):
    happened: list[str] = []

    def heard(name: str, function: Any) -> Any:
        return lambda *given, **named: (happened.append(name), function(*given, **named))[1]

    monkeypatch.setattr("alray.runtime.probe.measure.time_actions", heard("time", time_actions))
    monkeypatch.setattr("alray.runtime.probe.measure.estimate_costs", heard("count", estimate_costs))
    monkeypatch.setattr(TrainBatches, "__next__", heard("batch", TrainBatches.__next__))
    make_planner().costs(probe=True, wait_until_quiet=lambda: happened.append("quiet"))
    assert happened[:4] == ["batch", "count", "quiet", "time"]
    assert set(happened[4:]) == {"batch"}, "the time to prepare one is measured last"


def test_what_is_counted_is_counted_once(make_planner, monkeypatch):
    """`pipeline.micro_batches: auto` counts before the plan does."""
    counted: list[int] = []
    count = estimate._count

    def counting(network, index, *of):
        counted.append(index)
        return count(network, index, *of)

    monkeypatch.setattr(estimate, "_count", counting)
    planner = make_planner(
        "method=backpropagation", "pipeline={schedule: gpipe, stages: 2, micro_batches: auto, micro_batch_norm: accept}"
    )
    planner.costs(probe=False)
    assert counted == [0, 1]


def test_a_micro_batch_costs_what_was_measured_of_it(make_workload, monkeypatch):
    """A mini-batch of 8 in 4 parts: whatever the mini-batch takes, and its loss, a part takes what it took."""
    whole = {"forward_s": 0.8, "label_s": 0.4, "backward_s": 0.8, "update_s": 0.1, "infer_s": 0.1}
    parts = {"forward_s": 0.5, "backward_s": 0.75, "input_gradient_s": 0.25, "weight_gradients_s": 0.75}
    monkeypatch.setattr(
        "alray.runtime.probe.measure.time_actions", lambda *_: dict.fromkeys((0, 1), ComponentTimings(whole, 1.0, 1.0))
    )
    monkeypatch.setattr(
        "alray.runtime.probe.measure.time_micro_batches", lambda *_, **named: dict.fromkeys((0, 1), parts)
    )
    costs = probe(make_workload(*BACKPROPAGATION), pipeline=True, micro_batches=4)
    setting = StepSetting("gpipe", costs, stages=2, in_flight=4, micro_batches=4)
    computing = RunSeconds(setting).of_cuts([1, 1]).computing
    overhead = costs.action_overhead_s
    assert computing["F"] == pytest.approx([0.5 + overhead] * 2)
    assert computing["B"] == pytest.approx([0.75 + overhead] * 2)
    # In two parts it took 1 instead of 0.75, a quarter of that for the input.
    assert (costs.split_backward, costs.input_gradient_share) == pytest.approx((4 / 3, 0.25))
    assert computing["I"][1] == pytest.approx(0.25 + overhead)
    assert computing["G"][1] == pytest.approx(0.75 + overhead)
    # The first virtual stage leaves all to the second part.
    assert computing["I"][0] == overhead
    assert computing["G"][0] == pytest.approx(0.75 + overhead)


def test_the_backward_pass_of_a_compiled_component_is_not_split(make_workload, monkeypatch):
    """What torch.compile makes of it goes through its graph once, and may overwrite what it has read."""
    monkeypatch.setattr("alray.models.network.compile_part", lambda part: None)
    monkeypatch.setattr(ComponentWork, "input_gradient", lambda *_: pytest.fail("split"))
    costs = probe(make_workload(*BACKPROPAGATION, "run.compile=true"), pipeline=True, micro_batches=4)
    assert (costs.split_backward, costs.input_gradient_share) == (1.0, 0.5)


@pytest.mark.few
@pytest.mark.parametrize("method", [(), BACKPROPAGATION])
def test_only_pipelines_are_measured_as_such(make_workload, method):
    costs = probe(make_workload(*method))
    assert all(entry.forward_fixed_s == entry.backward_fixed_s == 0.0 for entry in costs.components)
    assert (costs.split_backward, costs.input_gradient_share, costs.contention) == (1.0, 0.5, 1.0)


def test_the_output_of_a_micro_batch_may_be_a_view(make_workload):
    """As that of `functional.glu` behind some convolutions is; torch detaches what a stage gives in place."""
    text = """\
name: views
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 60, batch_size: 8}
model: {components: [{block: "python:own_blocks.View", repeat: 3}]}
run: {epochs: 1}
"""
    code = """\
from torch import nn

class View(nn.Conv2d):
    def __init__(self, input):
        super().__init__(input[0], input[0], 1)

    def forward(self, s):
        return super().forward(s)[:]
"""
    workload = make_workload("method=backpropagation", text=text, code=code)
    work = work_of(workload, 1, samples=4)
    assert time_micro_batches(workload.network, {1: work}, 4, Timing())[1]["weight_gradients_s"] > 0


def test_a_micro_batch_is_timed_and_leaves_no_gradient(make_workload):
    workload = make_workload(*BACKPROPAGATION)
    works = {index: work_of(workload, index, 4) for index in range(2)}
    for index, seconds in time_micro_batches(workload.network, works, 2, Timing()).items():
        component = works[index].component
        forward_s, backward_s, input_s, weights_s = (
            seconds[name] for name in ("forward_s", "backward_s", "input_gradient_s", "weight_gradients_s")
        )
        assert forward_s > 0 and backward_s > 0
        # The first component's input needs no gradient: there are no two parts.
        assert (input_s > 0) == (weights_s > 0) == (component.index > 0)
        assert all(parameter.grad is None for parameter in component.parameters())


def test_what_a_forward_before_a_split_backward_takes_longer_is_part_of_its_first_half(make_workload, monkeypatch):
    took = iter(
        [
            {"forward_s": 1.0, "backward_s": 2.0},
            {"forward_s": 1.25, "input_gradient_s": 0.75, "weight_gradients_s": 1.0},
        ]
    )
    monkeypatch.setattr(
        "alray.runtime.probe.measure.time_actions", lambda *_: {1: ComponentTimings(next(took), 1.0, 1.0)}
    )
    workload = make_workload(*BACKPROPAGATION)
    seconds = time_micro_batches(workload.network, {1: work_of(workload, 1, 4)}, 2, Timing())[1]
    assert tuple(seconds[name] for name in PARTS) == (1.0, 2.0, 1.0, 1.0)


def recorded_actions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The actions of a probe, as they happen, each with the index of its component."""
    done: list[tuple[str, int]] = []
    for name in ("encoder_step", "label_step", "backward_step"):
        step = getattr(LocalComponent, name)

        def recorded(component, *arguments, name=name, step=step) -> Any:
            done.append((name, component.index))
            return step(component, *arguments)

        monkeypatch.setattr(LocalComponent, name, recorded)
    return done


FOUR = "model.components=[{block: vgg, channels: [2], repeat: 4}]"


def test_neighbours_are_measured_in_the_order_of_a_stage(make_workload, monkeypatch):
    workload = make_workload(FOUR, "pipeline.stages=1")
    done = recorded_actions(monkeypatch)
    costs = probe(workload)
    assert done[-12:] == [(name, n) for name in ("encoder_step", "label_step", "backward_step") for n in range(4)]
    assert costs.components[1] == costs.components[2]


def test_neighbours_read_what_the_one_below_has_just_computed(make_workload, monkeypatch):
    workload = make_workload(FOUR, "pipeline.stages=1")
    passed: list[tuple[Any, Any]] = []
    step = LocalComponent.encoder_step

    def recorded(component, incoming, *arguments) -> Any:
        outgoing = step(component, incoming, *arguments)
        passed.append((incoming["s"], outgoing["s"]))
        return outgoing

    monkeypatch.setattr(LocalComponent, "encoder_step", recorded)
    probe(workload)
    *_, first, second, third, fourth = passed
    assert second[0] is first[1] and third[0] is second[1] and fourth[0] is third[1]


SENDS = """\
from torch.nn import functional

from alray import LocalComponent, Method, classifier, pass_on, read_scores
from alray.models.shape import Shape


class Sends(Method):
    def component(self, index, f, facts, make):
        options = {"pool": 4, "hidden": 4 * index or None, "activation": "relu", "pooling": facts.pooling}
        head = make("head", lambda: classifier(facts.output, classes=self.task.classes, **options))
        return SendsComponent(index, f, head, self.task)

    def ends_route(self, index):
        return True

    def labels_out(self, index):
        return {"labels": Shape((index + 1, self.task.classes))}


class SendsComponent(LocalComponent):
    def __init__(self, index, f, head, task):
        super().__init__(index, f)
        self.head, self.classes = head, task.classes
        self.train_with(task.optimizer, encoder=(f, head))

    @property
    def turn(self):
        return self.head

    def local_losses(self, encoded, incoming):
        rows = incoming["labels"]
        if self.index == 0:
            rows = functional.one_hot(rows, self.classes).float()[:, None]
        assert rows.shape[1:] == (self.index or 1, self.classes) and rows.is_floating_point()
        loss = functional.mse_loss(read_scores(self.head, encoded), rows[:, 0])
        return {"error": loss}, {"labels": pass_on(rows[:, :1].expand(-1, self.index + 1, -1))}
"""


def test_a_component_of_an_own_method_gets_what_the_one_below_sends(make_workload):
    """Also if that is named `labels`, and if it has another shape for each of several equal encoders."""
    costs = probe(make_workload(FOUR, "method={kind: 'python:own_blocks.Sends'}", code=SENDS))
    heads = [component.parts["head"] for component in costs.components]
    assert heads == sorted(set(heads)) and len(heads) == 4


def test_components_like_others_are_left_out_where_a_mini_batch_takes_long(make_workload, monkeypatch):
    workload = make_workload(FOUR, "pipeline.stages=1")
    monkeypatch.setattr("alray.runtime.probe.measure._TOGETHER_S", 0.0)
    done = recorded_actions(monkeypatch)
    costs = probe(workload)
    assert {index for _, index in done} == {0, 1, 3}
    assert costs.components[1] == costs.components[2]


def test_neighbours_fill_a_few_caches(make_workload, monkeypatch):
    counted = estimate_costs(make_workload().network, batch_size=8, device=CPU)
    size = 30 << 20
    each = replace(COUNTED, parameter_bytes=size, gradient_bytes=0, optimizer_bytes=0, activation_bytes=0)
    costs = replace(counted, components=(replace(each, parameter_bytes=3 * size), *[each] * 6))
    names = ["first", *["between"] * 5, "last"]
    assert divide(names, costs) == [range(1), range(1, 3), range(5, 7)]


def test_an_error_while_neighbours_are_timed_names_the_component(make_workload, monkeypatch):
    workload = make_workload("pipeline.stages=1")
    counted = estimate_costs(workload.network, batch_size=8, device=CPU)
    monkeypatch.setattr("alray.runtime.probe.measure.estimate_costs", lambda *_, **__: counted)
    update, calls = ComponentWork.update, list[int]()

    def failing(work: ComponentWork) -> None:
        calls.append(work.component.index)
        if calls.count(1) == 3:
            raise ValueError("no")
        update(work)

    monkeypatch.setattr(ComponentWork, "update", failing)
    with pytest.raises(RunError, match=r"component 1 .* raised ValueError: no") as raised:
        probe(workload)
    assert raised.value.problems[0].key == "model.components[1]"


def test_the_reduction_over_replicas_is_measured_and_comes_before_the_update(make_workload):
    workload = make_workload(*BACKPROPAGATION, "replicas={count: 2, all_reduce: ring}")
    costs = probe(workload)
    assert all(component.reduce_s > 0 for component in costs.components)
    both = StepSetting("single", costs, stages=1, in_flight=1, replicas=2)
    added = RunSeconds(both).of_cuts([2]).averages_s[0]
    assert added == pytest.approx(sum(component.reduce_s for component in costs.components))
    assert all(component.reduce_s == 0 for component in probe(make_workload(*BACKPROPAGATION)).components)


def test_the_gradients_of_a_measured_sum_are_not_zeros(make_workload, monkeypatch):
    """`top_k` finds the largest of zeros in half of the time. The random numbers of the run stay as they were."""
    are_full: list[bool] = []
    start = GradientReducer.start

    def noted(self, gradients, weight, **named):
        are_full.extend(bool(each.all()) for each in gradients)
        start(self, gradients, weight, **named)

    monkeypatch.setattr(GradientReducer, "start", noted)
    workload = make_workload(*BACKPROPAGATION, "replicas={count: 2, compression: {kind: top_k, fraction: 0.1}}")
    before = torch.get_rng_state()
    component = workload.network.component(0, CPU)
    torch.set_rng_state(before)
    assert time_reduction(component, workload.spec.replicas, accumulate=1) > 0
    assert are_full and all(are_full)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sum_that_runs_out_of_memory_names_the_component(make_workload, monkeypatch):
    def full(*arguments: Any) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.")

    monkeypatch.setattr("alray.runtime.probe.measure.time_reduction", full)
    with pytest.raises(RunError, match=r"model\.components\[(\d)\]: component \1 .* ran out of memory"):
        probe(make_workload(*BACKPROPAGATION, "replicas.count=2"))


OWN_SUMS = """
from alray.runtime.channel.compression import Compression
from alray.parts.all_reduces.ring.algorithm import RingAllReduce


class Halves(Compression):
    kind = "halves"

    def reduce(self, flat, weight, over):
        if over.rank == 1:
            raise ValueError("no half")
        over.sum(flat)


class Square(RingAllReduce):
    def _sum(self, tensor):
        raise KeyError("no ring")
"""


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        (
            "compression",
            "Halves",
            "compression `python:own_blocks.Halves` raised ValueError in an average of gradients",
        ),
        ("all_reduce", "Square", "all-reduce `python:own_blocks.Square` raised KeyError in an average of gradients"),
    ],
)
def test_what_a_sum_of_the_users_raises_names_it(make_workload, monkeypatch, key, name, said):
    """Also where one rank alone raises it, and the other waits in vain, as long as a busy machine takes to start."""
    monkeypatch.setattr("alray.runtime.probe.all_reduce._TIMEOUT_S", 5.0)
    chosen = f"replicas={{count: 2, {key}: 'python:own_blocks.{name}'}}"
    workload = make_workload(*BACKPROPAGATION, chosen, code=OWN_SUMS)
    component = workload.network.component(0, CPU)
    with pytest.raises(UserCodeError, match=said) as raised:
        time_reduction(component, workload.spec.replicas, accumulate=1, load=workload.code)
    (problem,) = raised.value.problems
    assert problem.key == f"replicas.{key}" and problem.file.endswith("own_blocks.py")


class Beside(Companions):
    """Companions that only remember whether they work."""

    def __init__(self) -> None:
        super().__init__([])
        self.at_work = False

    @contextmanager
    def working(self) -> Iterator[None]:
        self.at_work = True
        yield
        self.at_work = False


@pytest.mark.parametrize(("beside_s", "contention"), [(1.1, 1.1), (0.9, 1.0)])
def test_contention_is_the_ratio_of_work_beside_others_and_alone(beside_s, contention):
    beside = Beside()
    alone = itertools.cycle([1.0, 2.0, 4.0, 1.0, 1.0])
    pace = [1.0]

    def work() -> list[tuple[float, float]]:
        if not beside.at_work:
            pace[0] = next(alone)  # the machine changes its pace
            return [(pace[0], pace[0])] * 2
        return [(beside_s * pace[0], beside_s * pace[0])] * 2

    assert measure_contention(work, beside) == (pytest.approx(contention), 0.0)


def test_an_update_of_several_mini_batches_is_divided_among_them(make_workload, monkeypatch):
    """In most mini-batches there is none."""
    monkeypatch.setattr(ComponentOptimizer, "_update", lambda self, lr: time.sleep(0.02))

    def update_s(mini_batches: int) -> float:
        one = "model.components=[{block: vgg, channels: [2]}]"
        return (
            probe(make_workload(*BACKPROPAGATION, one, f"optimizer.accumulate={mini_batches}")).components[0].update_s
        )

    often, sometimes, seldom = map(update_s, (1, 4, 1_000_000))
    assert often > 0.015 and 0.004 < sometimes < 0.7 * often and 0.0 < seldom < 0.5 * sometimes


def test_costs_say_beside_how_many_others_they_were_measured(make_workload):
    assert [probe(make_workload(), others=number).beside for number in (0, 1)] == [0, 1]


def test_jitter_is_the_variance_of_work_beside_others_over_its_time():
    """Without the interruptions of some of it, and although the machine changes its speed."""
    beside, generator, paces = Beside(), np.random.default_rng(3), itertools.count(10)

    def work() -> list[tuple[float, float]]:
        jitter_s, pace = (0.1, next(paces)) if beside.at_work else (2.0, 12.0)
        times = generator.gamma(pace / jitter_s, jitter_s, 40)
        times[7] += 100.0
        return [(each, pace) for each in times]

    assert measure_contention(work, beside)[1] == pytest.approx(0.1, rel=0.25)


def test_work_that_takes_long_is_repeated_for_its_jitter(make_workload, monkeypatch):
    """One mini-batch does not tell how uneven mini-batches are."""
    monkeypatch.setattr(measure, "_WORK_S", 0.0)
    assert probe(make_workload(), others=1).jitter_s > 0.0


def test_companions_work_rest_and_end():
    import psutil

    with companions(1, threads=1) as beside:
        assert len(beside) == 1
        beside.wait_until_ready()
        (process,) = (psutil.Process(each.pid) for each in beside._processes)
        size = process.memory_info().rss

        def spends() -> bool:
            before = process.cpu_times().user
            process_waits(process)
            return process.cpu_times().user > before

        assert not spends()
        beside.work_on(40 << 20)
        with beside.working():
            assert all(spends() for _ in range(5))
        assert process.memory_info().rss > size + (35 << 20)
        assert not all(spends() for _ in range(10))  # it rests after what it has begun
    assert not process.is_running()


def process_waits(process: Any) -> None:
    """Long enough for a working process to be seen working, even on a busy machine."""
    import time

    before, deadline = process.cpu_times().user, time.monotonic() + 1.0
    while process.cpu_times().user == before and time.monotonic() < deadline:
        time.sleep(0.02)


def test_stages_share_the_processors_of_the_machine(make_planner, monkeypatch):
    monkeypatch.setattr("alray.runtime.planner.planning.os.sched_getaffinity", lambda _: set(range(4)))
    entry = "{block: vgg, channels: [2]}"
    components = "model.components=[" + ", ".join([entry] * 6) + "]"

    def others(*overrides: str, one_process: bool = False) -> int:
        planner = make_planner(components, *overrides)
        return replace(planner, one_process=one_process).surroundings().others

    assert others("pipeline.stages=1") == 0
    assert others("pipeline.stages=3") == 2
    assert others("pipeline.stages=6") == 3
    assert others("pipeline.stages=6", "resources.threads=2") == 1
    assert others("pipeline.stages=3", one_process=True) == 0


def test_a_program_that_keeps_a_processor_busy_is_seen():
    begin = "import time; print(flush=True); end = time.monotonic() + 10\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", begin], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None and busy.stdout.readline()
        before_s = processor_seconds()
        time.sleep(0.5)
        worked_s = processor_seconds() - before_s
        busy.kill()
    assert worked_s > 0.15  # beside other tests it gets less than one processor


def test_a_plan_made_on_a_busy_machine_says_so(make_planner):
    planner = make_planner()
    costs = planner.costs(probe=False)

    def told(taken_processors: float) -> list[str]:
        lines: list[str] = []
        planner.plan(replace(costs, taken_processors=taken_processors), note=lines.append)
        return lines

    assert told(0.2) == []
    assert told(0.4)[0].startswith("other programs took 0.4 processors while the components were measured")
