"""A process that has loaded what a stage needs, and forks one stage for each connection: `stage_server.py SOCKET`.

Loading torch takes a process some two seconds of a processor; a fork takes milliseconds. The server ends when its
standard input does.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import torch.distributed as dist

import alray.runtime.graph.actor as actor_module
from alray.runtime.graph.actor import StageActor
from alray.runtime.graph.processes import StageProcess
from alray.runtime.rendezvous.groups import prepare_for_nccl
from alray.runtime.stage.assignment import Assignment

sys.path.insert(0, str(Path(__file__).parents[2]))
DEVICE = os.environ.get("ALRAY_TEST_DEVICE")  # set by tests/gpu
if DEVICE == "simulated":
    from tests.simulated import MACHINE
    from tests.simulated.stages import give_devices

    give_devices()
if os.environ.get("ALRAY_TEST_BACKWARD") == "thread":
    from tests.backward_threads import run_backward_in_threads

    run_backward_in_threads()
prepare_for_nccl()  # as `StageProcess.load` does


def serve(connection: Connection) -> None:
    """Be the actor of the assignment that comes first; then answer calls, (method, arguments), until the end."""
    assignment: Assignment
    assignment, gpu = connection.recv()
    actor_module.given_gpus = lambda: [gpu]  # there is no Ray that would say so
    if DEVICE == "real GPUs":
        from tests.gpu.one_gpu import share_the_gpus

        share_the_gpus(actor_module)
    process = StageProcess()
    process._stage = StageActor(assignment, "")
    connection.send((os.getpid(), actor_module.gpu_for_nccl(assignment)))
    if assignment.data_parallel:  # as Ray Train does before it calls its training function
        meeting = assignment.run_dir / f"meeting-{assignment.start.step}"
        dist.init_process_group(
            "gloo", init_method=meeting.as_uri(), rank=assignment.replica, world_size=assignment.plan.replicas
        )
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            os._exit(0)
        if DEVICE == "simulated" and MACHINE.faults:
            sys.exit(f"a GPU would punish this: {MACHINE.faults}")
        if method == "become":
            process._stage = StageActor(*arguments, "")
            connection.send((os.getpid(), actor_module.gpu_for_nccl(*arguments)))
        else:
            whose = process if method in ("call", "forget") else process._stage
            connection.send(getattr(whose, method)(*arguments))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the stages
    gc.freeze()  # or every stage's collections would copy what it shares with this process
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{sys.argv[1]}.soon")
        listener.listen()
        Path(f"{sys.argv[1]}.soon").rename(sys.argv[1])  # there as soon as it can be connected to
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return  # its other end is gone, and with it whoever started this process
            connection = Connection(listener.accept()[0].detach())
            if os.fork() == 0:
                serve(connection)
            connection.close()


if __name__ == "__main__":
    main()
