"""The report page: one self-contained HTML file, readable without a network, a script or the run folder."""

from __future__ import annotations

from pathlib import Path

from alray.report import pipeline_sections, training_sections
from alray.report.document import write_document
from alray.report.folder import RunFolder
from alray.report.schedule_section import schedule
from alray.report.single_step_section import single_step_section
from alray.report.summary import figures_of


def write_html(run: RunFolder, path: Path) -> Path:
    """Write the page of this run to `path` and return it. The file is the old one or the new one, whole."""
    figures = figures_of(run.records, run.plan)
    sections = [
        training_sections.headline(run, figures),
        training_sections.losses(run),
        training_sections.accuracies(run),
        schedule(run),
        single_step_section(run),
        pipeline_sections.stage_time(run),
        pipeline_sections.plan_table(run, figures),
        pipeline_sections.edges(run, figures),
        pipeline_sections.events(run),
        pipeline_sections.environment(run),
        pipeline_sections.spec(run),
    ]
    version = f"alray {run.summary.version}" if run.summary else "alray"
    return write_document(
        path,
        title=f"{run.name} · alray report",
        sections=sections,
        footer=f"{version} · made from records.jsonl and plan.json of {run.path.name}",
    )
