"""Engines that hang, fail or refuse, and the limits that bound them."""

import time

import pytest

from claims.worker_killed import Stream
from drive import raw, scripts
from drive.processes import Fleet
from drive.scripts import CHAT
from drive.waiting import until


@pytest.fixture(scope="module")
def impatient():
    """A fleet whose frontend waits one second for anything."""
    with Fleet("--first-token-timeout", "1s", "--progress-timeout", "1s") as fleet:
        fleet.start_workers(2, "scripted", 1)
        yield fleet


def timed(fleet, body):
    started = time.monotonic()
    answer = raw.post(fleet.address, CHAT, body)
    return answer, time.monotonic() - started


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_before_the_first_token_is_504(impatient, stream):
    answer, took = timed(impatient, scripts.chat(scripts.words(5), fault=(0, "hang"), stream=stream))
    print(f"{answer.status} after {took:.2f} s: {answer.body}")
    assert answer.status == 504
    assert answer.json()["error"]["type"] == "timeout" or answer.json()["error"]["code"] == "timeout"
    assert 0.9 <= took < 4
    until(lambda: impatient.running() == 0, "the hung request is cancelled", deadline=5)


def test_a_hang_mid_stream_is_an_error_event(impatient):
    seen = Stream(raw.Exchange(impatient.address, "POST", CHAT, scripts.chat(scripts.words(5), fault=(3, "hang"))))
    late = seen.errors[0][0] - seen.last_token_at
    print(f"tokens {seen.texts}, error after {late:.2f} s: {seen.errors}")
    assert seen.texts == [" t0", " t1", " t2"]
    assert (len(seen.errors), seen.finishes, seen.dones) == (1, 0, 0)
    assert 0.9 <= late < 4
    until(lambda: impatient.running() == 0, "the hung request is cancelled", deadline=5)


def test_a_slow_engine_within_the_limits_is_left_alone(impatient):
    seen = Stream(raw.Exchange(impatient.address, "POST", CHAT, scripts.chat(scripts.words(4, 600))))
    assert (len(seen.texts), seen.finishes, seen.dones, seen.errors) == (4, 1, 1, [])


def test_an_error_mid_stream_is_an_error_event(fleet):
    seen = Stream(raw.Exchange(fleet.address, "POST", CHAT, scripts.chat(scripts.words(5), fault=(2, "error"))))
    print(seen.texts, seen.errors)
    assert seen.texts == [" t0", " t1"]
    assert (len(seen.errors), seen.finishes, seen.dones) == (1, 0, 0)
    assert seen.errors[0][1]["message"]


def test_an_error_mid_answer_is_a_status_when_unstreamed(fleet):
    answer, _ = timed(fleet, scripts.chat(scripts.words(5), fault=(2, "error"), stream=False))
    print(answer.status, answer.body)
    assert answer.status in (500, 502, 503)
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_moves_on_to_another_worker(fleet, stream):
    answer, _ = timed(fleet, scripts.chat(scripts.words(5), fault=(0, "refuse"), stream=stream))
    print(answer.status, answer.body[:200])
    assert answer.status == 200
    assert b" t4" in answer.body


def test_the_only_worker_dies_before_the_first_token(tmp_path):
    with Fleet() as fleet:
        fleet.start_workers(1)
        answer, took = timed(fleet, scripts.chat(scripts.words(5), fault=(0, "die"), stream=False))
        print(f"{answer.status} after {took:.2f} s: {answer.body}")
        assert answer.status in (502, 503)
        again, _ = timed(fleet, scripts.chat(scripts.words(5), stream=False))
        print(f"then {again.status}: {again.body}")
        assert again.status == 503 and "retry-after" in again.headers
        fleet.start_workers(1)
        served, _ = timed(fleet, scripts.chat(scripts.words(5), stream=False))
        assert served.status == 200
