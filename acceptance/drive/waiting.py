"""Waiting for a condition, never for a time.

A wait ends as soon as its condition holds; the deadline only decides when to call it a failure.
"""

import time

POLL = 0.005


class TooLate(AssertionError):
    """A condition did not come true before its deadline."""


def until(condition, what, deadline=10.0):
    """The first true value of `condition()`, and the seconds it took."""
    started = time.monotonic()
    while True:
        value = condition()
        took = time.monotonic() - started
        if value:
            return value, took
        if took > deadline:
            raise TooLate(f"not within {deadline} s: {what}; last seen: {value!r}")
        time.sleep(POLL)
