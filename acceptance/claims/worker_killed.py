"""A worker process that dies: after five tokens the client is told; before the first another worker answers."""

import time

from drive import raw, scripts
from drive.processes import Fleet
from drive.waiting import until

TOKENS = 20
WITHIN = 1.0


def measure(figures):
    with Fleet() as fleet:
        fleet.start_workers(2)
        _mid_stream(figures, fleet)
        fleet.start_workers(2)
        _before_the_first(figures, fleet, stream=True)
        fleet.start_workers(1)
        _before_the_first(figures, fleet, stream=False)
        fleet.start_workers(1)
        _unstreamed(figures, fleet)


def _mid_stream(figures, fleet):
    body = scripts.chat(scripts.words(TOKENS, 20), fault=(5, "die"))
    seen = Stream(raw.Exchange(fleet.address, "POST", scripts.CHAT, body))
    _until_dead(fleet, 1)
    figures.equal("tokens before the error", seen.texts, [f" t{index}" for index in range(5)])
    figures.equal("error events", len(seen.errors), 1)
    figures.equal("clean finishes", seen.finishes + seen.dones, 0)
    late = seen.errors[0][0] - seen.last_token_at if seen.errors else float("inf")
    figures.at_most("token 5 to the error event", round(late, 4), WITHIN, "s", headline=True)
    if seen.errors:
        figures.note(f"the error event: {seen.errors[0][1]}")


def _before_the_first(figures, fleet, stream):
    body = scripts.chat(scripts.words(TOKENS, 2), fault=(0, "die"), stream=stream)
    wanted = "".join(f" t{index}" for index in range(TOKENS))
    dead = _dead(fleet)
    if stream:
        seen = Stream(raw.Exchange(fleet.address, "POST", scripts.CHAT, body))
        figures.equal("died at 0, streamed: tokens from another worker", len(seen.texts), TOKENS)
        figures.equal("died at 0, streamed: text", "".join(seen.texts), wanted)
        figures.equal("died at 0, streamed: finishes and [DONE]s", (seen.finishes, seen.dones), (1, 1))
    else:
        answer = raw.post(fleet.address, scripts.CHAT, body)
        text = answer.json()["choices"][0]["message"]["content"] if answer.status == 200 else answer.body
        figures.equal("died at 0, unstreamed: status", answer.status, 200)
        figures.equal("died at 0, unstreamed: text", text, wanted)
    _until_dead(fleet, dead + 1)


def _unstreamed(figures, fleet):
    started = time.monotonic()
    body = scripts.chat(scripts.words(TOKENS, 20), fault=(5, "die"), stream=False)
    answer = raw.post(fleet.address, scripts.CHAT, body)
    took = time.monotonic() - started
    figures.holds("died at 5, unstreamed: status", answer.status in (502, 503), answer.status, "502 or 503")
    figures.at_most("died at 5, unstreamed: answered after", round(took, 3), 0.1 + WITHIN, "s")
    figures.holds("died at 5, unstreamed: error in the body", "error" in answer.json(), answer.body[:200], "error")


class Stream:
    """A chat stream read to its end, whatever that is."""

    def __init__(self, exchange):
        self.texts, self.errors, self.finishes, self.dones = [], [], 0, 0
        self.last_token_at = None
        self.cut = False
        try:
            for event in exchange.events():
                self._take(event)
        except ConnectionError:
            self.cut = True
        exchange.close()

    def _take(self, event):
        if event.data == "[DONE]":
            self.dones += 1
            return
        data = event.json()
        if "error" in data:
            self.errors.append((event.at, data["error"]))
        for choice in data.get("choices", []):
            if text := choice["delta"].get("content"):
                self.texts.append(text)
                self.last_token_at = event.at
            self.finishes += choice["finish_reason"] is not None


def _dead(fleet):
    return sum(1 for worker in fleet.workers if worker.child.poll() is not None)


def _until_dead(fleet, count):
    until(lambda: _dead(fleet) == count, f"{count} dead workers")
