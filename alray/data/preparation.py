"""Preparation of documents before the tokenizer."""

from __future__ import annotations

import re
import string
from typing import Literal

from alray.core.errors import DataError
from alray.data.cache import cached
from alray.data.source import TextSet

Preparation = Literal["none", "thesis"]

_TAG = re.compile("<.*?>")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_FEWEST_WORDS = 2

_STOP_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it
its itself they them their theirs themselves what which who whom this that these those am is are was were be been
being have has had having do does did doing a an the and but if or because as until while of at by for with about
against between into through during before after above below to from up down in out on off over under again further
then once here there when where why how all any both each few more most other some such no nor not only own same so
than too very s t can will just don should now d ll m o re ve y ain aren couldn didn doesn hadn hasn haven isn ma
mightn mustn needn shan shouldn wasn weren won wouldn
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""NLTK's English stop words, without those that have an apostrophe: punctuation is removed first, so the thesis never
meets them, and `don't` stays as `dont`."""


def prepared_text(text: str, prepare: Preparation) -> str:
    """Return a document as the tokenizer gets it.

    `thesis`: lower case; without HTML tags, each of which must lie within one line; without ASCII punctuation; without
    stop words. Words are joined by one space. Nothing replaces a tag or a punctuation mark, so `a<br />b` and
    `a-b` become the word `ab`.

    This is `data_preprocessing` in `utils.py` of the thesis's public code. The code was read, not the thesis's text,
    which may say less or more.
    """
    if prepare == "none":
        return text
    words = _TAG.sub("", text.lower()).translate(_PUNCTUATION).split()
    return " ".join(word for word in words if word not in STOP_WORDS)


def prepared_sets(train: TextSet, test: TextSet | None, prepare: Preparation) -> tuple[TextSet, TextSet | None]:
    """Return both sets with every document prepared.

    `thesis`: training documents that have fewer than two words left are left out (`clean_data` in the same file). The
    test set keeps all of its documents. Raises DataError if no training document is left.
    """
    if prepare == "none":
        return train, test

    def prepare_all() -> tuple[TextSet, TextSet | None]:
        prepared = TextSet([prepared_text(text, prepare) for text in train.texts], train.labels)
        long = [index for index, text in enumerate(prepared.texts) if text.count(" ") + 1 >= _FEWEST_WORDS]
        if not long:
            raise DataError(
                f"no training document has {_FEWEST_WORDS} words left",
                key="data.text.prepare",
                hint="set data.text.prepare=none, which keeps every document",
            )
        chosen = prepared.at(long)
        if test is None:
            return chosen, None
        return chosen, TextSet([prepared_text(text, prepare) for text in test.texts], test.labels)

    return cached("prepared documents", (train, test, prepare), prepare_all)
