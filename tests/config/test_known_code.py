"""Which code of a run folder is the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.config import known_code
from alray.config.known_code import CodeRecord


@pytest.mark.parametrize("damaged", [b"", b"short"])
def test_a_damaged_key_signs_nothing_that_others_could_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    monkeypatch.setattr(known_code, "user_state", lambda: tmp_path)
    (tmp_path / "key").write_bytes(damaged)

    def in_a_new_process() -> None:
        known_code._key.cache_clear()

    try:
        in_a_new_process()
        record = CodeRecord.of(tmp_path, [])
        assert record.is_known
        in_a_new_process()
        assert not record.is_known
        (tmp_path / "key").unlink()
        in_a_new_process()
        record = CodeRecord.of(tmp_path, [])
        in_a_new_process()
        assert record.is_known, "with a key that is whole"
    finally:
        in_a_new_process()
