"""Image files on disk, with one folder for each class."""

from __future__ import annotations

from alray.config.sections.task import TaskSection
from alray.data.csv_file import CsvForm
from alray.data.image_folder import ImageFolderSource, ImagesWithTargets
from alray.data.picture import reading_of
from alray.data.source import Source
from alray.parts.sources.image_folder.keys import ImageFolder


def opened(section: ImageFolder, task: TaskSection) -> Source:
    assert section.size is not None
    if task.label != "class":
        return ImagesWithTargets(
            train=section.train,
            test=section.test,
            validation=section.validation,
            size=section.size,
            table=section.targets,
            columns=section.label_columns,
            form=CsvForm(section.delimiter, section.decimal),
            task=task,
            reading=reading_of(section),
        )
    return ImageFolderSource(
        train=section.train,
        test=section.test,
        validation=section.validation,
        size=section.size,
        reading=reading_of(section),
    )
