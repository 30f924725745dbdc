"""Plays the inputs through a commit and through this tree as it is, and prints what differs.

It exits with 1 where a difference is not meant, or where meant.yaml names one that is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.replay.compare import compare, read_meant, shown

ROOT = Path(__file__).parents[2]

FOLDER = ROOT / "build" / "replay"
LONGEST_S = 3600


def play(tree: Path, answers: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """Begin to play a tree, in a process with one thread. What it says goes to a file beside its answers."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", "tests.replay.play", str(answers), *arguments]
    with answers.with_suffix(".log").open("w") as log:
        return subprocess.Popen(command, cwd=tree, env=environment, text=True, stdout=log, stderr=log)


def checked_out(commit: str) -> Path:
    """A tree of this commit, below build/."""
    tree = FOLDER / "tree"
    git = ["git", "-C", str(ROOT)]
    # Here, because HEAD of that tree is another commit.
    found = subprocess.run([*git, "rev-parse", commit], check=True, capture_output=True, text=True, timeout=60)
    commit = found.stdout.strip()
    if not tree.exists():
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(tree), commit], check=True, timeout=60)
    subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", "--detach", commit], check=True, timeout=60)
    return tree


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay")
    parser.add_argument("base", help="the commit that is compared with this tree")
    parser.add_argument("--soonest", action="store_true", help="what `make test` plays")
    parser.add_argument("--only", default="", metavar="PATTERN", help="inputs whose names have this regular expression")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    base = checked_out(arguments.base)
    if not (base / "tests" / "replay" / "play.py").is_file():
        parser.error(f"{arguments.base} has no replay yet: its answers cannot be asked for")
    begun = time.monotonic()
    options = [*(["--soonest"] if arguments.soonest else []), "--only", arguments.only]
    files = {tree: FOLDER / f"{name}.json" for name, tree in (("before", base), ("after", ROOT))}
    processes = [play(tree, file, options) for tree, file in files.items()]
    for process, file in zip(processes, files.values(), strict=True):
        if process.wait(LONGEST_S) != 0:
            sys.stderr.write(file.with_suffix(".log").read_text()[-4000:])
            return 2
    before, after = (json.loads(file.read_text()) for file in files.values())
    found = compare(before, after, read_meant() if not arguments.only else [])
    for name in found.unmeant:
        sys.stdout.write("\n".join(shown(name, before, after)) + "\n")
    for name, reason in found.meant.items():
        sys.stdout.write(f"meant: {name}: {reason}\n")
    for pattern in found.stale:
        sys.stdout.write(f"meant.yaml: nothing that differs matches {pattern!r}: remove it\n")
    counts = f"{len(found.unmeant)} of {len(after)} answers differ, {len(found.meant)} more as meant"
    sys.stdout.write(f"{counts}; {time.monotonic() - begun:.0f} s\n")
    return 0 if found.is_green else 1


if __name__ == "__main__":
    sys.exit(main())
