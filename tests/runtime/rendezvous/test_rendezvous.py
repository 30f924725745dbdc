"""What stages open when they meet. GPUs and NCCL are stood in for: these tests run without them."""

from __future__ import annotations

import gc
import os
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

import alray.runtime.graph.actor  # noqa: F401 - what it imports reads the environment that a test replaces
from alray.runtime.channel.edge_kind import DeviceLocation, EdgeKind
from alray.runtime.device import memory_used
from alray.runtime.graph.processes import StageProcess
from alray.runtime.rendezvous import edges, groups
from alray.runtime.rendezvous.store import HostedStore, enter

LOCATIONS = (DeviceLocation("near", "0"), DeviceLocation("far", "0"))


def test_headers_between_gpus_of_two_nodes_stay_in_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many may wait as messages. With fewer, two stages of a pipeline could wait for each other."""
    opened: list[Any] = []
    group = SimpleNamespace()
    for end in ("PointToPointSender", "PointToPointReceiver"):
        monkeypatch.setattr(edges, end, lambda **named: opened.append(named))
    monkeypatch.setattr(edges, "nccl_group", lambda *arguments: group)
    assignment: Any = SimpleNamespace(stage=1, plan=SimpleNamespace())
    store: Any = torch.distributed.HashStore()
    gpu = torch.device("cuda", 0)
    ends = edges.EdgeEnds(assignment, gpu, None, store, LOCATIONS, 20.0)  # type: ignore[arg-type]
    assert ends.kind(0) is EdgeKind.NCCL
    ends.sender(0, 2, 100, 0, 7)
    ends.receiver(0, 4, 100, 0, 7)
    of_sender, of_receiver = opened
    assert of_receiver["in_flight"] == 7
    assert of_sender["device"] == of_receiver["device"] == torch.device("cpu")


def test_edges_on_gpus_are_connected_in_one_order_before_the_first_mini_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting waits for the neighbour."""
    did: list[str] = []

    class Ends(edges.EdgeEnds):
        def sender(self, peer: int, tag: int, *sizes: Any, **named: Any) -> Any:
            self._on_gpus[f"0->{peer}", tag] = SimpleNamespace(connect=lambda: did.append(f"0->{peer}"))  # type: ignore

        def receiver(self, peer: int, tag: int, *sizes: Any, **named: Any) -> Any:
            self._on_gpus[f"{peer}->0", tag] = SimpleNamespace(connect=lambda: did.append(f"{peer}->0"))  # type: ignore

    sizes = SimpleNamespace(up=lambda stage: 8, labels_up=lambda stage: 0, down=lambda stage: 8)
    monkeypatch.setattr(edges, "EdgeEnds", Ends)
    monkeypatch.setattr(edges, "MessageSizes", lambda assignment, network: sizes)
    monkeypatch.setattr(edges, "_barrier", lambda *arguments: None)
    monkeypatch.setattr(edges.Ports, "of", lambda *arguments, **named: did.append("made"))
    plan = SimpleNamespace(stages=3, edges_between=lambda: [(0, 2), (0, 1)], waiting=lambda *ends, down: 1)
    nothing: Any = None
    assignment: Any = SimpleNamespace(plan=plan, stage=0)
    network: Any = SimpleNamespace(method=SimpleNamespace(copy_every=None))
    edges.ports_of(assignment, network, torch.device("cpu"), nothing, nothing, nothing, LOCATIONS, 20.0)
    assert did == ["0->1", "0->2", "1->0", "2->0", "made"]


def test_replicas_on_gpus_are_connected_before_the_first_mini_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[torch.device] = []

    class Connected:
        def sum(self, tensor: Any) -> None:
            summed.append(tensor)

    monkeypatch.setattr(groups, "nccl_group", lambda *arguments: "group")
    monkeypatch.setattr(groups, "make_all_reduce", lambda section, group, *, timeout_s: Connected())
    monkeypatch.setattr(groups, "current", lambda: torch.device("cuda", 1))
    monkeypatch.setattr(groups.torch, "zeros", lambda size, *, device: device)
    assignment: Any = SimpleNamespace(stage=0, replica=1, plan=SimpleNamespace(replicas=2))
    group: Any = groups.replica_group(torch.distributed.HashStore(), assignment, 20.0, kind=EdgeKind.NCCL)
    assert (group, summed) == ("group", [torch.device("cuda", 1)])


def test_sums_within_computations_do_not_hold_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would cost two waits for each batch normalisation."""
    made: dict[str, Any] = {}
    monkeypatch.setattr(groups, "replica_group", lambda *arguments, **named: None)
    monkeypatch.setattr(groups, "all_reduce_class", lambda section: lambda group, **named: made.update(named))
    groups.replica_sums(torch.distributed.HashStore(), SimpleNamespace(), LOCATIONS, 20.0)  # type: ignore[arg-type]
    assert made == {"timeout_s": 20.0, "holds_host": False}


def test_torch_ends_no_process_whose_error_alray_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user has set stays."""
    monkeypatch.setattr(os, "environ", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"})
    groups.prepare_for_nccl()
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"
    assert os.environ["TORCH_NCCL_ENABLE_MONITORING"] == os.environ["TORCH_NCCL_RETHROW_CUDA_ERRORS"] == "0"


def test_a_stage_prepares_for_nccl_before_its_first_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """With that, even on a CPU, torch counts the GPUs: it starts a thread for each. CUDA then reads its environment."""
    set_by_then: list[dict[str, str]] = []
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(memory_used, "run_first_kernels", lambda **named: set_by_then.append(dict(os.environ)))
    try:
        StageProcess().load(torch.get_num_threads(), again=False, is_pipeline=False)
    finally:
        gc.unfreeze()
    (of_stage,) = set_by_then
    assert of_stage["CUDA_MODULE_DATA_LOADING"] == "EAGER" and of_stage["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"


def test_nobody_else_can_use_the_store_of_one_machine() -> None:
    """What listens on 127.0.0.1 answers every user of the machine."""

    def listening() -> list[Any]:
        return [each for each in psutil.Process().net_connections() if each.status == psutil.CONN_LISTEN]

    before = listening()
    hosted = HostedStore(None)
    folder = Path(hosted.point.place).parent
    assert listening() == before and hosted.point.one_host
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.stat().st_uid == os.getuid()
    other = enter(hosted.point, None, 20.0)
    hosted.store.set("a", "1")
    assert other.get("a") == b"1" and other.timeout == timedelta(seconds=20)
    del hosted
    assert not folder.exists()


def test_the_store_of_several_machines_listens_on_one_address() -> None:
    hosted = HostedStore("127.0.0.1")
    other = enter(hosted.point, None, 20.0)
    hosted.store.set("a", "1")
    assert other.get("a") == b"1" and hosted.point.host == "127.0.0.1" and not hosted.point.one_host
