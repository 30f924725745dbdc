"""`cluster/slurm.sh` under a real Slurm of a login node and two nodes. Each has a separate network, processes and
`/dev/shm`.

Skipped where Slurm is not installed, or where this process has no right to make namespaces.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .hosts import Hosts, skip_without, three_hosts, until

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
LOGIN, NODES = 3, (1, 2)
CONF = """\
ClusterName=alray
SlurmctldHost=n{login}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# A node has the processors that are written here, however many there are.
SlurmdParameters=config_overrides
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""
NODE = "NodeName=node{0} NodeHostname=n{0} NodeAddr={1} Port={2} CPUs=4 State=UNKNOWN"

Slurm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with three_hosts(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(scope="module")
def slurm(hosts: Hosts) -> Slurm:
    """Runs a command of Slurm on the login node."""
    skip_without("munged", "slurmctld", "slurmd", "sbatch")
    if not Path(sys.prefix, "bin", "activate").is_file():
        pytest.skip("these tests run in no virtual environment, which cluster/slurm.sh would activate")
    folder = hosts.folder
    conf, key = folder / "slurm.conf", folder / "munge.key"
    nodes = "\n".join(NODE.format(number, hosts.address(number), 17000 + number) for number in NODES)
    conf.write_text(CONF.format(folder=folder, login=LOGIN, nodes=nodes))
    key.touch(mode=0o600)
    key.write_bytes(b"only for this test" * 4)
    (folder / "state").mkdir()
    environment = hosts.environment() | {"SLURM_CONF": str(conf), "ALRAY_VENV": sys.prefix}
    environment["PATH"] += ":/usr/sbin:/sbin"
    # A node waits a minute for a head that has gone. Less than `ray stop` may take would end symmetric-run itself.
    environment["RAY_gcs_rpc_server_reconnect_timeout_s"] = "25"

    def serve(number: int, *words: str) -> None:
        hosts.serve(number, *words, environment=environment)

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            hosts.on(LOGIN, *words), env=environment, text=True, timeout=300, capture_output=True, check=False
        )

    munge = [f"--{name}={folder / f'munge.{name}'}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    # It is forced to work in a folder that only root may enter.
    serve(LOGIN, "munged", "--foreground", "--force", f"--key-file={key}", *munge)
    until((folder / "munge.socket").exists, lambda: "munged did not start", 20)
    serve(LOGIN, "slurmctld", "-D", "-f", str(conf))
    for number in NODES:
        serve(number, "slurmd", "-D", "-N", f"node{number}", "-f", str(conf))

    def nodes_are() -> str:
        return command("sinfo", "-h", "-o", "%T %D").stdout

    until(lambda: nodes_are() == "idle 2\n", nodes_are, 60)
    return command


def sbatch(hosts: Hosts, slurm: Slurm, *words: str, environment: str = "ALL", fails: bool = False) -> str:
    """Run the script with these words to its end; return the job's log."""
    options = ("--wait", "--parsable", "--cpus-per-task=1", f"--export={environment}")
    done = slurm("sbatch", *options, str(ROOT / "cluster" / "slurm.sh"), *words)
    log = hosts.folder / f"alray-{done.stdout.strip()}.log"
    said = log.read_text() if log.exists() else "no log"
    assert (done.returncode != 0) == fails, done.stderr + said
    return said


def test_the_quickstart_on_two_nodes(hosts: Hosts, slurm: Slurm) -> None:
    """Beside it a second job is sent, which would have room there, but must not meet the first one's Ray."""
    with ThreadPoolExecutor() as threads:
        beside = threads.submit(sbatch, hosts, slurm, "doctor")
        sbatch(hosts, slurm, "run", str(ROOT / "specs" / "quickstart.yaml"), "--output", "run")
        assert "cluster: 2 nodes: n1 " in beside.result()
    summary = json.loads((hosts.folder / "run" / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["weights_sha256"][:8] in (ROOT / "docs/how_it_works.md").read_text(encoding="utf-8")
    assert sorted(json.loads((hosts.folder / "run" / "plan.json").read_text())["nodes"]) == ["n1", "n2"]
    for number in NODES:
        assert not {"raylet", "gcs_server"} & hosts.running(number)


def test_a_ray_that_cannot_start_is_a_failed_job(hosts: Hosts, slurm: Slurm) -> None:
    tools = hosts.folder / "venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f"PATH={tools}:{sys.prefix}/bin:$PATH\n")
    (tools / "ray").write_text(f'#!/bin/sh\n[ "$1" = start ] && exit 1\nexec {sys.prefix}/bin/ray "$@"\n')
    (tools / "ray").chmod(0o755)
    said = sbatch(hosts, slurm, "run", "any.yaml", environment=f"ALL,ALRAY_VENV={tools.parent}", fails=True)
    assert "Ray could not be started on node1" in said
    assert not list(hosts.folder.glob(".alray-*"))


def test_a_job_near_its_time_limit_writes_a_checkpoint(hosts: Hosts, slurm: Slurm) -> None:
    """Slurm then sends SIGTERM to the script alone; here `scancel` does."""
    words = ("run", str(ROOT / "specs" / "quickstart.yaml"), "run.epochs=2000", "--output", "long")
    options = ("--parsable", "--cpus-per-task=1")
    job = slurm("sbatch", *options, str(ROOT / "cluster" / "slurm.sh"), *words).stdout.strip()
    run, log = hosts.folder / "long", hosts.folder / f"alray-{job}.log"

    def said() -> str:
        return log.read_text() if log.exists() else "no log"

    until(lambda: (run / "records.jsonl").exists() and "train" in (run / "records.jsonl").read_text(), said, 180)
    assert slurm("scancel", "--signal=TERM", "--batch", job).returncode == 0
    until(lambda: not slurm("squeue", "-h", "-j", job).stdout.strip(), said, 120)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "interrupted", said()
    assert list((run / "checkpoints").glob("*/manifest.json")), said()
    for number in NODES:
        assert not {"raylet", "gcs_server"} & hosts.running(number)
