"""A process that has loaded what a stage needs, and forks one stage for each connection: `stage_server.py SOCKET`.

Loading torch takes a process some two seconds of a processor; a fork takes milliseconds.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from multiprocessing.connection import Connection, Listener

import torch._inductor.config  # with all of torch._dynamo, which every optimizer loads
import torch.distributed as dist
import torch.distributed.pipelining  # noqa: F401 - what a pipeline's stage loads

from alray.graph.actor import StageActor
from alray.stage.assignment import Assignment


def serve(connection: Connection) -> None:
    """Be the actor of the assignment that comes first; then answer calls, (method, arguments), until the end."""
    assignment: Assignment = connection.recv()
    actor = StageActor(assignment, "")
    connection.send(os.getpid())
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
        connection.send(getattr(actor, method)(*arguments))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the stages
    gc.freeze()  # or every stage's collections would copy what it shares with this process
    with Listener(sys.argv[1]) as listener:
        while True:
            connection = listener.accept()
            if os.fork() == 0:
                serve(connection)
            connection.close()


if __name__ == "__main__":
    main()
