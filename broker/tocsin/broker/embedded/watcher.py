"""The process between an owner and its embedded server: when the owner goes, so does the server.

Run as a program of its own (`python -I -S watcher.py`), never imported by the broker, and
made of the standard library alone so that it starts in some milliseconds.

- Its standard input is a pipe whose other end only the owner holds. The system closes that end
  however the owner dies, SIGKILL included, and the watcher then ends the server. (A death signal
  tied to the owner would fire when the *thread* that started the server ends, and exists on Linux
  only.)
- It is the server's parent, so the process id it signals cannot have become somebody else's.
- On Linux the server is told to die with the watcher as well; the watcher has one thread only.
- The descriptor of the lock is inherited by both: the lock lasts until both are gone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have this process killed when its parent dies. Linux only; elsewhere it does nothing."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def wait_for_the_end(server: subprocess.Popen[bytes]) -> bool:
    """Wait until the owner lets go of the pipe, a stop signal comes (True) or the server ends."""
    awake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    for number in STOPPING:
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while server.poll() is None:
        ready, _, _ = select.select([0, awake], [], [])
        if 0 in ready and not os.read(0, 4096):
            return True
        if awake in ready and any(number in STOPPING for number in os.read(awake, 4096)):
            return True
    return False


def end(server: subprocess.Popen[bytes], patience: float) -> None:
    """End the server: gently within `patience` seconds if that is above 0, then at once."""
    if patience > 0 and server.poll() is None:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(patience)
    if server.poll() is None:
        server.kill()
        server.wait()


def main(arguments: list[str]) -> int:
    """Run the command given after `--` until the owner is gone; return its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lock", type=int, required=True, help="descriptor the server keeps open")
    parser.add_argument("--patience", type=float, required=True, help="seconds for a gentle end")
    parser.add_argument("--remove", help="directory to remove after an asked-for end")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    watcher = os.getpid()
    server = subprocess.Popen(
        options.command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        pass_fds=[options.lock],
        # Safe here: this process has no other thread.
        preexec_fn=lambda: die_with(watcher),  # noqa: PLW1509
    )
    # The owner reads the server's process id, then the end of this pipe, and nothing more.
    os.write(1, f"{server.pid}\n".encode())
    os.close(1)
    asked = True
    try:
        asked = wait_for_the_end(server)
    finally:
        end(server, options.patience)
        # After an end of its own the owner still wants to read the log.
        if options.remove and asked:
            shutil.rmtree(options.remove, ignore_errors=True)
    code: int = server.returncode
    return abs(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
