"""The site of the docs builds without a warning, every link in it leads somewhere, and no page needs a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from .pages import PAGES

ROOT = Path(__file__).parents[2]
BESIDE = ("specs", "examples", "benchmarks/*.yaml", "plugins/*/spec.yaml")
"""What `make docs` puts beside the pages."""
LOADING = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}
"""What a browser fetches by itself."""
OF_NO_CONTENT = {"canonical", "prev", "next", "edit"}


class Page(HTMLParser):
    """The anchors, links and loaded files of one page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        for key in ("href", "src"):
            if key in values:
                (
                    self.loaded if (tag, key) in LOADING and values.get("rel") not in OF_NO_CONTENT else self.links
                ).append(values[key])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a copy, by the command of `make docs`, where no proxy or server can be reached."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    assert "-m zensical build --strict" in (ROOT / "Makefile").read_text(encoding="utf-8")
    nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, env=nowhere, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and "No issues found" in done.stdout + done.stderr, done.stdout + done.stderr
    subprocess.run(["bash", "-c", f"cp -r --parents {' '.join(BESIDE)} {folder}/build/site/"], cwd=ROOT, check=True)
    return folder / "build/site/docs"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}


def test_every_page_is_in_the_map() -> None:
    def files(entry: object) -> set[str]:
        if isinstance(entry, str):
            return {entry}
        inner = entry.values() if isinstance(entry, dict) else entry
        return set().union(*map(files, inner))  # type: ignore[call-overload]

    found = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert files(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]) == found


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert len(pages) > 30
    dead = []
    for file, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            here = pages.get(target)
            if not target.exists() or (here and parts.fragment and unquote(parts.fragment) not in here.anchors):
                dead.append(f"{file.name}: {link}")
    assert dead == []


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert {link for page in pages.values() for link in page.loaded if urlsplit(link).netloc} == set()
    styles = [file.read_text(encoding="utf-8") for file in site.rglob("*.css")]
    assert styles and not any(re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", text) for text in styles)
