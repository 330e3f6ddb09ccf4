"""The plane beside the published `velo` crate: arms interleaved in one run, judged by the median of per-rep ratios."""

import json
import pathlib
import subprocess
import tempfile

from claims.figures import median
from drive.processes import WEIR

PACED = ("paced-512", "paced-1024")
FLAT = "flat-2048"
SHAPES = (*PACED, FLAT, "single")
CPU = ("frontend_cpu_us_per_record", "worker_cpu_us_per_record")
#: A ratio of two noisy medians is "not above" up to here.
NOT_ABOVE = 1.10


def measure(figures, reps=3):
    rows = _run(reps)
    ratios = lambda shape, column: _ratios(rows, shape, column)
    worst = 0.0
    for shape in PACED:
        for column in CPU:
            ratio = median(ratios(shape, column))
            worst = max(worst, ratio)
            figures.at_most(f"{shape} {column} to velo", round(ratio, 3), 0.5, "x")
    figures.at_least(f"{FLAT} records_per_s to velo", round(median(ratios(FLAT, "records_per_s")), 2), 2.0, "x")
    for shape in SHAPES:
        figures.at_most(f"{shape} ttft_ms_p50 to velo", round(median(ratios(shape, "ttft_ms_p50")), 3), NOT_ABOVE, "x")
    figures.equal("errors in all rows", sum(row["errors"] for row in rows), 0)
    for shape in SHAPES:
        for column in (*CPU, "records_per_s", "ttft_ms_p50"):
            figures.note(f"{shape} {column}: " + ", ".join(_medians(rows, shape, column)))
    figures.at_most("worst paced CPU ratio to velo", round(worst, 3), 0.5, "x", headline=True)


def _run(reps):
    with tempfile.TemporaryDirectory(prefix="weir-acceptance-") as folder:
        rows = pathlib.Path(folder, "rows.json")
        args = ["bench", "plane", "--arms", "weir,floor,velo", "--shapes", ",".join(SHAPES), "--reps", str(reps)]
        subprocess.run([WEIR, *args, "--json", rows], stdin=subprocess.DEVNULL, check=True, timeout=1800)
        return _rows(rows.read_text())


def _rows(text):
    """A JSON array of rows, or one row a line."""
    return json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]


def _column(rows, arm, shape, column):
    return {row["rep"]: row[column] for row in rows if (row["arm"], row["shape"]) == (arm, shape)}


def _ratios(rows, shape, column):
    weir, velo = (_column(rows, arm, shape, column) for arm in ("weir", "velo"))
    assert weir.keys() == velo.keys() and weir, f"no {shape} rows for both arms"
    return [weir[rep] / velo[rep] for rep in weir]


def _medians(rows, shape, column):
    for arm in ("weir", "floor", "velo"):
        yield f"{arm} {median(_column(rows, arm, shape, column).values()):.4g}"
