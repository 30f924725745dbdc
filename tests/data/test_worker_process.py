"""Processes that prepare mini-batches do not run the user's script."""

from __future__ import annotations

import pickle
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from alray.data.worker_process import WorkerContext

SCRIPT = "import pathlib\npathlib.Path({mark!r}).write_text('again')\n"


def started(main: ModuleType, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The exit code of a process that is started while `main` is the main module."""
    monkeypatch.setitem(sys.modules, "__main__", main)
    process = WorkerContext().Process(target=sys.getrecursionlimit)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("form", ["a file", "a module", "standard input", "no file"])
def test_the_script_does_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "script.py").write_text(SCRIPT.format(mark=str(mark)))
    main = ModuleType("__main__")
    if form == "a file":  # python script.py
        main.__file__ = str(tmp_path / "script.py")
    elif form == "a module":  # python -m script
        main.__spec__ = ModuleSpec("script", None, origin=str(tmp_path / "script.py"))
        monkeypatch.syspath_prepend(tmp_path)
    elif form == "standard input":  # python -
        main.__file__ = "<stdin>"
    assert started(main, monkeypatch) == 0
    assert not mark.exists()


def test_what_the_script_defines_is_refused_before_a_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine:
        pass

    monkeypatch.setattr(Mine, "__module__", "__main__")
    with pytest.raises(pickle.PicklingError, match="is defined in the script"):
        WorkerContext().Process(target=print, args=(Mine(),)).start()
