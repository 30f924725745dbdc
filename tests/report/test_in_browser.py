"""Pages in a real browser: what they draw, how they move, whether everybody can read them. `make page-test` runs it."""

from __future__ import annotations

import csv
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from alray.cli.main import execute
from alray.core.run_folder.records import EvaluationRecord, read
from alray.report.make import make_report
from alray.studies.report import write_report

from ..studies.conftest import results, study_folder, trial, trials_of_batch_sizes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

HOSTILE = "</script><script>alert(1)</script>"
WIDTHS = (390, 768, 1280)
KINDS = ("run", "comparison", "study")
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def pages(run_dir: Path, given: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a real run, of a comparison with another one, and of a study; two hostile ones; two large ones."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(run_dir, folder / "run")
    other = ["run", str(run_dir.parent / "small.yaml"), "--inline", "seed=6", "--output", str(folder / "other")]
    assert execute(other) == 0
    assert execute(["compare", str(folder / "run"), str(folder / "other")]) == 0
    plan = given.example_plan()
    records = given.example_records(plan)
    hostile = given.write_run(folder / "hostile", plan, [*records, given.event("warning", 40, 2.0, HOSTILE)])
    (hostile / "spec.yaml").write_text(f"name: {json.dumps(HOSTILE)}\ntask: {{kind: classification}}\n")
    points = [trial(n, {"variant": HOSTILE if n else "b", "data.batch_size": 8 * 2**n}) for n in range(2)]
    long = given.write_run(folder / "long", given.example_plan((2, 2)), long_run(given))
    return {
        "run": folder / "run/report.html",
        "comparison": folder / "compare.html",
        "study": study_page(folder / "study", sizes=4, settings=2),
        "hostile run": make_report(hostile),
        "hostile study": Path(write_report(study_folder(results(points), folder / "hostile_study")).summary.report),
        "run of 100,000 mini-batches": make_report(long),
        "study of 504 trials": study_page(folder / "large", sizes=8, settings=21),
    }


def long_run(given: ModuleType) -> Iterator[Any]:
    """The records of 100,000 mini-batches of four components on two stages, as the `Writer` takes them."""
    plan = given.example_plan((2, 2))
    per_epoch = 1000
    yield from (given.event("started", 0, 0.0), given.planned(plan, 0, 0.01))
    for number in range(1, 100_001):
        yield given.step(
            number, number / 200, {each: {"associated": 9 / number, "autoencoder": 3.0} for each in range(4)}
        )
        if number % per_epoch == 0:
            spans = [given.traced(stage, range(number - 20, number), number / 200) for stage in range(2)]
            yield from (given.staged(number, number / 200, stage, spans=spans[stage]) for stage in range(2))
            yield given.evaluated(number, number / 200, number / 2e5, number / 3e5)


def study_page(folder: Path, *, sizes: int, settings: int) -> Path:
    """The page of a study of batch sizes, with three variants and a search."""
    trials = trials_of_batch_sizes(sizes, settings)
    search = {"trials": settings, "space": {"optimizer.lr": {"loguniform": [1e-3, 1.0]}}}
    of = results(trials, search=search, target={"metric": "validation_error", "below": 0.05})
    return Path(write_report(study_folder(of, folder)).summary.report)


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Open]:
    """`opened(kind)`: a page when all its figures are drawn. Fails if it printed or asked for anything by the end."""
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)

    def show(kind: str) -> Page:
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(pages[kind].as_uri())
        page.wait_for_function("document.documentElement.dataset.drawn")
        return page

    yield show
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file://", "blob:", "data:"))] == []


def domain(page: Page, name: str, axis: str = "x") -> list[float]:
    found: list[float] = page.evaluate(
        f"document.querySelector('[data-name={name}]').view.scale('{axis}').domain()",
    )
    return found


def marks(page: Page, name: str) -> list[str]:
    """What a screen reader says of the marks of a figure."""
    found: list[str] = page.evaluate(
        f"[...document.querySelectorAll('[data-name={name}] [role=graphics-symbol]')].map(e => e.ariaLabel)"
    )
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_a_page(opened: Open, kind: str, scheme: str) -> None:
    page = opened(kind)
    page.emulate_media(color_scheme=scheme)
    page.wait_for_timeout(500)  # it is drawn again
    require_readable(page)


def require_readable(page: Page) -> None:
    """At every width nothing is wider than the screen, and axe finds no fault."""
    from axe_playwright_python.sync_playwright import Axe

    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(200)
        found = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert found[0] <= found[1] == width
        of_axe = Axe().run(page, options={"runOnly": {"type": "tag", "values": STANDARDS}})
        assert of_axe.response["passes"] and of_axe.violations_count == 0, of_axe.generate_report()


def test_a_run_shows_the_values_of_its_records(opened: Open, pages: dict[str, Path]) -> None:
    page = opened("run")
    records = list(read(pages["run"].parent / "records.jsonl"))
    evaluated = [record for record in records if isinstance(record, EvaluationRecord)]
    said = marks(page, "accuracy")
    for record in evaluated:
        assert [label for label in said if f"{record.step}" in label and f"{round(record.test, 4):g}" in label]
    steps = [record for record in records if record.kind == "step"]
    drawn = {(row["series"], row["step"]): row["loss"] for row in rows(page, "loss_associated")}
    assert drawn == {
        (f"component {component}", record.step): losses["associated"]
        for record in steps
        for component, losses in record.losses.items()
    }
    slots = [row for row in rows(page, "schedule") if row.get("action") == "1B12"]
    assert {(row["kind"], row["mini_batch"], row["components"]) for row in slots} == {
        ("predicted", 12, "1 vgg"),
        ("measured", 12, "1 vgg"),
    }
    assert [label for label in marks(page, "schedule") if "1B12" in label]
    assert page.locator("[data-name=network] text", has_text="1 vgg").count() == 1


def rows(page: Page, name: str) -> list[dict[str, Any]]:
    """The rows that a figure holds once it is drawn."""
    found: list[dict[str, Any]] = page.evaluate(f"document.querySelector('[data-name={name}]').view.data('rows')")
    return found


def test_a_comparison_and_a_study_are_drawn(opened: Open) -> None:
    page = opened("comparison")
    assert {row["seeds"] for row in rows(page, "accuracy_by_samples")} == {2}
    assert page.locator("[data-name=accuracy_by_samples] .mark-area path").count() == 0  # two runs have no interval
    page = opened("study")
    # Three variants of equal weights are one line, with a mark at each of four batch sizes.
    points = [label for label in marks(page, "steps_to_target") if label.startswith("batch size: ")]
    assert {label.partition(";")[0] for label in points} == {f"batch size: {size}" for size in (8, 16, 32, 64)}
    assert len(rows(page, "best_lr")) == 12


def test_a_drawing_is_zoomed_moved_and_shown_whole_again(opened: Open) -> None:
    page = opened("run")
    figure = page.locator("[data-name=schedule]")
    whole = json.loads(page.evaluate("document.querySelector('[data-name=schedule] script').textContent"))
    first = domain(page, "schedule")
    assert first[0] == 0
    figure.get_by_role("button", name="zoom in").click()
    page.wait_for_timeout(100)
    closer = domain(page, "schedule")
    assert closer[1] - closer[0] == pytest.approx((first[1] - first[0]) / 2)
    slider = figure.get_by_role("slider")
    slider.focus()
    slider.press("End")
    page.wait_for_timeout(100)
    end = domain(page, "schedule")
    assert end[1] == pytest.approx(max(row["end_ms"] for row in whole["datasets"]["rows"]))
    assert end[1] - end[0] == pytest.approx(closer[1] - closer[0])
    figure.get_by_role("button", name="show all").press("Enter")
    page.wait_for_timeout(100)
    assert domain(page, "schedule") == [0, pytest.approx(end[1])]
    for name in ("accuracy", "loss_associated"):
        page.locator(f"[data-name={name}] .drawing").scroll_into_view_if_needed()
        box = page.locator(f"[data-name={name}] svg.marks").bounding_box()
        assert box is not None
        before = domain(page, name), domain(page, name, "y")
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -300)
        page.keyboard.up("Control")
        page.wait_for_timeout(100)
        assert domain(page, name)[1] < before[0][1] and domain(page, name, "y")[1] < before[1][1]
        page.locator(f"[data-name={name}]").get_by_role("button", name="show all").click()
        page.wait_for_timeout(100)
        assert (domain(page, name), domain(page, name, "y")) == before


def test_a_mark_tells_its_values_and_a_series_is_hidden(opened: Open) -> None:
    page = opened("run")
    page.locator("[data-name=schedule]").scroll_into_view_if_needed()
    page.locator("[data-name=schedule] [aria-label^='0F']").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    told = page.inner_text("#vg-tooltip-element")
    assert "forward" in told and "0 vgg" in told and "mini-batch" in told
    assert "null" not in told and "undefined" not in told
    before = len(marks(page, "accuracy"))
    button = page.locator("[data-name=accuracy] .legend button", has_text="train")
    button.press("Space")
    page.wait_for_timeout(200)
    assert button.get_attribute("aria-pressed") == "false"
    assert 0 < len(marks(page, "accuracy")) < before


def test_figures_and_tables_are_saved(opened: Open) -> None:
    page = opened("run")
    page.emulate_media(color_scheme="dark")
    figure = page.locator("[data-name=accuracy]")

    def saved(click: Callable[[], None]) -> tuple[str, str]:
        with page.expect_download() as download:
            click()
        return download.value.suggested_filename, download.value.path().read_text(encoding="utf-8")

    name, drawing = saved(figure.get_by_role("button", name="as SVG").click)
    assert name == "accuracy.svg" and drawing.startswith("<svg") and "#ffffff" in drawing and ">Accuracy<" in drawing
    name, values = saved(figure.get_by_role("button", name="as CSV").click)
    lines = list(csv.DictReader(io.StringIO(values)))
    assert name == "accuracy.csv"
    assert [float(line["accuracy"]) for line in lines] == [row["accuracy"] for row in rows(page, "accuracy")]
    name, table = saved(page.get_by_role("link", name="single step as LaTeX").click)
    assert name == "single_step.tex" and table.startswith("\\begin{tabular}")


@pytest.mark.parametrize("kind", ["hostile run", "hostile study"])
def test_what_a_user_wrote_is_shown_and_not_run(opened: Open, kind: str) -> None:
    page = opened(kind)
    assert HOSTILE in page.inner_text("body")
    assert page.evaluate("[...document.scripts].filter(each => each.textContent.startsWith('alert')).length") == 0


@pytest.mark.parametrize("kind", ["run of 100,000 mini-batches", "study of 504 trials"])
def test_a_large_page_opens_within_three_seconds(opened: Open, pages: dict[str, Path], kind: str) -> None:
    begun_s = time.monotonic()
    opened(kind)
    assert time.monotonic() - begun_s < 3
    assert pages[kind].stat().st_size < 5e6
