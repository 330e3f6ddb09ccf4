//! `cargo xtask tidy`: the house rules that neither rustfmt nor clippy knows.
//!
//! Each rule is a function from the tree to findings and lives in a file of its own; CONTRIBUTING.md says why the
//! rules are there. Invariant: a finding names the file, the line where it has one, and what to do.

mod crates;
mod dependencies;
mod links;
mod size;
mod words;

use std::path::Path;

use anyhow::Result;

use crate::tree::{self, Source};

/// Something that breaks a rule, or comes near.
#[derive(Debug)]
struct Finding {
    place: String,
    what: String,
    fatal: bool,
}

impl Finding {
    fn error(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
            fatal: true,
        }
    }

    fn warning(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
            fatal: false,
        }
    }
}

/// True if no rule is broken.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let sources = tree::sources(root)?;
    let mut findings = crates::check(root)?;
    findings.extend(dependencies::check(&sources));
    findings.extend(size::check(&sources));
    findings.extend(words::check(&sources));
    findings.extend(links::check(&sources));
    for finding in &findings {
        let kind = if finding.fatal { "error" } else { "note" };
        println!("{kind}: {}: {}", finding.place, finding.what);
    }
    let errors = findings.iter().filter(|finding| finding.fatal).count();
    println!(
        "{} files, {errors} broken rules, {} notes",
        sources.len(),
        findings.len() - errors
    );
    Ok(errors == 0)
}

/// The lines of a text with their numbers, from 1.
fn numbered(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source
        .text
        .as_deref()
        .unwrap_or_default()
        .lines()
        .zip(1..)
        .map(|(line, number)| (number, line))
}
