"""Bytes on the plane's port that are no plane: that connection ends, the process and everyone else go on."""

import contextlib
import glob
import json
import socket

from claims.bad_http import next_is_served
from drive import raw
from drive.waiting import TooLate, until

NOISE = {
    "noise": bytes(range(256)) * 16,
    "nothing": b"",
    "zeros": b"\0" * 4096,
    "the largest length": b"\xff" * 64,
    "an HTTP request": b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "one byte": b"\x01",
}


def plane_addresses(fleet):
    """Where the workers' nodes listen, as they registered it."""
    found = []
    for path in glob.glob(f"{fleet.run_dir}/**/*.json", recursive=True):
        with open(path) as file:
            registration = json.load(file)
        if isinstance(registration, dict) and "addr" in registration:
            found.append(raw.address(f"tcp://{registration['addr']}"))
    return found


def measure(figures, fleet):
    """Sends each kind of noise to each worker's node; returns how many were survived, and how many there are."""
    addresses = plane_addresses(fleet)
    figures.at_least("nodes found in the run directory", len(addresses), len(fleet.workers))
    right = 0
    before = _malformed(fleet)
    connections = {name: [_say(address, data) for address in addresses] for name, data in NOISE.items()}
    for name, said in connections.items():
        ended = [_is_ended(connection) for connection in said]
        alive = all(program.child.poll() is None for program in fleet.programs)
        ok = all(ended) and bool(ended) and alive and next_is_served(fleet.address)
        figures.holds(f"plane: {name}", ok, f"ended {ended}, alive {alive}", "ended, alive, served")
        right += ok
    try:
        until(lambda: _malformed(fleet) > before, "a metric that counts them", deadline=5)
    except TooLate:
        pass
    counted = _malformed(fleet)
    figures.holds("plane: counted", counted > before, f"{before:g} then {counted:g}", "more than before")
    return right + (counted > before), len(NOISE) + 1


def _say(address, data):
    connection = socket.create_connection(address, timeout=20)
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)
    return connection


def _is_ended(connection):
    """True if the node closes a connection on which nothing more is said."""
    with connection, contextlib.suppress(ConnectionError):
        try:
            while connection.recv(4096):
                pass
        except TimeoutError:
            return False
    return True


def _malformed(fleet):
    """All that workers count of malformed frames and failed handshakes."""
    counted = 0.0
    for worker in fleet.workers:
        for (name, _), value in fleet.metrics(worker).values.items():
            if "malformed" in name or "handshake" in name:
                counted += value
    return counted
