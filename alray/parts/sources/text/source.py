"""A text as documents: the parts of a file, or the files of a folder."""

from __future__ import annotations

from pathlib import Path

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError, DataMissing
from alray.data.class_folders import is_hidden
from alray.data.docstrings import DocstringSource
from alray.data.redivided import Divided, redivided
from alray.data.source import TextSet, TextSource
from alray.data.text_file import read_text
from alray.parts.sources.text.keys import TokenText


class TokenTextSource(Divided):
    """Documents without classes, of which a fixed random share is the test set. A document of white space alone is left
    out."""

    classes = ("text",)

    def __init__(
        self, *, file: Path | None, folder: Path | None, pattern: str, separator: str | None, test_fraction: float
    ) -> None:
        """Raises DataError if there are fewer than two documents, or a file is not there or not UTF-8.

        Args:
            file, folder: one of them is None.
            pattern: of names of files in `folder`.
            separator: text between two documents of a file; None: a file is a document.
        """
        given = file or folder
        assert given is not None, "a text has a file or a folder"
        if not (given.is_file() if file else given.is_dir()):
            key = "data.file" if file else "data.folder"
            raise DataMissing("text not found", file=str(given), key=key, hint="give a file or a folder that is there")
        texts = [read_text(path) for path in ([given] if file else _files(given, pattern))]
        documents = texts if separator is None else [part for text in texts for part in text.split(separator)]
        documents = [document for document in documents if document.strip()]
        if not documents:
            raise DataError("there is no word in this text", file=str(given), hint="give another file or folder")
        if len(documents) == 1:
            raise DataError(
                "there is only one document, and documents are divided into training and test set as wholes",
                file=str(given),
                key="data.separator",
                hint='set data.separator, such as "\\n\\n" for empty lines',
            )
        of_one_class = [0] * len(documents)  # a set has labels; a language model reads none
        super().__init__(lambda: TextSet(documents, of_one_class), test_fraction, "text")


def _files(folder: Path, pattern: str) -> list[Path]:
    found = sorted({path for path in folder.rglob(pattern) if not is_hidden(path, folder) and path.is_file()})
    if not found:
        raise DataError(
            f"no file here is called {pattern}", file=str(folder), key="data.pattern", hint="name files that are there"
        )
    return found


def opened(section: TokenText, task: TaskSection) -> TextSource:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    if section.docstrings:
        return redivided(DocstringSource(), section.test_fraction)
    return TokenTextSource(
        file=section.file,
        folder=section.folder,
        pattern=section.pattern,
        separator=section.separator,
        test_fraction=section.test_fraction,
    )
