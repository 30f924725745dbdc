"""`data: text_folder`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.data import TestFraction, TextSection
from alray.config.sections.section import InputFolder


class TextFolder(TextSection):
    """Documents in .txt files, with one folder for each class, as in IMDb. A folder `unsup` is skipped."""

    implementation = "source:opened"

    source: Literal["text_folder"]
    """`text_folder`."""
    train: InputFolder
    """Folder of the training set, with one folder for each class."""
    test: InputFolder | None = None
    """Folder of the test set, with the same classes. null: no test set."""
    test_fraction: TestFraction | None = None
    """Share in 0..1 of all documents, those of `train` and `test` together, that is the test set: a random part that
    does not depend on the seed. null: the documents of `test`."""
