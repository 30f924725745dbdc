"""A set of images of the Hugging Face hub, or a folder of parquet or image files."""

from __future__ import annotations

from alray.config.sections.task import TaskSection
from alray.data.huggingface import HubImages, HubSets
from alray.data.source import Source
from alray.parts.sources.huggingface_images.keys import HuggingFaceImages


def opened(section: HuggingFaceImages, task: TaskSection) -> Source:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    sets = HubSets(
        dataset=section.dataset,
        path=section.path,
        config=section.config,
        splits={
            "train": section.train_split,
            "validation": section.validation_split,
            "test": section.test_split,
        },
        label_column=section.label_column,
        columns={"image_column": (section.image_column,)},
    )
    assert section.size is not None
    return HubImages(sets, section.image_column, section.size)
