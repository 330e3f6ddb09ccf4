//! Splits text into words, inside which tokens are merged and across which they never are.
//!
//! A word is a run of letters, of up to three digits, of punctuation or of white space; a single space joins the
//! word after it. Bytes over 127 count as letters. Invariant: words are at most [`MAX_WORD`] bytes and concatenate
//! to the text, so merging costs a bounded time per byte whatever the input.

/// Longest word and therefore longest token, in bytes.
pub const MAX_WORD: usize = 32;

const MAX_DIGITS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Space,
    Mark,
}

fn class(byte: u8) -> Class {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => Class::Letter,
        b'0'..=b'9' => Class::Digit,
        b' ' | b'\t' | b'\r' | b'\n' => Class::Space,
        _ => Class::Mark,
    }
}

/// The words of `text`, in order.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (word, after) = rest.split_at_checked(word_len(rest))?;
        rest = after;
        (!word.is_empty()).then_some(word)
    })
}

fn word_len(text: &[u8]) -> usize {
    let lead = usize::from(
        text.first() == Some(&b' ') && text.get(1).is_some_and(|next| class(*next) != Class::Space),
    );
    let body = text.get(lead..).unwrap_or_default();
    let Some(kind) = body.first().copied().map(class) else {
        return lead;
    };
    let longest = if kind == Class::Digit {
        MAX_DIGITS
    } else {
        MAX_WORD - lead
    };
    // One more than fits tells whether the run is cut; scanning further would make long runs quadratic.
    let run = body
        .iter()
        .take(longest + 1)
        .take_while(|byte| class(**byte) == kind)
        .count();
    let len = run.min(longest);
    if kind == Class::Space {
        // The last space of a run belongs to the word after it.
        let joins = len == run && len > 1 && body.get(len - 1) == Some(&b' ') && len < body.len();
        return lead + len - usize::from(joins);
    }
    lead + if len < run {
        character_boundary(body, len)
    } else {
        len
    }
}

/// The last character boundary at or before `at`, unless the bytes around it are no UTF-8.
fn character_boundary(text: &[u8], at: usize) -> usize {
    let continues = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|at| *at > 0 && !continues(at))
        .unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        words(text.as_bytes())
            .map(|word| std::str::from_utf8(word).unwrap())
            .collect()
    }

    #[test]
    fn a_space_joins_the_word_after_it() {
        assert_eq!(
            split("to be, or  not 12345\n x"),
            ["to", " be", ",", " or", " ", " not", " 123", "45", "\n", " x"]
        );
    }

    #[test]
    fn long_runs_are_cut_between_characters() {
        let text = "é".repeat(40) + &"a".repeat(70);
        let words = split(&text);
        assert!(words.iter().all(|word| word.len() <= MAX_WORD));
        assert_eq!(words.concat(), text);
        assert_eq!(split(&("x".to_owned() + &"é".repeat(20)))[0].len(), 31);
    }

    #[test]
    fn trailing_spaces_are_a_word() {
        assert_eq!(split("a   "), ["a", "   "]);
        assert_eq!(split(" "), [" "]);
    }
}
