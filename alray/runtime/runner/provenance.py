"""Where a run comes from: its spec, when and where it ran, on which code and which libraries."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from alray.config.known_code import sha256
from alray.config.loading.load import dump_spec, read_document
from alray.config.objects import names_of
from alray.config.sections.spec import Spec
from alray.core.errors import SpecError, printable
from alray.core.run_folder.records import read_environment, replace_file, write_json
from alray.core.run_folder.store import FORM
from alray.core.storage.location import Location
from alray.data.form import DataForm
from alray.runtime.planner.micro_batches import as_saved
from alray.runtime.workload import Workload

_WITH_PASSWORD = re.compile(r"://[^/@\s]*@")
"""In a URL: a user and a password. They are in no record."""
_GIT = ("git", "--no-pager", "--no-optional-locks")
_NO_PROGRAMS = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null", "safe.bareRepository": "explicit"}
_GIT_S = 5.0  # in a large repository git may take longer


def describe_run(
    run_dir: Location,
    workload: Workload,
    surroundings: dict[str, Any],
    command: Sequence[str],
    *,
    changes: Sequence[str] = (),
) -> None:
    """Write `spec.yaml`, `environment.json`, and the form of the data.

    The command that began a run stays when it is resumed; those that resumed it are kept after it.

    Args:
        surroundings: the machine and the engine.
        command: what was typed.
        changes: what a resume changes in the mathematics of the run; those of earlier ones stay.
    """
    given, earlier = _given(run_dir, workload.spec), read_environment(run_dir) or {}
    typed = [printable(_WITH_PASSWORD.sub("://", word)) for word in command]
    file, text = run_dir / "spec.yaml", dump_spec(as_saved(workload.spec))
    before = [sha256(file.read_bytes())] if file.is_file() else []
    origin = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "host": platform.node(),
        "command": earlier.get("command") or typed,
        "resumed_by": [*(earlier.get("resumed_by") or []), typed] if earlier.get("command") else [],
        "git": earlier.get("git") if earlier or workload.code.is_copy else git_state(workload.code.root),
        "packages": _packages(),
        "given": given,
        "data_sha256": workload.facts.identity.sha256,
        "spec_sha256": [*before, sha256(text.encode())],
    }
    if changed := [*(earlier.get("changed") or []), *changes]:
        origin["changed"] = changed
    if names := names_of(workload.spec):
        network = workload.network
        origin |= {
            "objects": names,
            "model_sha256": network.model_sha256,
            "architecture_sha256": network.architecture_sha256,
            "given_sha256": workload.facts.identity.given_sha256,
        }
    write_json(run_dir / FORM, DataForm.of(workload.data).model_dump(mode="json"))
    # Both hashes are there before the file changes: a crash between the two writes spoils no resume.
    write_json(run_dir / "environment.json", {**surroundings, **origin})
    replace_file(file, text)


def describe_stages(run_dir: Location, surroundings: dict[str, Any]) -> None:
    """Write to `environment.json` what the stages compute on, which is known once they have started."""
    write_json(run_dir / "environment.json", {**(read_environment(run_dir) or {}), **surroundings})


def require_own_spec(run_dir: Location) -> None:
    """Raise SpecError if `spec.yaml` is not what alray wrote."""
    environment = read_environment(run_dir)
    if environment is None or sha256((run_dir / "spec.yaml").read_bytes()) not in environment["spec_sha256"]:
        raise SpecError(
            "spec.yaml was changed since alray wrote it",
            file=str(run_dir / "spec.yaml"),
            hint="restore it, and give changes as overrides",
        )


def _given(run_dir: Location, spec: Spec) -> dict[str, Any]:
    """The values that the user wrote in a spec, overrides included; of a resumed run, those of its first start and
    what the resume changed."""
    origin = read_environment(run_dir)
    if origin is None:
        return spec.model_dump(mode="json", exclude_unset=True)
    return _written(spec.model_dump(mode="json"), read_document(run_dir / "spec.yaml").value, origin["given"])


def _written(now: dict[str, Any], saved: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The keys of `now` that `before` has too, and those whose values differ from `saved`."""
    found = {}
    for key, value in now.items():
        if isinstance(value, dict) and isinstance(saved.get(key), dict):
            own = before.get(key)
            if inner := _written(value, saved[key], own if isinstance(own, dict) else {}):
                found[key] = inner
        elif key in before or value != saved.get(key):
            found[key] = value
    return found


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit of the repository around a folder, and whether a file in it was changed since; None without one.

    The repository may be a stranger's, whose configuration names programs that git would run. Here it runs none. So
    where filters are configured, a file that seems changed may not be: this is then not known.
    """
    folder = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    commit, keys = _git(folder, {}, "rev-parse", "HEAD"), _git(folder, {}, "config", "--list", "--name-only", "-z")
    if commit is None:
        return None
    if keys is None:
        return {"commit": commit, "dirty": None}
    filters = {key: "" for key in keys.split("\0") if key.startswith("filter.")}
    asked = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    changed = _git(folder, filters, *asked)
    return {"commit": commit, "dirty": None if changed is None or (changed and filters) else bool(changed)}


def _git(folder: Path, settings: Mapping[str, str], *arguments: str) -> str | None:
    """What git answers without starting another program, fetching from a remote, or writing; None if it fails.

    Args:
        settings: of its configuration.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    given = _NO_PROGRAMS | dict(settings)
    own |= {"GIT_ALLOW_PROTOCOL": "", "GIT_CONFIG_COUNT": str(len(given))}
    for number, (key, value) in enumerate(given.items()):
        own |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    command = [*_GIT, "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="surrogateescape", timeout=_GIT_S, check=True, env=own
        )
    except (FileNotFoundError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None  # no git, no repository, or one that is too large
    return done.stdout.strip()


@cache
def _packages() -> dict[str, str]:
    """The versions of the installed packages that alray requires, and of what it uses through torchvision."""
    versions = {}
    required = [each for each in metadata.requires("alray") or () if "dev" not in each]
    for name in ("numpy", "pillow", *(re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in required)):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # of an extra that is not installed
    return versions
