"""A method of the user, as the documentation shows it, keeps the promises of local losses."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

from alray.core.errors import RequestError, SpecError, UserCodeError
from alray.core.run_folder.records import StepRecord
from alray.core.run_folder.records import read as read_records
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.inference.plain_network import plain_network
from alray.inference.requests import evaluate

from .conftest import Workshop
from .test_same_bits import same

METHOD = "method={kind: 'python:one_hot.OneHot', pool: 4}"
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
TARGETED = """

class Targeted(OneHot):
    '''Has copies of the encoder: one whose name ends in `f`, and one in a part with an encoder `f` of its own.'''

    def component(self, index, f, facts, make):
        head = make("head", lambda: self.head(facts))
        target_f = make("target_f", lambda: copy.deepcopy(f))
        inner = make("inner", lambda: nn.ModuleDict({"f": copy.deepcopy(f)}))
        return TargetedComponent(index, f, head, self.task, target_f, inner)


class TargetedComponent(OneHotComponent):
    def __init__(self, index, f, head, task, target_f, inner):
        super().__init__(index, f, head, task)
        self.target_f, self.inner = target_f.requires_grad_(False), inner.requires_grad_(False)
"""

DOUBLED = """

from alray.models.component import Passage


class Doubled(OneHot):
    '''The second component alone has a passage.'''

    def component(self, index, f, facts, make):
        kind = DoubledComponent if index == 1 else OneHotComponent
        return kind(index, f, make("head", lambda: self.head(facts)), self.task)


class DoubledComponent(OneHotComponent):
    @property
    def passage(self):
        return Twice()


class Twice(Passage):
    def before(self, incoming):
        return incoming | {"s": 2 * incoming["s"]}

    def after(self, incoming, encoded):
        return encoded
"""


@pytest.fixture
def own(workshop: Workshop) -> Workshop:
    """A workshop with the documentation's example beside its spec."""
    (text,) = re.findall(r"`one_hot\.py`:\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    written = f"import copy\n\nfrom torch import nn\n{text}{TARGETED}{DOUBLED}"
    (workshop.folder / "one_hot.py").write_text(written, encoding="utf-8")
    return workshop


@pytest.mark.full
def test_the_same_bits_on_two_stages_as_on_one_and_after_a_resume(own: Workshop) -> None:
    one = own.run(METHOD, "pipeline.stages=1", "pipeline.schedule=sequential", name="one")
    two = own.run(METHOD, "pipeline.partition=[1,3]", name="two")
    same(two, one)
    own.run(METHOD, "pipeline.partition=[2,2]", "run.epochs=1", name="resumed")
    same(own.resume("run.epochs=3", "pipeline.partition=[1,1,2]", name="resumed"), one)


@pytest.mark.full
def test_what_a_run_leaves_behind(own: Workshop) -> None:
    """Its losses, an accuracy for every depth, and a copy of the code, from which it is evaluated and exported."""
    finished = own.run(METHOD, "run.epochs=1")
    folder = own.folder / "run"
    losses = next(record.losses for record in read_records(folder / "records.jsonl") if isinstance(record, StepRecord))
    assert {tuple(of_component) for of_component in losses.values()} == {("squared_error",)}
    assert [entry.depth for entry in finished.summary.accuracy_per_depth] == [1, 2, 3, 4]
    (own.folder / "one_hot.py").unlink()
    with pytest.raises(RequestError, match=r"one_hot.py \(changed or missing in "):
        evaluate(TrainedNetwork(folder, allow_code=False))
    accuracies = evaluate(TrainedNetwork(folder, allow_code=True)).scores
    assert [(entry.depth, entry.test) for entry in accuracies] == [
        (entry.depth, entry.test) for entry in finished.summary.accuracy_per_depth
    ]
    trained = TrainedNetwork(folder, allow_code=True)
    exported = export_route(trained, 2, "safetensors", folder / "code" / "route.safetensors")
    with pytest.raises(RequestError, match=r"python:one_hot.OneHot, in .*one_hot.py; put the modules next to the file"):
        ExportedRoute(Path(exported.file), allow_code=False)
    elsewhere = shutil.copy(exported.file, own.folder / "alone.safetensors")
    with pytest.raises(RequestError, match=r"python:one_hot.OneHot; put the modules next to the file"):
        ExportedRoute(Path(elsewhere), allow_code=False)
    loaded = ExportedRoute(Path(exported.file), allow_code=True)
    assert list(loaded.route.state_dict()) == list(trained.route(2).state_dict())


def test_a_part_whose_name_ends_in_f_is_read_from_a_checkpoint(own: Workshop) -> None:
    """Only the encoder's own body is not named in a checkpoint."""
    method = METHOD.replace("OneHot", "Targeted")
    finished = own.run(method, "optimizer.ema_decay=0.9", "run.epochs=1")
    accuracies = evaluate(TrainedNetwork(own.folder / "run", allow_code=True)).scores
    assert [entry.test for entry in accuracies] == [entry.test for entry in finished.summary.accuracy_per_depth]
    again = own.run(method, "optimizer.ema_decay=0.9", "run.epochs=2", name="whole")
    same(own.resume("run.epochs=2"), again)


def test_a_route_passes_the_components_that_have_a_passage_and_those_that_have_none(own: Workshop) -> None:
    finished = own.run(METHOD.replace("OneHot", "Doubled"), "run.epochs=1", "optimizer.lr=1e-2")
    trained = TrainedNetwork(own.folder / "run", allow_code=True)
    accuracies = evaluate(trained).scores
    assert [entry.test for entry in accuracies] == [entry.test for entry in finished.summary.accuracy_per_depth]
    exported = export_route(trained, 4, "safetensors", own.folder / "run" / "code" / "route.safetensors")
    samples = torch.randn(5, 2, 8, 8)
    scores = trained.route(4)(samples)
    assert torch.equal(ExportedRoute(Path(exported.file), allow_code=True).route(samples), scores)
    assert torch.equal(plain_network(trained, 4)(samples), scores)


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("{kind: 'python:own_blocks.Dropped'}", "method.kind"),
        ("{kind: 'python:one_hot.OneHot'}", "method"),
        ("{kind: 'python:one_hot.OneHot', pool: 4, typo: 1}", "method"),
        ("{kind: 'python:one_hot.OneHot', pool: many}", "method.kind"),
    ],
    ids=["no method", "a field too few", "a field too many", "a part that cannot be built"],
)
def test_what_is_wrong_with_it_is_told(own: Workshop, method: str, key: str) -> None:
    with pytest.raises((SpecError, UserCodeError)) as caught:
        own.run(f"method={method}")
    assert caught.value.problems[0].key == key
