"""Devices as a process finds them. What has to be known of a GPU is stood in for: these tests run without one."""

from __future__ import annotations

import os
import platform
import runpy
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from alray.config.sections.resources import accelerator_of
from alray.core.compat import dynamo_config
from alray.core.errors import PlanError, RunError
from alray.models import compiled
from alray.runtime.device import devices

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def as_it_was() -> Iterator[None]:
    with devices.configured(torch.get_num_threads(), False, CPU):
        yield


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """This process seems to see two GPUs; gives those that became the current one."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "set_device_index", current.append)
    monkeypatch.setattr(torch.accelerator, "device_index", lambda index: nullcontext())
    return current


def shown(monkeypatch: pytest.MonkeyPatch, visible: str | None) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


def _that_no_driver_can_use(check_available: bool = False) -> torch.device | None:
    return None if check_available else torch.device("cuda")


@pytest.mark.usefixtures("as_it_was", "two_gpus")
@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_deterministic_algorithms_are_used_where_the_spec_asks_for_them(device: torch.device) -> None:
    devices.configure(1, True, device)
    assert torch.get_deterministic_debug_mode() == 2 and not torch.backends.cudnn.benchmark
    devices.configure(1, False, device)
    assert torch.get_deterministic_debug_mode() == 0 and torch.backends.cudnn.benchmark


@pytest.mark.parametrize(
    ("tf32", "convolutions", "products"), [("none", False, False), ("convolutions", True, False), ("all", True, True)]
)
def test_tf32_is_used_where_the_spec_asks_for_it(tf32: devices.Tf32, convolutions: bool, products: bool) -> None:
    def used() -> tuple[bool, bool]:
        return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32

    before = used()
    with devices.configured(torch.get_num_threads(), True, CPU, tf32):
        assert used() == (convolutions, products)
    assert used() == before


KEPT = """
import psutil
import torch

from alray.runtime.device import devices

with devices.configured(1, True, torch.device("cpu")):
    pass
before = psutil.Process().memory_info().rss
torch.ones(25_000_000)
print(psutil.Process().memory_info().rss - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_a_process_gives_freed_memory_back_after_it_computed() -> None:
    """In a process of its own: what earlier tests freed between other things is used again and never given back."""
    kept = subprocess.run([sys.executable, "-c", KEPT], check=True, capture_output=True, text=True, timeout=120).stdout
    assert int(kept) < 50e6


def test_products_on_a_cpu_are_not_rounded_where_a_program_wants_them_rounded() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with devices.configured(torch.get_num_threads(), True, CPU):
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"  # type: ignore[attr-defined]
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # type: ignore[attr-defined]
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_program_may_have_said_itself_what_is_rounded_to_tf32() -> None:
    """By the flags that torch has now, after which it refuses to read those it had before."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with devices.configured(torch.get_num_threads(), True, CPU):
            assert torch.backends.cuda.matmul.fp32_precision != "tf32"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_ray_hides_gpus_of_amd_by_a_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2")
    assert devices.number_of_given(["2"], "cuda") == 2
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert devices.number_of_given(["2"], "cuda") == 0


@pytest.mark.parametrize(
    ("resource", "device"), [("GPU", "cuda"), ("GPU", "cuda of AMD"), ("GPU", "xpu"), ("NPU", "npu"), ("HPU", "hpu")]
)
def test_ray_hides_each_kind_of_accelerator_by_the_variable_that_is_read(
    monkeypatch: pytest.MonkeyPatch, resource: str, device: str
) -> None:
    """As the installed Ray hides them. Those that it hides of another kind do not matter."""
    from ray._private import accelerators

    managers = {
        "cuda": accelerators.NvidiaGPUAcceleratorManager,
        "cuda of AMD": accelerators.AMDGPUAcceleratorManager,
        "xpu": accelerators.IntelGPUAcceleratorManager,
        "npu": accelerators.NPUAcceleratorManager,
        "hpu": accelerators.HPUAcceleratorManager,
    }
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(torch.version, "hip", "7.0" if device == "cuda of AMD" else None)
    for other, manager in managers.items():
        manager.set_current_process_visible_accelerator_ids(["1"] if other == device else ["0"])
    assert managers[device].get_resource_name() == resource == accelerator_of({"CPU": 1.0, resource: 1.0})
    kind = device.partition(" ")[0]
    assert devices.number_of_given(["1"], kind) == 0
    with pytest.raises(PlanError, match="whose process sees") as raised:
        devices.number_of_given(["0"], kind)
    assert managers[device].get_visible_accelerator_ids_env_var() in str(raised.value.problems[0].hint)


def test_of_an_accelerator_that_ray_does_not_hide_a_process_sees_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray was told of them by `--num-gpus`. It then hides GPUs of NVIDIA, which are not there."""
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    monkeypatch.delenv("ZE_AFFINITY_MASK", raising=False)
    assert devices.number_of_given(["2"], "musa") == devices.number_of_given(["2"], "xpu") == 2


def test_without_dpctl_ray_does_not_know_which_gpus_of_intel_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes those that `--num-gpus` tells of for NVIDIA's, and numbers them from 0. One of two may seem right."""
    monkeypatch.setenv("ZE_AFFINITY_MASK", "1,2")
    with pytest.raises(PlanError, match=r"reserved the GPUs \[0\] .* sees \[1, 2\]") as raised:
        devices.number_of_given(["0"], "xpu")
    assert "dpctl" in str(raised.value.problems[0].hint)


def test_the_compiler_too_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not imported Inductor yet tells it by the environment."""
    monkeypatch.setenv("TORCHINDUCTOR_DETERMINISTIC", "0")
    inductor = SimpleNamespace(deterministic=False)
    monkeypatch.setitem(sys.modules, "torch._inductor.config", inductor)
    with devices.configured(torch.get_num_threads(), True, CPU):
        assert inductor.deterministic and os.environ["TORCHINDUCTOR_DETERMINISTIC"] == "1"
    assert not inductor.deterministic and os.environ["TORCHINDUCTOR_DETERMINISTIC"] == "0"


def test_the_compiler_is_afterwards_as_the_program_has_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.use_deterministic_algorithms` sets Inductor's flag, and no variable."""
    monkeypatch.delenv("TORCHINDUCTOR_DETERMINISTIC", raising=False)
    inductor = SimpleNamespace(deterministic=True)
    monkeypatch.setitem(sys.modules, "torch._inductor.config", inductor)
    with devices.configured(torch.get_num_threads(), False, CPU):
        assert not inductor.deterministic
    assert inductor.deterministic and "TORCHINDUCTOR_DETERMINISTIC" not in os.environ


@pytest.mark.parametrize("imported", [True, False], ids=["imported before", "imported inside"])
def test_dynamo_has_its_limits_again_where_a_part_was_compiled(monkeypatch: pytest.MonkeyPatch, imported: bool) -> None:
    monkeypatch.setattr(compiled, "_first", {})
    monkeypatch.setattr(compiled, "_DYNAMO", "torch._dynamo.config" if imported else "not imported")
    before = dynamo_config.recompile_limit, dynamo_config.fail_on_recompile_limit_hit
    assert before == (8, False)
    for _ in range(2):
        with devices.configured(torch.get_num_threads(), False, CPU):
            compiled.compile_part(nn.Linear(2, 2))
            monkeypatch.setattr(compiled, "_DYNAMO", "torch._dynamo.config")
            assert dynamo_config.recompile_limit > 1000 and dynamo_config.fail_on_recompile_limit_hit
        assert (dynamo_config.recompile_limit, dynamo_config.fail_on_recompile_limit_hit) == before
    with devices.configured(torch.get_num_threads(), False, CPU):  # a part of before meets another size
        assert dynamo_config.recompile_limit > 1000


@pytest.mark.full
def test_cublas_is_prepared_by_what_a_run_imports_first_of_its_devices() -> None:
    """A matrix product on a GPU before it would fix another setting."""
    environment = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}
    shows = "import alray.runtime.device.devices, os; print(os.environ['CUBLAS_WORKSPACE_CONFIG'])"
    said = subprocess.run([sys.executable, "-c", shows], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == ":4096:8\n"


@pytest.mark.parametrize(("of_user", "queues"), [(None, "32"), ("8", "8")])
def test_a_process_gives_each_stream_of_its_gpu_a_queue(
    monkeypatch: pytest.MonkeyPatch, of_user: str | None, queues: str
) -> None:
    """As soon as it imports what it needs for a device. What the user has set stays."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    monkeypatch.delenv(name, raising=False)
    if of_user is not None:
        monkeypatch.setenv(name, of_user)
    runpy.run_path(devices.__file__)
    assert os.environ[name] == queues


@pytest.mark.usefixtures("two_gpus")
def test_what_a_probe_held_of_a_gpu_goes_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[bool] = []
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: emptied.append(True))
    monkeypatch.setattr(devices, "put_back", lambda device: nullcontext())
    with devices.configured(torch.get_num_threads(), False, GPU):
        assert not emptied
    assert emptied
    emptied.clear()
    with devices.configured(torch.get_num_threads(), False, CPU):
        pass
    assert not emptied


def test_what_ran_out_of_memory_is_let_go_of_while_its_error_stays() -> None:
    """As a notebook keeps it."""
    tensors: list[weakref.ref[torch.Tensor]] = []

    def compute() -> None:
        held = torch.zeros(4)
        tensors.append(weakref.ref(held))
        raise torch.OutOfMemoryError("no room")

    def measure() -> None:
        try:
            compute()
        except torch.OutOfMemoryError as error:
            raise RunError("component 0 ran out of memory") from error

    with pytest.raises(RunError) as raised, devices.configured(torch.get_num_threads(), True, CPU):
        measure()
    assert raised.value.__cause__ is not None and tensors[0]() is None


@pytest.mark.usefixtures("two_gpus")
def test_an_error_that_a_gpu_repeats_does_not_hide_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def repeat() -> None:
        raise torch.AcceleratorError("device-side assert triggered")

    monkeypatch.setattr(torch.accelerator, "empty_cache", repeat)
    monkeypatch.setattr(devices, "put_back", lambda device: nullcontext())
    with (
        pytest.raises(PlanError, match="component 1"),
        devices.configured(torch.get_num_threads(), False, GPU),
    ):
        raise PlanError("component 1")
    with pytest.raises(torch.AcceleratorError), devices.configured(torch.get_num_threads(), False, GPU):
        pass


@pytest.mark.usefixtures("as_it_was")
def test_the_gpu_of_a_stage_is_the_current_one(two_gpus: list[torch.device]) -> None:
    """New streams and events belong to the current GPU, which is the first one where nobody says so."""
    devices.configure(1, True, CPU)
    assert two_gpus == []
    devices.configure(1, True, GPU)
    assert two_gpus == [GPU]


@pytest.mark.usefixtures("two_gpus")
def test_a_process_without_a_gpu_measures_on_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's library, which torch counts by, still knows the GPUs whose driver is too old for CUDA."""
    assert devices.at_hand("cuda") == torch.device("cuda", 0) and devices.at_hand("cpu") == CPU
    monkeypatch.setattr(torch.accelerator, "current_accelerator", _that_no_driver_can_use)
    assert devices.at_hand("cuda") == devices.at_hand("auto") == CPU
    with pytest.raises(PlanError, match="no GPU"):
        devices.pick("cuda")


@pytest.mark.usefixtures("two_gpus")
def test_a_process_keeps_to_the_gpu_that_ray_reserved_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray hides none from a process that asks for none, and none of a process where it was told so."""
    monkeypatch.setattr(devices, "_given", None)
    shown(monkeypatch, None)
    assert devices.pick("cuda") == devices.at_hand("cuda") == torch.device("cuda", 0)
    devices.keep_to(["1"])
    assert devices.pick("cuda") == devices.at_hand("cuda") == torch.device("cuda", 1)
    devices.keep_to([])
    assert devices.at_hand("cuda") == devices.pick("cpu") == CPU
    with pytest.raises(PlanError, match=r"Ray reserved the GPUs \[\] for this stage"):
        devices.pick("cuda")


@pytest.mark.usefixtures("two_gpus")
def test_the_accelerator_is_the_one_that_torch_offers() -> None:
    assert devices.pick("auto", gpu=1) == torch.device("cuda", 1)
    with pytest.raises(PlanError, match="torch offers `cuda` on this machine, not `xpu`"):
        devices.pick("xpu")


def test_a_device_that_torch_does_not_know() -> None:
    for known in ("auto", "cpu", "cuda", "xpu", "mps"):
        devices.require_known(known)
    with pytest.raises(PlanError, match="torch knows no device `cdua`"):
        devices.require_known("cdua")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("given", "visible", "number"),
    [
        (["3"], "3", 0),  # Ray hides the others
        (["3", "1"], "3,1", 0),
        (["3"], "2,3", 1),  # Ray Train shows each worker those of all workers of the node
        (["GPU-5f"], "GPU-0a,GPU-5f", 1),
        (["1"], None, 1),  # Ray was told to hide none
    ],
)
def test_the_gpu_that_ray_reserved(
    monkeypatch: pytest.MonkeyPatch, given: list[str], visible: str | None, number: int
) -> None:
    shown(monkeypatch, visible)
    assert devices.number_of_given(given, "cuda") == number


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("given", "visible"), [(["3"], "0,1"), (["3"], None), ([], "0")])
def test_a_gpu_that_is_not_seen(monkeypatch: pytest.MonkeyPatch, given: list[str], visible: str | None) -> None:
    shown(monkeypatch, visible)
    with pytest.raises(PlanError, match="whose process sees"):
        devices.number_of_given(given, "cuda")
