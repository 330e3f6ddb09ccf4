"""Prometheus text, as /metrics gives it."""

import re

from . import raw

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})?\s+(\S+)")


class Metrics:
    """One scrape."""

    def __init__(self, text):
        self.text = text
        self.types = {}
        self.values = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.removeprefix("# TYPE ").split()[:2]
                self.types[name] = kind
            elif match := _SAMPLE.match(line):
                name, labels, value = match.groups()
                self.values[(name, labels or "")] = float(value)

    def samples(self, name):
        """Values of one metric by their labels."""
        return {labels: value for (known, labels), value in self.values.items() if known == name}

    def total(self, name):
        """The sum over all labels; a metric that is not there is a failure."""
        found = self.samples(name)
        assert found, f"/metrics has no {name}"
        return sum(found.values())

    def gauges(self):
        """Every gauge that counts something, summed over its labels: what must return to its base."""
        counted = {}
        for (name, _), value in self.values.items():
            if self.types.get(name) == "gauge" and not name.endswith(("_seconds", "_bytes", "_ratio", "_info")):
                counted[name] = counted.get(name, 0.0) + value
        return counted


def scrape(address):
    """The metrics of the process that serves them at `address`."""
    answer = raw.get(address, "/metrics")
    assert answer.status == 200, f"/metrics answered {answer.status}"
    return Metrics(answer.body.decode())
