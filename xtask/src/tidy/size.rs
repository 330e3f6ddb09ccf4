//! Files stay small, and code outweighs comment.
//!
//! A unit-test module at the end of a file does not count, nor does a file below a `tests` folder. A file of a few
//! lines, such as a `lib.rs` that only names its modules, may be mostly its own description.

use super::Finding;
use crate::tree::Source;

const SHORT: usize = 40;
const LONG: usize = 400;
const TOO_LONG: usize = 600;

/// Checks every Rust file.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    sources
        .iter()
        .filter(|source| source.path.ends_with(".rs") && !source.path.contains("/tests/"))
        .filter_map(|source| Some((source, shape(source.text.as_deref()?))))
        .flat_map(|(source, shape)| judge(&source.path, shape))
        .collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Shape {
    lines: usize,
    code: usize,
    comment: usize,
}

/// Counts the lines before the unit-test module.
fn shape(text: &str) -> Shape {
    let mut shape = Shape {
        lines: 0,
        code: 0,
        comment: 0,
    };
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let test_module = line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.starts_with("mod "));
        if test_module && lines.peek().is_some_and(|next| next.ends_with('{')) {
            break;
        }
        shape.lines += 1;
        match line.trim_start() {
            "" => {}
            line if line.starts_with("//") => shape.comment += 1,
            _ => shape.code += 1,
        }
    }
    shape
}

fn judge(path: &str, shape: Shape) -> Vec<Finding> {
    let Shape { lines, code, comment } = shape;
    let mut findings = Vec::new();
    if lines > TOO_LONG {
        findings.push(Finding::error(
            path,
            format!("{lines} lines, over {TOO_LONG}: split it by idea"),
        ));
    } else if lines > LONG {
        findings.push(Finding::warning(path, format!("{lines} lines: is it one idea?")));
    }
    if lines > SHORT && comment > code {
        findings.push(Finding::error(
            path,
            format!("{comment} lines of comment for {code} of code: move the argument to docs/"),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_do_not_count() {
        let text = "//! What.\n\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert_eq!(
            shape(text),
            Shape {
                lines: 4,
                code: 1,
                comment: 1
            }
        );
    }

    #[test]
    fn a_long_file_and_a_wordy_one_are_found() {
        assert!(
            judge(
                "a.rs",
                Shape {
                    lines: 601,
                    code: 601,
                    comment: 0
                }
            )[0]
            .fatal
        );
        assert!(
            !judge(
                "a.rs",
                Shape {
                    lines: 401,
                    code: 401,
                    comment: 0
                }
            )[0]
            .fatal
        );
        assert!(
            judge(
                "a.rs",
                Shape {
                    lines: 9,
                    code: 4,
                    comment: 5
                }
            )[0]
            .fatal
        );
    }
}
