"""Many streams over few sockets: no error, no task per stream in the plane, no thread that load makes."""

import json
import time

from claims.figures import median
from drive import proc, raw
from drive.processes import Fleet, Program
from drive.waiting import TooLate, until

PROCESSES, WORKERS = 4, 16
SOCKETS = 8
#: The scrape's own connection and the acceptor may come and go while a sample is taken.
SLACK = 8


def measure(figures, concurrency=2048, requests=10_240, tokens=100):
    with Fleet() as fleet:
        fleet.start_workers(PROCESSES, "mock", WORKERS)
        model = next(name for name in fleet.models() if name != "scripted")
        _load(fleet, model, 64, 256, 4).wait(60)
        base, samples, summary = _under_load(fleet, model, concurrency, requests, tokens)
        _judge_samples(figures, base, samples, concurrency)
        figures.equal("requests that ended well", summary["completed"], requests)
        figures.note(f"failures by class: {summary['failures']}")
        figures.equal("errors", summary["failed"] + summary["missing"], 0, "_errors", headline=True)
        _settles(figures, fleet, base)


def _load(fleet, model, concurrency, requests, tokens):
    out = fleet.dir / f"load-{concurrency}-{requests}"
    args = ["load", "--url", fleet.url, "--model", model, "--concurrency", concurrency, "--requests", requests]
    load = Program([*args, "--isl", 16, "--osl", tokens, "--out", out, "--json", fleet.dir / "load.json"], f"{out}.log")
    fleet.programs.append(load)
    return load


def _under_load(fleet, model, concurrency, requests, tokens):
    until(lambda: fleet.running() == 0, "no request runs")
    base = Sample(fleet)
    load = _load(fleet, model, concurrency, requests, tokens)
    samples = []
    while load.child.poll() is None:
        samples.append(Sample(fleet))
        assert len(samples) < 20_000, "the load never ends"
        time.sleep(0.02)
    with open(fleet.dir / "load.json") as summary:
        return base, samples, _outcome(json.load(summary), load)


def _outcome(summary, load):
    assert load.child.returncode == 0, f"weir load exited {load.child.returncode}:\n{load.logged()}"
    return summary["requests"]


class Sample:
    """One look at frontend and workers."""

    def __init__(self, fleet):
        metrics = fleet.metrics()
        pids = [worker.pid for worker in fleet.workers]
        self.slots = metrics.total("weir_live_slots")
        self.tasks = metrics.total("weir_runtime_tasks")
        self.connections = metrics.total("weir_connections_open")
        self.worker_tasks = [fleet.metrics(worker).total("weir_runtime_tasks") for worker in fleet.workers]
        self.threads = [proc.threads(pid) for pid in [fleet.frontend.pid, *pids]]
        self.sockets = proc.sockets_between([fleet.frontend.pid], pids)


def _judge_samples(figures, base, samples, concurrency):
    peak = max(sample.slots for sample in samples)
    figures.at_least("live slots at the peak", int(peak), concurrency)
    figures.at_most("sockets between frontend and workers", max(sample.sockets for sample in samples), SOCKETS)
    figures.at_least("sockets seen", min(sample.sockets for sample in samples), 2)
    threads = {tuple(sample.threads) for sample in [base, *samples]}
    figures.equal("thread counts over all samples", len(threads), 1)
    figures.note(f"threads of frontend and workers: {sorted(threads)}")
    more = [sample.tasks - base.tasks - (sample.connections - base.connections) for sample in samples]
    figures.at_most("frontend tasks beyond base and one per connection, median", int(median(more)), SLACK)
    figures.note(f"frontend tasks beyond base and one per connection, most: {int(max(more))}")
    # A request is a task of its worker process only while its call is handled, so the median of all looks counts.
    more = [max(now - before for now, before in zip(sample.worker_tasks, base.worker_tasks)) for sample in samples]
    figures.at_most("worker tasks beyond base, median", int(median(more)), SLACK)
    figures.note(f"worker tasks beyond base, most: {int(max(more))}")


def _settles(figures, fleet, base):
    try:
        until(lambda: fleet.metrics().total("weir_runtime_tasks") == base.tasks, "tasks at base", deadline=10)
    except TooLate:
        pass
    figures.equal("tasks after all streams", fleet.metrics().total("weir_runtime_tasks"), base.tasks)
    figures.equal("live slots after all streams", fleet.metrics().total("weir_live_slots"), 0.0)
    raw.get_json(fleet.address, "/v1/models")
