"""Clusters that are attached to, that are too small, and that lose a node in the middle of a run."""

from __future__ import annotations

import platform
import socket
import time
from concurrent.futures import wait
from contextlib import nullcontext
from dataclasses import dataclass

import psutil
import pytest
import ray
from ray.util.placement_group import placement_group

from alray import orchestrate
from alray.core.compat import ray_worker
from alray.core.errors import DataError, PlanError, RequestError, StageError
from alray.orchestrate import Options, resume_run, run_spec
from alray.runtime.cluster import connect, links
from alray.runtime.cluster import placement as placement_module
from alray.runtime.cluster.nodes import living_nodes, on_node
from alray.runtime.cluster.placement import Placement
from alray.runtime.cluster.room import require_room
from alray.runtime.graph.processes import StageProcesses
from alray.runtime.graph.ray_graph import RayGraph
from alray.runtime.planner.planning import Planner
from alray.runtime.runner.engines import RayEngine

from .conftest import LONG, Asked, Watching
from .test_same_bits import same

pytestmark = pytest.mark.ray


def attached(workshop, address: str, *overrides: str, name: str = "run"):
    options = Options(address=address, run_dir=workshop.folder / name, pages=False)
    return run_spec(workshop.spec, list(overrides), options, Watching(), Asked())


def refused(error: Exception, wanted: str, there: str) -> None:
    message = str(error)
    assert "resources.per_stage: " in message and wanted in message and there in message


@pytest.mark.full
def test_attached(workshop, reference, cluster) -> None:
    memory = "resources.per_stage={CPU: 1, memory: 1000000}"
    same(attached(workshop, cluster.address, "pipeline.partition=[2,2]", memory), reference)
    began = time.monotonic()
    with pytest.raises(PlanError) as caught:
        attached(workshop, cluster.address, "pipeline.stages=3", "resources.per_stage={CPU: 2}", name="three")
    assert time.monotonic() - began < 20
    refused(caught.value, "3 stages of 2 CPU ", " 4 CPU on 1 node, room for 2")
    with pytest.raises(PlanError, match="of 1 CPU and 1e\\+15 memory each can never be placed"):
        attached(workshop, cluster.address, "resources.per_stage={CPU: 1, memory: 1.0e+15}", name="much")


def test_other_versions_there(workshop, cluster, monkeypatch) -> None:
    here, python = ray.__version__, platform.python_version()
    with monkeypatch.context() as patch:
        patch.setattr(ray, "__version__", "1.0")
        with pytest.raises(RequestError) as caught:
            attached(workshop, cluster.address)
    message = str(caught.value)
    assert message.startswith(f"--address: no Ray cluster takes this process at `{cluster.address}`: Version mismatch")
    assert f"Ray: {here} Python: {python}" in message and f"Ray: 1.0 Python: {python}" in message
    assert not ray.is_initialized()


def test_no_cluster_there(workshop) -> None:
    with pytest.raises(RequestError, match=r"^--address: .* `127\.0\.0\.1:1`: Connection refused"):
        attached(workshop, "127.0.0.1:1")
    with pytest.raises(RequestError, match="is an address of Ray Client, which cannot carry a run"):
        attached(workshop, "ray://127.0.0.1:10001", name="client")
    with pytest.raises(RequestError, match="is the address of a dashboard; send the run there with `alray submit`"):
        attached(workshop, "http://127.0.0.1:8265", name="dashboard")


def test_an_address_where_nothing_listens_is_told_before_the_data_are_read(workshop, monkeypatch) -> None:
    monkeypatch.setattr(orchestrate, "open_planner", lambda *asked: pytest.fail("the data are read"))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(RequestError, match="Connection refused"):
        attached(workshop, address)


@pytest.mark.parametrize("resumes", [False, True])
def test_a_cluster_that_refuses_is_told_before_the_data_are_read(workshop, cluster, monkeypatch, resumes) -> None:
    """It refuses the token, or has another version, while torch is loaded."""
    run_dir = workshop.folder / "run"
    options = Options(address=cluster.address, run_dir=None if resumes else run_dir, pages=False)
    if resumes:
        short = Options(inline=True, run_dir=run_dir, stop_after=1, pages=False)
        run_spec(workshop.spec, [], short, Watching(), Asked())
    begin = RayEngine.connect

    def begin_and_wait(self, address) -> None:
        begin(self, address)
        wait([self._connected])

    def refuse(address: str) -> None:
        raise RequestError("the cluster refuses this token")

    monkeypatch.setattr(RayEngine, "connect", begin_and_wait)
    monkeypatch.setattr(connect, "_require_token", refuse)
    monkeypatch.setattr(Planner, "open", lambda *asked, **named: pytest.fail("the data are read"))
    with pytest.raises(RequestError, match="refuses this token"):
        if resumes:
            resume_run(run_dir, [], options, Watching(), Asked(), allow_change=False)
        else:
            run_spec(workshop.spec, [], options, Watching(), Asked())


def test_another_cluster_than_the_one_at_hand_is_refused(workshop, cluster, local_ray) -> None:
    """The address was set aside without a word."""
    port = cluster.address.rpartition(":")[2]
    with connect.connect(cluster.address, []) as connection, connect.connect("auto", []):
        assert not connection.own
    for other in ("127.0.0.1:1", f"192.0.2.1:{port}"):
        with pytest.raises(RequestError, match=f"connected to the Ray at `{cluster.address}`, not to `{other}`"):
            attached(workshop, other)


def test_tasks_of_a_later_ray_print(monkeypatch) -> None:
    """While a run is connected, Ray prints nothing on standard output, which is for answers."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(connect, "local_ray", lambda bundles: nullcontext(()))
    monkeypatch.setattr(connect, "living_nodes", lambda labels: [])
    monkeypatch.setattr(connect, "require_room", lambda *asked: None)
    monkeypatch.setattr(ray_worker, "_worker_logs_enabled", True)
    with connect.connect(None, []):
        assert not ray_worker._worker_logs_enabled
    assert ray_worker._worker_logs_enabled


def test_local_is_a_ray_of_our_own(monkeypatch) -> None:
    """The one that Ray starts for this word takes connections from everywhere."""
    for given, variable in (("local", None), ("local", "10.0.0.1:6379"), (None, "local"), (None, None)):
        monkeypatch.setenv("RAY_ADDRESS", variable or "")
        assert connect.address_to_attach_to(given) is None
    assert connect.address_to_attach_to("10.0.0.2:6379") == "10.0.0.2:6379"


@pytest.mark.full
def test_an_error_while_the_stages_start_leaves_no_process(workshop, own_ray, monkeypatch) -> None:
    """The data are opened while Ray and the stages' processes start."""
    before = set(psutil.Process().children())  # those of the other tests' cluster
    begun: list[psutil.Process] = []
    close = RayEngine.close

    def watched(self) -> None:
        self.wait_until_ready()
        for child in set(psutil.Process().children()) - before:
            begun.extend([child, *child.children(recursive=True)])
        assert any(process.name().startswith("ray::Stage") for process in begun)
        close(self)

    monkeypatch.setattr(RayEngine, "close", watched)
    (workshop.folder / "empty").mkdir()
    empty = "data={source: image_folder, train: empty, image_size: 8, batch_size: 4}"
    with pytest.raises(DataError, match=r"empty: .* no subfolders"):
        run_spec(workshop.spec, [empty], Options(run_dir=workshop.folder / "run"), Watching(), Asked())
    _, alive = psutil.wait_procs(begun, timeout=10)
    assert begun and not alive
    assert not (workshop.folder / "run").exists()


def test_room_is_counted_node_by_node() -> None:
    require_room([{"CPU": 1}] * 3, [{"CPU": 2}, {"CPU": 1}])
    with pytest.raises(PlanError, match="room for 2"):
        require_room([{"CPU": 2}] * 3, [{"CPU": 3}, {"CPU": 3}])
    with pytest.raises(PlanError) as caught:
        require_room([{"GPU": 1, "CPU": 1}], [{"CPU": 8}])
    refused(caught.value, "1 stage of 1 GPU and 1 CPU ", " 0 GPU, 8 CPU on 1 node, room for 0")


def test_nodes_without_the_labels_are_no_room(workshop, local_ray) -> None:
    with pytest.raises(PlanError) as caught:
        workshop.run("resources.labels={zone: west}", inline=False)
    refused(caught.value, "1 stage of 1 CPU ", " 0 CPU on 0 nodes labelled zone=west, room for 0")


def test_more_gpu_stages_than_gpus(workshop, local_ray) -> None:
    with pytest.raises(PlanError) as caught:
        workshop.run("resources.device=cuda", "resources.per_stage={GPU: 1}", "pipeline.stages=2", inline=False)
    refused(caught.value, "2 stages of 1 GPU ", " 0 GPU on 1 node, room for 0")


@pytest.mark.full  # more than a minute
@pytest.mark.timeout(240)
def test_a_node_that_goes(workshop, longer_reference, cluster, local_ray) -> None:
    # Two separate nodes: a stage takes all processors of one, and what ran before may still hold some of the others.
    nodes = [cluster.add_node(num_cpus=4, labels={"pair": "yes"}) for _ in range(2)]
    doomed = nodes[1]

    def look(statuses) -> None:
        if statuses[0].step >= 6 and doomed in cluster.worker_nodes:
            cluster.remove_node(doomed, allow_graceful=False)

    watching = Watching(on_statuses=look)
    try:
        layout = ["pipeline.partition=[2,2]", "resources.per_stage={CPU: 4}", "resources.labels={pair: yes}"]
        run = workshop.run(*layout, *LONG, inline=False, watching=watching)
        assert doomed not in cluster.worker_nodes, "the run was over before the node was gone"
    finally:
        for node in nodes:
            if node in cluster.worker_nodes:
                cluster.remove_node(node)
    same(run, longer_reference)
    assert run.summary.partition == [4]
    assert any("1 of 2 stages" in note and "[4]" in note for note in watching.notes)
    assert len(run.summary.failures) == 1


@dataclass(frozen=True)
class Trial:
    """Goes to a process that never begins."""

    stage: int = 0


@pytest.mark.full
def test_a_speed_test_that_takes_too_long_leaves_its_room(local_ray, monkeypatch) -> None:
    """The stage starts there next."""

    @dataclass(frozen=True)
    class Slow:
        stage: int = 0

        def measured(self) -> None:
            time.sleep(600)

    monkeypatch.setattr(placement_module, "_TRIAL_S", 1.0)
    group = placement_group([{"CPU": 1}])
    assert group.wait(10)
    placement = Placement(({"CPU": 1},), group, (ray.get_runtime_context().get_node_id(),))
    notes: list[str] = []
    assert placement.measured(Slow(), 1, "cuda", notes.append) == [None]
    assert len(notes) == 1 and "could not be measured, and counts as 1" in notes[0]
    assert ray.get(ray.remote(lambda: 1).options(**placement.options(0)).remote(), timeout=30) == 1
    placement.release()


@pytest.mark.full
def test_a_node_that_goes_before_it_is_asked(cluster, local_ray, monkeypatch, tmp_path) -> None:
    """Between the list of the nodes and the question, in whatever asks nodes."""
    other = cluster.add_node(num_cpus=1)
    here = ray.get_runtime_context().get_node_id()
    nodes = living_nodes()
    (gone,) = (node.id for node in nodes if node.id != here)
    selector = {"ray.io/node-id": gone}
    group = placement_group([{"CPU": 1}], bundle_label_selector=[selector])
    assert group.wait(10)
    cluster.remove_node(other)
    monkeypatch.setattr(links, "living_nodes", lambda: nodes)
    notes: list[str] = []
    assert links.measure_links([(here, gone)], notes.append) == {}
    assert len(notes) == 1 and "could not be measured" in notes[0]

    placement = Placement(({"CPU": 1},), group, (gone,))
    with pytest.raises(StageError, match="does not answer: The task is not schedulable"):
        placement.require_run_dir(tmp_path, "token", 1)
    notes.clear()
    began_s = time.monotonic()
    assert placement.measured(Trial(), 1, "cpu", notes.append) == [None]
    assert len(notes) == 1 and notes[0].startswith("the speed of stage 0's device could not be measured")
    assert time.monotonic() - began_s < 20
    placement.release()

    never = ray.remote(links.Listener).options(**on_node(gone)).remote()
    graph = RayGraph(lambda: StageProcesses(placement, (never,), (never.port.remote(),)), run_token="", note=print)
    with pytest.raises(StageError, match="the stages could not be started: The actor is not schedulable"):
        graph.start([])


SLOW_HERE = '''
import os
import time

import torch
from torch import nn


class Slow(nn.Module):
    """Takes as long as its node says."""

    def __init__(self, input):
        super().__init__()
        self.linear = nn.Linear(input[0], input[0])

    def forward(self, s, mask=None):
        time.sleep(0.02 * float(os.environ.get("SLOWNESS", "1")))
        return self.linear(s)
'''


@pytest.mark.full
@pytest.mark.timeout(120)
def test_a_slower_node_is_measured_and_given_less(workshop, cluster, local_ray) -> None:
    """Two nodes, a stage on each; on one of them blocks take three times as long."""
    (workshop.folder / "slow_here.py").write_text(SLOW_HERE)
    overrides = [
        "data.shape=[8]",
        'model.components=[{block: "python:slow_here.Slow", repeat: 7}]',
        "pipeline.costs=null",
        "pipeline.stages=2",
        "resources.per_stage={CPU: 4}",
        "run.epochs=1",
    ]
    node = cluster.add_node(num_cpus=4, env_vars={"SLOWNESS": "3"})
    watching = Watching()
    try:
        run = workshop.run(*overrides, inline=False, watching=watching)
    finally:
        cluster.remove_node(node)
    (plan,) = watching.plans
    fast, slow = sorted(plan.stage_speed, reverse=True)
    assert fast == 1.0 and 0.25 < slow < 0.45
    cut = dict(zip(plan.stage_speed, plan.partition, strict=True))
    assert (cut[slow], cut[fast]) == (2, 5)
    assert plan.cores == 8
    assert "relative to this machine, the devices of the stages have speeds of" in " ".join(watching.notes)
    same(run, workshop.run(*overrides, name="inline"))


@pytest.mark.full
def test_memory_for_ray_train_is_asked_for_by_its_name(workshop, cluster) -> None:
    overrides = ["run.epochs=1", "resources.per_stage={CPU: 1, memory: 1000000}"]
    overrides += ["method=backpropagation", "replicas={count: 2, engine: ray_train}"]
    assert attached(workshop, cluster.address, *overrides).error is None
