//! Words that have no place in the tree.
//!
//! Paths of the machine it was written on, hosts of a registry, names that say nothing, and code that says it is not
//! finished. The words are put together here so that this file is not its own first finding.

use super::{Finding, numbered};
use crate::tree::Source;

/// Checks every text file but the lock file, which names the registry by its nature.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let machine = machine_words();
    let unfinished = unfinished_words();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path != "Cargo.lock") {
        findings.extend(vague_file(&source.path));
        let rust = source.path.ends_with(".rs");
        for (number, line) in numbered(source) {
            let place = || format!("{}:{number}", source.path);
            if let Some(word) = machine.iter().find(|word| line.contains(word.as_str())) {
                findings.push(Finding::error(
                    place(),
                    format!("`{word}` is true on one machine only"),
                ));
            }
            if let Some(word) = unfinished
                .iter()
                .find(|word| rust && line.contains(word.as_str()))
            {
                findings.push(Finding::error(
                    place(),
                    format!("`{word}`: finish it or take it out"),
                ));
            }
            if let Some(name) = declared(line).filter(|name| rust && is_vague(name)) {
                findings.push(Finding::error(
                    place(),
                    format!("`{name}` says nothing: name what it does"),
                ));
            }
        }
    }
    findings
}

fn machine_words() -> [String; 6] {
    let joined = |parts: [&str; 2]| parts.concat();
    [
        joined(["../", "shared"]),
        joined(["/wo", "rk/"]),
        joined(["/tmp", "/wt"]),
        joined(["/home", "/"]),
        joined(["index.crates", ".io"]),
        joined(["artifact", "ory"]),
    ]
}

fn unfinished_words() -> [String; 3] {
    [
        ["todo", "!("].concat(),
        ["unimplemented", "!("].concat(),
        ["#[ign", "ore]"].concat(),
    ]
}

fn vague_file(path: &str) -> Option<Finding> {
    let stem = path.rsplit('/').next()?.strip_suffix(".rs")?;
    let vague = ["common", "types", "utils", "util", "helpers", "misc"].contains(&stem);
    vague.then(|| Finding::error(path, "the file's name says nothing: name its one idea"))
}

/// The name that a line declares, if it declares one.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    words.find(|word| ["struct", "enum", "trait"].contains(word))?;
    words
        .next()
        .map(|name| name.split(['<', '(', '{', ':', ';']).next().unwrap_or(name))
}

fn is_vague(name: &str) -> bool {
    let named = name.chars().next().is_some_and(char::is_uppercase);
    named
        && ["Manager", "Helper", "Util", "Utils"]
            .iter()
            .any(|word| name.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&[Source {
            path: path.to_owned(),
            text: Some(text.to_owned()),
        }])
        .len()
    }

    #[test]
    fn machine_paths_unfinished_code_and_vague_names_are_found() {
        assert_eq!(found("a.md", &format!("see {}\n", machine_words()[0])), 1);
        assert_eq!(found("a.rs", &format!("    {})\n", unfinished_words()[0])), 1);
        assert_eq!(found("a.rs", &["pub(crate) struct Link", "Manager<T> {\n"].concat()), 1);
        assert_eq!(found("src/utils.rs", "fn a() {}\n"), 1);
    }

    #[test]
    fn plain_text_is_left_alone() {
        assert_eq!(found("a.rs", "/// A manager of nothing.\npub struct Link;\n"), 0);
    }
}
