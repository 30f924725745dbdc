"""Replicas train what one process trains on the whole mini-batch; they agree on cuts, change their shares, and go
on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from alray.core.errors import SpecError
from alray.core.run_folder.records import read
from alray.core.run_folder.store import checkpoint_folder
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate
from alray.orchestrate import Finished
from alray.runtime.stage.disturbance import Slowdown
from alray.runtime.stage.stage import Stage

from ..models import blocks_with_own_backward
from ..pairwise import first_alone
from .conftest import Watching, Workshop

pytestmark = pytest.mark.long

SPEC = """
name: replicas
seed: 3
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 400, batch_size: 64, validation_fraction: 0.2}
model:
  components:
    - {block: mlp, widths: [24], activation: tanh}
    - {block: mlp, widths: [16], activation: tanh}
    - {block: linear, width: 12, activation: tanh}
method: {kind: associated_learning, label_dim: 12}
pipeline: {costs: [{forward_s: 1, backward_s: 1, update_s: 0}, {forward_s: 1, backward_s: 1, update_s: 0},
                   {forward_s: 1, backward_s: 1, update_s: 0}]}
run: {steps: 10, evaluate_every: 4 steps, checkpoint: {every: 5 steps, keep: 50}}
"""
SLOW = '''
import time
import torch


class Slow(torch.nn.Module):
    """Takes its time for every sample, on a busy machine as on an idle one."""

    def __init__(self, input, sample_s=5e-4):
        super().__init__()
        self.linear = torch.nn.Linear(input.elements, 24)
        self.sample_s = sample_s

    def forward(self, s, mask=None):
        if s.device.type != "meta":
            time.sleep(self.sample_s * len(s))
        return torch.tanh(self.linear(s.flatten(1)))
'''
SGD = (["optimizer={kind: sgd, lr: 0.1, momentum: 0.9}"], 1e-5)
ADAM = (["optimizer={kind: adam, lr: 0.01}", "run.precision=float64"], 1e-10)
BP = ["method=backpropagation", "pipeline.schedule=single"]
SCPL = ["method={kind: supervised_contrastive, projection_dim: 10, gather: true}"]
ALL_REDUCES = ("backend", "ring", "halving_doubling", "tree", "star")


@pytest.fixture
def replicated(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


def weights(run: Finished) -> torch.Tensor:
    """All weights of the last checkpoint as one vector of double precision."""
    assert run.error is None, run.error
    assert run.summary.status == "finished"
    folder = max((Path(run.summary.run_dir) / "checkpoints").iterdir())
    files = sorted(folder.glob("component-*.safetensors"))
    return torch.cat([value.double().flatten() for file in files for _, value in sorted(load_file(file).items())])


def distance(run: Finished, reference: Finished) -> float:
    expected = weights(reference)
    return float((weights(run) - expected).norm() / expected.norm())


def losses(run: Finished) -> list[float]:
    """All losses, in order."""
    records = read(Path(run.summary.run_dir) / "records.jsonl")
    return [
        value
        for record in records
        if record.kind == "step"
        for named in record.losses.values()
        for value in named.values()
    ]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Finished]:
    """`one_process(*overrides)`: what replicas must come to, run once for all tests."""

    @cache
    def run(*overrides: str) -> Finished:
        return Workshop(tmp_path_factory.mktemp("one"), SPEC).run(*overrides)

    return run


def replicas(count: int, *more: str) -> list[str]:
    return [f"replicas.count={count}", *more]


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        pytest.param([], ADAM, id="al-adam"),
        pytest.param(BP, SGD, id="bp-sgd", marks=pytest.mark.full),
        pytest.param([], SGD, id="al-sgd", marks=pytest.mark.full),
        pytest.param(BP, ADAM, id="bp-adam", marks=pytest.mark.full),
    ],
)
def test_equal_one_process_on_the_whole_mini_batch(replicated, one_process, method, setting) -> None:
    overrides, tolerance = [*method, *setting[0]], setting[1]
    one = one_process(*overrides)
    layouts = [replicas(2 + place % 4, f"replicas.all_reduce={name}") for place, name in enumerate(ALL_REDUCES)]
    for number, layout in enumerate([*layouts, replicas(3, "replicas.shares=[5, 17, 42]")]):
        run = replicated.run(*overrides, *layout, name=f"several-{number}")
        assert distance(run, one) <= tolerance, layout
        assert run.summary.accuracy == one.summary.accuracy
        assert run.summary.all_reduce_bytes > 0
    assert run.summary.shares == [5, 17, 42]
    assert losses(run) == pytest.approx(losses(one), rel=1e-8 if setting is ADAM else 1e-4), "means over all samples"


@pytest.mark.parametrize(
    "method",
    [
        "{kind: noprop, hidden: 6}",
        "{kind: decoupled_information, projection_dim: null, gather: true}",
        *(
            pytest.param(method, marks=pytest.mark.full)
            for method in (
                "decoupled_greedy",
                SCPL[0].removeprefix("method="),
                "{kind: local_error_signals, gather: true}",
                "mono_forward",
                "channel_goodness",
                "{kind: forward_forward, prediction: activities, peer_normalisation: 0}",
            )
        ),
    ],
)
def test_other_methods_equal_one_process(replicated, one_process, method) -> None:
    """The last mini-batch is smaller: 292 samples to train, four times 64 and 36."""
    overrides = [*ADAM[0], f"method={method}", "data.last_batch=keep", "data.samples=365"]
    one = one_process(*overrides)
    layout = replicas(3, "replicas.shares=[5, 17, 42]", "pipeline.partition=[1,2]")
    run = replicated.run(*overrides, *layout, name="several")
    assert distance(run, one) <= ADAM[1]
    assert losses(run) == pytest.approx(losses(one), rel=1e-9)


def test_contrasts_within_shares_are_told(replicated, one_process) -> None:
    one = one_process(*SCPL, *ADAM[0])
    watching = Watching()
    run = replicated.run(*SCPL, "method.gather=false", *ADAM[0], *replicas(2), watching=watching)
    assert distance(run, one) > 1e-3
    (note,) = watching.notes
    assert "2 replicas" in note and "method.gather=true" in note


@pytest.mark.full
def test_every_partition_gives_the_same_bits(replicated) -> None:
    reference = replicated.run(*SGD[0], *replicas(2), name="reference")
    for number, partition in enumerate(([1, 2], [2, 1], [1, 1, 1])):
        run = replicated.run(*SGD[0], *replicas(2), f"pipeline.partition={partition}", name=f"run-{number}")
        assert run.summary.weights_sha256 == reference.summary.weights_sha256
        assert run.summary.accuracy_per_depth == reference.summary.accuracy_per_depth


@pytest.mark.full
@pytest.mark.parametrize(
    "kind", first_alone(["{kind: powersgd, rank: 2}", "fp16", "bf16", "{kind: top_k, fraction: 0.2}"])
)
def test_compressed_runs_are_resumed_to_the_same_bits(replicated, one_process, kind) -> None:
    overrides = [*SGD[0], *replicas(2, f"replicas.compression={kind}")]
    whole = replicated.run(*overrides, name="whole")
    exact = one_process(*SGD[0])
    assert 0.0 < distance(whole, exact) < 0.3, "something is lost, and not everything"
    replicated.run(*overrides, "run.steps=5")
    again = replicated.resume("run.steps=10")
    assert again.summary.weights_sha256 == whole.summary.weights_sha256


@pytest.mark.full
def test_averaged_weights(replicated, one_process) -> None:
    """Local SGD: by one step between means, plain SGD is what averaging gradients is; by more it is not."""
    overrides = ["optimizer={kind: sgd, lr: 0.1}", "run.precision=float64"]
    one = one_process(*overrides)
    apart = replicated.run(*overrides, *replicas(2, "replicas.synchronise={average_every: 5 steps}"), name="apart")
    alone = replicated.run(*overrides, *replicas(2, "replicas.synchronise={average_every: 50 steps}"), name="alone")
    assert 1e-5 < distance(apart, one) < distance(alone, one) < 1e-3


@pytest.mark.full
@pytest.mark.parametrize("method", first_alone([[], BP]), ids=["al", "bp"])
def test_gathered_gradients_are_averaged_once_an_update(replicated, one_process, method) -> None:
    """Shares that change from mini-batch to mini-batch of an update are those of the samples, too."""
    overrides, two = [*method, *ADAM[0], "data.last_batch=keep", "data.samples=365"], "optimizer.accumulate=2"
    one = one_process(*overrides, two)
    run = replicated.run(*overrides, *replicas(3), two, name="several")
    assert distance(run, one) <= ADAM[1]
    each = replicated.run(*overrides, *replicas(3), "run.steps=2", name="each")
    assert run.summary.all_reduce_bytes == 10 / 2 * each.summary.all_reduce_bytes / 2


@pytest.mark.parametrize(("before", "after"), [(2, 3), pytest.param(3, 1, marks=pytest.mark.full)])
def test_gathered_gradients_follow_to_another_number_of_replicas(replicated, one_process, before, after) -> None:
    overrides = [*ADAM[0], "optimizer.accumulate=3"]
    one = one_process(*overrides)
    replicated.run(*overrides, *replicas(before), "run.steps=5")
    run = replicated.resume("run.steps=10", *replicas(after), allow_change=True)
    assert distance(run, one) <= ADAM[1]


@pytest.mark.full
def test_gathered_gradients_are_resumed_to_the_same_bits(replicated) -> None:
    overrides = [*SGD[0], *replicas(2, "replicas.compression=powersgd"), "optimizer.accumulate=3"]
    whole = replicated.run(*overrides, name="whole")
    replicated.run(*overrides, "run.steps=5")
    again = replicated.resume("run.steps=10")
    assert again.summary.weights_sha256 == whole.summary.weights_sha256


APART = [*ADAM[0], *replicas(2, "replicas.synchronise={average_every: 4 steps}"), "model.components.0.dropout=0.2"]
"""Means after mini-batches 4 and 8; a checkpoint after 5, and the end after 10."""


@pytest.mark.full
def test_averaged_weights_are_resumed_to_the_same_bits(replicated) -> None:
    watching = Watching()
    whole = replicated.run(*APART, name="whole", watching=watching)
    (note,) = watching.notes
    assert "dropout" in note and "2 replicas" in note
    replicated.run(*APART, "run.steps=5")
    again = replicated.resume("run.steps=10", "pipeline.partition=[1,2]")
    assert again.summary.weights_sha256 == whole.summary.weights_sha256
    assert again.summary.accuracy == whole.summary.accuracy


@pytest.mark.full
def test_cuts_between_two_means_change_nothing_and_show_the_mean(replicated) -> None:
    run = replicated.run(*APART, "run.evaluate_every=3 steps", "run.checkpoint={every: 3 steps, keep: 50}")
    plain = replicated.run(*APART, "run.evaluate_every=null", "run.checkpoint=null", name="plain")
    assert run.summary.weights_sha256 == plain.summary.weights_sha256
    folder = checkpoint_folder(Path(run.summary.run_dir), 10)
    for index in range(3):
        mean = load_file(folder / f"component-{index:02d}.safetensors")
        own = [torch.load(folder / f"component-{index:02d}.replica-{replica}-of-2.pt")["weights"] for replica in (0, 1)]
        for name, value in mean.items():
            assert not torch.equal(own[0][name], own[1][name])
            torch.testing.assert_close(value, (own[0][name] + own[1][name]) / 2, rtol=0, atol=1e-15)
    shown = evaluate(TrainedNetwork(Path(run.summary.run_dir), allow_code=False))
    assert [each.test for each in shown.scores] == [each.test for each in run.summary.scores_per_depth]


@pytest.mark.full
def test_replicas_that_average_weights_stay_as_many(replicated) -> None:
    """With --allow-change they go on from the mean."""
    replicated.run(*APART, "run.steps=5")
    with pytest.raises(
        SpecError, match=r"`replicas.count` from 2 to 3 \(each replica has its own weights; another number"
    ):
        replicated.resume("run.steps=7", "replicas.count=3")
    run = replicated.resume("run.steps=7", "replicas.count=3", allow_change=True)
    assert run.error is None


def test_what_replicas_keep_of_another_compression_or_outer_optimizer_begins_anew(replicated) -> None:
    """With --allow-change. The state in the checkpoint is that of the setting before."""
    compression, outer = "replicas.compression", "{average_every: 2 steps, outer: {lr: 0.5}}"
    replicated.run(*replicas(2, f"{compression}={{kind: powersgd, rank: 1}}"), "run.steps=3")
    changes = [
        (f"{compression}={{kind: powersgd, rank: 2}}", "begins anew"),
        (f"{compression}={{kind: top_k, fraction: 0.1}}", "begins anew"),
        (f"{compression}={{kind: top_k, fraction: 0.2}}", "begins anew"),
        (f"{compression}=none", "begins anew"),
        (f"replicas.synchronise={outer}", "begins anew"),
        ("replicas.synchronise.outer.lr=0.7", "`replicas.synchronise.outer.lr` from 0.5 to 0.7"),
        ("replicas.synchronise=every_step", "begins anew"),
    ]
    for steps, (change, said) in enumerate(changes, start=4):
        watching = Watching()
        run = replicated.resume(f"run.steps={steps}", change, allow_change=True, watching=watching)
        assert run.error is None and run.summary.steps == steps
        assert any(said in note for note in watching.notes), change


OWN = '''
import torch


class Drawn(torch.nn.Module):
    """Adds up what it draws. One of its parameters never has a gradient."""

    def __init__(self, input, width):
        super().__init__()
        self.linear = torch.nn.Linear(input.elements, width)
        self.spare = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("drawn", torch.zeros(1))

    def forward(self, s, mask=None):
        if self.training:
            self.drawn += torch.rand(1, dtype=torch.float64).to(self.drawn)
        return torch.tanh(self.linear(s.flatten(1)))


class Shifted(torch.nn.Module):
    """Of one sample, the gradient of its shift lies in the memory of the one that goes on down."""

    def __init__(self, input):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.ones(input.elements))

    def forward(self, s, mask=None):
        return s + self.shift.unsqueeze(0)


class Sometimes(torch.nn.Module):
    """Two shifts, of which one is for samples whose first number is positive. Of one sample both gradients lie in one
    memory, or there is one gradient."""

    def __init__(self, input):
        super().__init__()
        self.always, self.sometimes = (torch.nn.Parameter(torch.ones(input.elements)) for _ in range(2))

    def forward(self, s, mask=None):
        used = s.device.type == "meta" or bool((s[:, 0] > 0).any())
        s = s + self.sometimes.unsqueeze(0) if used else s
        return torch.tanh(s + self.always.unsqueeze(0))


class Freezing(torch.nn.Module):
    """Trains its first layer, then its second one in place of it."""

    def __init__(self, input):
        super().__init__()
        self.first, self.second = (torch.nn.Linear(input.elements, input.elements, bias=False) for _ in range(2))
        self.forwards = 0

    def forward(self, s, mask=None):
        if self.training and s.device.type != "meta":
            self.forwards += 1
            self.first.weight.requires_grad_(self.forwards < 3)
            self.second.weight.requires_grad_(self.forwards >= 3)
        return torch.tanh(self.second(self.first(s)))
'''
SHARING = [
    *SGD[0],
    "model.components=[{block: mlp, widths: [24]}, {block: 'python:own.Shifted'}, {block: 'python:own.Shifted'}]",
    "data.batch_size=2",
    "run.precision=float64",
    "optimizer.clip_norm=0.01",
]
"""On two replicas each has one sample, and the gradients of both shifts come in one memory."""
SOMETIMES = [
    *SGD[0],
    "model.components=[{block: mlp, widths: [8]}, {block: 'python:own.Sometimes'}, {block: linear, width: 12}]",
    "data.batch_size=2",
    "run.precision=float64",
]
DRAWN = ["model.components.0={block: 'python:own.Drawn', width: 24}", "optimizer.weight_decay=0.1"]


def test_a_parameter_without_a_gradient_stays(replicated) -> None:
    """With weight decay, a gradient of zeros would move it."""
    (replicated.folder / "own.py").write_text(OWN)
    one = replicated.run(*ADAM[0], *DRAWN, *BP, name="one")
    assert distance(replicated.run(*ADAM[0], *DRAWN, *BP, *replicas(2)), one) <= ADAM[1]


def test_a_gradient_that_waits_leaves_those_below_alone(replicated) -> None:
    """Its replica's share is multiplied in while the backward pass goes on."""
    (replicated.folder / "own.py").write_text(OWN)
    layer = "{block: mlp, widths: [24], activation: tanh}"
    components = f"model.components=[{layer}, {{block: 'python:own.Shifted'}}, {layer}]"
    overrides = [*SGD[0], *BP, components, "data.batch_size=2", "run.precision=float64"]
    one = replicated.run(*overrides, "optimizer.accumulate=2", name="one")
    assert distance(replicated.run(*overrides, "optimizer.accumulate=2", *replicas(2)), one) <= 1e-10


def test_gradients_of_several_components_that_share_memory(replicated) -> None:
    """Their averages lie apart, so that each component is clipped once."""
    (replicated.folder / "own.py").write_text(OWN)
    one = replicated.run(*SHARING, *BP, name="one")
    assert distance(replicated.run(*SHARING, *BP, *replicas(2)), one) <= 1e-10


@pytest.mark.parametrize("method", ["{kind: associated_learning, label_dim: 12}", "backpropagation"])
def test_a_gradient_of_one_replica_in_the_memory_of_another_one(replicated, monkeypatch, method: str) -> None:
    """Each replica has one sample, and both end in the same weights."""
    (replicated.folder / "own.py").write_text(OWN)
    stages: list[Stage] = []
    make = Stage.__init__

    def noted(stage: Stage, *given: Any, **named: Any) -> None:
        make(stage, *given, **named)
        stages.append(stage)

    monkeypatch.setattr(Stage, "__init__", noted)
    run = replicated.run(*SOMETIMES, f"method={method}", *replicas(2))
    assert run.error is None
    one, other = ([each for component in stage.components for each in component.parameters()] for stage in stages)
    assert all(torch.equal(*each) for each in zip(one, other, strict=True))


def test_means_are_those_of_the_weights_that_were_averaged(replicated) -> None:
    """Where a block freezes one and lets another one learn."""
    (replicated.folder / "own.py").write_text(OWN)
    components = (
        "model.components=[{block: mlp, widths: [8]}, {block: 'python:own.Freezing'}, {block: linear, width: 12}]"
    )
    run = replicated.run(*SGD[0], components, *replicas(2), "replicas.synchronise={average_every: 3 steps}")
    assert run.error is None
    trained = load_file(max((Path(run.summary.run_dir) / "checkpoints").iterdir()) / "component-01.safetensors")
    assert not torch.equal(trained["f.first.weight"], trained["f.second.weight"])


@pytest.mark.parametrize("pipeline", first_alone([BP[1:], ["pipeline.schedule=1f1b", "pipeline.micro_batches=2"]]))
def test_a_gradient_that_comes_several_times(replicated, pipeline) -> None:
    """Parts of a block that is computed again have passes of their own, within the backward pass."""
    shutil.copy(blocks_with_own_backward.__file__, replicated.folder / "own.py")
    layer = "{block: mlp, widths: [7], activation: tanh}"
    components = f"model.components=[{layer}, {{block: 'python:own.Nested', width: 7}}, {layer}]"
    overrides = [*SGD[0], BP[0], components, "run.precision=float64"]
    one = replicated.run(*overrides, BP[1], name="one")
    assert distance(replicated.run(*overrides, *pipeline, *replicas(2)), one) <= 1e-10


@pytest.mark.full
def test_each_replica_draws_numbers_of_its_own(replicated) -> None:
    """The sum of what a block drew is one of its buffers: that of replica 0 is the one of a single process."""

    def drawn(run: Finished, *others: int) -> list[float]:
        folder = checkpoint_folder(Path(run.summary.run_dir), 10)
        own = [torch.load(folder / f"component-00.replica-{replica}-of-3.pt")["buffers"] for replica in others]
        return [buffers["f.drawn"].item() for buffers in (load_file(folder / "component-00.safetensors"), *own)]

    (replicated.folder / "own.py").write_text(OWN)
    overrides = [*ADAM[0], *DRAWN]
    whole = replicated.run(*overrides, *replicas(3), name="whole")
    assert len(set(drawn(whole, 1, 2))) == 3
    alone = replicated.run(*overrides, name="alone")
    assert drawn(whole) == drawn(alone)
    assert distance(whole, alone) <= ADAM[1], "the parameter without a gradient stays here, too"
    replicated.run(*overrides, *replicas(3), "run.steps=5")
    assert drawn(replicated.resume("run.steps=10"), 1, 2) == drawn(whole, 1, 2)


@pytest.mark.full
def test_stop_at_is_agreed_on(replicated, one_process) -> None:
    stop = "run={epochs: 50, evaluate_every: 3 steps, stop_at: {metric: validation_accuracy, above: 0.4}}"
    one = one_process(stop, *ADAM[0])
    run = replicated.run(stop, *ADAM[0], *replicas(2), "pipeline.partition=[1,2]", name="several")
    assert run.summary.steps == one.summary.steps < 250


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param([*SGD[0], *replicas(2)], marks=pytest.mark.full),
        [*SCPL, *SGD[0], *replicas(3), "optimizer.accumulate=3"],
        pytest.param(APART, marks=pytest.mark.full),
    ],
    ids=["plain", "gathers", "apart"],
)
def test_a_grid(replicated, processes, overrides) -> None:
    inline = replicated.run(*overrides, name="inline")
    run = replicated.run(*overrides, "pipeline.partition=[1,2]", inline=False)
    assert run.summary.weights_sha256 == inline.summary.weights_sha256
    assert run.summary.accuracy == inline.summary.accuracy


@pytest.mark.full
def test_a_pipeline(replicated, one_process, processes) -> None:
    pipeline = ["method=backpropagation", "pipeline.schedule=1f1b", "pipeline.stages=2", "pipeline.micro_batches=4"]
    one = one_process(*ADAM[0], *BP)
    run = replicated.run(*ADAM[0], *pipeline, *replicas(2), inline=False)
    assert distance(run, one) <= ADAM[1]


WAITING = '''
import threading

import torch

from alray.parts.all_reduces.star.algorithm import StarAllReduce

BEGUN = {}  # by the number of a component's parameters: whether a replica has begun to add up their gradients


def begun(count):
    return BEGUN.setdefault(count, threading.Event())


class Told(StarAllReduce):
    def _gather(self, rows):
        """Replicas that train a user's code first tell each other which gradients they have."""
        begun(rows.shape[1]).set()
        super()._gather(rows)


class Waiting(torch.nn.Module):
    """The backward pass of its fourth micro-batch waits until the gradients of the component above are added up. In
    the first mini-batch it is counted how often they come."""

    def __init__(self, input, width, above):
        super().__init__()
        self.linear = torch.nn.Linear(input.elements, width)
        self.above, self.passes = above, 0

    def forward(self, s, mask=None):
        s = torch.tanh(self.linear(s.flatten(1)))
        if s.requires_grad:
            s.register_hook(self.wait)
        return s

    def wait(self, gradient):
        self.passes += 1
        if self.passes == 4:
            begun(self.above).clear()
        elif self.passes % 4 == 0:
            if not begun(self.above).wait(20.0):
                raise TimeoutError("no sum began during the backward pass")
            begun(self.above).clear()
'''


@pytest.mark.parametrize("schedule", first_alone(["1f1b", "gpipe", "zero_bubble"]))
def test_a_sum_begins_while_its_last_micro_batch_is_computed(replicated, schedule) -> None:
    """Of zero_bubble, stage 0 has whole backward passes; of stage 1, `tests/runtime/stage` tests it."""
    (replicated.folder / "own.py").write_text(WAITING)
    second = "mlp, widths: [12]" if schedule == "zero_bubble" else "'python:own.Waiting', width: 12, above: 6"
    run = replicated.run(
        "model.components=[{block: 'python:own.Waiting', width: 24, above: 4}, {block: mlp, widths: [16, 16]}, "
        f"{{block: {second}}}, {{block: mlp, widths: [10, 10]}}]",
        "pipeline.costs=[" + ", ".join(["{forward_s: 1, backward_s: 1, update_s: 0}"] * 4) + "]",
        *["method=backpropagation", f"pipeline.schedule={schedule}", "pipeline.partition=[2,2]", "run.steps=3"],
        *["pipeline.micro_batches=4", *replicas(2, "replicas.all_reduce='python:own.Told'")],
    )
    assert run.error is None, run.error


@pytest.mark.full
@pytest.mark.parametrize("method", first_alone(["gather", "associated_learning"]))
def test_virtual_stages(replicated, processes, method) -> None:
    """Gradients, and projections, are exchanged by virtual stage; the bits are those of stages without any."""
    overrides = [*SGD[0], *replicas(2, "replicas.shares=[22, 42]"), *(SCPL if method == "gather" else [])]
    overrides += [
        "model.components=[{block: mlp, widths: [24], activation: tanh, repeat: 4}]",
        "pipeline.costs=[" + ", ".join(["{forward_s: 1, backward_s: 1, update_s: 0}"] * 4) + "]",
    ]
    blocked = replicated.run(*overrides, "pipeline.partition=[2,2]", name="blocked")
    assert blocked.error is None, blocked.error
    ring = [*overrides, "pipeline.partition=[1,1,1,1]", "pipeline.virtual_stages=2"]
    for inline in (True, False):
        run = replicated.run(*ring, inline=inline, name=f"ring-{inline}")
        assert run.error is None, run.error
        assert run.summary.weights_sha256 == blocked.summary.weights_sha256
        assert run.summary.accuracy_per_depth == blocked.summary.accuracy_per_depth


@pytest.mark.few
@pytest.mark.parametrize(
    ("kind", "schedule"),
    [("added_s: [0.4, 0.4]", "streamed"), ("factor: 3.0", "streamed"), ("factor: 3.0", "sequential")],
)
def test_a_slowed_replica_of_virtual_stages_is_slowed_once(replicated, kind, schedule) -> None:
    """A mini-batch has an update in each virtual stage; it is slowed as a whole, also where its list ends in a
    barrier."""
    waits: list[tuple[int, float]] = []
    original = Slowdown.wait

    def wait(self, step: int, computed_s: float):
        waits.append((step, computed_s))
        yield from original(self, step, computed_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slowdown, "wait", wait)
        run = replicated.run(
            *SGD[0],
            *replicas(2, f"replicas.disturbance={{workers: [1], epochs: [1, 1], {kind}}}"),
            "model.components=[{block: mlp, widths: [24], activation: tanh, repeat: 4}]",
            "pipeline.costs=[" + ", ".join(["{forward_s: 1, backward_s: 1, update_s: 0}"] * 4) + "]",
            "pipeline.partition=[1,1,1,1]",
            "pipeline.virtual_stages=2",
            f"pipeline.schedule={schedule}",
            "run={steps: 3}",
        )
    assert run.error is None, run.error
    assert sorted(step for step, _ in waits) == sorted([1, 2, 3] * 4)  # once on each stage of each replica
    assert all(computed_s > 0 for _, computed_s in waits)
