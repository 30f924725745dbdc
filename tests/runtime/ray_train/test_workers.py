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
    config = trainer.StoreOnOneAddress(backend=backend)
    config.backend_cls().on_start(OneWorker(), config)
    assert did == ["prepared" if backend == "nccl" else "not prepared", "joined"]


def test_a_worker_meets_the_others_on_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """They first meet over NCCL, which refuses two workers on one GPU."""
    own = torch.device("cuda", 1)
    used: list[torch.device] = []

    def meeting(*arguments: Any) -> None:
        assert used == [own]
        raise LookupError

    actor = SimpleNamespace(location=lambda: None, start=lambda meeting: None)
    monkeypatch.setattr(trainer, "get_context", lambda: SimpleNamespace(get_world_rank=lambda: 0))
    monkeypatch.setattr(trainer, "StageActor", lambda *arguments: actor)
    monkeypatch.setattr(trainer, "require_run_dir", lambda *arguments: None)
    monkeypatch.setattr(trainer, "own_device", lambda assignment: own)
    monkeypatch.setattr(trainer, "use", used.append)
    monkeypatch.setattr(trainer, "_meeting", meeting)
    with pytest.raises(LookupError):
        trainer.train_worker({"assignments": [None], "run_token": ""})
