"""How fast a device is for a network: the time of its components there, to compare with their time here."""

from __future__ import annotations

from dataclasses import dataclass

from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.data.batches import Batch
from alray.models.network import Network
from alray.models.shape import Shape
from alray.planning.prediction.costs import Costs
from alray.runtime.device import devices
from alray.runtime.probe.measure import Surroundings, probe_costs


@dataclass(frozen=True)
class SpeedTest:
    """Everything a process needs to measure a run's components where it is placed, on the device of stage `stage`."""

    spec: Spec
    sample: Shape
    classes: int
    code: UserCode
    batch: Batch
    stage: int

    def train_seconds(self) -> float:
        """Seconds of F, B and U of all components, one after another, on this process's device.

        Raises RunError if a component fails, and PlanError if there is no such device.
        """
        spec = self.spec
        surroundings = Surroundings(
            device=devices.pick(spec.resources.device_of(self.stage)),
            threads=spec.resources.threads,
            deterministic=spec.run.deterministic,
            tf32=spec.resources.tf32,
        )
        network = Network(spec, sample=self.sample, classes=self.classes, load=self.code)
        return train_seconds(probe_costs(network, self.batch, surroundings))


def train_seconds(costs: Costs) -> float:
    """Seconds of F, B and U of all components."""
    return sum(component.train_s for component in costs.components)
