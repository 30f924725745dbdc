"""What tests on a GPU show, and by which of them: the rows of the table of tests/gpu/shown.md, which a run fills in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parent / "shown.md"
_HEAD = "| | simulated | a real GPU |\n|---|---|---|\n"

SHOWN: Mapping[str, tuple[str, ...]] = {
    "every method, family and schedule of the ledger: the processor's bits": ("test_ledger.py",),
    "the same bits on every partition, for families, methods and schedules, in one process": (
        "test_every_partition",
        "test_every_family_method_and_schedule",
    ),
    "checkpoints: on the GPU, and from the processor to the GPU and back": ("test_a_checkpoint",),
    "mixed precision and float64": ("test_other_precisions", "test_texts_in_mixed", "test_recurrent_layers_stay"),
    "no wait of a stream or of the host is missing: feed, edges, sums, times": ("test_waiting.py",),
    "stages in separate processes: streamed, barriers, pipelines, replicas, norms over replicas": (
        "test_processes.py",
    ),
    "messages and sums from GPU to GPU over a stand-in for NCCL": ("test_nccl.py",),
    "over NCCL, sums of norms and of gradients start in one order on all replicas": ("start_in_one_order",),
    "over NCCL: streams, barriers, pipelines, replicas, norms over replicas": (
        "nccl]",
        "[nccl-",
        "test_a_replica_may_wait",
    ),
    "over NCCL: edges beside sums of gradients and of norms, two replicas of two stages": ("test_edges_beside_sums",),
    "over NCCL: copies of the last component, rings of virtual stages, averages of weights": ("test_what_else_goes",),
    "a stage on a GPU beside one on a processor of its node": ("one pinned]", "beside_one_on_a_processor"),
    "a stage on the second GPU has nothing on the first": ("test_second_device.py",),
    "backward runs in a thread of its own: local losses, pipelines, recomputation, norms over replicas": (
        "test_processes.py::test_two_stages",
        "test_processes.py::test_a_pipeline_of",
        "test_processes.py::test_two_replicas",
    ),
    "a trained network: evaluation, predictions, export": ("test_predictions",),
    "torch.compile": ("test_compiled",),
    "memory of a stage as predicted, within 15 %; memory that a probe leaves": (
        "test_memory_is_predicted",
        "test_the_probe_leaves",
    ),
    "times of a stage are those of the GPU": ("test_what_a_stage_computes_is",),
    "through Ray: two stages on one GPU and on two, replicas over NCCL and gloo, pipelines": (
        "test_on_ray.py::test_one_stage",
        "test_on_ray.py::test_two_stages_on",
        "test_on_ray.py::test_a_pipeline_of",
        "test_on_ray.py::test_two_replicas[",
    ),
    "through Ray: a study's trials in one process each": ("test_a_trial_of_a_study",),
    "through Ray: trials keep to the GPUs reserved for them where a process sees all": ("test_trials_keep",),
    "through Ray: stages on three and four GPUs": ("_in_the_middle",),
    "through Ray: a stage over NCCL dies or is silent, and torch's watchdog ends no other": ("test_a_stage_dies",),
    "through Ray: the bubble, replicas of Ray Train": ("test_stages_stream", "test_two_replicas_of_ray_train"),
    "what a process takes of a GPU besides its tensors (`1 GB` is assumed)": (),
    "pending sends of NCCL while the host waits for the whole GPU: a kernel that is loaded, memory that is freed": (),
}
"""The tests of each row of the page, by parts of their names; (): it was measured by hand."""


def rows_of_page(*, simulated: bool) -> dict[str, str]:
    """What the page says of each row: of the simulated device, or of a real GPU."""
    table = PAGE.read_text(encoding="utf-8").partition(_HEAD)[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return {what: of_simulated if simulated else of_real for what, of_simulated, of_real in rows}


def filled_in(outcomes: Mapping[str, str], said: Mapping[str, str], *, one_gpu: bool = False) -> dict[str, str]:
    """What the tests of this run came to, for each row of the page.

    Where all of them have passed, or this device cannot show the row, that is what the page says. Otherwise:
    `failed`; `in part` where some were skipped and the page does not say which part; `not run` where none has passed;
    `shown` where the page has it missing.

    Args:
        outcomes: of the tests, by their names: passed, failed or skipped.
        said: by the page, of a device of this kind, for each row.
        one_gpu: one real GPU stands for several here. Of several ones the page's `one GPU as two` and `missing` are not
            true.
    """
    found = {}
    for what, says in said.items():
        names = SHOWN[what]
        came_to = {how for name, how in outcomes.items() if any(each in name for each in names)}
        only_of_one = not one_gpu and ("one GPU as" in says or "missing" in says)
        if "failed" in came_to:
            found[what] = "failed"
        elif not names or says.startswith("cannot show it"):
            found[what] = says
        elif "passed" not in came_to:
            found[what] = "not run" if "shown" in says else says
        elif "skipped" in came_to:
            found[what] = "in part" if says == "shown" or only_of_one else says
        else:
            found[what] = "shown" if "shown" not in says or only_of_one else says
    return found
