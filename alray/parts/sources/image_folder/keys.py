"""`data: image_folder`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.columns import Columns
from alray.config.sections.data import NUMERIC, ImageSize, OwnValidationSection, resized
from alray.config.sections.expected import Expected
from alray.config.sections.section import InputFolder


class ImageFolder(OwnValidationSection):
    """Image files on disk, with one folder for each class. For other tasks than classification each folder has a file
    `metadata.csv`, as the Hugging Face library `datasets` reads it: its column `file_name` has the path of an image in
    the folder, and the others its labels (0 or 1) or targets."""

    implementation = "source:opened"
    labels = NUMERIC

    source: Literal["image_folder"]
    """`image_folder`."""
    train: InputFolder
    """Folder of the training set, with one folder for each class."""
    test: InputFolder | None = None
    """Folder of the test set, with the same classes. null: no test set."""
    validation: InputFolder | None = None
    """Folder of the validation set, with the same classes. null: `validation_fraction` of the training set."""
    label_columns: Columns | None = None
    """Columns of the labels or targets in that file. null: all but `file_name`."""
    image_size: ImageSize
    """Height and width to which images are resized, in pixels: one number for both, or [height, width]."""

    @property
    def of_kind(self) -> Expected:
        return resized(Expected(), self.size)
