//! Which crate may depend on which.
//!
//! The table is the architecture: nothing points up, and the protocol core knows neither runtime nor clock. A crate
//! that is not in the table has no place yet.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Finding;
use crate::process;

/// What one crate may depend on.
struct Row {
    name: &'static str,
    /// Crates of this workspace; `dev` ones only in tests.
    ours: &'static [&'static str],
    dev: &'static [&'static str],
    /// All other crates, where that is fixed.
    others: Option<&'static [&'static str]>,
}

const fn row(name: &'static str, ours: &'static [&'static str]) -> Row {
    Row {
        name,
        ours,
        dev: &[],
        others: None,
    }
}

const TABLE: [Row; 10] = [
    Row {
        others: Some(&["bytes", "slab", "thiserror"]),
        ..row("weir-proto", &[])
    },
    row("weir-net", &["weir-proto"]),
    row("weir-journal", &[]),
    row("weir-engine", &[]),
    row("weir-model", &["weir-engine"]),
    row("weir-serve", &["weir-net", "weir-engine"]),
    row(
        "weir-bench",
        &[
            "weir-net",
            "weir-journal",
            "weir-engine",
            "weir-model",
            "weir-serve",
        ],
    ),
    row(
        "weir-cli",
        &[
            "weir-net",
            "weir-journal",
            "weir-engine",
            "weir-model",
            "weir-serve",
            "weir-bench",
        ],
    ),
    row("weir-sim", &["weir-proto"]),
    row("xtask", &[]),
];

/// Checks every crate of the workspace against the table.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let metadata = metadata(root)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let place = format!("crates/{name}/Cargo.toml");
        let Some(row) = TABLE.iter().find(|row| row.name == name) else {
            findings.push(Finding::error(
                place,
                "not in the crate table of xtask/src/tidy/crates.rs: give it its row",
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            findings.extend(judge(row, dependency, &names).map(|what| Finding::error(&place, what)));
        }
    }
    Ok(findings)
}

fn metadata(root: &Path) -> Result<Value> {
    let output = process::cargo(root, &["metadata", "--format-version", "1", "--no-deps"]).output()?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

fn judge(row: &Row, dependency: &Value, workspace: &BTreeSet<&str>) -> Option<String> {
    let name = dependency["name"].as_str()?;
    let dev = dependency["kind"].as_str() == Some("dev");
    if workspace.contains(name) {
        let allowed = row.ours.contains(&name) || (dev && row.dev.contains(&name));
        return (!allowed).then(|| format!("{} may not depend on {name}", row.name));
    }
    let others = row.others.filter(|others| !dev && !others.contains(&name))?;
    Some(format!(
        "{} depends on {name}; only {} are allowed here",
        row.name,
        others.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let workspace = BTreeSet::from(["weir-proto", "weir-net"]);
        let up = json!({"name": "weir-net", "kind": null});
        assert!(judge(&TABLE[0], &up, &workspace).is_some());
        let down = json!({"name": "weir-proto", "kind": null});
        assert!(judge(&TABLE[1], &down, &workspace).is_none());
    }

    #[test]
    fn the_protocol_core_takes_no_runtime_but_its_tests_may() {
        let workspace = BTreeSet::new();
        assert!(judge(&TABLE[0], &json!({"name": "tokio", "kind": null}), &workspace).is_some());
        assert!(judge(&TABLE[0], &json!({"name": "proptest", "kind": "dev"}), &workspace).is_none());
    }
}
