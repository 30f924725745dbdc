"""`ray up` over ssh, with the files and commands of `cluster/aws.yaml` on two hosts of the user instead of EC2's.

Each host has an sshd, with keys and a home folder that are made for the test. Skipped where OpenSSH or rsync is not
installed, or where this process has no right to make namespaces.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..engine.conftest import OWN_BLOCKS, TINY
from .hosts import Hosts, skip_without, three_hosts, until

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
HEAD, WORKER, LAPTOP = 1, 2, 3
DASHBOARD = "http://localhost:8265"
SSHD = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
# A raylet waits a minute for a head that has gone.
SetEnv HOME={home} PYTHONPATH={home}/alray RAY_raylet_start_wait_time_s=120 RAY_gcs_rpc_server_reconnect_timeout_s=5
"""


@dataclass
class Laptop:
    """The host from which the cluster is started. config: for Ray's cluster launcher."""

    hosts: Hosts
    config: Path

    def environment(self) -> dict[str, str]:
        home = self.hosts.folder / "home-3"
        return self.hosts.environment() | {
            "HOME": str(home),
            "TMPDIR": str(home),
            # With hosts of the user, the newer autoscaler of Ray 2.60 starts no worker.
            "RAY_UP_enable_autoscaler_v2": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(home / ".alray-token"),
        }

    def run(self, *words: str) -> str:
        command = self.hosts.on(LAPTOP, *words)
        done = subprocess.run(
            command, env=self.environment(), text=True, timeout=240, stdin=subprocess.DEVNULL, capture_output=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ray(self, command: str, *options: str) -> list[str]:
        """A command of the cluster launcher, in the root of the repository."""
        ray = (sys.executable, "-m", "ray.scripts.scripts", command, *options, str(self.config))
        return ["env", "-C", str(ROOT), *ray]

    def alray(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(sys.executable, "-m", "alray", *words, "--json"))
        return answer


def on_own_hosts(folder: Path) -> dict[str, Any]:
    """`cluster/aws.yaml` with hosts that are there already, and without what it takes from the internet."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "cluster" / "aws.yaml").read_text(encoding="utf-8"))
    del config["available_node_types"], config["head_node_type"]
    config["provider"] = {"type": "local", "head_ip": Hosts.address(HEAD), "worker_ips": [Hosts.address(WORKER)]}
    config["auth"] = {"ssh_user": "root", "ssh_private_key": str(folder / "key")}
    config["max_workers"] = 1
    config["setup_commands"] = [f"ln -sfn {sys.prefix} ~/venv", config["setup_commands"][-1]]
    config["head_setup_commands"] = []
    # Own hosts cannot be told their resources, as types of nodes are.
    for commands, cpus in (("head_start_ray_commands", 0), ("worker_start_ray_commands", 2)):
        *before, start = config[commands]
        config[commands] = [*before, f"{start} --num-cpus={cpus} --object-store-memory=100000000"]
    return config


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    skip_without("sshd", "ssh", "ssh-keygen", "rsync")
    folder = tmp_path_factory.mktemp("up")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "own_blocks.py").write_text(OWN_BLOCKS)
    for name in ("key", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    config = folder / "cluster.yaml"
    config.write_text(yaml.safe_dump(on_own_hosts(folder)))
    sockets = set(Path("/tmp").glob("ray_ssh_*"))
    Path("/run/sshd").mkdir(exist_ok=True)
    sshd = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")
    assert sshd is not None
    with three_hosts(folder) as hosts:
        for number in (HEAD, WORKER, LAPTOP):
            hosts.default_route(number)
            home = folder / f"home-{number}"
            home.mkdir()
            (home / ".bashrc").touch()
            if number != LAPTOP:
                (folder / f"sshd-{number}.conf").write_text(SSHD.format(folder=folder, home=home))
                words = ("-D", "-e", "-f", str(folder / f"sshd-{number}.conf"))
                hosts.serve(number, sshd, *words, environment=hosts.environment())
        # Ray gives the head the key as ~/ray_bootstrap_key.pem. ssh would look for it in root's real home folder.
        (folder / "ssh_config").write_text(f"IdentityFile {folder}/home-{HEAD}/ray_bootstrap_key.pem\n")
        mount = ("mount", "--bind", str(folder / "ssh_config"), "/etc/ssh/ssh_config")
        subprocess.run(hosts.on(HEAD, *mount), check=True)
        (folder / "home-3" / ".alray-token").write_text("0123456789abcdef" * 4)
        yield Laptop(hosts, config)
    for left in set(Path("/tmp").glob("ray_ssh_*")) - sockets:
        shutil.rmtree(left)


def test_from_ray_up_to_ray_down(laptop: Laptop) -> None:
    hosts, folder = laptop.hosts, laptop.hosts.folder
    inline = laptop.alray("run", "tiny.yaml", "--inline", "--output", "inline")
    laptop.run(*laptop.ray("up", "-y"))
    forwarding = hosts.serve(LAPTOP, *laptop.ray("dashboard"), environment=laptop.environment())

    def active() -> str:
        """The part of `ray status` with the nodes that are there."""
        said = laptop.run(*laptop.ray("exec"), "ray status")
        return said.partition("Active:\n")[2].partition("\nPending:")[0]

    until(lambda: sum(map(int, re.findall(r"^ (\d+) ", active(), re.MULTILINE))) == 2, active, 120)
    where = ("--address", DASHBOARD)
    answer = laptop.alray("submit", "tiny.yaml", "pipeline.partition=[2,2]", *where, "--output", str(folder / "jobs"))
    laptop.alray("fetch", answer["job"]["id"], *where, "--output", "fetched")
    summary = json.loads((folder / "fetched" / "summary.json").read_text())
    assert summary["weights_sha256"] == inline["weights_sha256"]
    hosts.stop(forwarding)
    laptop.run(*laptop.ray("down", "-y"))
    # `ray down` stops Ray on the head alone, for EC2 takes the others back. On a host of the user the raylet ends
    # by itself, and a process stays that reads logs.
    until(lambda: "raylet" not in hosts.running(WORKER), lambda: "the raylet goes on", 60)
    subprocess.run(hosts.on(WORKER, sys.executable, "-m", "ray.scripts.scripts", "stop"), check=True)

    def left() -> set[str]:
        return (hosts.running(HEAD) | hosts.running(WORKER)) - {"sshd"}

    until(lambda: not left(), left, 60)
