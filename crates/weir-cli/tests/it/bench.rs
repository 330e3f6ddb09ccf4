//! `weir bench plane` with real processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn two_arms_give_a_row_each_and_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("rows.json");
    let path = json.to_str().unwrap();
    let args = [
        "--arms",
        "weir/tcp,floor",
        "--shapes",
        "single",
        "--reps",
        "1",
        "--no-pin",
        "--json",
        path,
    ];
    let output = weir(&[["bench", "plane"].as_slice(), &args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("ratio to floor"),
        "{}",
        text(&output.stdout)
    );

    let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let mut arms: Vec<&str> = rows.iter().map(|row| row["arm"].as_str().unwrap()).collect();
    arms.sort_unstable();
    assert_eq!(arms, ["floor", "weir"]);
    for row in &rows {
        let fields: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = [
            "arm",
            "shape",
            "rep",
            "frontend_cpu_us_per_record",
            "worker_cpu_us_per_record",
            "records_per_s",
            "ttft_ms_p50",
            "ttft_ms_p99",
            "gap_ms_p50",
            "gap_ms_p99",
            "records_per_batch",
            "errors",
            "rss_mib",
        ];
        expected.sort_unstable();
        let mut sorted = fields;
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!(
            (&row["shape"], &row["rep"], &row["errors"]),
            (&"single".into(), &0.into(), &0.into())
        );
        assert!(
            row["records_per_s"].as_f64().unwrap() > 0.0 && row["records_per_batch"].is_number(),
            "{row}"
        );
    }
}

#[test]
fn what_cannot_be_measured_is_named_before_anything_starts() {
    let refused = |args: &[&str]| {
        let output = weir(&[["bench", "plane"].as_slice(), args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        text(&output.stderr).to_owned()
    };
    assert!(refused(&["--arms", "pigeon"]).contains("pigeon"));
    assert!(refused(&["--shapes", "round"]).contains("flat-2048"));
    assert!(refused(&["--reps", "0"]).contains("--reps"));
    assert!(refused(&["--frontend-core", "1000"]).contains("core 1000"));
    assert!(refused(&["--no-pin", "--json", "/nowhere/rows.json"]).contains("/nowhere/rows.json"));
}
