"""`data: text`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from alray.config.sections.data import TestFraction, TokenSection
from alray.config.sections.kind import Finding
from alray.config.sections.paths import Path
from alray.config.sections.section import InputFile, InputFolder, refusal

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class TokenText(TokenSection):
    """Text to continue: windows of tokens, of which each has the next one as its label. It is for `task: next_token`.

    The text is a file, the files of a folder, or the docstrings of the source `docstrings`. Documents are divided into
    training, validation and test set as wholes. Those of a set follow each other with an end of text, token 0, after
    each. An epoch cuts this stream into windows; where it begins to cut is drawn from the seed and the number of the
    epoch.
    """

    implementation = "source:opened"

    source: Literal["text"]
    """`text`."""
    file: InputFile | None = None
    """A text file. Give `separator` with it, or it is a single document. null: `folder` or `docstrings`."""
    folder: InputFolder | None = None
    """A folder whose files are the documents, with those of its subfolders. null: `file` or `docstrings`."""
    pattern: Annotated[str, Field(min_length=1)] = "*.txt"
    """Names of the files in `folder`, such as `*.py`. Hidden files are left out. Default: *.txt."""
    docstrings: bool = False
    """Whether the documents are the docstrings of the installed standard library, NumPy, SciPy and scikit-learn.
    Default: false."""
    separator: Annotated[str, Field(min_length=1)] | None = None
    """Text at which files are divided into documents, such as "\\n\\n" for empty lines. null: a file is a document."""
    test_fraction: TestFraction = 0.1
    """Share in 0..1 of the documents that is the test set: a random part that does not depend on the seed. Default:
    0.1."""

    @field_validator("pattern")
    @classmethod
    def _is_of_names(cls, value: str) -> str:
        parts = PurePosixPath(value).parts
        if value.startswith("/") or ".." in parts:
            raise refusal(f"the pattern {value} leaves the folder", "write one of names in it, such as books/*.txt")
        if any("**" in part and part != "**" for part in parts):
            raise refusal(f"`**` in {value} is a part of a name", "write **/*.txt: `**` alone stands for folders")
        return value

    @model_validator(mode="after")
    def _has_one_text(self) -> Self:
        if (self.file is not None) + (self.folder is not None) + self.docstrings != 1:
            raise refusal(
                "the text is one of `file`, `folder` and `docstrings`", "give one of them, such as docstrings: true"
            )
        if self.split_by_classes:
            raise refusal("documents of tokens have no classes to divide them by", "leave out split_by_classes")
        return self

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if getattr(spec.task, "metric", None) == "bits_per_byte" and self.tokens != "bytes":
            message = f"the tokens are {self.tokens}, and bits a byte are known of bytes"
            yield ("task", "metric"), message, "choose perplexity, or set data.tokens to bytes"
