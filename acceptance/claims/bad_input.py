"""Everything that people and peers get wrong: over HTTP, on the plane's port, and on the command line."""

import time

from claims import bad_commands, bad_frames, bad_http
from drive import raw, scripts
from drive.processes import Fleet


def measure(figures, context=None):
    right, every = 0, 0
    with Fleet() as fleet:
        ok = no_workers(figures, fleet)
        fleet.start_workers(2)
        for one_right, one_every in (
            (int(ok), 1),
            bad_http.measure(figures, fleet, context or context_length(fleet)),
            bad_frames.measure(figures, fleet),
            bad_commands.measure(figures),
        ):
            right += one_right
            every += one_every
        figures.holds("everything alive", all(p.child.poll() is None for p in fleet.programs), "alive", "alive")
    figures.holds("bad inputs answered as they should be", right == every, f"{right}_of_{every}", f"{every}_of_{every}", headline=True)


def no_workers(figures, fleet):
    """A frontend that has no worker says so at once and says when to come back."""
    started = time.monotonic()
    answer = raw.post(fleet.address, scripts.CHAT, scripts.chat(scripts.words(2), stream=False))
    took = time.monotonic() - started
    ok = answer.status == 503 and "retry-after" in answer.headers and answer.json()["error"]["message"] != ""
    figures.holds("no workers", ok, f"{answer.status} in {took:.2f} s, {answer.body[:100]!r}", "503 with Retry-After")
    return ok


def context_length(fleet):
    """The scripted model's context length, from the message that refuses a prompt which no model takes."""
    body = scripts.chat(scripts.words(1), stream=False, max_tokens=(1 << 31) - 1)
    message = raw.post(fleet.address, scripts.CHAT, body).json()["error"]["message"]
    numbers = [int("".join(filter(str.isdigit, word))) for word in message.split() if any(map(str.isdigit, word))]
    plausible = [number for number in numbers if 256 <= number < (1 << 24)]
    assert plausible, f"no context length in: {message}"
    return min(plausible)
