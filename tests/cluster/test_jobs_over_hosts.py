"""The quickstart as a job on three hosts: a head with a dashboard and a token, and two nodes for the stages."""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path

import pytest

from .hosts import three_hosts

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]


def test_the_quickstart_is_submitted_followed_and_fetched(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    with three_hosts(tmp_path) as hosts:
        hosts.variables |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
        hosts.ray(1, 0, "--dashboard-host=0.0.0.0")
        hosts.ray(2, 1)
        hosts.ray(3, 1)
        where = ("--address", f"http://{hosts.address(1)}:8265")
        spec, jobs = ROOT / "specs" / "quickstart.yaml", tmp_path / "jobs"
        submitting = hosts.start(3, "submit", str(spec), *where, "--output", str(jobs), "--json")
        out, followed = submitting.communicate(timeout=300)
        assert submitting.returncode == 0, out + followed
        assert "the stages are on n2, n3" in followed and "after mini-batch 400" in followed
        answer = json.loads(out)
        fetching = hosts.start(2, "fetch", answer["job"]["id"], *where, "--output", "fetched", "--json")
        out, err = fetching.communicate(timeout=120)
        assert fetching.returncode == 0, out + err
    summary = json.loads((tmp_path / "fetched" / "summary.json").read_text())
    assert summary["weights_sha256"][:8] in (ROOT / "docs/how_it_works.md").read_text(encoding="utf-8")
