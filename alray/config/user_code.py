"""Loads the user's classes, `python:package.module.Class` in a spec, from the directory of the spec, and those that
installed packages provide; and names them where they raise an error."""

from __future__ import annotations

import copy as copying
import importlib
import inspect
import multiprocessing
import shutil
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from alray.config.known_code import CODE, CodeRecord, origin_of, sha256, write_record
from alray.config.loading.own_files import is_reserved, module_file, name_is_taken, no_module, own_files
from alray.config.objects import NO_OBJECTS, Objects
from alray.config.sections.own_code import OBJECT, PREFIX, PythonReference, parse_python_reference
from alray.config.sections.section import did_you_mean, nearest
from alray.core.errors import FAULTS_OF_USER_CODE, AlrayError, Problem, RequestError, SpecError, UserCodeError
from alray.core.packages import require
from alray.core.storage.appended import local_copy
from alray.core.storage.location import Location, local_folder_for, sync_below
from alray.core.system_errors import ran_out

_ALRAY = Path(__file__).resolve().parents[1]
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()

_roots: list[Path] = []
"""The directories from which this process has loaded user code; the last one comes first in imports."""
_loaded_for: dict[tuple[Path, str], set[Path]] = {}
"""By root and reference: the files that were loaded below that root during runs with this reference. A later run in
this process finds them loaded, and so cannot tell that it needs them too."""
_hashes: dict[Path, str] = {}
"""The files that this process has loaded as user code, with the SHA-256 of their content at that time."""
_copies: list[Path] = []
"""Copies of code in run folders, of which this process loads only the text (`_FromText`)."""
_imported: ContextVar[str | None] = ContextVar("_imported", default=None)
"""The reference whose module is being imported."""
_importing = threading.RLock()
"""Held while user code is found and imported: modules and their path are those of all threads."""


def require_not_imported() -> None:
    """Raise RequestError if alray is called while it imports a module of the user, or while a process that
    multiprocessing started imports the script.

    A script that names one of its classes, `python:script.Mine`, is imported as that module too, on every stage. What
    it calls without `if __name__ == "__main__"` would then be called again.
    """
    starting = getattr(multiprocessing.current_process(), "_inheriting", False)  # as multiprocessing itself tells
    if _imported.get() is None and not starting:
        return
    calls = [frame for frame in traceback.extract_stack() if _is_own(frame.filename)]
    place = f"{calls[-1].filename}:{calls[-1].lineno} calls alray" if calls else "alray is called"
    raise RequestError(
        f"{place} while {'a process that multiprocessing started' if starting else 'alray'} imports that file",
        hint='call it below `if __name__ == "__main__":`, or put the class into a separate file',
    )


class _FromText(SourceFileLoader):
    """Loads modules from their text. Bytecode next to it, which may be of another text, is neither read nor written."""

    def path_stats(self, path: str) -> Any:
        """Python then takes no bytecode to be that of this file."""
        raise OSError


def _find_text(path: str) -> FileFinder:
    """The finder of modules in a copy of a run folder: no bytecode, no compiled modules. For `sys.path_hooks`."""
    if not any(Path(path).is_relative_to(copy) for copy in _copies):
        raise ImportError
    return FileFinder(path, (_FromText, SOURCE_SUFFIXES))


def _only_text(copy: Path) -> None:
    """From now on, load only text from this folder."""
    if _find_text not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_text)
    if copy not in _copies:
        _copies.append(copy)
        for path in [path for path in sys.path_importer_cache if Path(path).is_relative_to(copy)]:
            del sys.path_importer_cache[path]


class UserCode:
    """Loads the classes that `python:` references name, from one directory or, if allowed, from anywhere; those of
    installed packages, `group:name`, and what a Python program gave, `object:name`, which need no permission.

    It can be sent to a process on another machine. Where that machine does not see the directory, it loads from the
    copy in the run folder.
    """

    def __init__(
        self, root: Location, *, allow_elsewhere: bool = False, is_copy: bool = False, objects: Objects = NO_OBJECTS
    ) -> None:
        """
        Args:
            root: the directory of the spec, or the copy of the user's code in a run folder or next to weights.
            allow_elsewhere: whether modules may also come from other directories of `sys.path`.
            is_copy: whether the code may be another's: then only its text is loaded.
            objects: that a Python program gave.
        """
        self.objects = objects
        self.root = local_copy(root).resolve()
        self.allow_elsewhere = allow_elsewhere
        self.is_copy = is_copy
        self._shared = root  # where every machine of the run sees the code
        self._copy: Path | None = None  # of `_shared`, on this machine
        self._refusal: RequestError | None = None  # raised if anything is loaded
        self._forget_edited()
        self._loaded_before = self._loaded()

    @classmethod
    def of_run(
        cls,
        run_dir: Location,
        *,
        allow: bool,
        named: bool,
        objects: Objects = NO_OBJECTS,
        note: Callable[[str], None] = lambda line: None,
    ) -> UserCode:
        """The code of a run folder: from where it came, if the same files lie there; otherwise the copy in the run
        folder, if the user allows that.

        Args:
            named: whether the spec of the run names any code.
            objects: as for the constructor.
            note: takes a line if the copy runs.

        Raises:
            RequestError: as `origin_of`.
        """
        copy = run_dir / CODE
        if not copy.is_dir():
            return cls(copy, allow_elsewhere=allow, is_copy=True, objects=objects)
        here = local_copy(copy)
        try:
            code = cls(origin_of(run_dir, here), allow_elsewhere=allow, objects=objects)
        except RequestError as refusal:
            if named and not allow:
                raise
            code = cls(here, allow_elsewhere=allow, is_copy=True, objects=objects)
            code._refusal = None if allow else refusal
            if named:
                note(f"the code that runs is the copy in {copy}")
        code._shared = copy
        code._copy = here
        return code

    def __getstate__(self) -> dict[str, Any]:
        """Another machine makes a copy."""
        return {**self.__dict__, "_copy": None, "_loaded_before": frozenset()}

    def __call__(self, reference: str) -> Any:
        """Return the class or the object that a reference names.

        Raises SpecError if it does not exist, if its module fails to import, or if loading it is not allowed; and
        RequestError if it is in a run folder whose code may not run, or an object that was not given.
        """
        if reference.startswith(OBJECT):
            return self.objects[reference]
        with _importing:
            return self._named_in_a_module(reference)

    def _named_in_a_module(self, reference: str) -> Any:
        if reference.startswith(PREFIX):
            parsed = parse_python_reference(reference)
            self._make_importable(reference, parsed)
        else:
            found = require(reference)
            parsed = PythonReference(found.module, found.attribute)
            reference = f"{found.name} of {found.origin}"
        imported = _imported.set(reference)
        try:
            module = importlib.import_module(parsed.module)
        except AlrayError as error:
            problem = error.problems[0]
            raise SpecError(f"`{reference}` cannot be imported: {problem.message}", hint=problem.hint) from error
        except FAULTS_OF_USER_CODE as error:
            raise SpecError(
                f"`{reference}` cannot be imported: {type(error).__name__}: {error}",
                hint="correct the module, or install what it needs",
            ) from error
        finally:
            _imported.reset(imported)
        file = _own_file(module)
        if file is not None and file not in _hashes and file.is_relative_to(self.root):
            new = self._loaded() - _hashes.keys()
            _hashes.update({path: sha256(path.read_bytes()) for path in new if path.is_file()})
        if not hasattr(module, parsed.name):
            raise SpecError(
                f"`{reference}`: module `{parsed.module}` has no `{parsed.name}`",
                hint=did_you_mean(nearest(parsed.name, dir(module)), "name a class or function of that module"),
            )
        return getattr(module, parsed.name)

    def _make_importable(self, reference: str, parsed: PythonReference) -> None:
        """Have the module of a `python:` reference be found first. Raises as `__call__`."""
        if self._refusal is not None:
            raise self._refusal
        top = parsed.module.partition(".")[0]
        importlib.invalidate_caches()
        if self.is_copy:
            _only_text(self.root)
        if self._find(top) is None:
            self._turn_to_the_copy(top)
        if self._find(top) is not None:
            self._refuse_a_taken_name(reference, top)
            self._come_first(top)
        elif not self.allow_elsewhere:
            message, hint = no_module(reference, top, self.root)
            raise SpecError(message, hint=hint)

    def with_objects(self, objects: Objects) -> UserCode:
        """The same with these objects of a program."""
        found = copying.copy(self)
        found.objects = objects
        return found

    def without_data(self) -> UserCode:
        """The same for a process that opens no data: those that a program gave may be large."""
        return self.with_objects(self.objects.without("data"))

    def copy_used(self, references: Iterable[str], run_dir: Location) -> None:
        """Copy the modules below `root` that a run uses to its run folder, so that it can be resumed anywhere, and
        record where they came from.

        These are the modules of its references, what they import, and what was loaded since this object was made. What
        other runs in this process have loaded stays out. Processes on other machines that this object is sent to from
        now on load from there what they miss.
        """
        self._shared = run_dir / CODE
        references = list(references)
        own = {path for file in own_files(references, self.root) if (path := _source(str(file.resolve()))) is not None}
        for reference in references:
            loaded = _loaded_for.setdefault((self.root, reference), set())
            loaded |= self._loaded() - self._loaded_before
            own |= {path for path in loaded if path.is_file()}
        if not (own := {path for path in own if path.is_relative_to(self.root)}):
            return
        with local_folder_for(self._shared) as folder:
            for path in own:
                copy = folder / path.relative_to(self.root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
        sync_below(self._shared)
        write_record(run_dir, CodeRecord.of(self.root, own))

    def _forget_edited(self) -> None:
        """Have the modules below `root` be imported anew if a file of theirs was edited since this process loaded it.

        A notebook may train, edit a module and train again. The run folder gets the file as it is now, so that must be
        what runs.
        """
        own = {path: digest for path, digest in _hashes.items() if path.is_relative_to(self.root)}
        if all(path.is_file() and sha256(path.read_bytes()) == digest for path, digest in own.items()):
            return
        _only_text(self.root)  # Python takes bytecode of the same second and length to be that of the edited file
        for name in [name for name, module in sys.modules.items() if _own_file(module) in own]:
            del sys.modules[name]
        for path in own:
            del _hashes[path]

    def _loaded(self) -> frozenset[Path]:
        """The files below `root` of which this process has loaded modules."""
        paths = (_own_file(module) for module in list(sys.modules.values()))
        return frozenset(path for path in paths if path is not None and path.is_relative_to(self.root))

    def _turn_to_the_copy(self, top: str) -> None:
        """Load from the copy in the run folder from now on, if that has a module that `root` lacks on this machine."""
        if self._copy is None:
            self._copy = local_copy(self._shared).resolve()
        _only_text(self._copy)
        if PathFinder.find_spec(top, [str(self._copy)]) is not None:
            self.root = self._copy

    def _find(self, top: str) -> ModuleSpec | None:
        return PathFinder.find_spec(top, [str(self.root)])

    def _refuse_a_taken_name(self, reference: str, top: str) -> None:
        """Raise SpecError if loading `top` would replace a module that Python or a library uses."""
        loaded = sys.modules.get(top)
        file = getattr(loaded, "__file__", None)
        installed = file is not None and "site-packages" in Path(file).parts
        if is_reserved(top) or installed:
            message, hint = name_is_taken(reference, top)
            raise SpecError(message, hint=hint)

    def _come_first(self, top: str) -> None:
        """Make imports find this directory's modules before modules of the same name in other folders.

        One process may load code from several directories, for example a spec's and the copy in a run folder. Modules
        that import each other must come from the same directory.
        """
        owned: set[str] = set()
        if _roots[-1:] != [self.root]:
            _roots[:] = [*(root for root in _roots if root != self.root), self.root]
            owned = {module.__name__.partition(".")[0] for module in list(sys.modules.values()) if _in_a_root(module)}
        for name in owned | {top}:
            here, loaded = self._find(name), sys.modules.get(name)
            if here is not None and loaded is not None and _file_of(here) != _file_of(loaded.__spec__):
                for part in [part for part in sys.modules if part == name or part.startswith(f"{name}.")]:
                    del sys.modules[part]
        if sys.path[:1] != [str(self.root)]:
            sys.path[:] = [str(self.root), *(entry for entry in sys.path if entry != str(self.root))]


def folder_to_name(found: Any) -> Path | None:
    """The folder from which `python:module.Name` names a class or function.

    None where no reference can name it: its module is a notebook, the script that runs, or installed, or it is inside
    of another class or function.
    """
    module = sys.modules.get(getattr(found, "__module__", None) or "")
    file = None if module is None else _own_file(module)
    if module is None or file is None or is_reserved(module.__name__.partition(".")[0]):
        return None
    if getattr(module, getattr(found, "__qualname__", ""), None) is not found:
        return None
    root = file.parents[module.__name__.count(".") + (file.name == "__init__.py")]
    return root if module_file(root, module.__name__) == file else None


def is_users(module: ModuleType) -> bool:
    """Whether a module has a file that is neither alray's, nor installed, nor part of Python."""
    file = _own_file(module)
    return file is not None and not file.is_relative_to(_STANDARD_LIBRARY)


@contextmanager
def named(what: str, doing: str, *, key: str) -> Iterator[None]:
    """Inside, whatever a user's code raises becomes one UserCodeError. alray's errors pass unchanged.

    Args:
        what: whose code it is.
        doing: what it did.
        key: of the spec, where it is named.
    """
    try:
        yield
    except AlrayError:
        raise
    except FAULTS_OF_USER_CODE as fault:
        raise named_error(fault, what, doing, key=key) from fault


def named_error(fault: Exception, what: str, doing: str, *, key: str, hint: str | None = None) -> UserCodeError:
    """The error that names a user's code: file and line where it raised `fault`, and the part of the traceback in that
    code.

    Where it has no part in the traceback, the whole of it is kept. The hint says whether memory, file descriptors,
    threads or room on the disk ran out.

    Args:
        hint: where none of these ran out.
    """
    text = str(fault).strip() or "no message"
    message = f"{what} raised {type(fault).__name__} in {doing}: {text}"
    system = ran_out(fault)
    hint = hint if system is None else str(system)
    problem = own_problem(fault, message, key=key, hint=hint)
    if problem is None:
        problem = Problem(message, hint, key=key, traceback="".join(traceback.format_exception(fault)))
    error = UserCodeError.of((problem,))
    error.__cause__ = fault  # also where it is raised later
    return error


def own_problem(
    fault: BaseException, message: str, *, key: str | None = None, hint: str | None = None
) -> Problem | None:
    """A problem at file and line where a user's code raised `fault`, with the traceback from where that code begins to
    where it ends.

    None where a user's code has no part in the traceback.
    """
    report = traceback.TracebackException.from_exception(fault)
    own = [index for index, frame in enumerate(report.stack) if _is_own(frame.filename)]
    if not own:
        return None
    last = report.stack[own[-1]]
    report.stack = traceback.StackSummary.from_list(report.stack[own[0] : own[-1] + 1])
    return Problem(message, hint, last.filename, last.lineno, key, traceback="".join(report.format()))


def own_error(fault: Exception, message: str, *, key: str, hint: str) -> SpecError:
    """The error of `own_problem`; where a user's code has no part in the traceback, it has the key alone."""
    return SpecError.of((own_problem(fault, message, key=key, hint=hint) or Problem(message, hint, key=key),))


def own_place(function: Any) -> tuple[str, int] | None:
    """File and line where a function begins, if it may be the user's: of a decorated one, what is decorated."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else own_place_of(code)


def own_place_of(code: CodeType) -> tuple[str, int] | None:
    """File and line where this code begins, if it may be the user's."""
    return (code.co_filename, code.co_firstlineno) if _is_own(code.co_filename) else None


@cache
def _is_own(file: str) -> bool:
    """Whether a file may be the user's: neither alray's, nor installed, nor part of Python."""
    path = _source(file)
    return path is not None and not path.is_relative_to(_ALRAY) and not path.is_relative_to(_STANDARD_LIBRARY)


def _own_file(module: ModuleType) -> Path | None:
    """Return the file of a module that the user may have written.

    None for modules of alray, installed modules, and modules without a file.
    """
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "alray":
        return None
    return _source(file)


@cache
def _source(file: str) -> Path | None:
    """Return the Python file at `file`, or None if it is installed or not Python.

    The result is cached: each time a block is built, this is called for every module, thousands of them with torch.
    """
    if not Path(file).is_absolute():  # some modules of torch have no file but name one
        return None
    path = Path(file).resolve()
    return path if path.suffix == ".py" and "site-packages" not in path.parts else None


@cache
def _folders(path: Path) -> frozenset[Path]:
    """Return all folders above a file."""
    return frozenset(path.parents)


def _in_a_root(module: ModuleType) -> bool:
    path = _own_file(module)
    return path is not None and not _folders(path).isdisjoint(_roots)


def _file_of(spec: ModuleSpec | None) -> Path | None:
    """Return where a module's code lies: its file, or the directory of a namespace package that comes first."""
    if spec is None:
        return None
    origin = [spec.origin] if spec.origin is not None else list(spec.submodule_search_locations or [])
    return Path(origin[0]).resolve() if origin else None
