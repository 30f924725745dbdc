"""The live page of a run in a real browser. `make page-test` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from alray.report.live import watch as watching
from alray.report.live.board import Board
from alray.report.live.following import Following
from alray.report.live.server import Door, listen
from alray.report.live.watch import watch

from .test_in_browser import domain, require_readable, rows
from .test_live import HOSTILE, Going

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]


@pytest.fixture
def going(given: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Going:
    monkeypatch.setattr(watching, "_EVERY_S", 0.05)
    monkeypatch.setattr(watching, "_SHARE", 1.0)
    return Going(given, tmp_path / "run")


def watch_quietly(following: Following, door: Door) -> None:
    with suppress(KeyboardInterrupt):
        watch(following, door, Board())


@pytest.fixture
def opened(browser: Browser, going: Going) -> Iterator[Page]:
    """The live page of the run. Fails if it printed anything, or asked any other machine, by the end."""
    said: list[str] = []
    asked: list[str] = []
    context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 900})
    context.on("console", lambda message: said.append(message.text))
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
    context.on("request", lambda request: asked.append(request.url))
    with listen(0) as door:
        address = door.address
        thread = Thread(target=watch_quietly, args=(Following(going.folder), door), daemon=True)
        thread.start()
        page = context.new_page()
        page.goto(address)
        yield page
        context.close()
        if thread.is_alive():
            going.finish()
        thread.join(10)
        assert not thread.is_alive()
    assert said == []
    assert {url for url in asked if not url.startswith(("blob:", "data:"))} == {address, f"{address}events"}


def wait(page: Page, condition: str) -> Any:
    return page.wait_for_function(condition, timeout=15_000)


def drawn(page: Page, name: str, step: int) -> None:
    """Wait until a figure shows a row of this mini-batch."""
    figure = f"document.querySelector('[data-name={name}]')"
    page.locator(f"[data-name={name}]").scroll_into_view_if_needed(timeout=15_000)
    wait(page, f"{figure}.view && {figure}.view.data('rows').some(row => row.step === {step})")


def test_it_changes_with_the_run_and_ends_with_it(opened: Page, going: Going) -> None:
    page = opened
    assert "Waiting for the first record" in page.inner_text("header")
    page.evaluate("window.same = true")
    going.write(15)
    wait(page, "document.querySelector('#standing').innerText.includes('mini-batch 10 of 40')")
    drawn(page, "loss_associated", 10)
    page.locator("[data-name=loss_associated] .legend button", has_text="component 1").press("Space")
    page.locator("#the-plan ~ details summary").click()
    page.locator("[data-name=loss_associated]").get_by_role("button", name="zoom in").focus()
    going.write(28)
    drawn(page, "loss_associated", 20)
    assert page.evaluate("document.activeElement.ariaLabel") == "associated loss: zoom in"
    pressed = page.locator("[data-name=loss_associated] .legend button[aria-pressed=false]")
    assert pressed.all_inner_texts() == ["component 1"]
    assert page.locator("#the-plan ~ details[open]").count() == 1
    assert domain(page, "loss_associated")[1] >= 20  # the axis grows
    page.locator("[data-name=loss_associated]").get_by_role("button", name="zoom in").click()
    page.wait_for_timeout(100)
    zoomed = domain(page, "loss_associated")
    going.write(41)
    drawn(page, "loss_associated", 30)
    assert domain(page, "loss_associated") == zoomed
    drawn(page, "accuracy", 30)
    going.finish()
    wait(page, "document.querySelector('#told').innerText.includes('The run has finished.')")
    assert page.inner_text("#standing .status") == "finished"
    assert page.get_by_role("progressbar").get_attribute("value") == "40"
    assert "0.9000" in page.inner_text(".tiles") and str(going.folder / "report.html") in page.inner_text("#told")
    assert page.evaluate("window.same")  # it was not loaded again
    with page.context.expect_page() as report:
        page.click("#report")
    report.value.wait_for_function("document.documentElement.dataset.drawn > 0")
    assert max(row["step"] for row in rows(report.value, "loss_associated")) == 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(opened: Page, going: Going, scheme: str) -> None:
    page = opened
    page.emulate_media(color_scheme=scheme)
    for until in (0, 28, len(going.records)):
        if until == len(going.records):
            going.finish()
            wait(page, "document.querySelector('#report')")
        elif until:
            going.write(until)
            drawn(page, "loss_associated", 20)
        require_readable(page)


def test_what_a_user_wrote_is_shown_and_not_run(given: ModuleType, opened: Page, going: Going) -> None:
    page = opened
    going.write(28, given.event("warning", 20, 1.3, HOSTILE))
    drawn(page, "loss_associated", 20)
    assert HOSTILE in page.inner_text("main")
    assert page.evaluate("[...document.scripts].filter(each => each.textContent.startsWith('alert')).length") == 0


def test_a_page_outlives_its_server(opened: Page, going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-C."""
    page = opened
    going.write(15)
    drawn(page, "loss_associated", 10)

    def interrupt(following: Following) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Following, "read", interrupt)
    wait(page, "document.querySelector('#told').innerText.includes('Nobody watches this run any longer')")
    assert max(row["step"] for row in rows(page, "loss_associated")) == 10
