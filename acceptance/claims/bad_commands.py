"""Command lines that cannot work: one line that says which value is wrong and what to do, and exit code 2."""

import contextlib
import pathlib
import socket
import subprocess
import tempfile

from drive.processes import WEIR


class Outcome:
    """How one command ended."""

    def __init__(self, args):
        done = subprocess.run(
            [WEIR, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )
        self.code = done.returncode
        self.out = done.stdout
        self.lines = [line for line in done.stderr.splitlines() if line.strip()]

    def faults(self, names):
        """What is wrong, given the word that the line must name."""
        if self.code != 2:
            yield f"exit code {self.code}"
        if len(self.lines) != 1:
            yield f"{len(self.lines)} lines: {self.lines}"
        elif names not in self.lines[0]:
            yield f"does not name {names}: {self.lines[0]}"
        if self.out:
            yield f"printed {self.out!r}"


@contextlib.contextmanager
def situations():
    """Commands by name, each with the word that its complaint must have in it."""
    with tempfile.TemporaryDirectory(prefix="weir-acceptance-") as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        here = pathlib.Path(folder)
        file, empty = here / "file", here / "empty"
        file.write_text("in the way")
        empty.write_text("")
        yield _situations(here / "run", f"127.0.0.1:{taken.getsockname()[1]}", file, empty)


def _situations(run, busy, file, empty):
    def frontend(*args):
        return ["frontend", "--run-dir", run, *args]

    def load(url, *args):
        given = {"--url": url, "--model": "m", "--concurrency": "1", "--requests": "1", "--isl": "1", "--osl": "1"}
        given |= dict(zip(args[::2], args[1::2]))
        return ["load", *(part for pair in given.items() for part in pair)]

    anywhere = ["--listen", "127.0.0.1:0"]
    return {
        "no such command": (["serve-me"], "serve-me"),
        "no such flag": (["up", "--no-such-flag"], "--no-such-flag"),
        "a value that is no number": (["up", "--processes", "many"], "many"),
        "no processes": (["up", "--processes", "0"], "processes"),
        "no workers": (["up", "--workers", "0"], "workers"),
        "an engine that is none": (["up", "--engine", "steam"], "steam"),
        "an address that is none": (frontend("--listen", "nonsense"), "nonsense"),
        "a time that is none": (frontend(*anywhere, "--first-token-timeout", "soon"), "soon"),
        "a negative time": (frontend(*anywhere, "--progress-timeout=-5s"), "-5s"),
        "frontend: port in use": (frontend("--listen", busy), busy),
        "up: port in use": (["up", "--listen", busy, "--run-dir", run], busy),
        "worker: metrics port in use": (["worker", "--run-dir", run, "--metrics-listen", busy], busy),
        "frontend: run directory is a file": (["frontend", *anywhere, "--run-dir", file], str(file)),
        "frontend: run directory below a file": (["frontend", *anywhere, "--run-dir", file / "run"], str(file)),
        "worker: run directory below a file": (["worker", "--run-dir", file / "run"], str(file)),
        "up: unwritable run directory": (["up", *anywhere, "--run-dir", "/proc/weir"], "/proc/weir"),
        "beyond loopback without a key": (frontend("--listen", "0.0.0.0:0"), "--api-key-file"),
        "a key file that is not there": (frontend(*anywhere, "--api-key-file", run / "none"), str(run / "none")),
        "an empty key file": (frontend(*anywhere, "--api-key-file", empty), str(empty)),
        "load: a URL that is none": (load("nonsense"), "nonsense"),
        "load: no requests": (load(f"http://{busy}", "--requests", "0"), "requests"),
        "load: no concurrency": (load(f"http://{busy}", "--concurrency", "0"), "concurrency"),
        "load: an output directory below a file": (load(f"http://{busy}", "--out", file / "out"), str(file)),
        "bench: an arm that is none": (["bench", "plane", "--arms", "steam", "--shapes", "single"], "steam"),
        "bench: a shape that is none": (["bench", "plane", "--arms", "weir", "--shapes", "round"], "round"),
        "bench: no reps": (["bench", "plane", "--arms", "weir", "--shapes", "single", "--reps", "0"], "reps"),
    }


def measure(figures):
    """Every situation; returns how many ended as they should, and how many there are."""
    right = 0
    with situations() as every:
        for name, (args, names) in every.items():
            outcome = Outcome(args)
            faults = list(outcome.faults(names))
            said = "; ".join(faults) or outcome.lines[0]
            figures.holds(name, not faults, f"exit {outcome.code}: {said}", "exit 2 and one line")
            right += not faults
    return right, len(every)
