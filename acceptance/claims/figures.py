"""Figures with their bars."""


class Figures:
    """What one claim measured. Prints each figure as it comes; `close` prints the claim's own line."""

    def __init__(self, name):
        self.name = name
        self.ok = True
        self.head = None
        self.worst = None
        self.failed = []

    def note(self, text):
        """Something seen that has no bar."""
        print(f"  {self.name}: {text}", flush=True)

    def holds(self, what, ok, figure, bar, *, headline=False):
        """One figure, its bar, and whether it holds."""
        figure, bar = str(figure).replace(" ", "_"), str(bar).replace(" ", "_")
        self.note(f"{what}: {figure} (bar {bar}) {'ok' if ok else 'FAIL'}")
        if not ok:
            self.ok = False
            self.failed.append(f"{what}: {figure}, bar {bar}")
            self.worst = self.worst or (f"{what.replace(' ', '_')}:{figure}", bar)
        if headline:
            self.head = (figure, bar)

    def at_most(self, what, value, limit, unit="", **more):
        self.holds(what, value <= limit, _with_unit(value, unit), f"<={_with_unit(limit, unit)}", **more)

    def at_least(self, what, value, limit, unit="", **more):
        self.holds(what, value >= limit, _with_unit(value, unit), f">={_with_unit(limit, unit)}", **more)

    def equal(self, what, value, wanted, unit="", **more):
        self.holds(what, value == wanted, _with_unit(value, unit), f"={_with_unit(wanted, unit)}", **more)

    def close(self):
        """Prints `name figure bar ok`, or the first figure that missed its bar and FAIL. True if everything held."""
        figure, bar = self.worst or self.head or ("none", "measured")
        ok = self.ok and self.head is not None
        print(f"{self.name} {figure} {bar} {'ok' if ok else 'FAIL'}", flush=True)
        return ok

    def must_hold(self):
        """For tests: fails with every figure that missed its bar."""
        assert self.head is not None, f"{self.name} measured nothing"
        assert self.ok, f"{self.name}: " + "; ".join(self.failed)


def _with_unit(value, unit):
    if isinstance(value, float):
        value = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value}{unit}"


def percentile(values, part):
    """The value that `part` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def median(values):
    return percentile(values, 0.5)
