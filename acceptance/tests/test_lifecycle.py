"""Starting, draining, stopping: no request is cut, no process is left."""

import os
import signal
import threading

import pytest

from claims.worker_killed import Stream
from drive import proc, raw, scripts
from drive.processes import Fleet
from drive.scripts import CHAT
from drive.up import Up
from drive.waiting import until


def background(exchange):
    """Reads a stream in a thread; `join` returns what it saw."""
    box = []
    thread = threading.Thread(target=lambda: box.append(Stream(exchange)), daemon=True)
    thread.start()

    def join():
        thread.join(30)
        assert box, "the stream did not end"
        return box[0]

    return join


def test_up_has_one_frontend_and_its_workers():
    with Up("--processes", "3", "--workers", "2", "--engine", "scripted") as up:
        below = proc.descendants(up.pid)
        print([proc.command(pid)[1:3] for pid in below])
        assert sum("worker" in proc.command(pid) for pid in below) == 3
        from drive import metrics

        until(lambda: len(metrics.scrape(up.address).samples("weir_engine_running")) == 6, "six workers")
        assert raw.get(up.address, "/health").status == 200
        assert raw.get(up.address, "/live").status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_drains_and_leaves_no_orphan(number):
    with Up("--engine", "scripted") as up:
        below = proc.descendants(up.pid)
        exchange = raw.Exchange(up.address, "POST", CHAT, scripts.chat(scripts.words(20, 50))).head()
        join = background(exchange)
        up.signal(number)
        seen = join()
        print(f"{len(seen.texts)} tokens, finishes {seen.finishes}, exit {up.wait()}, below: {below}")
        assert (len(seen.texts), seen.finishes, seen.dones, seen.errors) == (20, 1, 1, [])
        assert up.wait() == 0
        assert not [pid for pid in below if proc.alive(pid)]


def test_no_orphan_when_up_is_killed():
    with Up("--processes", "3", "--engine", "scripted") as up:
        below = proc.descendants(up.pid)
        assert len(below) >= 3
        up.signal(signal.SIGKILL)
        up.wait()
        _, took = until(lambda: not any(proc.alive(pid) for pid in below), "every process below is gone", deadline=10)
        print(f"{len(below)} processes gone after {took:.2f} s")


def test_a_second_signal_ends_at_once():
    with Up("--engine", "scripted") as up:
        below = proc.descendants(up.pid)
        exchange = raw.Exchange(up.address, "POST", CHAT, scripts.chat(scripts.words(1000, 100))).head()
        up.signal(signal.SIGTERM)
        until(lambda: _draining(up.address), "draining")
        up.signal(signal.SIGTERM)
        print(f"exit {up.wait(5)}")
        exchange.close()
        until(lambda: not any(proc.alive(pid) for pid in below), "every process below is gone", deadline=10)


def _draining(address):
    try:
        return raw.get(address, "/health").status == 503
    except ConnectionError:
        return True


def test_a_draining_frontend_finishes_what_it_has_and_takes_no_more():
    with Fleet() as fleet:
        fleet.start_workers(1)
        kept = raw.Exchange(fleet.address, "GET", "/live", headers={"connection": None})
        kept.body()
        join = background(raw.Exchange(fleet.address, "POST", CHAT, scripts.chat(scripts.words(20, 100))).head())
        fleet.frontend.signal(signal.SIGTERM)
        until(lambda: _draining(fleet.address), "draining")
        print("a new request:", _refused(fleet.address))
        seen = join()
        assert (len(seen.texts), seen.finishes, seen.dones) == (20, 1, 1)
        assert fleet.frontend.wait() == 0
        kept.close()
        assert fleet.workers[0].child.poll() is None, "the frontend's drain is not the workers'"


def _refused(address):
    """A new request while draining: 503 with Retry-After, or no connection at all."""
    try:
        answer = raw.post(address, CHAT, scripts.chat(scripts.words(1), stream=False))
    except ConnectionError as error:
        return str(error)
    assert answer.status == 503 and "retry-after" in answer.headers, answer.body
    return answer.status


def test_a_worker_that_is_told_to_stop_finishes_its_streams():
    with Fleet() as fleet:
        (worker,) = fleet.start_workers(1)
        join = background(raw.Exchange(fleet.address, "POST", CHAT, scripts.chat(scripts.words(20, 50))).head())
        worker.signal(signal.SIGTERM)
        seen = join()
        assert (len(seen.texts), seen.finishes, seen.dones) == (20, 1, 1)
        assert worker.wait() == 0


def test_a_stopped_worker_is_forgotten_and_a_new_one_is_found():
    with Fleet() as fleet:
        (worker,) = fleet.start_workers(1)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        until(lambda: raw.post(fleet.address, CHAT, scripts.chat(scripts.words(1), stream=False)).status == 503, "503")
        fleet.start_workers(1)
        assert raw.post(fleet.address, CHAT, scripts.chat(scripts.words(1), stream=False)).status == 200


def test_api_keys(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sesame\n")
    os.chmod(keys, 0o600)
    with Fleet("--api-key-file", str(keys)) as fleet:
        models = [
            raw.Exchange(fleet.address, "GET", "/v1/models", headers=headers).answer().status
            for headers in ({}, {"authorization": "Bearer open"}, {"authorization": "Bearer sesame"})
        ]
        print(models)
        assert models == [401, 401, 200]
        assert raw.post(fleet.address, CHAT, scripts.chat(scripts.words(1))).status == 401
        assert raw.get(fleet.address, "/live").status == 200
        assert raw.get(fleet.address, "/v1/models").json()["error"]["code"] == "invalid_api_key"
