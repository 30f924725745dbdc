"""Small networks and jobs from the text of a spec, for the tests of every floor that computes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .stand_ins import Overrides, write_stand_ins

if TYPE_CHECKING:
    from alray.nn.network import Network
    from alray.run.planning import Planner
    from alray.stage.workload import Workload

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
"""Where `make_job` and `make_network` put a test's own blocks: `python:own_blocks.Name`."""


@pytest.fixture(scope="session")
def docstrings_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of the data source `docstrings` for all tests: it is made once, in ten seconds."""
    return tmp_path_factory.mktemp("docstrings")


@pytest.fixture(scope="session")
def stand_in_files(tmp_path_factory: pytest.TempPathFactory, docstrings_cache: Path) -> Mapping[str, Overrides]:
    """Written once; a test takes `stand_ins`."""
    return write_stand_ins(tmp_path_factory.mktemp("stand_ins"), docstrings_cache)


@pytest.fixture
def stand_ins(stand_in_files: Mapping[str, Overrides], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Overrides]:
    """What `on_stand_in` opens a committed spec with."""
    # torchvision reads no file of CIFAR that has another MD5 than the real one.
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5=None: Path(path).is_file())
    return stand_in_files


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
    """Loads a spec's text with overrides, the text of a test's own blocks beside it."""
    from alray.spec.loading import load_spec

    def load(*overrides: str, text: str = SMALL, code: str = "") -> Any:
        (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
        if code:
            (tmp_path / OWN_BLOCKS).write_text(code, encoding="utf-8")
        return load_spec(tmp_path / "small.yaml", list(overrides))

    return load


@pytest.fixture
def make_workload(load_small: Callable[..., Any], one_thread: None) -> Callable[..., Workload]:
    """`make_workload(*overrides, text=SMALL, code="")`: a spec with its data opened and its network drawn."""
    from alray.stage.workload import Workload
    from alray.user_code import UserCode

    def make(*overrides: str, **texts: str) -> Workload:
        loaded = load_small(*overrides, **texts)
        return Workload.open(loaded.spec, UserCode(loaded.file.resolve().parent))

    return make


@pytest.fixture
def make_planner(load_small: Callable[..., Any], one_thread: None) -> Callable[..., Planner]:
    """`make_planner(*overrides, text=SMALL, code="")`: the planner of a spec."""
    from alray.run.planning import Planner
    from alray.user_code import UserCode

    def make(*overrides: str, **texts: str) -> Planner:
        loaded = load_small(*overrides, **texts)
        return Planner.open(loaded.spec, UserCode(loaded.file.resolve().parent))

    return make


@pytest.fixture
def make_network(load_small: Callable[..., Any], one_thread: None) -> Callable[..., Network]:
    """`make_network(*overrides, sample=(2, 8, 8), classes=4, text=SMALL, code="")`: a network without any data."""
    from alray.nn.network import Network
    from alray.nn.shape import Shape
    from alray.user_code import UserCode

    def make(*overrides: str, sample: tuple[int, ...] = (2, 8, 8), classes: int = 4, **texts: str) -> Network:
        loaded = load_small(*overrides, **texts)
        code = UserCode(loaded.file.resolve().parent)
        shape = sample if isinstance(sample, Shape) else Shape(sample)
        return Network(loaded.spec, sample=shape, classes=classes, load=code)

    return make
