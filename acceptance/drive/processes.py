"""The processes under test.

`Fleet` starts a frontend and workers one by one, so that a test knows each process id; `Program` is any one of them.
Whatever a test starts ends with it, and dies with this process.
"""

import ctypes
import os
import pathlib
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import metrics, proc, raw
from .waiting import until

WEIR = os.environ.get("WEIR_BIN", str(pathlib.Path(__file__).parents[2] / "target/release/weir"))
READY_WITHIN = 20.0

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent():
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Program:
    """One running `weir` command."""

    def __init__(self, args, log, *, binary=WEIR):
        self.args = [str(arg) for arg in args]
        self.log = pathlib.Path(log)
        with open(self.log, "wb") as stderr:
            self.child = subprocess.Popen(
                [binary, *self.args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                preexec_fn=_die_with_parent,
            )
        self.pid = self.child.pid

    def ready(self):
        """What the `ready` line names. Fails with the log if there is none in time."""
        line = self._first_line(time.monotonic() + READY_WITHIN)
        assert line.startswith("ready "), f"`weir {' '.join(self.args)}` printed {line!r}; its log:\n{self.logged()}"
        return line.removeprefix("ready ").strip()

    def _first_line(self, deadline):
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.child.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    break
                byte = os.read(self.child.stdout.fileno(), 1)
                if not byte:
                    break
                line += byte
        return line.decode()

    def logged(self):
        return self.log.read_text(errors="replace")

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, deadline=20.0):
        """The exit code."""
        try:
            return self.child.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"`weir {' '.join(self.args)}` did not end within {deadline} s") from None

    def stop(self):
        """Ends it, politely first."""
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.child.stdout.close()


class Fleet:
    """A frontend and its workers, each a process of its own, in a run directory of their own."""

    def __init__(self, *frontend_args):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="weir-acceptance-"))
        self.run_dir = self.dir / "run"
        self.programs = []
        self.workers = []
        self.engines = {}
        self.worker_metrics = {}
        try:
            self.frontend = self._start("frontend", "--listen", "127.0.0.1:0", *frontend_args)
            self.url = self.frontend.ready()
        except BaseException:
            self.close()
            raise
        self.address = raw.address(self.url)

    def _start(self, command, *args):
        log = self.dir / f"{command}-{len(self.programs)}.log"
        program = Program([command, "--run-dir", self.run_dir, *args], log)
        self.programs.append(program)
        return program

    def start_workers(self, count=1, engine="scripted", workers=1, *args):
        """Starts worker processes and waits until the frontend routes to all of them."""
        known = self._engines()
        started = []
        for _ in range(count):
            port = free_port()
            program = self._start(
                "worker", "--engine", engine, "--workers", workers, "--metrics-listen", f"127.0.0.1:{port}", *args
            )
            self.worker_metrics[program.pid] = ("127.0.0.1", port)
            started.append(program)
        for program in started:
            program.ready()
        self.workers += started
        self.engines |= {program: workers for program in started}
        until(
            lambda: len(self._engines() - known) >= count * workers,
            f"{count * workers} new engines in weir_engine_running",
        )
        return started

    def _engines(self):
        """Labels of the engines that the frontend routes to."""
        return self.metrics().samples("weir_engine_running").keys()

    def models(self):
        """Names in /v1/models."""
        return [model["id"] for model in raw.get_json(self.address, "/v1/models")["data"]]

    def metrics(self, program=None):
        """A scrape of the frontend, or of a worker process."""
        return metrics.scrape(self.address if program in (None, self.frontend) else self.worker_metrics[program.pid])

    def running(self):
        """Requests that engines run now, as the frontend tells it; None if it has not heard of each engine."""
        seen = self.metrics().samples("weir_engine_running")
        alive = sum(count for worker, count in self.engines.items() if worker.child.poll() is None)
        return sum(seen.values()) if len(seen) >= alive else None

    def descriptors(self):
        """Open file descriptors by process id."""
        return {program.pid: proc.descriptors(program.pid) for program in [self.frontend, *self.workers]}

    def close(self):
        for program in reversed(self.programs):
            program.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
