"""Runs of tests that find the shapes and the costs of a network once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from alray.models.encoder import EncoderFacts
    from alray.models.network import Network
    from alray.models.shape import Shape
    from alray.planning.prediction.costs import Costs

_counted: dict[str, Costs] = {}
_inspected: dict[str, list[EncoderFacts]] = {}


def _described(network: Network) -> list[Any]:
    """Of what a network is made, the files beside its spec included."""
    spec = network.spec
    sections = spec.model_dump(mode="json", include={"model", "method", "task", "optimizer", "replicas", "resources"})
    code = {file.name: file.read_bytes() for file in sorted(network._chain._load.root.glob("*.py"))}
    messages = spec.pipeline.messages
    return [
        sections,
        code,
        network.architecture_sha256,
        spec.run.precision,
        spec.run.compile,
        messages,
        network.classes,
        network._chain._trained,
    ]


@contextmanager
def counting_once(*, rough: bool = True) -> Iterator[None]:
    """Shapes and costs of a network are the same in all runs of it, and to find them takes longer than a tiny run.

    Args:
        rough: where times are given, no work is counted, and memory is a rough guess unless it is known already:
            nothing but a limit of memory depends on them.
    """
    from alray.models.network import Network
    from alray.planning.schedules.table import SCHEDULES
    from alray.runtime.probe import estimate as counting
    from alray.runtime.probe.component_work import ComponentWork

    inspect_all = Network._inspect_all

    def inspected(network: Network, sample: Shape) -> list[EncoderFacts]:
        one_length = SCHEDULES[network.spec.schedule].is_pipeline
        cut = [network._chain.ends(index) for index in range(len(network._chain))]
        key = repr([*_described(network), cut, one_length, tuple(sample), sample.dtype, sample.words])
        if key not in _inspected:
            _inspected[key] = inspect_all(network, sample)
        return list(_inspected[key])

    def estimate(network: Network, **keys: Any) -> Costs:
        encoders = [facts.as_json() for facts in network.encoders], network.encoders[0].input.words
        given = network.spec.pipeline.costs is not None
        asked = [*_described(network), encoders, sorted(keys.items())]
        key = repr([*asked, "counted"])
        guessed = rough and given and key not in _counted
        if guessed:
            key = repr([*asked, "guessed"])
        if key not in _counted:
            with pytest.MonkeyPatch.context() as patch:
                if guessed:
                    patch.setattr(ComponentWork, "actions", no_work)
                    patch.setattr(counting, "component_memory", guess)
                _counted[key] = counting.estimate_costs(network, **keys)
        return _counted[key]

    def no_work(work: ComponentWork) -> dict[str, Callable[[], None]]:
        return dict.fromkeys(("forward_s", "label_s", "backward_s", "infer_s", "route_s"), lambda: None)

    def guess(network: Network, index: int, batch_size: int, device: Any) -> dict[str, int]:
        out = batch_size * sum(shape.sample_bytes for shape in network.edge(index).values())
        return {
            "activation_bytes": 3 * out,
            "forward_peak_bytes": 4 * out,
            "backward_peak_bytes": 6 * out,
            "adding_peak_bytes": 6 * out,
            "update_peak_bytes": out,
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "_inspect_all", inspected)
        for user in ("planner.planning", "planner.micro_batches", "probe.measure"):
            patch.setattr(f"alray.runtime.{user}.estimate_costs", estimate)
        yield
