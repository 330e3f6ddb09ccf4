"""Fixtures, and the closing line that says how many tests passed and failed."""

import os

import pytest

from claims.figures import Figures
from drive.processes import WEIR, Fleet

_counted = {"passed": 0, "failed": 0}


def pytest_sessionstart():
    if not os.access(WEIR, os.X_OK):
        pytest.exit(f"there is no {WEIR}: run `cargo xtask test`, or build it and set WEIR_BIN", returncode=2)


@pytest.fixture
def figures(request):
    """Figures named after the test; they must hold when it ends."""
    return Figures(request.node.name)


@pytest.fixture(scope="module")
def fleet():
    """A frontend and two processes of two scripted workers each, for all tests of a module."""
    with Fleet() as fleet:
        fleet.start_workers(2, "scripted", 2)
        yield fleet


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome == "failed":
        _counted["passed" if report.outcome == "passed" else "failed"] += 1


def pytest_unconfigure():
    print(f"{_counted['passed']} passed, {_counted['failed']} failed", flush=True)
