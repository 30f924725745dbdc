"""A stage's part of every checkpoint: snapshots between two mini-batches, and a thread that writes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from alray.core.errors import DiskFault
from alray.core.run_folder.records import Standing
from alray.core.run_folder.store import ComponentFile, step_folder
from alray.core.storage.location import Location, sync_folder
from alray.core.system_errors import ran_out
from alray.models.component import Component
from alray.runtime.stage.checkpoint import Snapshot, take_snapshot, write_snapshot
from alray.runtime.stage.replica_state import ReplicaState, take_replica_state, write_replica_state
from alray.runtime.stage.replication import MeanWeights, Replication, holding
from alray.runtime.stage.telemetry import CheckpointPart


class CheckpointWriter:
    """Writes snapshots in the background, one checkpoint at a time.

    Replica 0 writes weights and optimizers, which are the same on all; of replicas that average weights it writes the
    mean of the weights. Each replica writes what it alone keeps.
    """

    def __init__(
        self,
        checkpoints: Location,
        emit: Callable[[CheckpointPart], None],
        replication: Replication,
        device: str,
    ) -> None:
        """
        Args:
            emit: is called with each part that is on disk.
            device: the model of the one that computes.
        """
        self._checkpoints = checkpoints
        self._emit = emit
        self._replication = replication
        self._device = device
        self._pending: Future[None] | None = None

    def write(
        self,
        components: list[Component],
        step: int,
        means: MeanWeights,
        *,
        final: bool,
        standing: Standing | None = None,
        untrained: bool = False,
    ) -> None:
        """Take snapshots now and write them in the background. Waits for the checkpoint before it.

        Args:
            means: as from `Replication.mean_weights`.
            standing: of the run's evaluations, for the manifest; from stage 0 of replica 0.
            untrained: as in `CheckpointPart`.
        """
        began = time.perf_counter()
        self.finish()
        replication = self._replication
        snapshots = [take_snapshot(component) for component in components]
        states = [take_replica_state(own, replication, apart=bool(means)) for own in snapshots]
        if means and replication.replica == 0:
            with holding(components, means):
                snapshots = [take_snapshot(component) for component in components]
        shares = replication.shares if replication.balances_shares else ()
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"checkpoint-{step}")
        self._pending = executor.submit(self._write, snapshots, states, step, final, began, shares, standing, untrained)
        executor.shutdown(wait=False)  # the thread ends with what it writes

    def _write(
        self,
        snapshots: list[Snapshot],
        states: list[ReplicaState],
        step: int,
        final: bool,
        began: float,
        shares: tuple[int, ...],
        standing: Standing | None,
        untrained: bool,
    ) -> None:
        folder = self._checkpoints / step_folder(step)
        files: list[ComponentFile] = []
        for snapshot, state in zip(snapshots, states, strict=True):
            if self._replication.replica == 0:
                files += write_snapshot(snapshot, folder)
            files += write_replica_state(snapshot.index, state, self._replication, folder)
        if files:
            sync_folder(folder)  # before the driver hears of them, and writes the manifest
        parameters: tuple[tuple[int, str], ...] = ()
        # Between two means, replicas that average weights differ.
        if self._replication.count > 1 and not self._replication.averages_weights:
            parameters = tuple((snapshot.index, snapshot.parameters_sha256()) for snapshot in snapshots)
        duration_s = time.perf_counter() - began
        self._emit(
            CheckpointPart(step, tuple(files), duration_s, final, parameters, self._device, shares, standing, untrained)
        )

    def finish(self) -> None:
        """Wait until everything is written. Raises DiskFault where the disk refused it."""
        if self._pending is None:
            return
        try:
            self._pending.result()
        except OSError as error:
            known = ran_out(error)
            raise DiskFault(
                f"a checkpoint could not be written: {known.problems[0].message if known else error}",
                file=str(self._checkpoints),
                hint=known.problems[0].hint if known else "make the folder writable, then resume",
            ) from error
        self._pending = None
