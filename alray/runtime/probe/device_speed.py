"""What a device is for a network: the time of its components there, to compare with that here, and its memory."""

from __future__ import annotations

from dataclasses import dataclass

from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core import accelerator
from alray.data.batches import Batch
from alray.models.network import Network
from alray.models.shape import Shape
from alray.runtime.device import devices
from alray.runtime.probe.measure import Surroundings, probe_costs


@dataclass(frozen=True)
class Measured:
    """What a device was found to be."""

    train_s: float
    """Seconds of F, B and U of all components, one after another."""
    memory_bytes: int | None
    """The memory of an accelerator; None: a processor."""


@dataclass(frozen=True)
class SpeedTest:
    """Everything a process needs to measure a run's components where it is placed, on the device of stage `stage`."""

    spec: Spec
    sample: Shape
    classes: int
    code: UserCode
    batch: Batch
    stage: int

    def measured(self) -> Measured:
        """This process's device.

        Raises RunError if a component fails, and PlanError if there is no such device.
        """
        spec = self.spec
        device = devices.pick(spec.resources.device_of(self.stage))
        network = Network(spec, sample=self.sample, classes=self.classes, load=self.code)
        memory_bytes = accelerator.least_memory_bytes() if accelerator.is_accelerator(device) else None
        return Measured(probe_costs(network, self.batch, Surroundings(device)).train_s, memory_bytes)
