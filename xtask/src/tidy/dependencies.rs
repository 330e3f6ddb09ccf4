//! Every outside crate has its reason, written once, in the root manifest.
//!
//! Members only name what they use (`NAME.workspace = true`), so that version, features and reason stand in one place.
//! A manifest with a `[workspace]` is a root; `fuzz/` has one of its own.

use super::{Finding, numbered};
use crate::tree::Source;

/// Checks the manifests.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    sources
        .iter()
        .filter(|source| source.path.ends_with("Cargo.toml"))
        .flat_map(|source| {
            let root = numbered(source).any(|(_, line)| line == "[workspace]");
            entries(source)
                .filter_map(move |(number, section, line)| {
                    let what = if root {
                        root_rule(section, line)
                    } else {
                        member_rule(section, line)
                    }?;
                    Some(Finding::error(format!("{}:{number}", source.path), what))
                })
                .chain((!root && !has_lints(source)).then(|| {
                    Finding::error(
                        &source.path,
                        "does not take the workspace's lints: add `[lints] workspace = true`",
                    )
                }))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The entries of a manifest: line number, the section it stands in, the line.
fn entries(source: &Source) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut section = "";
    numbered(source).filter_map(move |(number, line)| {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
            return None;
        }
        (line.contains('=') && !line.starts_with('#')).then_some((number, section, line))
    })
}

fn root_rule(section: &str, line: &str) -> Option<String> {
    let unexplained =
        section == "[workspace.dependencies]" && !line.contains("path =") && !line.contains(" # ");
    unexplained.then(|| {
        format!(
            "`{}` has no reason: end its line with `# what it is for`",
            name(line)
        )
    })
}

fn member_rule(section: &str, line: &str) -> Option<String> {
    let dependency = section.trim_matches(['[', ']']).ends_with("dependencies");
    let own = dependency && !line.contains("workspace = true");
    own.then(|| {
        format!(
            "`{}` is not taken from the workspace: move its version to the root manifest",
            name(line)
        )
    })
}

fn has_lints(source: &Source) -> bool {
    entries(source).any(|(_, section, line)| section == "[lints]" && line == "workspace = true")
}

fn name(line: &str) -> &str {
    line.split(['=', '.']).next().unwrap_or(line).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(path: &str, text: &str) -> Vec<String> {
        let source = Source {
            path: path.to_owned(),
            text: Some(text.to_owned()),
        };
        check(&[source]).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let found = manifest(
            "Cargo.toml",
            "[workspace]\n[workspace.dependencies]\nfoo = \"1\" # parses\nbar = \"2\"\n",
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("`bar`"), "{found:?}");
    }

    #[test]
    fn a_member_with_a_version_of_its_own_is_found() {
        let lints = "[lints]\nworkspace = true\n";
        assert_eq!(
            manifest("x/Cargo.toml", &format!("{lints}[dependencies]\nfoo = \"1\"\n")).len(),
            1
        );
        assert!(
            manifest(
                "x/Cargo.toml",
                &format!("{lints}[dependencies]\nfoo.workspace = true\n")
            )
            .is_empty()
        );
        assert_eq!(
            manifest("x/Cargo.toml", "[dependencies]\nfoo.workspace = true\n").len(),
            1
        );
    }
}
