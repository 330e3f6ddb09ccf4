//! JSON text written straight into a byte buffer.
//!
//! Only what replies need: strings and `null`. Beyond what JSON demands it escapes U+0085, U+2028 and U+2029, because
//! many event-stream readers split lines on them. Invariant: the output has no raw control character.

/// Appends `text` as a quoted JSON string.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escaped(out, text);
    out.push(b'"');
}

/// Appends a quoted string or `null`.
pub(crate) fn optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends `text` escaped, without quotes.
pub(crate) fn escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        rest = &special[escape(out, special)..];
    }
    out.extend_from_slice(rest);
}

/// Bytes at which the plain run may end: quotes, controls, and the first bytes of the three line separators.
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[0x7f] = true;
    table[0xc2] = true;
    table[0xe2] = true;
    table
};

/// Writes the one character that `text` starts with, escaped if it must be; returns its length in `text`, at least 1.
fn escape(out: &mut Vec<u8>, text: &[u8]) -> usize {
    match text {
        [0xc2, 0x85, ..] => copy(out, b"\\u0085", 2),
        [0xe2, 0x80, 0xa8, ..] => copy(out, b"\\u2028", 3),
        [0xe2, 0x80, 0xa9, ..] => copy(out, b"\\u2029", 3),
        [b'"', ..] => copy(out, b"\\\"", 1),
        [b'\\', ..] => copy(out, b"\\\\", 1),
        [b'\n', ..] => copy(out, b"\\n", 1),
        [b'\r', ..] => copy(out, b"\\r", 1),
        [b'\t', ..] => copy(out, b"\\t", 1),
        [control @ (..0x20 | 0x7f), ..] => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let [high, low] = [control >> 4, control & 15].map(|digit| HEX[usize::from(digit)]);
            copy(out, &[b'\\', b'u', b'0', b'0', high, low], 1)
        }
        [plain, ..] => copy(out, &[*plain], 1),
        [] => 1,
    }
}

fn copy(out: &mut Vec<u8>, bytes: &[u8], taken: usize) -> usize {
    out.extend_from_slice(bytes);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let mut out = Vec::new();
        string(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_character_reads_back_as_itself() {
        let all: String = (0..0x3000)
            .chain(0x1f300..0x1f700)
            .filter_map(char::from_u32)
            .collect();
        assert_eq!(serde_json::from_str::<String>(&of(&all)).unwrap(), all);
    }

    #[test]
    fn line_separators_and_controls_are_escaped() {
        assert_eq!(of("a\u{85}b\u{2028}c\u{2029}d"), "\"a\\u0085b\\u2028c\\u2029d\"");
        assert_eq!(
            of("\u{0}\u{1f}\u{7f}\r\n\t\"\\"),
            "\"\\u0000\\u001f\\u007f\\r\\n\\t\\\"\\\\\""
        );
    }

    #[test]
    fn neighbours_of_the_separators_stay_as_they_are() {
        for text in ["\u{84}", "\u{a9}", "\u{2027}", "\u{202a}", "\u{20ac}", "é"] {
            assert_eq!(of(text), format!("\"{text}\""));
        }
    }
}
