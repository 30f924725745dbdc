"""`cluster/local.sh down` ends what `up` started, and nothing that has got its process number since."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "cluster" / "local.sh"
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def begun(pid: int) -> str:
    """The clock ticks from the system's boot to the begin of a process (proc(5), field 22 of `stat`)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


@pytest.mark.parametrize("whose", ["its own", "another's", "of an earlier boot"])
def test_down(tmp_path: Path, whose: str) -> None:
    node = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        mark = {
            "its own": f"{BOOT}:{begun(node.pid)}",
            "another's": f"{BOOT}:1",
            "of an earlier boot": f"00000000-0000-0000-0000-000000000000:{begun(node.pid)}",
        }[whose]
        (tmp_path / "head.pid").write_text(f"{node.pid} {mark}\n")
        environment = os.environ | {"LOCAL_CLUSTER": str(tmp_path)}
        down = subprocess.Popen([SCRIPT, "down"], env=environment)
        if whose == "its own":
            assert node.wait(20) == -15
        assert down.wait(20) == 0
        assert node.poll() == (-15 if whose == "its own" else None)
        assert not (tmp_path / "head.pid").exists()
    finally:
        node.kill()
        node.wait()


def test_down_ends_what_a_killed_node_has_left(tmp_path: Path) -> None:
    leader = subprocess.Popen(
        ["bash", "-c", "sleep 60 & echo $!; exec sleep 60"], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert leader.stdout is not None
    left = psutil.Process(int(leader.stdout.readline()))
    (tmp_path / "worker.pid").write_text(f"{leader.pid} {BOOT}:{begun(leader.pid)}\n")
    leader.kill()
    leader.wait()
    assert left.is_running()
    subprocess.run([SCRIPT, "down"], env=os.environ | {"LOCAL_CLUSTER": str(tmp_path)}, check=True, timeout=20)
    psutil.wait_procs([left], timeout=5)
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE
