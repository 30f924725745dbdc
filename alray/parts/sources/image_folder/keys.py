"""`data: image_folder`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from alray.config.sections.columns import Columns, Delimiter, require_other_sign
from alray.config.sections.data import NUMERIC, ImageSize, OwnValidationSection, PictureSection, resized
from alray.config.sections.expected import Expected
from alray.config.sections.section import InputFolder


class ImageFolder(PictureSection, OwnValidationSection):
    """Image files on disk, with one folder for each class; or with a table of labels or targets, for other tasks than
    classification."""

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
    targets: Annotated[str, Field(min_length=1)] = "metadata.csv"
    """Name of a CSV file in each folder, for other tasks than classification: its column `file_name` has the path of an
    image in the folder, and the others its labels (0 or 1) or targets. Default: metadata.csv."""
    label_columns: Columns | None = None
    """Columns of the labels or targets in that file. null: all but `file_name`."""
    delimiter: Delimiter = ","
    """The character between two columns of that file, such as ";". Default: ","."""
    decimal: Literal[".", ","] = "."
    """The decimal sign in that file. Default: "."."""

    @model_validator(mode="after")
    def _has_two_signs(self) -> Self:
        require_other_sign(self.delimiter, self.decimal)
        return self

    image_size: ImageSize
    """Height and width to which images are resized, in pixels: one number for both, or [height, width]."""

    @property
    def of_kind(self) -> Expected:
        return resized(Expected(), self.size)
