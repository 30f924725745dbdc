"""What the workers of Ray Train do before they train. GPUs and Ray are stood in for: these tests run without them."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alray.runtime.ray_train import trainer


class OneWorker:
    """A worker group whose one worker is this process."""

    def __len__(self) -> int:
        return 1

    def execute(self, function: Callable[[], Any]) -> list[Any]:
        return [function()]

    def execute_single(self, rank: int, function: Callable[[], Any]) -> Any:
        return function()

    def execute_single_async(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_worker_prepares_for_nccl_before_ray_asks_for_its_gpu(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """CUDA reads its environment when a process first asks for a GPU."""
    did: list[str] = []

    def asked_for_gpu() -> None:
        did.append("prepared" if "CUDA_MODULE_DATA_LOADING" in os.environ else "not prepared")

    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(trainer, "set_torch_distributed_env_vars", asked_for_gpu)
    monkeypatch.setattr(trainer, "_open_store", lambda: None)
    monkeypatch.setattr(trainer, "_join_workers", lambda *arguments: did.append("joined"))
    monkeypatch.setattr(trainer.ray, "get", lambda references: references)
    monkeypatch.setattr(trainer, "given_gpus", lambda: ["0"])
    config = trainer.StoreOnOneAddress(backend=backend)
    config.backend_cls().on_start(OneWorker(), config)
    assert did == ["prepared" if backend == "nccl" else "not prepared", "joined"]


@pytest.mark.parametrize(
    ("given", "backend", "device"),
    [(["2", "3"], "nccl", torch.device("cuda", 2)), (["MIG-87dc"], "gloo", None)],
)
def test_workers_join_on_the_gpus_that_they_compute_on(
    monkeypatch: pytest.MonkeyPatch, given: list[str], backend: str, device: torch.device | None
) -> None:
    """torch would take the GPU of a worker's number. NCCL refuses two slices of one GPU."""
    joined: list[tuple[str, torch.device | None]] = []

    def init_process_group(backend: str, *, device_id: torch.device | None, **others: Any) -> None:
        joined.append((backend, device_id))

    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(trainer, "given_gpus", lambda: given)
    monkeypatch.setattr(trainer, "set_torch_distributed_env_vars", lambda: None)
    monkeypatch.setattr(trainer, "_open_store", lambda: None)
    monkeypatch.setattr(trainer, "_stores", [SimpleNamespace(store=None)])
    monkeypatch.setattr(trainer, "enter", lambda *arguments: None)
    monkeypatch.setattr(trainer.dist, "init_process_group", init_process_group)
    monkeypatch.setattr(trainer.ray, "get", lambda references: references)
    config = trainer.StoreOnOneAddress(backend="nccl")
    config.backend_cls().on_start(OneWorker(), config)
    assert joined == [(backend, device)]
