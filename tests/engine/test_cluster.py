"""Clusters that are attached to, that are too small, and that lose a node in the middle of a run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from alray.errors import PlanError, RequestError
from alray.graph.cluster import require_room
from alray.orchestrate import Options, run_spec

from .conftest import Asked, Watching
from .test_same_bits import same


@pytest.fixture
def head(tmp_path):
    """A real Ray cluster of one node with two processors, in processes of its own; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", f"--port={port}", "--num-cpus=2"]
    command += ["--include-dashboard=false", "--node-ip-address=127.0.0.1", "--disable-usage-stats"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    address = f"127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert time.monotonic() < deadline, "the cluster did not come up"
        time.sleep(0.3)
    time.sleep(2.0)
    yield address
    members = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(members, timeout=5)
    for member in left:
        member.kill()
    process.wait(timeout=10)


def attached(workshop, address: str, *overrides: str, name: str = "run"):
    options = Options(address=address, run_dir=workshop.folder / name)
    return run_spec(workshop.spec, list(overrides), options, Watching(), Asked())


def test_attached(workshop, reference, head) -> None:
    same(attached(workshop, head, "pipeline.partition=[2,2]"), reference)
    began = time.monotonic()
    with pytest.raises(PlanError) as caught:
        attached(workshop, head, "pipeline.partition=[1,2,1]", name="three")
    assert time.monotonic() - began < 20
    assert str(caught.value) == (
        "resources.per_stage: 3 stages of 1 CPU each can never be placed: the cluster has 2 CPU on 1 node, room for 2; "
        "lower pipeline.stages or resources.per_stage, or attach to a larger cluster"
    )
    same(attached(workshop, head, "pipeline.partition=[1,3]", name="again"), reference)


def test_no_cluster_there(workshop) -> None:
    with pytest.raises(RequestError) as caught:
        attached(workshop, "127.0.0.1:1")
    assert str(caught.value) == (
        "--address: no Ray cluster answers at `127.0.0.1:1`: Connection refused; "
        "start it, mend the address, or leave --address out to run on this machine alone"
    )
    with pytest.raises(RequestError, match="is an address of Ray Client, which cannot carry a run"):
        attached(workshop, "ray://127.0.0.1:10001", name="client")


def test_room_is_counted_node_by_node() -> None:
    require_room([{"CPU": 1}] * 3, [{"CPU": 2}, {"CPU": 1}])
    with pytest.raises(PlanError, match="room for 2"):
        require_room([{"CPU": 2}] * 3, [{"CPU": 3}, {"CPU": 3}])
    with pytest.raises(PlanError) as caught:
        require_room([{"GPU": 1, "CPU": 1}], [{"CPU": 8}])
    assert str(caught.value) == (
        "resources.per_stage: 1 stages of 1 GPU and 1 CPU each can never be placed: the cluster has 0 GPU, 8 CPU "
        "on 1 node, room for 0; lower pipeline.stages or resources.per_stage, or attach to a larger cluster"
    )


def test_nodes_without_the_labels_are_no_room(workshop, local_ray) -> None:
    with pytest.raises(PlanError) as caught:
        workshop.run("resources.labels={zone: west}", inline=False)
    assert str(caught.value) == (
        "resources.per_stage: 1 stages of 1 CPU each can never be placed: the cluster has 0 CPU "
        "on 0 nodes labelled zone=west, room for 0; "
        "lower pipeline.stages or resources.per_stage, or attach to a larger cluster"
    )


def test_more_gpu_stages_than_gpus(workshop) -> None:
    with pytest.raises(PlanError) as caught:
        workshop.run("resources.device=cuda", "resources.per_stage={GPU: 1}", "pipeline.stages=2", inline=False)
    assert str(caught.value) == (
        "resources.device: this machine has no GPU that torch can use; "
        "set resources.device=cpu, or run where there are GPUs"
    )


@pytest.mark.timeout(90)
def test_a_node_that_goes(workshop, longer_reference) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        other = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, namespace="alray", log_to_driver=False)
        gone: list[int] = []

        def look(statuses) -> None:
            if not gone and statuses[0].step >= 6:
                gone.append(1)
                cluster.remove_node(other, allow_graceful=False)

        watching = Watching(on_statuses=look)
        run = workshop.run("pipeline.partition=[2,2]", "run.epochs=40", inline=False, watching=watching)
        assert gone
        same(run, longer_reference)
        assert run.summary.partition == [4]
        assert "there is room for 1 of 2 stages: partition [4] from here on" in watching.notes
        assert 1 <= len(run.summary.failures) <= 3
    finally:
        ray.shutdown()
        cluster.shutdown()
