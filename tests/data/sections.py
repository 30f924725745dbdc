"""The sections of all sources, as a spec has them."""

from alray.config.sections.data import Assume, Data, DataSection, Mix, Normalise, OwnData, Text
from alray.parts.sources.digits.keys import Digits
from alray.parts.sources.docstrings.keys import Docstrings
from alray.parts.sources.huggingface.keys import HuggingFace
from alray.parts.sources.huggingface_images.keys import HuggingFaceImages
from alray.parts.sources.image_folder.keys import ImageFolder
from alray.parts.sources.synthetic.keys import Synthetic
from alray.parts.sources.table.keys import TableFiles
from alray.parts.sources.text.keys import TokenText
from alray.parts.sources.text_csv.keys import TextCsv
from alray.parts.sources.text_folder.keys import TextFolder
from alray.parts.sources.tiny_imagenet.keys import TinyImagenet
from alray.parts.sources.torchvision.keys import Torchvision

__all__ = [
    "Assume",
    "Data",
    "DataSection",
    "Digits",
    "Docstrings",
    "HuggingFace",
    "HuggingFaceImages",
    "ImageFolder",
    "Mix",
    "Normalise",
    "OwnData",
    "Synthetic",
    "TableFiles",
    "Text",
    "TextCsv",
    "TextFolder",
    "TinyImagenet",
    "TokenText",
    "Torchvision",
    "no_code",
]


def no_code(reference: str) -> type:
    """For a source that loads no code."""
    raise AssertionError(f"nothing to load: {reference}")
