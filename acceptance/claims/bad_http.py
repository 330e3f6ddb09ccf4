"""Bad requests: each gets its status and a small JSON body, and the next good request is served."""

import json
import socket

from drive import raw, scripts

CHAT, COMPLETIONS = scripts.CHAT, scripts.COMPLETIONS
BODY_LIMIT = 4096
INVALID = "invalid_request_error"


class Case:
    """A bad request and the answers that are right for it."""

    def __init__(self, name, status, body=b"", *, path=CHAT, method="POST", headers=None, code=None, header=None):
        self.name = name
        self.status = status if isinstance(status, tuple) else (status,)
        self.body = body
        self.path = path
        self.method = method
        self.headers = headers
        self.code = code
        self.header = header

    def send(self, addr):
        return raw.Exchange(addr, self.method, self.path, self.body, self.headers).answer()

    def faults(self, answer):
        """What is wrong with an answer."""
        if answer.status not in self.status:
            yield f"status {answer.status}, not {self.status}: {answer.body[:200]!r}"
        if len(answer.body) >= BODY_LIMIT:
            yield f"a body of {len(answer.body)} bytes"
        if self.header and self.header not in answer.headers:
            yield f"no {self.header} header"
        if not answer.headers.get("content-type", "").startswith("application/json"):
            yield f"content type {answer.headers.get('content-type')}"
            return
        error = answer.json().get("error")
        if not isinstance(error, dict) or not error.get("message") or not error.get("type"):
            yield f"no error object: {answer.body[:200]!r}"
        elif self.code and self.code not in (error.get("code"), error["type"]):
            yield f"code {error.get('code')!r}, not {self.code!r}"


SCRIPT = {"weir_script": scripts.words(2)}


def _chat(**changes):
    body = {"model": scripts.MODEL, "messages": [{"role": "user", "content": "hi"}]} | SCRIPT | changes
    return {name: value for name, value in body.items() if value is not ...}


def _completion(**changes):
    body = {"model": scripts.MODEL, "prompt": "hi"} | SCRIPT | changes
    return {name: value for name, value in body.items() if value is not ...}


def _bad_chat(name, **changes):
    return Case(f"chat: {name}", 400, _chat(**changes), code=INVALID)


def _bad_completion(name, **changes):
    return Case(f"completion: {name}", 400, _completion(**changes), path=COMPLETIONS, code=INVALID)


def cases(context):
    """All of them. `context` is the model's context length in tokens, or more."""
    long = "word " * (2 * context)
    return [
        Case("malformed JSON", 400, b'{"model": "scripted", "messages": [', code=INVALID),
        Case("empty body", 400, b"", code=INVALID, headers={"content-type": "application/json"}),
        Case("JSON that is no object", 400, b"[1, 2]", code=INVALID),
        Case("a body that is not UTF-8", 400, b'{"model": "\xff\xfe"}', code=INVALID),
        Case("nested 100,000 deep", 400, b"[" * 100_000, code=INVALID),
        Case("NaN", 400, b'{"model": "scripted", "messages": [], "temperature": NaN}', code=INVALID),
        _bad_chat("no messages", messages=...),
        _bad_chat("empty messages", messages=[]),
        _bad_chat("messages of a wrong type", messages="hi"),
        _bad_chat("a message that is no object", messages=["hi"]),
        _bad_chat("content of a wrong type", messages=[{"role": "user", "content": 5}]),
        _bad_chat("null content", messages=[{"role": "user", "content": None}]),
        _bad_chat("role of a wrong type", messages=[{"role": 5, "content": "hi"}]),
        _bad_chat("no model", model=...),
        _bad_chat("model of a wrong type", model=5),
        _bad_chat("max_tokens 0", max_tokens=0),
        _bad_chat("max_tokens negative", max_tokens=-1),
        _bad_chat("max_tokens a fraction", max_tokens=1.5),
        _bad_chat("max_tokens a string", max_tokens="5"),
        _bad_chat("max_tokens 1e30", max_tokens=1e30),
        _bad_chat("max_tokens 2^64", max_tokens=2**64),
        _bad_chat("max_completion_tokens 0", max_completion_tokens=0),
        _bad_chat("n 0", n=0),
        _bad_chat("n negative", n=-3),
        _bad_chat("n a million", n=1_000_000),
        _bad_chat("temperature negative", temperature=-0.1),
        _bad_chat("temperature a string", temperature="hot"),
        _bad_chat("top_p above 1", top_p=1.5),
        _bad_chat("top_p negative", top_p=-0.5),
        _bad_chat("presence_penalty out of range", presence_penalty=9),
        _bad_chat("seed of a wrong type", seed="x"),
        _bad_chat("stream of a wrong type", stream="yes"),
        _bad_chat("stop of a wrong type", stop=7),
        _bad_chat("a stop that is no string", stop=["a", 7]),
        _bad_chat("script of a wrong type", weir_script="abc"),
        _bad_chat("script with odd hexadecimal", weir_script=[{"bytes_hex": "c"}]),
        _bad_chat("script with no hexadecimal", weir_script=[{"bytes_hex": "zz"}]),
        _bad_chat("fault of an unknown kind", weir_fault={"at": 0, "kind": "explode"}),
        _bad_chat("fault at a negative token", weir_fault={"at": -1, "kind": "die"}),
        _bad_completion("no prompt", prompt=...),
        _bad_completion("empty prompt", prompt=""),
        _bad_completion("empty prompt list", prompt=[]),
        _bad_completion("prompt of a wrong type", prompt={"a": 1}),
        _bad_completion("max_tokens a string", max_tokens="many"),
        Case("chat: over the context", 400, _chat(messages=[{"role": "user", "content": long}]), code="context_length_exceeded"),
        Case("completion: over the context", 400, _completion(prompt=long), path=COMPLETIONS, code="context_length_exceeded"),
        Case("prompt and max_tokens over the context", 400, _chat(max_tokens=context), code="context_length_exceeded"),
        Case("unknown model", 404, _chat(model="no-such-model"), code="model_not_found"),
        Case("a model name of 1 MiB", 404, _chat(model="m" * (1 << 20)), code="model_not_found"),
        Case("unknown path", 404, method="GET", path="/v1/nothing"),
        Case("wrong method", 405, method="GET", path=CHAT, header="allow"),
        Case("wrong method on models", 405, _chat(), path="/v1/models", header="allow"),
        Case("a form instead of JSON", (400, 415), b"model=scripted", headers={"content-type": "application/x-www-form-urlencoded"}),
    ]


def oversized(addr, chunked):
    """Offers 33 MiB, as a client does that looks for an answer while it sends."""
    size = 33 << 20
    fields = {"content-length": None, "transfer-encoding": "chunked"} if chunked else {"content-length": str(size)}
    exchange = raw.Exchange(addr, "POST", CHAT, b"", {"content-type": "application/json", **fields})
    piece = b"a" * (1 << 16)
    piece = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
    try:
        for _ in range(size >> 16):
            if _has_answer(exchange.socket):
                break
            exchange.socket.sendall(piece)
    except ConnectionError:
        pass
    return exchange.answer()


OVERSIZED = Case("33 MiB", 413)


def _has_answer(connection):
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


#: Bytes that are no HTTP request: the server may answer 400 or close, and serves on.
NOT_HTTP = {
    "noise": bytes(range(256)),
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
    "a line without end": b"GET /" + b"a" * 200_000,
    "a thousand headers": b"GET /live HTTP/1.1\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
    "two lengths": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
    "a negative length": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n{}",
}


def not_http(addr, data):
    """The status line that came back for these bytes, or b'' if the connection was closed."""
    with socket.create_connection(addr, timeout=5) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(4096).split(b"\r\n")[0]
        except ConnectionError:
            return b""


def next_is_served(addr):
    """True if a good request still gets its answer."""
    answer = raw.post(addr, CHAT, scripts.chat(scripts.words(2), stream=False))
    return answer.status == 200 and answer.json()["choices"][0]["message"]["content"] == " t0 t1"


def measure(figures, fleet, context):
    """Every case; returns how many were answered as they should be, and how many there are."""
    right = 0
    every = cases(context)
    for case in every:
        right += _judge(figures, fleet, case, case.send(fleet.address))
    for chunked in (False, True):
        right += _judge(figures, fleet, OVERSIZED, oversized(fleet.address, chunked))
    for name, data in NOT_HTTP.items():
        line = not_http(fleet.address, data)
        ok = (not line or b" 4" in line) and next_is_served(fleet.address)
        figures.holds(name, ok, line.decode("latin-1")[:60] or "closed", "4xx or closed, then served")
        right += ok
    return right, len(every) + 2 + len(NOT_HTTP)


def _judge(figures, fleet, case, answer):
    faults = list(case.faults(answer))
    if not next_is_served(fleet.address):
        faults.append("the next request was not served")
    message = json.loads(answer.body)["error"]["message"][:60] if not faults else "; ".join(faults)
    figures.holds(case.name, not faults, f"{answer.status} {message}", "/".join(map(str, case.status)))
    return not faults
