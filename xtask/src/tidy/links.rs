//! Links in Markdown lead somewhere.
//!
//! Only links inside the tree are checked: to a file or folder, and to a heading of a Markdown file. What lies behind
//! `http` is not ours to keep.

use std::collections::BTreeMap;

use super::{Finding, numbered};
use crate::tree::Source;

/// Checks every Markdown file.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let by_path: BTreeMap<&str, &Source> = sources
        .iter()
        .map(|source| (source.path.as_str(), source))
        .collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
        for (number, line) in numbered(source) {
            for target in targets(line).filter(|target| !leads_somewhere(source, target, &by_path)) {
                findings.push(Finding::error(
                    format!("{}:{number}", source.path),
                    format!("the link to `{target}` leads nowhere"),
                ));
            }
        }
    }
    findings
}

/// What `](...)` holds, outside code spans.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn leads_somewhere(from: &Source, target: &str, by_path: &BTreeMap<&str, &Source>) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() {
        from.path.clone()
    } else {
        resolve(&from.path, file)
    };
    let folder = format!("{path}/");
    let Some(found) = by_path.get(path.as_str()) else {
        return heading.is_empty() && by_path.keys().any(|known| known.starts_with(&folder));
    };
    heading.is_empty() || numbered(found).any(|(_, line)| line.starts_with('#') && slug(line) == heading)
}

/// `file`, as written in `from`, as a path below the root.
fn resolve(from: &str, file: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => _ = parts.pop(),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchor that Markdown viewers give a heading.
fn slug(heading: &str) -> String {
    let kept = heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.to_owned(),
            text: Some(text.to_owned()),
        }
    }

    #[test]
    fn only_links_that_lead_nowhere_are_found() {
        let tree = [
            source(
                "README.md",
                "[a](docs/a.md) [b](docs/a.md#two-words) [c](docs/) [d](https://x.example/)\n",
            ),
            source(
                "docs/a.md",
                "# A\n## Two `words`\n[up](../README.md) [here](#a)\n",
            ),
        ];
        assert!(check(&tree).is_empty(), "{:?}", check(&tree));
        let broken = [source("README.md", "[a](docs/b.md) [b](#none)\n")];
        assert_eq!(check(&broken).len(), 2);
    }
}
