"""What a stream looks like on the wire, and that it is the same answer as the whole one."""

import json

import pytest

from drive import raw, scripts
from drive.scripts import CHAT, COMPLETIONS


def stream(fleet, body, path=CHAT):
    """All events of a stream, parsed, with `[DONE]` as it is."""
    exchange = raw.Exchange(fleet.address, "POST", path, body | {"stream": True})
    events = [event.data if event.data == "[DONE]" else event.json() for event in exchange.events()]
    exchange.close()
    print(f"status {exchange.status}, {len(events)} events, last {events[-2:]}")
    assert exchange.status == 200
    return events


def text(events):
    pieces = [choice for event in events if event != "[DONE]" for choice in event["choices"]]
    return "".join(piece["delta"].get("content", "") if "delta" in piece else piece["text"] for piece in pieces)


def finishes(events):
    reasons = [choice["finish_reason"] for event in events if event != "[DONE]" for choice in event["choices"]]
    return [reason for reason in reasons if reason is not None]


def whole(fleet, body, path=CHAT):
    answer = raw.post(fleet.address, path, body | {"stream": False})
    assert answer.status == 200, answer.body
    choice = answer.json()["choices"][0]
    return choice["message"]["content"] if path == CHAT else choice["text"], choice["finish_reason"], answer.json()["usage"]


def completion(script, **more):
    body = scripts.chat(script, prompt="go", **more)
    del body["messages"]
    return body


SCRIPTS = {
    "plain": scripts.words(20, 1),
    "a character over two tokens": [scripts.step(b"caf\xc3"), scripts.step(b"\xa9!")],
    "a character over four tokens": [scripts.step(bytes([byte])) for byte in "🌊".encode()] + scripts.words(1),
    "a character that never ends": [scripts.step("ok"), scripts.step(b"\xf0\x9f")],
    "bytes that are no text": [scripts.step(b"a\xffb"), scripts.step("c")],
    "line separators": [scripts.step("a\u2028b\u0085c\r\nd")],
    "one token": scripts.words(1),
}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("name", SCRIPTS)
def test_streamed_and_whole_are_equal(fleet, name, path):
    body = scripts.chat(SCRIPTS[name]) if path == CHAT else completion(SCRIPTS[name])
    events = stream(fleet, body | {"stream_options": {"include_usage": True}}, path)
    wanted, reason, usage = whole(fleet, body, path)
    assert text(events) == wanted
    assert wanted == b"".join(bytes.fromhex(step["bytes_hex"]) for step in SCRIPTS[name]).decode(errors="replace")
    assert finishes(events) == [reason] == ["stop"]
    assert usage["completion_tokens"] == len(SCRIPTS[name])
    assert events[-1] == "[DONE]" and events.count("[DONE]") == 1
    assert events[-2]["choices"] == [] and events[-2]["usage"] == usage


def test_one_event_a_token_and_the_role_with_the_first(fleet):
    events = stream(fleet, scripts.chat(scripts.words(20)))
    contents = [choice for event in events[:-1] for choice in event["choices"] if choice["delta"].get("content")]
    assert [choice["delta"]["content"] for choice in contents] == [f" t{index}" for index in range(20)]
    roles = [choice["delta"]["role"] for event in events[:-1] for choice in event["choices"] if "role" in choice["delta"]]
    assert roles == ["assistant"] and contents[0]["delta"]["role"] == "assistant"
    assert not any(event.get("usage") for event in events[:-1]), "usage was not asked for"
    for field in ("id", "created", "model"):
        assert len({event[field] for event in events[:-1]}) == 1, field


def test_tokens_arrive_as_they_are_made(fleet):
    exchange = raw.Exchange(fleet.address, "POST", CHAT, scripts.chat(scripts.words(10, 50)))
    stamps = [event.at for event in exchange.events()]
    gaps = [b - a for a, b in zip(stamps[:9], stamps[1:10])]
    print(f"gaps in ms: {[round(gap * 1000) for gap in gaps]}")
    assert sum(gaps) > 0.4, "ten tokens of 50 ms came in one go"


def test_stream_headers(fleet):
    exchange = raw.Exchange(fleet.address, "POST", CHAT, scripts.chat(scripts.words(1))).head()
    exchange.close()
    print(exchange.headers)
    assert exchange.headers["content-type"].startswith("text/event-stream")
    assert exchange.headers["cache-control"] == "no-cache"
    assert exchange.headers["x-accel-buffering"] == "no"


def test_line_separators_are_escaped(fleet):
    answer = raw.post(fleet.address, CHAT, scripts.chat([scripts.step("a\u2028b\u2029c\u0085d\re\nf")]))
    body = answer.body.decode()
    print(repr(body[:300]))
    for separator in ("\u2028", "\u2029", "\u0085", "\r"):
        assert separator not in body


STOPS = {
    "inside a token": (["ab", "cSTOPd"], "STOP", "abc"),
    "over two tokens": (["abS", "TOPd"], "STOP", "ab"),
    "over three tokens": (["a", "S", "TO", "P", "d"], "STOP", "a"),
    "a start that comes to nothing": (["aST", "x", "ST"], "STOP", "aSTxST"),
    "a start after a start": (["aS", "STO", "Pb"], "STOP", "aS"),
    "at once": (["STOP", "x"], "STOP", ""),
    "the first of two": (["one END", " two STOP"], ["STOP", "END"], "one "),
    "one character of several bytes": ([b"a\xc3", b"\xa9b"], "é", "a"),
}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("name", STOPS)
def test_stop_strings(fleet, name, path):
    pieces, stop, wanted = STOPS[name]
    script = [scripts.step(piece, 1) for piece in pieces] + scripts.words(0)
    body = scripts.chat(script, stop=stop) if path == CHAT else completion(script, stop=stop)
    events = stream(fleet, body, path)
    got, reason, _ = whole(fleet, body, path)
    print(f"streamed {text(events)!r}, whole {got!r}")
    assert text(events) == got == wanted
    assert finishes(events) == [reason] == ["stop"]
    assert events[-1] == "[DONE]"


def test_max_tokens_ends_with_length_both_ways(fleet):
    body = scripts.chat(scripts.words(20), max_tokens=3)
    events = stream(fleet, body)
    got, reason, usage = whole(fleet, body)
    assert text(events) == got == " t0 t1 t2"
    assert finishes(events) == [reason] == ["length"]
    assert usage["completion_tokens"] == 3


def test_a_stop_string_ends_the_work_of_the_worker(fleet):
    script = [scripts.step("STOP")] + scripts.words(2000, 50)
    events = stream(fleet, scripts.chat(script, stop="STOP"))
    assert finishes(events) == ["stop"]
    from drive.waiting import until

    _, took = until(lambda: fleet.running() == 0, "the engine stops", deadline=5)
    print(f"idle after {took:.3f} s")
    assert took < 0.5


def test_ids_differ_between_requests(fleet):
    ids = {raw.post(fleet.address, CHAT, scripts.chat(scripts.words(1), stream=False)).json()["id"] for _ in range(50)}
    assert len(ids) == 50


def test_a_request_id_is_echoed(fleet):
    answer = raw.post(fleet.address, CHAT, scripts.chat(scripts.words(1), stream=False), {"x-request-id": "abc-123"})
    print(answer.headers)
    assert answer.headers.get("x-request-id") == "abc-123"


def test_a_connection_serves_one_request_after_the_other(fleet):
    body = scripts.chat(scripts.words(3), stream=False)
    exchange = raw.Exchange(fleet.address, "POST", CHAT, body, {"connection": None})
    first = exchange.body()
    exchange.status, exchange.headers = None, {}
    exchange.socket.sendall(raw.request("POST", CHAT, body, {"connection": None}))
    second = exchange.body()
    exchange.close()
    assert json.loads(first)["choices"] == json.loads(second)["choices"]
