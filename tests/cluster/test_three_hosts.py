"""Three hosts, each with a network, `/dev/shm` and `/tmp/ray`: where stages go, and that they end in the bits of
one process. Skipped where this process has no right to make namespaces.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks import sleeping_blocks

from ..engine.conftest import OWN_BLOCKS, TINY
from .hosts import HEAD_PORT, Hosts, three_hosts

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(300)]

CPUS = (2, 1, 1)
S3_PORT = 5005
LONG = ("run.epochs=60", "model.components.2.sleep_s=0.01")


SLOW_LINK = """
name: slow_link
seed: 3
data: {source: synthetic, shape: [8, 16, 16], classes: 4, samples: 4000, batch_size: 32, validation_fraction: 0.1}
model:
  components:
    - {block: "python:sized.Sized", width: 24}
    - {block: "python:sized.Sized", width: 24}
    - {block: "python:sized.Sized", width: 4, pool: 4}
    - {block: "python:sized.Sized", width: 4}
method: {kind: associated_learning, label_dim: 12}
optimizer: {kind: adam, lr: 3e-3}
pipeline: {stages: 2}
resources: {per_stage: [{CPU: 2}, {CPU: 1}]}
run: {epochs: 1, checkpoint: null}
"""
"""Four components of the same time. The balanced cut sends 0.8 MB a mini-batch, which takes 132 ms at 50 Mbit/s; three
components take half as long."""

SIZED = """
import math
import time

from torch import nn

from alray.parts.methods.decoupled_greedy.method import GreedyMethod, GreedyComponent


class SlowLosses(GreedyMethod):
    def __init__(self, task):
        super().__init__(task, head=None, label_smoothing=0.0)

    def component(self, index, f, facts, make):
        head = make("head", lambda: Head(math.prod(facts.output), self.task.classes))
        task = self.task
        return Slow(
            index, f=f, head=head, learning=task.learning, label_smoothing=0.0, optimizer=task.optimizer
        )


class Head(nn.Linear):
    def forward(self, s, mask=None):
        return super().forward(s.flatten(1))


class Slow(GreedyComponent):
    def local_losses(self, encoded, incoming):
        time.sleep(0.02)
        return super().local_losses(encoded, incoming)


class Sized(nn.Module):
    def __init__(self, input, width, pool=1):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(input[0], width, 1), nn.AvgPool2d(pool))

    def forward(self, s, mask=None):
        time.sleep(0.01)
        return self.layers(s)
"""


FAR_LINK = """
name: far_link
seed: 3
data: {source: synthetic, shape: [96, 16, 16], classes: 4, samples: 640, batch_size: 32}
model:
  components:
    - {block: "python:sleeping_blocks.SleepingLayer", forward_ms: 12, backward_ms: 24, rows: 32, repeat: 4}
method: {kind: decoupled_greedy}
optimizer: {kind: adam, lr: 3e-3}
pipeline: {partition: [2, 2]}
resources: {per_stage: [{CPU: 2}, {CPU: 1}]}
run: {steps: 20, evaluate_every: null, checkpoint: null}
"""
"""Four components that sleep 36 ms for a mini-batch each. A message has 3.1 MB, which takes 252 ms at 100 Mbit/s."""


@dataclass
class Workplace:
    """A Ray over the three hosts, and a folder with specs that all of them see."""

    hosts: Hosts
    folder: Path

    def begin(self, spec: str, *words: str, run_dir: str) -> subprocess.Popen[str]:
        address = f"{self.hosts.address(1)}:{HEAD_PORT}"
        return self.hosts.start(1, "run", spec, *words, "--address", address, "--output", run_dir, "--json")

    def run(self, spec: str, *words: str, run_dir: str, code: int = 0) -> dict[str, Any]:
        """The answer of a run whose driver is on the first host."""
        return self.end(self.begin(spec, *words, run_dir=run_dir), code)

    def end(self, process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
        out, err = process.communicate(timeout=240)
        assert process.returncode == code, out + err
        answer: dict[str, Any] = json.loads(out)
        return answer | {"said": err}

    def inline(self, spec: str, *words: str) -> str:
        """The hash of the weights that one process ends in."""
        run_dir = f"inline-{len(list(self.folder.glob('inline-*')))}"
        command = [sys.executable, "-m", "alray", "run", spec, *words, "--inline", "--output", run_dir, "--json"]
        done = subprocess.run(
            command, cwd=self.folder, env=self.hosts.environment(), check=True, stdout=subprocess.PIPE, text=True
        )
        return str(json.loads(done.stdout)["weights_sha256"])

    def plan(self, run_dir: str) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads((self.folder / run_dir / "plan.json").read_text())
        return plan

    def listed(self, what: str) -> list[dict[str, Any]]:
        """What Ray's state API tells."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "list", what, "--format", "json", "--limit", "1000"]
        environment = self.hosts.environment() | {"RAY_ADDRESS": "http://127.0.0.1:8265"}
        done = subprocess.run(self.hosts.on(1, *command), check=True, stdout=subprocess.PIPE, env=environment)
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "own_blocks.py").write_text(OWN_BLOCKS)
    (folder / "slow_link.yaml").write_text(SLOW_LINK)
    (folder / "sized.py").write_text(SIZED)
    (folder / "far_link.yaml").write_text(FAR_LINK)
    shutil.copy(sleeping_blocks.__file__, folder)
    (folder / "token").write_text(secrets.token_hex(32))
    with three_hosts(folder) as hosts, pytest.MonkeyPatch.context() as patch:
        hosts.variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
        patch.setenv("AWS_ENDPOINT_URL", f"http://{hosts.address(1)}:{S3_PORT}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "someone")
        for number, cpus in enumerate(CPUS, start=1):
            hosts.ray(number, cpus)
        yield Workplace(hosts, folder)


def test_four_stages_over_three_hosts(workplace: Workplace) -> None:
    words = ("pipeline.partition=[1,1,1,1]",)
    answer = workplace.run("tiny.yaml", *words, run_dir="four")
    assert answer["weights_sha256"] == workplace.inline("tiny.yaml", *words)
    assert answer["failures"] == []
    plan = workplace.plan("four")
    assert plan["nodes"] == ["n1", "n1", "n2", "n3"]
    near, *far = plan["links"]
    assert near is None and far[-1] is None and all(link["up_s_per_byte"] > 0 for link in far[:-1])
    addresses = {node["node_id"]: node["node_ip"] for node in workplace.listed("nodes")}
    actors = [actor for actor in workplace.listed("actors") if "-stage-" in (actor["name"] or "")]
    placed = {int(actor["name"].rpartition("-")[2]): addresses[actor["node_id"]] for actor in actors}
    assert [placed[stage] for stage in range(4)] == [workplace.hosts.address(number) for number in (1, 1, 2, 3)]


def test_replicas_of_a_stage_are_apart(workplace: Workplace) -> None:
    workplace.run("tiny.yaml", "pipeline.stages=1", "replicas.count=3", "run.epochs=1", run_dir="apart")
    assert sorted(workplace.plan("apart")["nodes"]) == ["n1", "n2", "n3"]


def test_a_folder_of_one_host_is_refused(workplace: Workplace) -> None:
    """`/dev/shm` is such a folder. Stages that all fit on the driver's host may use it."""
    answer = workplace.run("tiny.yaml", "pipeline.stages=4", run_dir="/dev/shm/run", code=2)
    assert "measuring the components" not in answer["said"]
    (error,) = answer["errors"]
    assert error["message"] == "stage 2 is on n2, which does not see the run folder /dev/shm/run"
    assert (
        error["hint"]
        == "give an --output on storage that all nodes share, or on object storage, such as s3://bucket/run"
    )
    near = workplace.run("tiny.yaml", "pipeline.stages=2", "run.epochs=1", run_dir="/dev/shm/two")
    assert "measuring the components" in near["said"]


def test_a_study_in_a_folder_of_one_host_is_refused(workplace: Workplace) -> None:
    """Every host may get a trial. No folder is left: the same command may be given again."""
    (workplace.folder / "study.yaml").write_text("study: two\nbase: tiny.yaml\nset: {run.epochs: 1}\nrepeats: 4\n")
    where = ("--address", f"{workplace.hosts.address(1)}:{HEAD_PORT}", "--output")
    refused = workplace.end(workplace.hosts.start(1, "study", "study.yaml", *where, "/dev/shm/study", "--json"), 2)
    (error,) = refused["errors"]
    assert error["message"] == "a trial may come to n2, which does not see the study folder /dev/shm/study"
    assert error["hint"].startswith("give an --output on storage that all nodes share")
    assert subprocess.run(workplace.hosts.on(1, "test", "-e", "/dev/shm/study")).returncode == 1
    done = workplace.end(workplace.hosts.start(1, "study", "study.yaml", *where, "study", "--json"))
    assert done["statuses"] == {"finished": 4}


def test_a_study_of_a_spec_of_one_host_is_refused(workplace: Workplace, alone: str) -> None:
    (workplace.folder / "alone.yaml").write_text(f"study: two\nbase: {alone}\nset: {{run.epochs: 1}}\nrepeats: 2\n")
    where = ("--address", f"{workplace.hosts.address(1)}:{HEAD_PORT}", "--output", "alone")
    refused = workplace.end(workplace.hosts.start(1, "study", "alone.yaml", *where, "--json"), 2)
    (error,) = refused["errors"]
    assert error["message"] == f"a trial may come to n2, which does not see the spec {alone}"


@pytest.fixture
def alone(workplace: Workplace) -> str:
    """A spec with blocks of its own in a folder that only the first host has."""
    folder = "/dev/shm/alone"
    script = f"mkdir -p {folder}; cp tiny.yaml own_blocks.py {folder}"
    subprocess.run(workplace.hosts.on(1, "bash", "-c", script), check=True)
    return f"{folder}/tiny.yaml"


def test_own_code_of_one_host_travels(workplace: Workplace, alone: str) -> None:
    """To the measurement of each host's speed, to the stages, and at a resume."""
    words = ("pipeline.partition=[1,1,1,1]", "pipeline.costs=null")
    answer = workplace.run(alone, *words, run_dir="travelled")
    assert answer["weights_sha256"] == workplace.inline("tiny.yaml")
    assert "could not be measured" not in answer["said"]


def test_own_code_of_one_host_travels_through_object_storage(workplace: Workplace, alone: str) -> None:
    server = (sys.executable, "-m", "moto.server", "-H", workplace.hosts.address(1), "-p", str(S3_PORT))
    serving = workplace.hosts.serve(1, *server, environment=workplace.hosts.environment())
    make = (
        "import sys, time, urllib.request as u\n"
        "for _ in range(150):\n"
        "    try: sys.exit(u.urlopen(u.Request(sys.argv[1], method='PUT')).status != 200)\n"
        "    except OSError: time.sleep(0.2)\n"
        "sys.exit(1)"
    )
    bucket = f"{os.environ['AWS_ENDPOINT_URL']}/bucket"
    subprocess.run(workplace.hosts.on(1, sys.executable, "-c", make, bucket), check=True)
    words = ("pipeline.partition=[1,1,1,1]", "run.epochs=1")
    answer = workplace.run(alone, *words, run_dir="s3://bucket/run")
    assert answer["weights_sha256"] == workplace.inline("tiny.yaml", words[1])
    address = f"{workplace.hosts.address(1)}:{HEAD_PORT}"
    more = ("resume", "s3://bucket/run", "run.epochs=2", "--address", address, "--json")
    answer = workplace.end(workplace.hosts.start(1, *more))
    assert answer["weights_sha256"] == workplace.inline("tiny.yaml", "run.epochs=2")
    workplace.hosts.stop(serving)


@contextmanager
def slow_links(hosts: Hosts, *numbers: int, mbit: int = 100) -> Iterator[None]:
    """These hosts send so many Mbit/s."""
    limit = f"tc qdisc add dev eth0 root tbf rate {mbit}mbit burst 32kb latency 400ms"
    for number in numbers:
        subprocess.run(hosts.on(number, *limit.split()), check=True)
    try:
        yield
    finally:
        for number in numbers:
            subprocess.run(hosts.on(number, *["tc", "qdisc", "del", "dev", "eth0", "root"]), check=True)


def test_averages_over_slow_links_are_predicted(workplace: Workplace) -> None:
    """A gradient of 2.1 MB, which a ring of three sends in 233 ms at 96 Mbit/s."""
    one = "model.components=[{block: linear, width: 256}]"
    words = ("slow_link.yaml", one, "pipeline.stages=1", "replicas.count=3", "resources.per_stage={CPU: 1}")
    with slow_links(workplace.hosts, 1, 2, 3):
        answers = [
            workplace.run(*words, f"replicas.all_reduce={name}", "run={steps: 40, checkpoint: null}", run_dir=name)
            for name in ("ring", "star")
        ]
    assert [sorted(workplace.plan(name)["nodes"]) for name in ("ring", "star")] == [["n1", "n2", "n3"]] * 2
    for answer in answers:
        assert answer["step_time_s"] == pytest.approx(answer["predicted_step_time_s"], rel=0.15)


@pytest.mark.timeout(1200)  # eight runs, four of them in one process
def test_compressed_messages_over_a_far_link(workplace: Workplace) -> None:
    """100 Mbit/s and 20 ms. 1F1B loses 80 % of its throughput, and streamed local losses with messages of 3.5 bits a
    value none: their message of 0.4 MB takes less than half of the time that a stage sleeps."""
    f1b = ("method={kind: backpropagation}", "pipeline={partition: [2, 2], schedule: 1f1b, micro_batches: 4}")
    packed = "pipeline.messages={compression: int4}"
    ways = {"dgl": (), "dgl_packed": (packed,), "1f1b": f1b, "1f1b_packed": (*f1b, packed)}
    near = {name: workplace.inline("far_link.yaml", *words) for name, words in ways.items()}
    with workplace.hosts.far(100, 20):
        far = {name: workplace.run("far_link.yaml", *words, run_dir=f"far-{name}") for name, words in ways.items()}
    for name, answer in far.items():
        assert workplace.plan(f"far-{name}")["nodes"] == ["n1", "n2"]
        seconds = [f"{answer[key]:.3f} s" for key in ("step_time_s", "predicted_step_time_s")]
        sys.stdout.write(f"{name}: measured and predicted {seconds}, {answer['bytes_sent']}\n")
    assert {name: answer["weights_sha256"] for name, answer in far.items()} == near
    for name in ("dgl_packed", "1f1b_packed"):
        assert sum(far[name]["bytes_sent"].values()) < sum(far[name]["uncompressed_bytes"].values()) / 8
    step_s = {name: answer["step_time_s"] for name, answer in far.items()}
    slept_s = 2 * 0.036  # by a stage; a pipeline of four micro-batches takes 5/4 of it on a fast link
    assert step_s["1f1b"] > 5 * slept_s * 5 / 4
    assert step_s["dgl_packed"] < 0.252 < step_s["dgl"]
    assert step_s["dgl_packed"] < step_s["1f1b_packed"]


@pytest.mark.timeout(600)  # nine runs
def test_a_slow_link_gets_another_cut_and_is_predicted(workplace: Workplace) -> None:
    """Each run is measured and predicted three times: this machine does not always run at one speed."""
    apart = "pipeline.partition=[2,2]"
    near = [workplace.run("slow_link.yaml", "resources.per_stage={CPU: 1}", run_dir=f"near-{each}") for each in "123"]
    with slow_links(workplace.hosts, 1, 2, mbit=50):
        pairs = [
            (
                workplace.run("slow_link.yaml", run_dir=f"far-{each}"),
                workplace.run("slow_link.yaml", apart, run_dir=f"worse-{each}"),
            )
            for each in "123"
        ]
    far, worse = zip(*pairs, strict=True)
    assert {tuple(answer["partition"]) for answer in near} == {(2, 2)}
    assert {tuple(answer["partition"]) for answer in far} == {(3, 1)}
    link = workplace.plan("far-1")["links"][0]
    assert 8e-6 / link["up_s_per_byte"] == pytest.approx(48, rel=0.05)  # of 50, without the headers of TCP
    assert all(other["step_time_s"] > chosen["step_time_s"] for chosen, other in pairs)
    for answers in (near, far, worse):
        ratios = [answer["step_time_s"] / answer["predicted_step_time_s"] for answer in answers]
        assert median(ratios) == pytest.approx(1, abs=0.1), ratios


def test_samples_cross_a_host_before_the_losses_are_computed(workplace: Workplace) -> None:
    """F takes 20 ms on each stage, L 40 ms. `overlapped` would take 40 ms longer if samples waited for L."""
    words = ("slow_link.yaml", "pipeline={partition: [2, 2], schedule: overlapped}")
    words = (*words, 'method={kind: "python:sized.SlowLosses"}', "run={steps: 40, checkpoint: null}")
    answers = [workplace.run(*words, run_dir=f"overlapped-{each}") for each in "123"]
    assert workplace.plan("overlapped-1")["nodes"] == ["n1", "n2"]
    assert {answer["weights_sha256"] for answer in answers} == {workplace.inline(*words)}
    ratios = [answer["step_time_s"] / answer["predicted_step_time_s"] for answer in answers]
    assert median(ratios) == pytest.approx(1, abs=0.1), ratios


@contextmanager
def going_on(workplace: Workplace, *words: str, run_dir: str) -> Iterator[subprocess.Popen[str]]:
    """A run that has written its first checkpoint and is far from its end."""
    process = workplace.begin("tiny.yaml", *words, *LONG, run_dir=run_dir)
    end_s = time.monotonic() + 150
    while not list(workplace.folder.glob(f"{run_dir}/checkpoints/step-*/manifest.json")):
        assert process.poll() is None and time.monotonic() < end_s
        time.sleep(0.1)
    yield process


@pytest.fixture(scope="module")
def longer(workplace: Workplace) -> str:
    return workplace.inline("tiny.yaml", LONG[0])


def test_a_link_that_comes_back(workplace: Workplace, longer: str) -> None:
    with going_on(workplace, "pipeline.partition=[1,1,1,1]", run_dir="back") as process:
        workplace.hosts.link(3, "down")
        time.sleep(3)
        workplace.hosts.link(3, "up")
        answer = workplace.end(process)
    assert (answer["weights_sha256"], answer["failures"]) == (longer, [])


def test_a_link_that_goes_for_good_is_one_failure(workplace: Workplace, longer: str) -> None:
    """The host stays alone from here on."""
    with going_on(workplace, "pipeline.partition=[1,1,1,1]", run_dir="alone") as process:
        workplace.hosts.link(3, "down")
        answer = workplace.end(process)
    assert (answer["weights_sha256"], answer["stages"], len(answer["failures"])) == (longer, 3, 1), answer
    assert workplace.plan("alone")["nodes"] == ["n1", "n1", "n2"]


def test_a_host_that_goes_is_one_failure(workplace: Workplace, longer: str) -> None:
    with going_on(workplace, "pipeline.partition=[1,1,2]", run_dir="gone") as process:
        workplace.hosts.switch_off(2)
        answer = workplace.end(process)
    assert (answer["weights_sha256"], answer["stages"], len(answer["failures"])) == (longer, 2, 1), answer
    assert workplace.plan("gone")["nodes"] == []
