"""What tests on a GPU show, and by which of them: the rows of the table of docs/gpu.md, which a run fills in."""

from __future__ import annotations

from collections.abc import Mapping

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
    "a stage on the second GPU has nothing on the first": ("test_second_device.py",),
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
    "through Ray: stages on three and four GPUs": ("_in_the_middle",),
    "through Ray: a stage over NCCL dies or is silent, and torch's watchdog ends no other": ("test_a_stage_dies",),
    "through Ray: the bubble, replicas of Ray Train": ("test_stages_stream", "test_two_replicas_of_ray_train"),
}


def filled_in(outcomes: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each row with what the tests came to: `shown`, `in part` where some were skipped, `failed`, or `missing` where
    nothing has run.

    Args:
        outcomes: of the tests, by their names: passed, failed or skipped.
    """
    rows = []
    for what, names in SHOWN.items():
        came_to = {how for name, how in outcomes.items() if any(each in name for each in names)}
        if "failed" in came_to or "passed" not in came_to:
            rows.append((what, "failed" if "failed" in came_to else "missing"))
        else:
            rows.append((what, "in part" if "skipped" in came_to else "shown"))
    return rows
