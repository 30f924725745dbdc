"""The run folder: made once, and its checkpoints with their manifests."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alray.errors import CheckpointError, RequestError
from alray.records import write_json
from alray.stage.checkpoint import step_folder
from alray.stage.telemetry import ComponentFile

MANIFEST = "manifest.json"


def make_run_dir(name: str, run_dir: Path | None) -> Path:
    """Make `runs/<name>-<time>`, or the folder asked for. Raises RequestError where that is not empty."""
    if run_dir is None:
        run_dir = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        number = 1
        while run_dir.exists():
            number += 1
            run_dir = run_dir.with_name(f"{run_dir.name.rsplit('_', 1)[0]}_{number}")
    elif run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
        raise RequestError(
            "the run folder is not empty",
            file=str(run_dir),
            mend="choose another --run-dir, or go on with `alray resume`",
        )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(
            f"the run folder cannot be made: {error.strerror}", file=str(run_dir), mend="choose another --run-dir"
        ) from error
    return run_dir.resolve()


def mark(run_dir: Path) -> str:
    """Write `.run`, by which a stage on any node knows that it sees this very folder; returns its text."""
    token = f"alray-{secrets.token_hex(6)}"
    (run_dir / ".run").write_text(token)
    return token


def write_manifest(
    run_dir: Path,
    *,
    step: int,
    epoch: float,
    samples: int,
    partition: Sequence[int],
    files: Sequence[ComponentFile],
    environment: dict[str, Any],
    shares: Sequence[int] = (),
) -> Path:
    """Complete the checkpoint after `step` mini-batches: it exists from here on.

    shares: samples of a mini-batch each replica takes next, where they change as the run goes.
    """
    folder = run_dir / "checkpoints" / step_folder(step)
    write_json(
        folder / MANIFEST,
        {
            "version": 1,
            "step": step,
            "epoch": epoch,
            "samples": samples,
            "partition": list(partition),
            "environment": environment,
            **({"shares": list(shares)} if shares else {}),
            "files": [
                {"file": entry.file, "sha256": entry.sha256, "bytes": entry.bytes}
                for entry in sorted(files, key=lambda entry: entry.file)
            ],
        },
    )
    return folder


def manifests(run_dir: Path) -> list[dict[str, Any]]:
    """Manifests of all complete checkpoints, oldest first. Raises CheckpointError where one is damaged."""
    found = []
    for path in sorted((run_dir / "checkpoints").glob(f"step-*/{MANIFEST}")):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            found.append({**manifest, "step": int(manifest["step"]), "files": list(manifest["files"])})
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"this manifest is damaged: {error}",
                file=str(path),
                mend=f"delete the folder {path.parent.name} to use the checkpoint before it",
            ) from error
    return sorted(found, key=lambda manifest: int(manifest["step"]))


def latest_manifest(run_dir: Path) -> dict[str, Any] | None:
    """The newest complete checkpoint's manifest; None where there is none yet."""
    complete = manifests(run_dir)
    return complete[-1] if complete else None


def prune(run_dir: Path, keep: int) -> None:
    """Delete all but the newest `keep` complete checkpoints, each manifest first, and what older attempts left."""
    complete = manifests(run_dir)
    newest = complete[-1]["step"] if complete else 0
    kept = {step_folder(manifest["step"]) for manifest in complete[-keep:]}
    for folder in (run_dir / "checkpoints").glob("step-*"):
        step = int(folder.name.removeprefix("step-"))
        if folder.name not in kept and step < newest:
            (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder)


def require_run_dir(run_dir: Path) -> Path:
    """The folder, if it is one a run made. Raises CheckpointError otherwise."""
    if not (run_dir / "spec.yaml").is_file():
        raise CheckpointError(
            "this is not a run folder: it has no spec.yaml",
            file=str(run_dir),
            mend="name a folder that `alray run` made, such as runs/<name>-<time>",
        )
    return run_dir.resolve()
