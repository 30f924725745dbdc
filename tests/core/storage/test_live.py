"""The live page of a run whose folder is on object storage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from alray.core.run_folder.records import Writer, replace_file, write_json
from alray.core.storage.location import location_of
from alray.report.live import watch as watching
from alray.report.live.board import Board
from alray.report.live.following import Following
from alray.report.live.server import listen

from ...report.conftest import event, example_plan, example_records
from ...report.test_page import summary_of


@pytest.mark.full
def test_a_run_is_followed_through_its_store(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_EVERY_OF_OBJECTS_S", 0.05)
    run, plan = location_of(f"{bucket}/run"), example_plan()
    write_json(run / "spec.yaml", {"name": "example"})
    write_json(run / "plan.json", plan.as_json())
    following, records = Following(run), [*example_records(plan), event("finished", 40, 2.0)]
    assert not following.read() and following.state == "starting"
    with listen(0) as door, ThreadPoolExecutor(1) as threads:
        watched = threads.submit(watching.watch, following, door, Board())
        page = HTTPConnection("127.0.0.1", door.socket.getsockname()[1], timeout=10)
        page.request("GET", f"/{door.key}/events")
        writer = Writer(run / "records.jsonl")
        for record in records[:28]:
            writer.write(record)
        writer.sync()
        answer = page.getresponse()
        while b"mini-batch 20 of 40" not in (line := answer.readline()):
            assert line
        for record in records[28:]:
            writer.write(record)
        writer.close()
        summary = summary_of(plan, records, duration_s=2.1, report=f"{run}/report.html")
        write_json(run / "summary.json", summary.model_dump(mode="json"))
        replace_file(run / "report.html", "the report")
        assert b'"report": "the report"' in answer.read()
        watched.result(10)
    assert following.state == "finished"
