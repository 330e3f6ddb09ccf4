"""HTTP/1.1 over a plain socket: every byte, its time, and the right to hang up at any point."""

import json
import socket
import struct
import time
import urllib.parse

DEADLINE = 30.0


def address(url):
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port


class Answer:
    """A whole response."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def json(self):
        return json.loads(self.body)


class Event:
    """One server-sent event and when its last byte was read."""

    def __init__(self, at, data):
        self.at = at
        self.data = data

    def json(self):
        return json.loads(self.data)


class Exchange:
    """One request on a connection of its own, and what comes back."""

    def __init__(self, addr, method, path, body=b"", headers=None, *, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(addr)
        self.buffer = b""
        self.status = None
        self.headers = {}
        self.socket.sendall(request(method, path, body, headers))

    def head(self):
        """Reads status line and headers."""
        if self.status is None:
            head = self._take_until(b"\r\n\r\n").decode("latin-1")
            first, *lines = head.split("\r\n")
            self.status = int(first.split()[1])
            self.headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines if line)}
        return self

    def body(self):
        """The rest of the body, whole."""
        self.head()
        if "content-length" in self.headers:
            return self._take(int(self.headers["content-length"]))
        if self.headers.get("transfer-encoding") == "chunked":
            return b"".join(chunk for chunk, _ in self._chunks())
        rest = self.buffer
        while more := self.socket.recv(65536):
            rest += more
        return rest

    def answer(self):
        body = self.body()
        self.close()
        return Answer(self.status, self.headers, body)

    def events(self):
        """Server-sent events as they come. Ends with the body, cleanly or not."""
        self.head()
        pending = b""
        for chunk, at in self._chunks():
            pending += chunk
            while b"\n\n" in pending:
                event, pending = pending.split(b"\n\n", 1)
                yield Event(at, event.removeprefix(b"data:").strip().decode())
        assert not pending, f"the body ended inside an event: {pending!r}"

    def _chunks(self):
        while True:
            size = int(self._take_until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                self._take_until(b"\r\n")
                return
            chunk = self._take(size)
            at = time.monotonic()
            self._take(2)
            yield chunk, at

    def _take(self, count):
        while len(self.buffer) < count:
            self._more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def _take_until(self, mark):
        while mark not in self.buffer:
            self._more()
        taken, self.buffer = self.buffer.split(mark, 1)
        return taken

    def _more(self):
        more = self.socket.recv(65536)
        if not more:
            raise ConnectionError(f"the server closed the connection; unread: {self.buffer[:200]!r}")
        self.buffer += more

    def close(self):
        self.socket.close()

    def reset(self):
        """Hangs up without a goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def request(method, path, body=b"", headers=None):
    """The bytes of a request."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    fields = {"host": "weir", "connection": "close"}
    if body:
        fields["content-type"] = "application/json"
    if body or method == "POST":
        fields["content-length"] = str(len(body))
    fields.update(headers or {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


def get(addr, path):
    return Exchange(addr, "GET", path).answer()


def get_json(addr, path):
    answer = get(addr, path)
    assert answer.status == 200, f"GET {path} answered {answer.status}: {answer.body[:200]!r}"
    return answer.json()


def post(addr, path, body, headers=None):
    return Exchange(addr, "POST", path, body, headers).answer()
