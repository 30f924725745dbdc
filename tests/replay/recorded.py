"""The recorded answers, with which `make test` compares those of this tree: `python -m tests.replay.recorded`.

Of each answer a digest is kept. `make replay BASE=COMMIT` shows what an answer was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.engine.ledger import processor

ROOT = Path(__file__).parents[2]

RECORDED = Path(__file__).with_name("recorded.json")
LONGEST_S = 900
ANYWHERE = ("bad specs: ", "bad data: ", "report ")
"""How the answers begin that are the same on every machine. Others depend on its processors."""


def machine() -> str:
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores"


def digests_of(tree: Path, *arguments: str) -> dict[str, str]:
    """The digest of each answer of a tree to what `make test` plays."""
    return {name: sha256(answer.encode()).hexdigest()[:12] for name, answer in played(tree, *arguments).items()}


def played(tree: Path, *arguments: str) -> dict[str, str]:
    """The answers of a tree to what `make test` plays, in a process of its own: what a test left in this one, an answer
    may depend on."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "answers.json"
        command = [sys.executable, "-m", "tests.replay.play", str(file), "--soonest", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-4000:])
        answers: dict[str, str] = json.loads(file.read_text())
        return answers


def main() -> None:
    content = {"machine": machine(), "answers": digests_of(ROOT)}
    RECORDED.write_text(json.dumps(content, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
