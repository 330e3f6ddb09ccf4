"""Clients that hang up, in each phase, many at once: the workers stop and nothing is left behind."""

import time

from drive import proc, raw, scripts
from drive.processes import Fleet
from drive.waiting import TooLate, until

WITHIN = 0.5
#: Deadlines of what has ended leave with their next look, a minute later at most; looking often would only add to them.
LAZY, LAZIEST = 1.5, 75.0
#: What may be less than it was: an idle thread of the runtime's pool ends by itself, a deadline leaves with its look.
MAY_SHRINK = ("_threads", "_deadline_entries")


def measure(figures, clients=1000):
    with Fleet() as fleet:
        fleet.start_workers(2, "scripted", 2)
        base = _warm(fleet)
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
    return _leave(fleet, clients, scripts.chat(scripts.words(200, 100)), read=True)


def unstreamed(fleet, clients):
    return _leave(fleet, clients, scripts.chat(scripts.words(200, 100), stream=False))


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
        programs = [("frontend", fleet.frontend)]
        programs += [(f"worker-{index}", worker) for index, worker in enumerate(fleet.workers)]
        # Before the scrapes, which are connections of their own.
        self.counts = {f"{name} descriptors": proc.descriptors(program.pid) for name, program in programs}
        for name, program in programs:
            for gauge, value in fleet.metrics(program).gauges().items():
                self.counts[f"{name} {gauge}"] = value

    def __eq__(self, other):
        return not list(self.differences(other))

    def differences(self, other):
        """What is not as in `other`."""
        for name in sorted(self.counts.keys() | other.counts.keys()):
            now, then = self.counts.get(name), other.counts.get(name)
            shrunk = name.endswith(MAY_SHRINK) and now is not None and then is not None and now < then
            if now != then and not shrunk:
                yield f"{name} {now} not {then}"

    def __str__(self):
        seen = " ".join(f"{name}={value:g}" for name, value in self.counts.items() if value)
        return f"{len(self.counts)} counts, not zero: {seen}"


def _warm(fleet):
    """The state after a few finished requests, so that whatever is made once is there and nothing else is."""
    for stream in (True, False) * 4:
        raw.post(fleet.address, scripts.CHAT, scripts.chat(scripts.words(3), stream=stream))
    looks = [State(fleet)]

    def lasts():
        looks.append(State(fleet))
        return looks[-1] == looks[-2] and looks[-1]

    return until(lasts, "a state that lasts", poll=LAZY)[0]


def _back_at_base(figures, fleet, base):
    for needed in ("weir_live_slots", "weir_runtime_tasks"):
        figures.holds(f"{needed} is exported", f"frontend {needed}" in base.counts, "yes", "yes")
    try:
        until(lambda: State(fleet) == base, "every gauge, task and descriptor back at its base", LAZIEST, LAZY)
        figures.holds("gauges, tasks, descriptors off their base", True, "0", "0")
    except TooLate:
        for difference in State(fleet).differences(base):
            figures.holds("back at base", False, difference, "base")
