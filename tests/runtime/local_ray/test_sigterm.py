"""SIGTERM in a process whose handlers Ray replaces."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """\
import os, signal, subprocess, threading, time
from alray.runtime.local_ray.sigterm import sigterm_as_sigint

def heard(number, frame):
    raise RuntimeError(signal.strsignal(number))

def blocked_in_child(**keys):
    text = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, **keys).stdout
    return bool(int(text.partition("SigBlk:")[2].split()[0], 16) & 1 << signal.SIGTERM - 1)

signal.signal(signal.SIGTERM, heard)
with sigterm_as_sigint():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Ray does: it would end this process
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    assert not blocked_in_child(preexec_fn=lambda: None)  # as Ray starts its processes
    for _ in range(2):
        try:
            subprocess.run(["kill", str(os.getpid())])
            time.sleep(10)
            raise SystemExit("lost")
        except KeyboardInterrupt:
            print("interrupted")
try:
    os.kill(os.getpid(), signal.SIGTERM)
    raise SystemExit("the handler is lost")
except RuntimeError as error:
    print(error)
"""


def test_sigterm_reaches_the_main_thread_whatever_is_installed_meanwhile() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "interrupted\ninterrupted\nTerminated\n", done.stderr
