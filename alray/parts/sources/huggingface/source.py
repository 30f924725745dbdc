"""A text set of the Hugging Face hub, or a folder of csv, json or parquet files."""

from __future__ import annotations

from alray.config.sections.task import TaskSection
from alray.data.huggingface import HubSets, HubTexts
from alray.data.source import TextSource
from alray.parts.sources.huggingface.keys import HuggingFace


def opened(section: HuggingFace, task: TaskSection) -> TextSource:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    sets = HubSets(
        dataset=section.dataset,
        path=section.path,
        config=section.config,
        splits={"train": section.train_split, "test": section.test_split},
        label_column=section.label_column,
        columns={"text_columns": section.text_columns},
    )
    return HubTexts(sets, section.text_columns)
