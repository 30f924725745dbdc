"""`python:` references: from the spec's directory, from other folders only where that is allowed."""

from __future__ import annotations

import importlib
import json
import pickle
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.config.user_code import UserCode, folder_to_name
from alray.core.errors import SpecError


@pytest.fixture(autouse=True)
def modules_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, **files: str) -> Path:
    """Files by dotted name: `blocks`, `package.__init__`, ..."""
    for name, text in files.items():
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def complaint(code: UserCode, reference: str) -> str:
    with pytest.raises(SpecError) as caught:
        code(reference)
    return str(caught.value)


def test_a_module_beside_the_spec(tmp_path):
    code = UserCode(write(tmp_path, mine_a="def block(): return 'mine'"))
    assert code("python:mine_a.block")() == "mine"


def test_a_module_of_a_package_and_what_it_imports(tmp_path):
    write(tmp_path, **{"pack_a.__init__": "", "pack_a.deep.__init__": "", "pack_a.other": "word = 'other'"})
    write(tmp_path, **{"pack_a.deep.blocks": "from ..other import word\nfrom beside_a import width"})
    write(tmp_path, beside_a="width = 3")
    code = UserCode(tmp_path)
    assert (code("python:pack_a.deep.blocks.word"), code("python:pack_a.deep.blocks.width")) == ("other", 3)


def test_a_folder_without_init_is_a_package_too(tmp_path):
    write(tmp_path, **{"plain_a.blocks": "word = 'plain'"})
    assert UserCode(tmp_path)("python:plain_a.blocks.word") == "plain"


def test_its_classes_stay_where_its_folder_is_twice_in_the_path(tmp_path):
    """As with `python -m pytest` and PYTHONPATH."""
    sys.path[:0] = 2 * [str(write(tmp_path, **{"twice_a.blocks": "class Block: ..."}))]
    found = importlib.import_module("twice_a.blocks").Block
    assert UserCode(tmp_path)("python:twice_a.blocks.Block") is found
    assert folder_to_name(found) == tmp_path


def test_what_is_not_there(tmp_path):
    code = UserCode(write(tmp_path, mine_b="word = 1"))
    told = complaint(code, "python:nothing_b.Block")
    assert told.startswith("`python:nothing_b.Block`: ") and f" in {tmp_path}; " in told and "--allow-code" in told
    assert complaint(code, "python:mine_b.Block").startswith("`python:mine_b.Block`: module `mine_b` has no `Block`; ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nothing_c", "ModuleNotFoundError: No module named 'nothing_c'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("assert 1 == 2, 'unequal'", "AssertionError: unequal"),
        ("open('/nothing/here')", "FileNotFoundError: [Errno 2] No such file or directory: '/nothing/here'"),
        ("{}['key']", "KeyError: 'key'"),
    ],
)
def test_a_module_that_fails_to_import(tmp_path, text, reason):
    code = UserCode(write(tmp_path, broken_c=text))
    assert complaint(code, "python:broken_c.Block") == (
        f"`python:broken_c.Block` cannot be imported: {reason}; correct the module, or install what it needs"
    )


def test_elsewhere_is_refused_unless_allowed(tmp_path):
    elsewhere = write(tmp_path / "elsewhere", far_d="word = 'far'")
    here = tmp_path / "here"
    here.mkdir()
    sys.path.insert(0, str(elsewhere))
    assert complaint(UserCode(here), "python:far_d.word").startswith("`python:far_d.word`: there is no module `far_d`")
    assert "far_d" not in sys.modules
    assert UserCode(here, allow_elsewhere=True)("python:far_d.word") == "far"


def test_what_is_beside_the_spec_comes_before_elsewhere(tmp_path):
    sys.path.insert(0, str(write(tmp_path / "elsewhere", both_e="word = 'elsewhere'")))
    __import__("both_e")
    here = write(tmp_path / "here", both_e="word = 'here'")
    assert UserCode(here, allow_elsewhere=True)("python:both_e.word") == "here"


def test_namesakes_of_several_folders_in_one_process(tmp_path):
    """Each spec means the module beside it, helpers it imports too, however often one goes back and forth."""
    codes = [
        UserCode(write(tmp_path / name, same_f="import helper_f\nword = helper_f.word", helper_f=f"word = {name!r}"))
        for name in ("one", "two")
    ]
    for place, name in ((0, "one"), (1, "two"), (0, "one"), (1, "two")):
        assert codes[place]("python:same_f.word") == name


def test_the_copy_in_a_run_folder_below_the_spec_is_a_namesake_too(tmp_path):
    write(tmp_path, same_g="word = 'spec'")
    write(tmp_path / "runs" / "one" / "code", same_g="word = 'copy'")
    spec, copy = UserCode(tmp_path), UserCode(tmp_path / "runs" / "one" / "code")
    assert [code("python:same_g.word") for code in (copy, spec, copy)] == ["copy", "spec", "copy"]


def test_a_module_is_loaded_once(tmp_path):
    write(tmp_path, once_h="class Block: pass")
    assert UserCode(tmp_path)("python:once_h.Block") is UserCode(tmp_path)("python:once_h.Block")


def test_an_edited_module_is_loaded_anew_by_the_next_run(tmp_path):
    write(tmp_path, edited_h="from used_h import width\nword = 'old'", used_h="width = 16")
    before = UserCode(tmp_path)
    assert (before("python:edited_h.word"), before("python:edited_h.width")) == ("old", 16)
    write(tmp_path, used_h="width = 24")
    assert before("python:edited_h.width") == 16  # the run that has started goes on with one class
    assert UserCode(tmp_path)("python:edited_h.width") == 24


@pytest.mark.parametrize("name", ["json", "torch", "alray"])
def test_a_name_that_python_or_a_library_needs_is_refused(tmp_path, name):
    before = sys.modules[name]
    code = UserCode(write(tmp_path, **{name: "Block = 1"}))
    told = complaint(code, f"python:{name}.Block")
    assert told.startswith(f"`python:{name}.Block`: `{name}` ") and "installed package" in told
    assert sys.modules[name] is before and json.loads("1") == 1


def test_copy_used_takes_what_was_loaded_and_nothing_else(tmp_path):
    write(tmp_path / "spec", used_i="import helper_i", helper_i="", unused_i="")
    write(
        tmp_path / "spec",
        **{"used_i": "import helper_i\nimport pack_i.deep\nword = 1", "pack_i.__init__": "", "pack_i.deep": ""},
    )
    code = UserCode(tmp_path / "spec")
    code("python:used_i.word")
    code.copy_used(["python:used_i.word"], tmp_path)
    copied = sorted(str(path.relative_to(tmp_path / "code")) for path in (tmp_path / "code").rglob("*.py"))
    assert copied == ["helper_i.py", "pack_i/__init__.py", "pack_i/deep.py", "used_i.py"]
    assert UserCode(tmp_path / "code")("python:used_i.word") == 1
    assert Path(sys.modules["helper_i"].__file__ or "").is_relative_to(tmp_path / "code")


def test_a_run_copies_none_of_what_other_runs_in_its_process_loaded(tmp_path):
    """Even where their folders lie below that of the run, or are gone. What it loads is copied, however it is named."""

    def copied(root: Path, reference: str, run: str) -> list[str]:
        code = UserCode(root)
        code(reference)
        code.copy_used([reference], tmp_path / run)
        there = tmp_path / run / "code"
        return sorted(str(path.relative_to(there)) for path in there.rglob("*.py"))

    other = write(tmp_path / "project", theirs_m="word = 1")
    computed = "import importlib\nword = importlib.import_module('computed_' + 'm')"
    write(tmp_path, mine_m="word = 1", other_m=computed, computed_m="")
    assert copied(other, "python:theirs_m.word", "run1") == ["theirs_m.py"]
    assert copied(tmp_path, "python:mine_m.word", "run2") == ["mine_m.py"]
    assert copied(tmp_path, "python:other_m.word", "run3") == ["computed_m.py", "other_m.py"]
    shutil.rmtree(other)
    (tmp_path / "mine_m.py").unlink()
    assert copied(tmp_path, "python:other_m.word", "run4") == ["computed_m.py", "other_m.py"]


@pytest.mark.parametrize("left", ["nothing", "the folder"])
def test_a_machine_without_the_specs_folder_loads_from_the_run_folder(tmp_path, left):
    code = UserCode(write(tmp_path / "spec", **{"pack_k.__init__": "", "pack_k.blocks": "from used_k import word"}))
    write(tmp_path / "spec", used_k="word = 1")
    code("python:pack_k.blocks.word")
    code.copy_used(["python:pack_k.blocks.word"], tmp_path / "run")
    sent = pickle.dumps(code)
    shutil.rmtree(tmp_path / "spec")
    if left == "the folder":  # as where the spec lies in the home folder
        (tmp_path / "spec").mkdir()
    for name in ("pack_k", "pack_k.blocks", "used_k"):
        del sys.modules[name]
    there = pickle.loads(sent)
    assert there("python:pack_k.blocks.word") == 1
    assert there.root == tmp_path / "run" / "code"


def test_running_in_the_specs_own_folder_copies_no_more(tmp_path, monkeypatch):
    """torch names files that are not there, such as `_ops.py`: relative to the current folder."""
    assert not Path(torch.ops.__file__).is_absolute()
    monkeypatch.chdir(tmp_path)
    code = UserCode(write(tmp_path, used_j="word = 1"))
    code("python:used_j.word")
    code.copy_used(["python:used_j.word"], tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "code").iterdir()] == ["used_j.py"]


def test_alray_itself_is_never_copied_nor_loaded_anew(tmp_path):
    import alray.core.errors

    root = Path(alray.core.errors.__file__).resolve().parent.parent
    write(tmp_path, own_l="import alray.core.errors")
    (tmp_path / "alray").symlink_to(root / "alray")
    UserCode(tmp_path).copy_used(["python:own_l.errors"], tmp_path / "run")
    UserCode(root).copy_used([], tmp_path)
    assert [path.name for path in (tmp_path / "run" / "code").iterdir()] == ["own_l.py"]
    assert not (tmp_path / "code" / "alray").exists()


def test_threads_load_one_module_together(tmp_path: Path) -> None:
    """As the ranks of a probe do with a user's all-reduce. Each replaces the module of the folder before."""
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "loaded_together.py").write_text("import time\n\ntime.sleep(0.001)\n\n\nclass Thing:\n    pass\n")
        load, together = UserCode(folder), threading.Barrier(8)

        def found(load: UserCode = load, together: threading.Barrier = together) -> Any:
            together.wait()
            return load("python:loaded_together.Thing")

        with ThreadPoolExecutor(8) as threads:
            begun = [threads.submit(found) for _ in range(8)]
        assert len({each.result() for each in begun}) == 1
