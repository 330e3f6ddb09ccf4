"""Bad input, case by case."""

import pytest

from claims import bad_commands, bad_frames, bad_http, bad_input
from drive.processes import Fleet

NAMES = [case.name for case in bad_http.cases(4096)]


@pytest.fixture(scope="module")
def context(fleet):
    return bad_input.context_length(fleet)


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_request(fleet, context, name):
    case = next(case for case in bad_http.cases(context) if case.name == name)
    answer = case.send(fleet.address)
    print(answer.status, answer.body[:300])
    assert not list(case.faults(answer))
    assert bad_http.next_is_served(fleet.address)


@pytest.mark.parametrize("chunked", [False, True])
def test_33_mib(fleet, chunked):
    answer = bad_http.oversized(fleet.address, chunked)
    print(answer.status, answer.body[:300])
    assert not list(bad_http.OVERSIZED.faults(answer))
    assert bad_http.next_is_served(fleet.address)


@pytest.mark.parametrize("name", bad_http.NOT_HTTP)
def test_bytes_that_are_no_http(fleet, name):
    line = bad_http.not_http(fleet.address, bad_http.NOT_HTTP[name])
    print(line or "closed")
    assert not line or b" 4" in line
    assert bad_http.next_is_served(fleet.address)


def test_noise_on_the_plane(fleet, figures):
    right, every = bad_frames.measure(figures, fleet)
    assert figures.ok and right == every, figures.failed


def test_no_workers(figures):
    with Fleet() as fleet:
        assert bad_input.no_workers(figures, fleet), figures.failed


def test_command_lines(figures):
    right, every = bad_commands.measure(figures)
    assert right == every, figures.failed
