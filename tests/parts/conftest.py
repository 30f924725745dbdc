"""Ranks as threads, for laws of all-reduces and of compressions."""

from tests.runtime.channel.conftest import on_ranks

__all__ = ["on_ranks"]
