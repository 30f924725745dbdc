"""How long would a mini-batch take on one to four stages, and how much memory would they need? Nothing is trained.

python examples/where_it_would_run.py          # from the root of the repository
"""

import alray

for stages in (1, 2, 3, 4):
    plan = alray.plan("specs/quickstart.yaml", {"pipeline.stages": stages}, progress=False)
    memory = max(stage.memory.total_bytes for stage in plan.stage_plans)
    print(
        f"stages: {stages}, cut {list(plan.partition)}: {plan.predicted_step_time_s * 1e3:6.2f} ms, "
        f"at most {memory / 1e6:.1f} MB on a stage; {plan.limited_by}"
    )
