"""The report page: one self-contained HTML file, readable without a network, a script or the run folder."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path

from alray.report import pipeline_sections, training_sections
from alray.report.folder import RunFolder
from alray.report.schedule_section import schedule
from alray.report.summary import figures_of


def write_html(run: RunFolder, path: Path) -> Path:
    """Write the page of this run to `path` and return it. The file is the old one or the new one, whole."""
    figures = figures_of(run.records, run.plan)
    sections = [
        training_sections.headline(run, figures),
        training_sections.losses(run),
        training_sections.accuracies(run),
        schedule(run),
        pipeline_sections.stage_time(run),
        pipeline_sections.plan_table(run, figures),
        pipeline_sections.edges(run, figures),
        pipeline_sections.events(run),
        pipeline_sections.environment(run),
        pipeline_sections.spec(run),
    ]
    version = f"alray {run.summary.version}" if run.summary else "alray"
    style = files("alray.report").joinpath("page.css").read_text(encoding="utf-8")
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(run.name)} · alray report</title><style>{style}</style></head><body><main>"
        + "\n".join(sections)
        + f"<footer>{escape(version)} · made from records.jsonl and plan.json of {escape(run.path.name)}"
        "</footer></main></body></html>\n"
    )
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)
    return path
