"""The predicted peak memory of each stage beside what torch's MemTracker counts while it trains, on the CPU.

    python -m benchmarks.memory

Four networks, by Associated Learning and by backpropagation, whole and cut, three mini-batches each.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from alray.config.sections.spec import Spec
from alray.models.network import Network
from alray.models.shape import Shape
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.make import make_plan
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.setting import StepSetting
from alray.runtime.probe.estimate import estimate_costs
from benchmarks.runs import write_results
from benchmarks.tracked_memory import tracked_peak_bytes

_CPU = torch.device("cpu")
_CLASSES = 10


@dataclass(frozen=True)
class Size:
    """How large the networks are."""

    batch: int
    image: int  # pixels, a side
    channels: int  # of the first block; the last one has four or eight times as many
    places: int  # of a text
    words: int
    width: int  # of a word's vector, a multiple of 4


SMALL = Size(batch=16, image=16, channels=16, places=24, words=200, width=48)
REALISTIC = Size(batch=64, image=32, channels=64, places=64, words=20_000, width=256)

NETWORKS = ("vgg", "resnet", "lstm", "transformer")


@dataclass(frozen=True)
class Way:
    """A method, a schedule and a cut of four components."""

    method: str
    schedule: str
    partition: tuple[int, ...]
    micro_batches: int = 1
    recomputes: bool = False
    virtual_stages: int = 1

    @property
    def stages(self) -> int:
        return len(self.partition) // self.virtual_stages

    @property
    def name(self) -> str:
        cut = f" in {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        again = ", forwards again" if self.recomputes else ""
        on = ", one stage" if self.virtual_stages > self.stages == 1 else ""
        return f"{self.method}, {self.schedule} {list(self.partition)}{on}{cut}{again}"


WAYS = (
    Way("associated_learning", "streamed", (4,)),
    Way("associated_learning", "streamed", (1, 1, 1, 1), virtual_stages=4),
    Way("associated_learning", "streamed", (2, 2)),
    Way("decoupled_greedy", "streamed", (4,)),
    Way("decoupled_greedy", "streamed", (1, 1, 1, 1), virtual_stages=4),
    Way("backpropagation", "single", (4,)),
    Way("backpropagation", "gpipe", (4,), 4),
    Way("backpropagation", "interleaved_1f1b", (1, 1, 1, 1), 1, recomputes=True, virtual_stages=4),
    Way("backpropagation", "naive", (1, 3)),
    Way("backpropagation", "gpipe", (2, 2), 4),
    Way("backpropagation", "1f1b", (2, 2), 4),
)


def network_of(name: str, method: str, size: Size, *, precision: str = "float32", optimizer: str = "adam") -> Network:
    """One of `NETWORKS`, or an `mlp`: four components."""
    text = name in ("lstm", "transformer")
    sample = Shape((3, size.image, size.image))
    if text:
        sample = Shape((size.places,), torch.int64, words=tuple(f"word{number}" for number in range(size.words)))
    spec = Spec.model_validate(
        {
            "name": name,
            "data": {"source": "synthetic", "shape": [3, size.image, size.image], "batch_size": size.batch},
            "model": {"components": _components(name, size)},
            "method": {"kind": method},
            "optimizer": {"kind": optimizer, "lr": 1e-3},
            "pipeline": {"micro_batch_norm": "accept"},
            "run": {"steps": 1, "precision": precision},
        }
    )
    return Network(spec, sample=sample, classes=_CLASSES, load=_no_code)


def _components(name: str, size: Size) -> list[dict[str, Any]]:
    channels, width = size.channels, size.width
    if name == "mlp":
        return [{"block": "linear", "width": 8 * width, "repeat": 4}]
    if name == "vgg":
        return [
            {"block": "vgg", "channels": [channels, channels]},
            {"block": "vgg", "channels": [2 * channels], "pool": True},
            {"block": "vgg", "channels": [4 * channels, 4 * channels], "pool": True},
            {"block": "vgg", "channels": [8 * channels], "pool": True},
        ]
    if name == "resnet":
        return [
            {"block": "stem", "channels": channels},
            {"block": "residual", "channels": channels, "layers": 2},
            {"block": "residual", "channels": 2 * channels, "layers": 2, "stride": 2},
            {"block": "residual", "channels": 4 * channels, "layers": 2, "stride": 2},
        ]
    embedding = {"block": "embedding", "dim": width}
    if name == "lstm":
        return [embedding, {"block": "lstm", "hidden": width // 2, "repeat": 3}]
    return [
        embedding,
        {"block": "transformer", "heads": 4, "feedforward": 2 * width, "dropout": 0.1},
        {"block": "transformer", "heads": 4, "feedforward": 2 * width, "repeat": 2},
    ]


def _no_code(reference: str) -> Any:
    raise AssertionError(f"no block of these networks is `{reference}`")


def costs_of(network: Network, size: Size) -> Costs:
    """Counted costs of a network, for mini-batches of `size`."""
    return estimate_costs(network, batch_size=size.batch, device=_CPU)


def plan_of(way: Way, costs: Costs) -> Plan:
    """The plan of training a network of these costs in one way."""
    setting = StepSetting(
        schedule=way.schedule,
        costs=costs,
        stages=way.stages,
        in_flight=4,
        micro_batches=way.micro_batches,
        virtual_stages=way.virtual_stages,
        cores=1,
        recomputes=way.recomputes,
    )
    return make_plan(setting, way.partition, method=way.method, steps_per_epoch=1, total_steps=1, evaluation_batches=0)


def predicted_bytes(plan: Plan, stage: int) -> int:
    """What `benchmarks.tracked_memory` can see of a stage's predicted peak: in a pipeline, what is received and sent is
    in torch's tensors."""
    memory = plan.stage_plans[stage].memory
    unseen = 0 if plan.method == "backpropagation" else memory.channel_bytes
    return memory.total_bytes - memory.snapshot_bytes - unseen


def measure(size: Size) -> list[dict[str, Any]]:
    """One entry for each stage of each network and way."""
    entries = []
    for name in NETWORKS:
        for method in dict.fromkeys(way.method for way in WAYS):
            network = network_of(name, method, size)
            costs = costs_of(network, size)
            for way in (way for way in WAYS if way.method == method):
                plan = plan_of(way, costs)
                for stage in range(plan.stages):
                    entries.append(
                        {
                            "network": name,
                            "way": way.name,
                            "stage": stage,
                            "predicted_bytes": predicted_bytes(plan, stage),
                            "measured_bytes": tracked_peak_bytes(network, plan, stage),
                        }
                    )
                    print(entries[-1], flush=True)  # noqa: T201
    return entries


def main() -> None:
    write_results("memory", {"size": asdict(REALISTIC), "stages": measure(REALISTIC)})


if __name__ == "__main__":
    main()
