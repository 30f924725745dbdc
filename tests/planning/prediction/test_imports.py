"""The plan needs neither torch nor Ray nor pydantic."""

from __future__ import annotations

import subprocess
import sys


def test_the_plan_imports_no_heavy_library() -> None:
    code = (
        "import sys, alray.planning.prediction.make, alray.planning.schedules.table, alray.report.schedule_chart\n"
        "print([name for name in ('torch', 'ray', 'pydantic', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
