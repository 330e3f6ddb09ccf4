//! Turns a stream of token bytes into text that never ends inside a character.
//!
//! Invariant: the concatenation of everything given out, the end included, equals the lossy decoding of all bytes at
//! once. At most three bytes are held back.

/// Holds back the bytes of an unfinished character.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    held: Vec<u8>,
}

impl TextStream {
    /// A stream that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a token's bytes and appends the text that is complete to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.held.extend(bytes);
        let mut keep = 0;
        for chunk in self.held.utf8_chunks() {
            out.push_str(chunk.valid());
            keep = chunk.invalid().len();
            if keep > 0 {
                let unfinished =
                    std::str::from_utf8(chunk.invalid()).is_err_and(|fault| fault.error_len().is_none());
                let last = chunk.invalid().as_ptr_range().end == self.held.as_ptr_range().end;
                if unfinished && last {
                    break;
                }
                out.push(char::REPLACEMENT_CHARACTER);
                keep = 0;
            }
        }
        self.held.drain(..self.held.len() - keep);
    }

    /// Ends the stream: what is still held will never be a character.
    pub fn finish(&mut self, out: &mut String) {
        if !self.held.is_empty() {
            out.push_str(&String::from_utf8_lossy(&self.held));
            self.held.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TextStream;
    use proptest::prelude::*;

    fn streamed(bytes: &[u8], cuts: &[usize]) -> String {
        let (mut stream, mut text, mut from) = (TextStream::new(), String::new(), 0);
        for cut in cuts {
            let to = from.max(cut % (bytes.len() + 1));
            stream.push(&bytes[from..to], &mut text);
            from = to;
        }
        stream.push(&bytes[from..], &mut text);
        stream.finish(&mut text);
        text
    }

    proptest! {
        #[test]
        fn any_cutting_gives_the_lossy_text(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0xe0_u8..=0xf4, 0x80_u8..=0xbf], 0..40), mut cuts in prop::collection::vec(0_usize..50, 0..20)) {
            cuts.sort_unstable();
            prop_assert_eq!(streamed(&bytes, &cuts), String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn valid_text_comes_back_byte_by_byte(text in "\\PC{0,20}") {
            let each: Vec<usize> = (0..text.len()).collect();
            prop_assert_eq!(streamed(text.as_bytes(), &each), text);
        }
    }

    #[test]
    fn a_character_is_held_until_it_is_whole() {
        let (mut stream, mut text) = (TextStream::new(), String::new());
        stream.push(&[0xf0, 0x9f], &mut text);
        stream.push(&[0x98], &mut text);
        assert_eq!(text, "");
        stream.push(&[0x80, b'x'], &mut text);
        assert_eq!(text, "\u{1f600}x");
    }
}
