"""`data: huggingface_images`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.data import HubSection, ImageSize, OwnValidationSection, resized
from alray.config.sections.expected import Expected


class HuggingFaceImages(HubSection, OwnValidationSection):
    """A set of images of the Hugging Face hub, or a folder of parquet or image files. It needs `alray[hub]`."""

    implementation = "source:opened"
    validation_key = "validation_split"

    source: Literal["huggingface_images"]
    """`huggingface_images`."""
    validation_split: str | None = None
    """Name of the validation split. null: `validation_fraction` of the training split."""
    image_column: str = "image"
    """Column of the images. Default: image."""
    image_size: ImageSize
    """Height and width to which images are resized, in pixels: one number for both, or [height, width]."""

    @property
    def of_kind(self) -> Expected:
        return resized(Expected(), self.size)
