"""A user's own blocks and data sources: `python:package.module.Class`, loaded from the spec's directory tree."""

from __future__ import annotations

import importlib
import importlib.machinery
import shutil
import sys
from pathlib import Path
from typing import Any

from alray.errors import SpecError
from alray.spec.python_reference import parse_python_reference


class UserCode:
    """Loads what `python:` references name, from one directory, or from anywhere where that is allowed."""

    def __init__(self, root: Path, *, allow_elsewhere: bool = False) -> None:
        """root: the directory of the spec, or the copy of its code in a run folder."""
        self.root = root.resolve()
        self.allow_elsewhere = allow_elsewhere

    def __call__(self, reference: str) -> Any:
        """The object a reference names. Raises SpecError where it is not there, fails to import or is not allowed."""
        parsed = parse_python_reference(reference)
        top = parsed.module.partition(".")[0]
        here = importlib.machinery.PathFinder.find_spec(top, [str(self.root)]) is not None
        if not here and not self.allow_elsewhere:
            raise SpecError(
                f"`{reference}`: there is no module `{top}` in {self.root}",
                mend="put it beside the spec, or pass --allow-code to load code from elsewhere",
            )
        if here:
            self._forget_namesakes(top)
            if str(self.root) not in sys.path:
                sys.path.insert(0, str(self.root))
            importlib.invalidate_caches()
        try:
            module = importlib.import_module(parsed.module)
        except (ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError) as error:
            raise SpecError(
                f"`{reference}` cannot be imported: {type(error).__name__}: {error}",
                mend="mend the module, or install what it needs",
            ) from error
        if not hasattr(module, parsed.name):
            raise SpecError(
                f"`{reference}`: module `{parsed.module}` has no `{parsed.name}`",
                mend="name a class or function of that module",
            )
        return getattr(module, parsed.name)

    def _forget_namesakes(self, top: str) -> None:
        """Drop a module of this name that was loaded from another directory: a spec means the one beside it."""
        loaded = sys.modules.get(top)
        if loaded is None or self._is_here(loaded):
            return
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]

    def _is_here(self, module: Any) -> bool:
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        return any(place is not None and Path(place).resolve().is_relative_to(self.root) for place in places)

    def copy_used(self, target: Path) -> None:
        """Copy every module that was loaded from the root, so that a run folder can be resumed as it was started."""
        for module in list(sys.modules.values()):
            place = getattr(module, "__file__", None)
            if place is None or module.__name__ == "__main__":
                continue
            path = Path(place).resolve()
            if path.suffix == ".py" and path.is_relative_to(self.root) and "site-packages" not in path.parts:
                copy = target / path.relative_to(self.root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
