"""`weir load` and `weir bench plane`: what they write is what scripts read."""

import json
import subprocess

import pytest

from drive import scripts
from drive.processes import WEIR, Fleet
from drive.waiting import until

ROW = {
    "arm", "shape", "rep", "frontend_cpu_us_per_record", "worker_cpu_us_per_record", "records_per_s", "ttft_ms_p50",
    "ttft_ms_p99", "gap_ms_p50", "gap_ms_p99", "records_per_batch", "errors", "rss_mib",
}  # fmt: skip


def run(*args, timeout=120):
    done = subprocess.run([WEIR, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    print(done.stdout[-2000:], done.stderr[-2000:])
    return done


@pytest.fixture(scope="module")
def mock():
    with Fleet() as fleet:
        fleet.start_workers(1, "mock", 2)
        yield fleet


def load(fleet, out, *args):
    model = next(name for name in fleet.models() if name != scripts.MODEL)
    return run("load", "--url", fleet.url, "--model", model, "--isl", 12, "--osl", 7, "--out", out, "--json", out / "s.json", *args)


def test_load_counts_every_request_and_token(mock, tmp_path):
    done = load(mock, tmp_path, "--concurrency", 8, "--requests", 40)
    assert done.returncode == 0
    summary = json.loads((tmp_path / "s.json").read_text())
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    print(json.dumps(summary, indent=1)[:1500])
    requests = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert summary["requests"]["completed"] == len(requests) == 40
    assert summary["state"] == "complete"
    assert all(record["tokens"] == 7 for record in requests)


def test_load_ends_when_nobody_answers(tmp_path):
    with Fleet() as fleet:
        url = fleet.url
    args = ["--url", url, "--model", "m", "--concurrency", 2, "--requests", 4, "--isl", 4, "--osl", 4]
    done = run("load", *args, "--out", tmp_path)
    assert done.returncode == 0, "failed requests are figures, not a failure of the command"
    counted = json.loads((tmp_path / "summary.json").read_text())["requests"]
    assert (counted["completed"], counted["failed"]) == (0, 4)


def test_load_can_be_interrupted(tmp_path):
    with Fleet() as fleet:
        fleet.start_workers(1, "mock")
        model = next(name for name in fleet.models() if name != scripts.MODEL)
        args = ["load", "--url", fleet.url, "--model", model, "--concurrency", "4", "--requests", "100000"]
        child = subprocess.Popen([WEIR, *args, "--isl", "8", "--osl", "8", "--out", tmp_path], stdin=subprocess.DEVNULL)
        records = tmp_path / "requests.jsonl"
        until(lambda: records.exists() and records.read_text().count("\n") > 10, "requests are recorded as they end")
        child.send_signal(2)
        assert child.wait(20) == 1
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["state"] == "aborted"
    assert summary["requests"]["recorded"] > 10


def test_bench_plane_writes_its_rows(tmp_path):
    done = run("bench", "plane", "--arms", "weir,floor", "--shapes", "single", "--reps", 1, "--json", tmp_path / "rows.json")
    assert done.returncode == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["arm"] for row in rows] and {row["arm"] for row in rows} == {"weir", "floor"}
    for row in rows:
        assert ROW <= row.keys(), ROW - row.keys()
        assert row["errors"] == 0 and row["records_per_s"] > 0
