"""Clients that hang up, in each phase, many at once: the workers stop and nothing is left behind."""

import time

from drive import raw, scripts
from drive.processes import Fleet
from drive.waiting import TooLate, until

WITHIN = 0.5


def measure(figures, clients=1000):
    with Fleet() as fleet:
        fleet.start_workers(2, "scripted", 2)
        _warm(fleet)
        base = State(fleet)
        figures.note(f"base: {base}")
        worst = 0.0
        for phase in (before_the_first_token, mid_stream, unstreamed):
            share = -(-clients // 3)
            late = phase(fleet, share)
            figures.at_most(f"{share} clients gone {phase.__name__.replace('_', ' ')}: idle after", late, WITHIN, "s")
            worst = max(worst, late)
        _back_at_base(figures, fleet, base)
        answer = raw.post(fleet.address, scripts.CHAT, scripts.chat(scripts.words(3), stream=False))
        figures.equal("the next request", answer.status, 200)
        figures.at_most("slowest return to idle", worst, WITHIN, "s", headline=True)


def before_the_first_token(fleet, clients):
    return _leave(fleet, clients, scripts.chat([scripts.step("late", 60_000)]))


def mid_stream(fleet, clients):
    return _leave(fleet, clients, scripts.chat(scripts.words(2000, 50)), read=True)


def unstreamed(fleet, clients):
    return _leave(fleet, clients, scripts.chat(scripts.words(2000, 50), stream=False))


def _leave(fleet, clients, body, read=False):
    """Seconds from the last hang-up until no engine runs anything."""
    exchanges = [raw.Exchange(fleet.address, "POST", scripts.CHAT, body) for _ in range(clients)]
    if read:
        for exchange in exchanges:
            next(exchange.events())
    until(lambda: fleet.running() == clients, f"{clients} requests run", deadline=30)
    for index, exchange in enumerate(exchanges):
        if index % 2:
            exchange.reset()
        else:
            exchange.close()
    started = time.monotonic()
    until(lambda: fleet.running() == 0, "weir_engine_running is 0", deadline=10)
    return round(time.monotonic() - started, 4)


class State:
    """Every gauge, the tasks and the descriptors of all processes."""

    def __init__(self, fleet):
        self.gauges = fleet.metrics().gauges()
        self.workers = [fleet.metrics(worker).gauges() for worker in fleet.workers]
        self.descriptors = list(fleet.descriptors().values())

    def __eq__(self, other):
        return not self.differences(other)

    def differences(self, other):
        """What is not as in `other`."""
        pairs = [("frontend", self.gauges, other.gauges)]
        pairs += [(f"worker {i}", a, b) for i, (a, b) in enumerate(zip(self.workers, other.workers))]
        found = [f"{who} {name} {a.get(name)} not {b.get(name)}" for who, a, b in pairs for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]
        if self.descriptors != other.descriptors:
            found.append(f"descriptors {self.descriptors} not {other.descriptors}")
        return found

    def __str__(self):
        tasks = self.gauges.get("weir_runtime_tasks")
        return f"{len(self.gauges)} gauges of the frontend, {tasks} tasks, descriptors {self.descriptors}"


def _warm(fleet):
    """A few finished requests, so that whatever is made once is there."""
    for stream in (True, False) * 4:
        raw.post(fleet.address, scripts.CHAT, scripts.chat(scripts.words(3), stream=stream))


def _back_at_base(figures, fleet, base):
    for needed in ("weir_live_slots", "weir_runtime_tasks"):
        figures.holds(f"{needed} is exported", needed in base.gauges, base.gauges.get(needed, "no"), "a gauge")
    try:
        _, took = until(lambda: State(fleet) == base, "every gauge, task and descriptor back at its base", deadline=5)
        figures.holds("gauges, tasks, descriptors off their base", True, f"0 after {took:.2f} s", "0")
    except TooLate:
        for difference in State(fleet).differences(base):
            figures.holds("back at base", False, difference, "base")
