"""One of a hundred clients stops reading: nobody else notices, memory stays flat, it is closed at the stall limit."""

import selectors
import threading
import time

from claims.figures import percentile
from drive import proc, raw, scripts
from drive.processes import Fleet

STREAMS = 100
PACE_MS = 20
#: More than the kernel's buffers hold, so that the stopped stream truly stops: JSON makes six bytes of each of these.
HEAVY = [scripts.step("\x01" * 64)] * 16_000
GROWTH_MIB = 3.0


def measure(figures, stall_limit=3.0, tokens=300):
    with Fleet("--stall-limit", f"{int(stall_limit * 1000)}ms") as fleet:
        fleet.start_workers(2, "scripted", 2)
        without, _ = _watch(fleet, STREAMS - 1, tokens)
        stalled = _stall(fleet)
        stopped_at = time.monotonic()
        beside, watch = _watch(fleet, STREAMS - 1, tokens, stopped_at)
        _judge(figures, without, beside, watch, stall_limit)
        _judge_end(figures, stalled)


def _judge(figures, without, beside, watch, stall_limit):
    alone, now = (percentile(gaps, 0.99) * 1000 for gaps in (without, beside))
    figures.note(f"p99 gap of {STREAMS - 1} streams: {alone:.1f} ms without, {now:.1f} ms beside the stopped one")
    figures.at_most("p99 gap, ratio", round(now / alone, 3), 2.0, "x", headline=True)
    grown = max(watch.resident) - watch.resident[0]
    figures.at_most("frontend memory, growth", round(grown, 2), GROWTH_MIB, "MiB")
    ended = watch.ended_after
    figures.holds(
        "the stopped one ended after",
        ended is not None and stall_limit * 0.9 <= ended <= stall_limit + 1.5,
        f"{ended:.2f}s" if ended is not None else "never",
        f"{stall_limit:g}s_to_{stall_limit + 1.5:g}s",
    )


def _stall(fleet):
    """Starts a stream with more to say than fits anywhere, reads its first event, and stops."""
    exchange = raw.Exchange(fleet.address, "POST", scripts.CHAT, scripts.chat(HEAVY), receive_buffer=4096)
    next(exchange.events())
    return exchange


def _judge_end(figures, exchange):
    """What the stopped client finds when it reads on."""
    rest = exchange.buffer
    try:
        while more := exchange.socket.recv(1 << 20):
            rest += more
    except ConnectionError:
        pass
    exchange.close()
    figures.holds("the stopped one's answer", b"[DONE]" not in rest, f"{len(rest)} bytes, no [DONE]", "no [DONE]")


class Watch(threading.Thread):
    """Looks at the frontend's memory and at the number of running requests while others read."""

    def __init__(self, fleet, others, stopped_at):
        super().__init__(daemon=True)
        self.fleet, self.others, self.stopped_at = fleet, others, stopped_at
        self.done = threading.Event()
        self.resident, self.ended_after = [], None
        self.all_ran = False

    def run(self):
        while not self.done.wait(0.1):
            self.resident.append(proc.resident_mib(self.fleet.frontend.pid))
            running = self.fleet.running()
            if running is None:
                continue
            self.all_ran |= running > self.others
            if self.all_ran and self.ended_after is None and running <= self.others:
                self.ended_after = time.monotonic() - self.stopped_at


def _watch(fleet, streams, tokens, stopped_at=None):
    """Gaps between events of `streams` paced streams, in seconds, and the watch beside them."""
    body = scripts.chat(scripts.words(tokens, PACE_MS))
    exchanges = [raw.Exchange(fleet.address, "POST", scripts.CHAT, body) for _ in range(streams)]
    watch = Watch(fleet, streams, stopped_at)
    watch.start()
    gaps, cut = _read_all(exchanges)
    watch.done.set()
    watch.join()
    assert not cut, f"{cut} of {streams} streams were cut"
    wanted = streams * (tokens - 1)
    assert len(gaps) >= wanted, f"{len(gaps)} gaps of {wanted}"
    return gaps, watch


def _read_all(exchanges):
    gaps, cut = [], 0
    last, tail = {}, {}
    with selectors.DefaultSelector() as selector:
        for exchange in exchanges:
            selector.register(exchange.socket, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(30) or _nothing():
                data = key.fileobj.recv(1 << 16)
                now = time.monotonic()
                if not data:
                    cut += b"[DONE]" not in tail[key.fd]
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    continue
                tail[key.fd] = (tail.get(key.fd, b"") + data)[-64:]
                for _ in range(data.count(b'"content":')):
                    if key.fd in last:
                        gaps.append(now - last[key.fd])
                    last[key.fd] = now
    return gaps, cut


def _nothing():
    raise AssertionError("no stream sent anything for 30 s")
