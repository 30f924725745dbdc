"""Searchers and trial schedulers of Ray Tune, or of the user: loading and making them, and naming them in errors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from alray.config.sections.own_code import OwnCode
from alray.config.study.checks import of_tune
from alray.config.user_code import UserCode, named
from alray.core.errors import SpecError

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class StudyClass(Generic[Kind]):
    """A class that a study names.

    Attributes:
        what: its name in messages.
        key: of the study, where it is named.
    """

    kind: type[Kind]
    fields: dict[str, Any]
    what: str
    key: str

    @classmethod
    def load(
        cls, section: OwnCode, base: type[Kind], *, what: str, key: str, root: Path, allow: bool
    ) -> StudyClass[Kind]:
        """Load the class of a section.

        Args:
            base: what it must derive from.
            what: "the searcher", say.
            root: the folder of the user's modules.
            allow: whether they may lie in another folder.

        Raises:
            SpecError: if there is no such class, or if it does not derive from `base`.
        """
        reference: str = section.kind  # type: ignore[attr-defined]
        try:
            kind = UserCode(root, allow_elsewhere=allow or of_tune(reference))(reference)
        except SpecError as error:
            raise SpecError.of(tuple(replace(problem, key=key) for problem in error.problems)) from error
        whole = f"{base.__module__}.{base.__qualname__}"
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise SpecError(f"`{reference}` is not a subclass of {whole}", key=key, hint="derive it from that class")
        return cls(kind, section.fields, f"{what} `{reference}`", key)

    def make(self) -> Kind:
        """A new object of the class. Raises UserCodeError."""
        with self.doing("its constructor"):
            return self.kind(**self.fields)

    def doing(self, what: str) -> AbstractContextManager[None]:
        """Inside, whatever the class raises becomes one UserCodeError.

        Args:
            what: what it does.
        """
        return named(self.what, what, key=self.key)
