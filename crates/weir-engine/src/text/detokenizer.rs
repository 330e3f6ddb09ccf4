//! Bytes in, whole characters out.
//!
//! Invariant: the text of all calls together is what `String::from_utf8_lossy` makes of all bytes together.

/// Turns the bytes of one stream's tokens into text, one token after the other.
#[derive(Debug, Default, Clone)]
pub struct Detokenizer {
    /// The start of a character that may still complete: at most three bytes.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Appends to `out` the text that is complete after `bytes`. Bytes that can never complete a character become
    /// U+FFFD; the start of a character waits.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.pending.is_empty() {
            return self.decode(bytes, out);
        }
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(bytes);
        self.decode(&joined, out);
    }

    /// Ends the stream: a character that never completed becomes U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !std::mem::take(&mut self.pending).is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn decode(&mut self, bytes: &[u8], out: &mut String) {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(chunk.valid());
            if chunk.invalid().is_empty() {
                continue;
            }
            if chunks.peek().is_none() && may_complete(chunk.invalid()) {
                self.pending.extend_from_slice(chunk.invalid());
            } else {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }
}

fn may_complete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(pieces: &[&[u8]]) -> String {
        let (mut detokenizer, mut out) = (Detokenizer::default(), String::new());
        pieces.iter().for_each(|piece| detokenizer.push(piece, &mut out));
        detokenizer.finish(&mut out);
        out
    }

    #[test]
    fn a_character_waits_for_its_last_byte() {
        let (mut detokenizer, mut out) = (Detokenizer::default(), String::new());
        for byte in &"🚀".as_bytes()[..3] {
            detokenizer.push(&[*byte], &mut out);
            assert_eq!(out, "");
        }
        detokenizer.push(&"🚀".as_bytes()[3..], &mut out);
        assert_eq!(out, "🚀");
    }

    #[test]
    fn bytes_that_never_complete_are_replaced() {
        assert_eq!(text(&[&[0xff]]), "\u{fffd}");
        assert_eq!(text(&[&[0xe2, 0x82], b"a"]), "\u{fffd}a");
        assert_eq!(text(&[b"a", &[0xf0, 0x9f]]), "a\u{fffd}");
    }

    /// Bytes that are often, but not always, pieces of characters.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            prop::collection::vec(any::<u8>(), 0..4),
            prop::sample::select(vec![
                vec![0xe2, 0x82],
                vec![0xf0, 0x9f, 0x9a],
                vec![0xed, 0xa0],
                vec![0xc3]
            ]),
        ];
        prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn cuts_do_not_change_the_text(bytes in bytes(), size in 1usize..5) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(text(&pieces), String::from_utf8_lossy(&bytes));
        }
    }
}
