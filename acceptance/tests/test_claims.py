"""The claims, at a size that every test run affords."""

from claims import client_gone, sdk, slow_reader, streams, worker_killed


def test_the_openai_sdk_gets_the_same_streamed_and_whole(figures):
    sdk.measure(figures)
    figures.must_hold()


def test_a_killed_worker_is_told_or_replaced(figures):
    worker_killed.measure(figures)
    figures.must_hold()


def test_a_thousand_clients_that_go_leave_nothing_behind(figures):
    client_gone.measure(figures, clients=1000)
    figures.must_hold()


def test_two_thousand_streams_share_few_sockets_and_no_tasks(figures):
    streams.measure(figures)
    figures.must_hold()


def test_one_reader_that_stops_delays_nobody(figures):
    slow_reader.measure(figures, stall_limit=2.0, tokens=200)
    figures.must_hold()
