"""Make the pictures of pages in docs/pages: run the quickstart twice, and open its pages in Chromium.

python -m benchmarks.screenshots     some two minutes; needs Chromium (apt-get install chromium)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pages"
QUICKSTART = "specs/quickstart.yaml"
BACKPROPAGATION = ["method=backpropagation", "pipeline.schedule=1f1b", "pipeline.micro_batch_norm=accept"]
_SIZE: ViewportSize = {"width": 1120, "height": 1500}


@contextmanager
def chromium() -> Iterator[Browser]:
    """The distribution's Chromium; playwright's is not installed."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("there is no Chromium: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def picture(browser: Browser, page_file: Path, name: str) -> None:
    """Write docs/pages/NAME.png: what one sees of a page first."""
    page = browser.new_page(viewport=_SIZE, color_scheme="light")
    page.goto(page_file.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn")
    page.screenshot(path=PICTURES / f"{name}.png")
    page.close()


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as scratch, chromium() as browser:
        folder = Path(scratch)

        def alray(*arguments: str | Path) -> None:
            subprocess.run([sys.executable, "-m", "alray", *map(str, arguments)], cwd=ROOT, check=True)

        runs: Sequence[Path] = (folder / "al", folder / "bp")
        alray("run", QUICKSTART, "--output", runs[0])
        alray("run", QUICKSTART, *BACKPROPAGATION, "--output", runs[1])
        alray("compare", *runs)
        picture(browser, runs[0] / "report.html", "run")
        picture(browser, folder / "compare.html", "comparison")


if __name__ == "__main__":
    main()
