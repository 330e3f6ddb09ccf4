"""Measures one claim at full size: `show.py NAME`. The last line is `name figure bar ok`, or ends in FAIL."""

import importlib
import sys
import traceback

from claims.figures import Figures

CLAIMS = {
    "sdk": "sdk",
    "worker-killed": "worker_killed",
    "client-gone": "client_gone",
    "streams-2048": "streams",
    "plane": "plane",
    "slow-reader": "slow_reader",
    "bad-input": "bad_input",
}


def main(name):
    figures = Figures(name)
    try:
        importlib.import_module(f"claims.{CLAIMS[name]}").measure(figures)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        figures.ok = False
    return 0 if figures.close() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
