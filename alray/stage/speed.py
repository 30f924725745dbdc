"""How fast a device is for a network: what its components take there, to be held against what they take here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alray.data.batches import Batch
from alray.plan.costs import Costs
from alray.spec.models import Spec
from alray.stage import device as devices
from alray.stage.assignment import DataFacts, network_of
from alray.stage.probe import Surroundings, probe_costs
from alray.stage.user_code import UserCode


@dataclass(frozen=True)
class SpeedTrial:
    """What a process needs to measure the components of a run where it is, as the stage `stage` would find it."""

    spec: Spec
    data: DataFacts
    code_root: Path
    allow_code: bool
    batch: Batch
    stage: int

    def train_seconds(self) -> float:
        """Seconds of F, B and U of all components on this process's device, one after another, alone.

        Raises RunError where a component fails, PlanError where there is no such device.
        """
        code = UserCode(self.code_root, allow_elsewhere=self.allow_code)
        spec = self.spec
        surroundings = Surroundings(
            device=devices.pick(spec.resources.device_of(self.stage)),
            threads=spec.resources.threads,
            deterministic=spec.run.deterministic,
        )
        return train_seconds(probe_costs(network_of(spec, self.data, code), self.batch, surroundings))


def train_seconds(costs: Costs) -> float:
    """Seconds of F, B and U of all components."""
    return sum(each.forward_s + each.backward_s + each.update_s for each in costs.components)
