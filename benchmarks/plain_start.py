"""Two stages on Ray as one writes them with Ray and torch alone: two actors, a process group of gloo, one message.

    python -m benchmarks.plain_start

Prints `time.time()` of the moment when the second actor has the first one's tensor.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import ray

SHAPE = (64, 64, 8, 8)  # what the first stage of specs/quickstart.yaml sends up


class Stage:
    """One of two processes."""

    def exchange(self, rank: int, port: int) -> float:
        """Join the other process and pass a tensor from rank 0 to rank 1; returns when that is done."""
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
        if rank == 0:
            dist.send(torch.ones(SHAPE), 1)
        else:
            received = torch.zeros(SHAPE)
            dist.recv(received, 0)
            assert bool((received == 1).all())
        return time.time()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def main() -> None:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    actor = ray.remote(num_cpus=1)(Stage)
    stages: list[Any] = [actor.remote() for _ in range(2)]
    port = free_port()
    print(max(ray.get([stage.exchange.remote(rank, port) for rank, stage in enumerate(stages)])), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
