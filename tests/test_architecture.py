"""What holds for the package as a whole: what imports cost, the schema of records, the family of errors."""

from __future__ import annotations

import importlib
import json
import pickle
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import alray
from alray.core.errors import AlrayError, Problem
from alray.core.run_folder.records import json_schema

PACKAGE = Path(alray.__file__).parent
ROOT = PACKAGE.parent

EXIT_CODES = {
    "AlrayError": 1,
    "RequestError": 2,
    "SpecError": 2,
    "PlanError": 2,
    "DataError": 2,
    "DataMissing": 2,
    "CheckpointError": 2,
    "RunError": 1,
    "UserCodeError": 1,
    "StageError": 1,
    "ProcessLost": 1,
    "NodesLost": 1,
    "SystemFault": 1,
    "DiskFault": 1,
    "ChannelError": 1,
    "MessageError": 1,
    "ConnectionLost": 1,
    "ReplicasDiffer": 1,
    "NonFiniteLoss": 1,
}


def modules_after(program: str) -> set[str]:
    """Top-level names of the modules that a fresh Python holds after a program; `cli/test_main.py` has the commands."""
    code = f"import sys\n{program}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_package_itself_imports_only_the_standard_library() -> None:
    grown = modules_after("import alray") - modules_after("")
    assert "alray" in grown
    assert grown - {"alray"} <= sys.stdlib_module_names


def test_what_starts_ray_imports_no_torch() -> None:
    """Otherwise Ray, and the stages' processes on it, would start only after that."""
    assert "torch" not in modules_after(
        "import alray.orchestrate, alray.runtime.cluster.connect, alray.runtime.graph.processes"
    )


NAMED = re.findall(r"`((?:\w+/)+\w+\.\w+)`(?:\s\(`([\w.]+)`\))?", (PACKAGE / "README.md").read_text(encoding="utf-8"))


def test_the_page_of_the_architecture_names_what_is_there() -> None:
    """`file.py` (`function`), from the package's folder or from that of the repository."""
    assert len(NAMED) > 60 and sum(name != "" for _, name in NAMED) > 10
    texts = {
        name: next((each.read_text(encoding="utf-8") for each in (PACKAGE / name, ROOT / name) if each.is_file()), None)
        for name, _ in NAMED
    }
    assert [name for name, text in texts.items() if text is None] == []
    for name, function in NAMED:
        for part in filter(None, function.split(".")):
            assert re.search(rf"\b(?:def|class) {part}\b", texts[name] or ""), f"{name} ({function})"


def test_the_committed_schema_of_records_is_in_step() -> None:
    committed = json.loads((ROOT / "docs" / "records.schema.json").read_text(encoding="utf-8"))
    assert committed == json_schema(), "alray schema --records > docs/records.schema.json"


def family() -> Iterator[type[AlrayError]]:
    """The root of the errors and every class below it, wherever it is defined."""
    for module in pkgutil.walk_packages([str(PACKAGE)], "alray."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    waiting: list[type[AlrayError]] = [AlrayError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.partition(".")[0] == "alray":
            yield kind


def test_every_error_has_the_exit_code_that_is_documented() -> None:
    assert {kind.__name__: kind.exit_code for kind in family()} == EXIT_CODES


def test_every_error_is_pickled_whole() -> None:
    for kind in family():
        error = kind("it is wrong", hint="correct it", file="x.yaml", line=3, key="run.epochs")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert copy.problems == (Problem("it is wrong", "correct it", "x.yaml", 3, "run.epochs"),)
        assert str(copy) == str(error) == "x.yaml:3: run.epochs: it is wrong; correct it"
        several = kind.of((Problem("one"), Problem("two", key="seed")))
        assert pickle.loads(pickle.dumps(several)).problems == several.problems


def test_one_file_alone_names_torchs_module_of_one_kind_of_gpu() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    named = {file.relative_to(PACKAGE).as_posix() for file in files if "torch.cuda" in file.read_text(encoding="utf-8")}
    assert named == {"core/accelerator.py"}
