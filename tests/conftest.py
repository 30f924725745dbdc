"""Which tests run beside which; small networks and jobs from the text of a spec, for every floor that computes."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from .counting import counting_once
from .stand_ins import Overrides, find_stand_ins, write_stand_ins

if TYPE_CHECKING:
    from alray.models.network import Network
    from alray.planning.prediction.costs import Costs
    from alray.runtime.planner.planning import Planner
    from alray.runtime.workload import Workload

# pytest loads readline, which sets these for the workers of xdist; alray would lay out what it prints for them.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# Ray reads these when it is first imported. The clusters of the tests ask for a token, and no test reads or writes the
# one in the home folder.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ.setdefault("RAY_AUTH_TOKEN", "0" * 64)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ |= {
    "RAY_worker_niceness": "0",  # as in a Ray that alray starts
    "RAY_health_check_period_ms": "1000",  # a node that goes is missed after 5 s instead of 15
}

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# The tests leave nothing in the state folder of whoever runs them. Child processes inherit this.
_state = TemporaryDirectory(prefix="alray-state-")
os.environ["XDG_STATE_HOME"] = _state.name

# Backward runs in a thread of its own on a GPU: `ALRAY_TEST_BACKWARD=thread pytest ...` does so on a processor.
if os.environ.get("ALRAY_TEST_BACKWARD") == "thread":
    from .backward_threads import run_backward_in_threads

    run_backward_in_threads()

# A script's shell begins what it runs in the background with SIGINT ignored, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

SMALL = """\
name: small
seed: 5
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 60, batch_size: 8, validation_fraction: 0.2}
model:
  components:
    - {block: vgg, channels: [4]}
    - {block: vgg, channels: [6], pool: true}
method: {kind: associated_learning, label_dim: 5}
optimizer: {kind: adam, lr: 1.0e-2}
pipeline: {stages: 1}
run: {epochs: 1}
"""

OWN_BLOCKS = "own_blocks.py"
"""Where `make_job` and `make_network` put the blocks of a test: `python:own_blocks.Name`."""

RAY_FIXTURES = {"cluster", "local_ray", "own_ray"}
_GROUP_OF = {"ray": "the shared Ray", "stand_ins": "stand-ins", "forked": "forks of one process"}
"""Tests of one group run on one worker, in order: they share what takes ten seconds to make. Every file with none of
these marks is a group of its own."""
_SOONEST = ("ray", "own_ray", "stand_ins", "long", "forked", "")
"""Marks of files in the order in which they start, so that no worker is left with a long file at the end."""
_MARKED = re.compile(rf"^pytestmark = .*pytest\.mark\.({'|'.join(filter(None, _SOONEST))})\b", re.MULTILINE)


@cache
def _mark_of(file: Path) -> str:
    """The mark of `_SOONEST` that a whole file has; "" for none.

    It is read from the text: where the groups are given to workers, only the names of the tests are known.
    """
    found = _MARKED.search(file.read_text(encoding="utf-8"))
    return found[1] if found is not None else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole files go to a worker, and the files of a group to the same one.

    pytest-xdist has groups (`--dist loadgroup`), but with pytest 9.2 it no longer keeps to them.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _GROUP_OF.get(_mark_of(config.rootpath / file), file)

    return Groups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """No garbage is searched for while files are imported, and none among what they leave: a run alone in its process
    has less of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests into the order in which they start. `make test-all` alone has more than the first case of a test
    that is marked `few`."""
    seen: set[tuple[Path, str]] = set()
    for item in items:
        name = (item.path, getattr(item, "originalname", item.name))
        if item.get_closest_marker("few") is not None and item.get_closest_marker("full") is None and name in seen:
            item.add_marker(pytest.mark.full)
        seen.add(name)
        if _mark_of(item.path) not in ("ray", "own_ray") and RAY_FIXTURES & set(getattr(item, "fixturenames", ())):
            raise pytest.UsageError(f"{item.nodeid} uses Ray: its file wants `pytestmark = pytest.mark.ray`")
    items.sort(key=lambda item: _SOONEST.index(_mark_of(item.path)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seconds of each folder, of a run over several: with the junit file it shows where the minutes of
    `make test` go."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds["/".join(report.nodeid.partition("::")[0].split("/")[:-1][:2])] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("seconds by folder")
        for folder, each in seconds.most_common():
            terminalreporter.write_line(f"{each:8.1f} {folder}")


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """No test cuts the power: `tests/core/storage/crash_model.py` says what that would leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def stand_in_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Overrides]]:
    """Their folder, and how they are opened. Written once; a test takes `stand_ins`."""
    folder = tmp_path_factory.mktemp("stand_ins")
    return folder, write_stand_ins(folder)


@pytest.fixture
def stand_ins(
    stand_in_files: tuple[Path, Mapping[str, Overrides]], monkeypatch: pytest.MonkeyPatch
) -> Mapping[str, Overrides]:
    """What `on_stand_in` opens a committed spec with."""
    folder, overrides = stand_in_files
    find_stand_ins(folder, monkeypatch)
    return overrides


@pytest.fixture(scope="module")
def counted_once() -> Iterator[None]:
    """As `counting_once`. For tests of what runs come to; tests/models and tests/runtime/probe hold that shapes, counts
    and memory are right."""
    with counting_once():
        yield


@pytest.fixture
def nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are counted where they would be measured, which takes longer than a short run."""
    from alray.runtime.planner import planning

    def count(network: Network, batch: Any, around: Any, **named: Any) -> Costs:
        size = len(batch.labels)
        return planning.estimate_costs(network, batch_size=size, device=around.device)

    monkeypatch.setattr(planning, "probe_costs", count)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread, as in a run, and a search path for modules that is put back."""
    import torch

    threads, path = torch.get_num_threads(), list(sys.path)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    sys.path[:] = path


@pytest.fixture
def load_small(tmp_path: Path) -> Callable[..., Any]:
    """Loads a spec's text with overrides, the text of the blocks of a test beside it."""
    from alray.config.loading.load import load_spec

    def load(*overrides: str, text: str = SMALL, code: str = "") -> Any:
        (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
        if code:
            (tmp_path / OWN_BLOCKS).write_text(code, encoding="utf-8")
        return load_spec(tmp_path / "small.yaml", list(overrides))

    return load


@pytest.fixture
def make_workload(load_small: Callable[..., Any], one_thread: None) -> Callable[..., Workload]:
    """`make_workload(*overrides, text=SMALL, code="")`: a spec with its data opened and its network drawn."""
    from alray.config.user_code import UserCode
    from alray.runtime.workload import Workload

    def make(*overrides: str, **texts: str) -> Workload:
        loaded = load_small(*overrides, **texts)
        return Workload.open(loaded.spec, UserCode(loaded.file.resolve().parent))

    return make


@pytest.fixture
def make_planner(load_small: Callable[..., Any], one_thread: None) -> Callable[..., Planner]:
    """`make_planner(*overrides, text=SMALL, code="")`: the planner of a spec."""
    from alray.config.user_code import UserCode
    from alray.runtime.planner.planning import Planner

    def make(*overrides: str, **texts: str) -> Planner:
        loaded = load_small(*overrides, **texts)
        return Planner.open(loaded.spec, UserCode(loaded.file.resolve().parent))

    return make


@pytest.fixture
def make_network(load_small: Callable[..., Any], one_thread: None) -> Callable[..., Network]:
    """`make_network(*overrides, sample=(2, 8, 8), classes=4, text=SMALL, code="")`: a network without any data."""
    from alray.config.user_code import UserCode
    from alray.models.network import Network
    from alray.models.shape import Shape

    def make(*overrides: str, sample: tuple[int, ...] = (2, 8, 8), classes: int = 4, **texts: str) -> Network:
        loaded = load_small(*overrides, **texts)
        code = UserCode(loaded.file.resolve().parent)
        shape = sample if isinstance(sample, Shape) else Shape(sample)
        return Network(loaded.spec, sample=shape, classes=classes, load=code)

    return make
