"""Optimizers and rates of a user, and those of torch by name: trained, stopped and continued."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from alray.core.errors import SpecError, UserCodeError
from alray.core.run_folder.records import StepRecord, read

from .conftest import Workshop
from .test_same_bits import same

UPDATES = '''
"""An optimizer and a rate."""

import random

import numpy
import torch


class Signs(torch.optim.Optimizer):
    """Momentum, and then steps of one length. It keeps what it needs in its state."""

    def __init__(self, params, lr, momentum):
        self.momentum = momentum
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is None:
                    continue
                kept = self.state[weights].setdefault("kept", torch.zeros_like(weights))
                kept.mul_(self.momentum).add_(weights.grad)
                weights.sub_(group["lr"] * kept.sign())


class Coarse(torch.optim.Optimizer):
    """Its state has other types than the weights."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weights in (each for each in group["params"] if each.grad is not None):
                kept = self.state[weights]
                if not kept:
                    kept["coarse"] = torch.zeros_like(weights, dtype=torch.bfloat16)
                    kept["fine"] = [torch.zeros_like(weights, dtype=torch.float64), {"count": torch.tensor(0)}]
                    kept["phase"] = "even"
                fine, counted = kept["fine"]
                assert counted["count"].dtype == torch.int64 and kept["phase"] in ("even", "odd")
                counted["count"] += 1
                kept["coarse"].mul_(0.9).add_(weights.grad)
                fine.mul_(0.9).addcmul_(weights.grad, weights.grad)
                further = kept["coarse"] if kept["phase"] == "even" else weights.grad
                weights.sub_(group["lr"] * further / (fine.sqrt() + 1 / counted["count"]))
                kept["phase"] = "odd" if kept["phase"] == "even" else "even"


class Ramped(torch.optim.Optimizer):
    """Steps that grow with the number of updates, which it keeps in its groups."""

    def __init__(self, params, lr, weight_decay=0.0, over=10):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "over": over, "updates": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["updates"] += 1
            group["longest"] = max([group.get("longest", torch.zeros(())), *map(torch.norm, group["params"])])
            for weights in group["params"]:
                if weights.grad is not None:
                    shorter = min(1.0, group["updates"] / group["over"]) / (1 + group["longest"])
                    weights.sub_(group["lr"] * shorter * weights.grad)


class Besides(Ramped):
    """The same number in an attribute, which its state has next to that of torch."""

    updates = 0

    def step(self, closure=None):
        for group in self.param_groups:
            group["updates"] = self.updates
        super().step()
        self.updates += 1

    def state_dict(self):
        return super().state_dict() | {"updates": self.updates}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.updates = state_dict["updates"]


class Noisy(torch.optim.SGD):
    """Adds noise to the weights, of a size that its constructor draws."""

    def __init__(self, params, lr):
        super().__init__(params, lr=lr)
        self.size = 1e-3 * numpy.random.rand()

    def step(self, closure=None):
        super().step()
        with torch.no_grad():
            for weights in (each for group in self.param_groups for each in group["params"]):
                drawn = numpy.random.rand() + random.random()
                weights.add_(torch.randn_like(weights), alpha=self.size * drawn)


class Numpy(Ramped):
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            group["updates"] = numpy.float64(group["updates"])
            group["history"] = numpy.array([1.0, 2.0])


class Root:
    def __init__(self, over):
        self.over = over

    def __call__(self, at):
        return at.full / (1 + at.begun / self.over) ** 0.5


class Nothing:
    pass


class Late(torch.optim.SGD):
    updates = 0

    def step(self, closure=None):
        self.updates += 1
        if self.updates == 4:
            raise ValueError("the fourth")
        super().step(closure)


def falling(at, by):
    if at.begun == 5:
        raise KeyError("five")
    return None if by is None else at.full - by * at.begun
'''
OWN = ("optimizer={kind: 'python:updates.Signs', lr: 1.0e-3, momentum: 0.8}",)
IN_ITS_GROUPS = ("optimizer={kind: 'python:updates.Ramped', lr: 1.0e-1, rate_factors: {f: 0.5}}",)
BESIDES = ("optimizer={kind: 'python:updates.Besides', lr: 1.0e-1}",)
FALLING = ("lr_schedule={kind: 'python:updates.Root', over: 5}",)
OF_TORCH = ("optimizer={kind: torch, name: NAdam, lr: 2.0e-3, momentum_decay: 0.01}",)
FACTOR_OF_ANOTHER_TYPE = (*OF_TORCH, "run.precision=float64")
COARSE = ("optimizer={kind: 'python:updates.Coarse', lr: 1.0e-3}",)
STATE_FROM_THE_BEGINNING = ("optimizer={kind: torch, name: Adagrad, lr: 1.0e-2}",)


@pytest.fixture
def own(workshop: Workshop) -> Workshop:
    (workshop.folder / "updates.py").write_text(UPDATES, encoding="utf-8")
    return workshop


@pytest.mark.few
@pytest.mark.parametrize(
    "keys",
    [COARSE, OWN, OF_TORCH, FACTOR_OF_ANOTHER_TYPE, STATE_FROM_THE_BEGINNING, IN_ITS_GROUPS, BESIDES],
    ids=["coarse", "own", "torch", "factor", "adagrad", "groups", "besides"],
)
def test_the_same_bits_on_any_stages_and_after_a_resume(own: Workshop, keys: tuple[str, ...]) -> None:
    length = ("run.epochs=null", "run.steps=12")
    one = own.run(*keys, *length, "pipeline.stages=1", name="one")
    same(own.run(*keys, *length, "pipeline.stages=2", name="two"), one)
    same(own.run(*keys, *length, "pipeline.stages=3", name="three"), one)
    own.run(*keys, "run.epochs=null", "run.steps=7", "pipeline.stages=2", name="stopped")
    same(own.resume("run.steps=12", name="stopped"), one)


PIPELINE = ("method=backpropagation", "pipeline.micro_batch_norm=accept", "pipeline.micro_batches=4")
ON_TWO_STAGES = {
    "local losses": (),
    "zero bubble": (*PIPELINE, "pipeline.schedule=zero_bubble", "optimizer.accumulate=2"),
    "late gradients": (*PIPELINE, "pipeline.schedule=2bw"),
    "replicas": ("replicas.count=2",),
}


@pytest.mark.few
@pytest.mark.parametrize("keys", ON_TWO_STAGES.values(), ids=ON_TWO_STAGES)
def test_what_an_optimizer_draws_is_the_same_on_any_stages_and_after_a_resume(own: Workshop, keys) -> None:
    """On all replicas too: a checkpoint finds it if their weights differ."""
    noisy = (*keys, "optimizer.kind=python:updates.Noisy", "optimizer.lr=1e-3", "run.epochs=null")
    one = own.run(*noisy, "run.steps=12", "pipeline.stages=1", name="one")
    assert one.error is None
    same(own.run(*noisy, "run.steps=12", "pipeline.stages=2", name="two"), one)
    own.run(*noisy, "run.steps=7", "pipeline.stages=2", name="stopped")
    same(own.resume("run.steps=12", name="stopped"), one)


def test_what_no_resume_could_read_ends_the_run_at_its_first_checkpoint(own: Workshop) -> None:
    run = own.run("optimizer={kind: 'python:updates.Numpy', lr: 1.0e-1}")
    assert run.summary.status == "failed"
    assert "the optimizer of component 0 keeps what no resume could read: numpy." in str(run.error)


def test_the_rates_are_those_of_the_class(own: Workshop) -> None:
    one = own.run(*FALLING, "pipeline.stages=1", name="one")
    same(own.run(*FALLING, "pipeline.stages=2", name="two"), one)
    records = read(own.folder / "one" / "records.jsonl")
    rates = [each.lr for each in records if isinstance(each, StepRecord)]
    assert rates[:3] == pytest.approx([rates[0] / (1 + done / 5) ** 0.5 for done in range(3)])


@pytest.mark.few
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("optimizer={kind: 'python:updates.Nothing', lr: 1}", "is not a subclass of torch.optim.optimizer.Optimizer"),
        ("optimizer={kind: 'python:updates.Signs', lr: 1, warmth: 3}", "cannot be made: TypeError"),
        ("optimizer={kind: torch, name: NAdamm, lr: 1}", "torch.optim has no optimizer `NAdamm`"),
        ("optimizer={kind: torch, name: LBFGS, lr: 1}", "`LBFGS` cannot update: TypeError"),
        ("optimizer={kind: torch, name: SparseAdam, lr: 1}", "`SparseAdam` cannot update: RuntimeError"),
        ("optimizer={kind: torch, name: Rprop, lr: 1, weight_decay: 0.1}", "`Rprop` has no weight decay"),
        ("optimizer={kind: 'python:updates.Signs', lr: 1, momentum: 0, weight_decay: 0.1}", "has no weight decay"),
        ("optimizer={kind: 'python:updates.Signs', lr: 1, momentum: 0, decay: weights}", "has no weight decay"),
        ("lr_schedule={kind: 'python:updates.Root'}", "cannot be made: TypeError"),
        ("lr_schedule={kind: 'python:updates.Nothing'}", "cannot be called"),
    ],
)
def test_what_is_wrong_is_told_before_the_run(own: Workshop, keys: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        own.run(keys)
    assert not Path(own.folder / "run" / "summary.json").exists()


@pytest.mark.few
@pytest.mark.parametrize(
    ("keys", "key", "said"),
    [
        ("by: 1.0", "lr_schedule", r"rate `python:updates.falling` returned -0.9\d* at mini-batch 2"),
        ("by: 0.0", "lr_schedule.kind", "rate `python:updates.falling` raised KeyError in mini-batch 6: 'five'"),
        ("by: null", "lr_schedule", "rate `python:updates.falling` returned None at mini-batch 1"),
        ("by: .5, more: 1", "lr_schedule.kind", "rate `python:updates.falling` raised TypeError in mini-batch 1"),
    ],
)
def test_a_rate_that_is_none_is_told_with_its_key_and_its_mini_batch(
    own: Workshop, keys: str, key: str, said: str
) -> None:
    run = partial(own.run, f"lr_schedule={{kind: 'python:updates.falling', {keys}}}", "optimizer.lr=0.01")
    if "mini-batch 1" in said:
        with pytest.raises(UserCodeError, match=said) as raised:
            run()
        error = raised.value
    else:
        error = run().error
    (problem,) = error.problems
    assert problem.key == key and re.search(said, problem.message)


@pytest.mark.parametrize("costs", [(), ("pipeline.costs=null",)], ids=["in the run", "in the probe"])
def test_an_optimizer_that_raises_is_named(own: Workshop, costs: tuple[str, ...]) -> None:
    keys = ("optimizer={kind: 'python:updates.Late', lr: 0.1}", *costs)
    said = "optimizer `python:updates.Late` raised ValueError in an update: the fourth"
    if costs:
        with pytest.raises(UserCodeError) as raised:
            own.run(*keys)
        error = raised.value
    else:
        error = own.run(*keys).error
    (problem,) = error.problems
    assert (problem.message, problem.key) == (said, "optimizer") and problem.file.endswith("updates.py")
    assert "block" not in problem.hint
