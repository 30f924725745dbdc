"""Room for stages on a Ray cluster, and the speed of the devices there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from alray.config.sections.resources import ACCELERATORS
from alray.core.errors import StageError
from alray.core.run_folder.store import is_marked
from alray.core.storage.location import Location
from alray.runtime.cluster.nodes import Bundle, given_gpus, living_nodes, not_shared, on_node, reason_of
from alray.runtime.cluster.room import wait_for_room
from alray.runtime.device.machine_memory import machine_memory_bytes
from alray.runtime.local_ray.head import is_lost

if TYPE_CHECKING:
    from alray.runtime.probe.device_speed import Measured, SpeedTest

_LOOKING_S = 2.0
_TRIAL_S = 300.0
_SEEING_S = 60.0
_ENDING_S = 10.0

Answer = TypeVar("Answer")

_Kind = tuple[str, tuple[str, ...]]
"""A node, and the resources that a bundle requests there other than processors and memory: bundles of one kind have
equal devices."""


@dataclass(frozen=True)
class Placement:
    """A placement group with room for all bundles, and the node that each bundle lies on.

    Attributes:
        offset: the number of bundles in the group before those of the stages.
        owned: whether the group was made for them.
    """

    bundles: tuple[Bundle, ...]
    group: PlacementGroup
    nodes: tuple[str, ...]
    offset: int = 0
    owned: bool = True

    @classmethod
    def of(cls, bundles: Sequence[Bundle], labels: Mapping[str, str], note: Callable[[str], None]) -> Placement:
        """Wait for room (see `wait_for_room` for `note` and what it raises). Ray places the bundles on few nodes."""
        group = placement_group(
            [ray_bundle(bundle) for bundle in bundles],
            strategy="PACK",
            bundle_label_selector=[dict(labels)] * len(bundles) if labels else None,
        )
        placement = cls(tuple(bundles), group, ())

        def look() -> bool:
            return bool(group.wait(timeout_seconds=_LOOKING_S)) and placement.placed().is_whole

        try:
            wait_for_room(look, bundles, labels, note, whose="stages")
        except StageError:
            placement.release()
            raise
        return placement.placed()

    def placed(self) -> Placement:
        """With the nodes of the bundles, which all have room."""
        nodes = placement_group_table(self.group)["bundles_to_node_id"]
        return replace(self, nodes=tuple(nodes[self.offset + index] for index in range(len(self.bundles))))

    @classmethod
    def of_trial(cls, bundles: Sequence[Bundle]) -> Placement:
        """The last bundles of the placement group that this process runs in; a trial of Ray Tune has one.

        A second group would ask for the same room twice and wait for ever. Ray leaves out the first bundle of the
        group, that of the process itself, if it is empty, so the bundles of the stages are counted from the end.
        """
        group = get_current_placement_group()
        assert group is not None, "only a process in a placement group is given one"
        offset = len(group.bundle_specs) - len(bundles)
        return cls(tuple(bundles), group, (), offset, owned=False).placed()

    @property
    def is_whole(self) -> bool:
        """Whether every bundle lies on a node that is alive."""
        return set(self.nodes) <= {node.id for node in living_nodes()}

    def options(self, index: int) -> dict[str, Any]:
        """Ray's options for a task or an actor in bundle `index`."""
        bundle = self.bundles[index]
        strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=self.offset + index)
        return {
            "num_cpus": bundle.get("CPU", 0.0),
            "num_gpus": bundle.get("GPU", 0.0),
            "memory": int(bundle.get("memory", 0)),
            "resources": {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU", "memory")},
            "scheduling_strategy": strategy,
        }

    @property
    def cores(self) -> int:
        """Number of processors of all nodes that bundles lie on."""
        return sum(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["NodeID"] in self.nodes)

    def require_run_dir(self, run_dir: Location, token: str, stages: int) -> None:
        """Raise PlanError if a bundle lies on a node that does not see the run folder, in which `token` is.

        Args:
            stages: of each replica.
        """
        machines = self._machines()
        for node in nodes_without(partial(is_marked, run_dir, token), machines):
            raise not_shared(f"stage {self.nodes.index(node) % stages}", machines[node], run_dir)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The name of each bundle's node; () if all lie on one. Nodes of one host are told apart by Ray's number."""
        if len(set(self.nodes)) == 1:
            return ()
        alive = living_nodes()
        named = Counter(node.host for node in alive)
        names = {node.id: node.host if named[node.host] == 1 else f"{node.host}/{node.id[:8]}" for node in alive}
        return tuple(names.get(node, node) for node in self.nodes)

    def machine_parts(self, stages: int) -> tuple[int, ...]:
        """Bytes of memory for each stage: those that run on the processors of a machine have equal parts of it, and of
        the replicas of a stage the least counts. Raises StageError if a node does not answer.

        Args:
            stages: of each replica.
        """
        machines = self._machines()
        here = ray.get_runtime_context().get_node_id()
        memory_bytes = {here: machine_memory_bytes(), **dict(answers(machine_memory_bytes, machines))}
        stages_of = Counter(machines[node] for node in self.nodes)  # one machine may have several nodes
        parts = [memory_bytes[node] // stages_of[machines[node]] for node in self.nodes]
        return tuple(min(parts[stage::stages]) for stage in range(stages))

    def _machines(self) -> dict[str, str]:
        """The host of each bundle's node; a node that has left counts as a machine of its own."""
        alive = {node.id: node.host for node in living_nodes()}
        return {node: alive.get(node, node) for node in self.nodes}

    def release(self) -> None:
        """Give the room back, unless the group was given.

        Without a GCS the call would wait for a minute, and Ray would then end this process. It may have ended just now:
        the end of a run waits until the stages have left.
        """
        if self.owned and not is_lost():
            # Where the cluster no longer answers, it frees the room when it misses this driver.
            with suppress(GetTimeoutError):
                remove_placement_group(self.group)

    def measured(
        self, speed_test: SpeedTest, stages: int, measured_on: str, note: Callable[[str], None]
    ) -> list[Measured | None]:
        """What the test finds in each bundle; None for the device that the costs were measured on.

        The bundles are those of `stages` stages, replica by replica. On each node one device of each kind is measured;
        nodes are measured at the same time.

        A device that cannot be measured gives None and a line to `note`.

        Args:
            measured_on: the kind of device that the costs were measured on, `cpu` or an accelerator.
        """
        first = {self._kind(index): index for index in reversed(range(len(self.bundles)))}
        here = ray.get_runtime_context().get_node_id()
        for name in [()] if measured_on == "cpu" else [(name,) for name in ACCELERATORS]:
            first.pop((here, name), None)
        found: dict[_Kind, Measured | None] = {}
        while left := [kind for kind in first if kind not in found]:
            at_once = {node: (node, wants) for node, wants in left}  # one kind on each node
            running = {kind: self._begin(first[kind], speed_test, first[kind] % stages) for kind in at_once.values()}
            for kind, reference in running.items():
                found[kind] = None
                try:
                    found[kind] = self._result(reference)
                except RayError as error:
                    note(
                        f"the speed of stage {first[kind] % stages}'s device could not be measured, and counts as 1: "
                        f"{reason_of(error)}"
                    )
        return [found.get(self._kind(index)) for index in range(len(self.bundles))]

    def _begin(self, index: int, speed_test: SpeedTest, stage: int) -> Any:
        """Start the test for a stage in bundle `index`; return Ray's reference to its result."""
        # The process ends with the task, or it would keep its memory of the stage's GPU. Ray does that by itself only
        # where the function asks for a GPU, not its options.
        remote = ray.remote(max_calls=1)(_measured).options(max_retries=0, **self.options(index))
        return remote.remote(replace(speed_test, stage=stage))

    def _result(self, reference: Any) -> Measured:
        """Wait for the result of a test, but not after a node has gone: Ray would look for another node for ever.

        A test without a result is ended, for it holds the room of the stage.
        """
        end_s = time.monotonic() + _TRIAL_S
        while not ray.wait([reference], timeout=_LOOKING_S)[0] and self.is_whole and time.monotonic() < end_s:
            pass
        try:
            result: Measured = ray.get(reference, timeout=0)
        except GetTimeoutError:
            ray.cancel(reference, force=True)
            ray.wait([reference], timeout=_ENDING_S)
            raise
        return result

    def _kind(self, index: int) -> _Kind:
        return self.nodes[index], tuple(sorted(set(self.bundles[index]) - {"CPU", "memory"}))


def nodes_without(sees: Callable[[], bool], hosts: Mapping[str, str]) -> Iterator[str]:
    """Return those of these nodes, other than this one, where `sees` returns false. Raises as `answers` does."""
    return (node for node, seen in answers(sees, hosts) if not seen)


def answers(question: Callable[[], Answer], hosts: Mapping[str, str]) -> Iterator[tuple[str, Answer]]:
    """What a function returns on each of these nodes other than this one, with the node.

    Args:
        hosts: the names of nodes, by number.

    Raises:
        StageError: if a node does not answer.
    """
    here = ray.get_runtime_context().get_node_id()
    ask = ray.remote(_call).options
    references = {node: ask(max_retries=0, **on_node(node)).remote(question) for node in hosts if node != here}
    for node, reference in references.items():
        try:
            yield node, ray.get(reference, timeout=_SEEING_S)
        except RayError as error:
            raise StageError(f"{hosts[node]} does not answer: {reason_of(error)}") from error


def _call(question: Callable[[], Answer]) -> Answer:
    return question()


def _measured(speed_test: SpeedTest) -> Measured:
    from alray.runtime.device.devices import keep_to  # imports torch

    keep_to(given_gpus())
    return speed_test.measured()


def ray_bundle(bundle: Bundle) -> Bundle:
    """A bundle as Ray takes it: without zeros, and not empty."""
    return {name: amount for name, amount in bundle.items() if amount > 0} or {"CPU": 0.001}
