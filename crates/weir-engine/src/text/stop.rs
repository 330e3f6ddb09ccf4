//! Finds stop strings in a stream and holds back what may be the start of one.
//!
//! The stop string that ends first wins, of those that end together the longest. It and what follows are dropped.
//! Invariant: released text never contains a stop string, and what may still become one has not been released.

/// Looks for stop strings in one stream's text.
#[derive(Debug, Clone, Default)]
pub struct StopMatcher {
    stops: Vec<Pattern>,
    /// The end of the text so far that is the start of some stop string.
    held: String,
    matched: bool,
}

impl StopMatcher {
    /// Looks for these strings; empty ones are ignored.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.as_ref().is_empty());
        Self {
            stops: stops.map(|stop| Pattern::new(stop.as_ref())).collect(),
            ..Self::default()
        }
    }

    /// Takes the next text and appends to `out` what may leave. True once a stop string is complete; then nothing
    /// more is ever released.
    #[must_use]
    pub fn push(&mut self, text: &str, out: &mut String) -> bool {
        if self.matched {
            return true;
        }
        if self.stops.is_empty() {
            out.push_str(text);
            return false;
        }
        let before = self.held.len();
        self.held.push_str(text);
        match self.scan(text) {
            Some((end, len)) => {
                out.push_str(
                    self.held
                        .get(..(before + end).saturating_sub(len))
                        .unwrap_or_default(),
                );
                self.held.clear();
                self.matched = true;
            }
            None => {
                let keep = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
                out.extend(self.held.drain(..self.held.len().saturating_sub(keep)));
            }
        }
        self.matched
    }

    /// Ends the stream: releases what was held back, unless a stop string was found.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&std::mem::take(&mut self.held));
    }

    /// Offset in `text` after the first complete stop string, and that string's length.
    fn scan(&mut self, text: &str) -> Option<(usize, usize)> {
        (1..).zip(text.bytes()).find_map(|(end, byte)| {
            let complete = self.stops.iter_mut().filter_map(|stop| stop.step(byte));
            complete.max().map(|len| (end, len))
        })
    }
}

/// One stop string with its failure table (Knuth, Morris, Pratt).
#[derive(Debug, Clone)]
struct Pattern {
    bytes: Vec<u8>,
    /// For each prefix, the longest proper prefix of it that is also its end.
    falls: Vec<usize>,
    /// Length of the longest prefix that the text so far ends with.
    matched: usize,
}

impl Pattern {
    fn new(stop: &str) -> Self {
        let mut pattern = Self {
            bytes: stop.as_bytes().to_vec(),
            falls: vec![0],
            matched: 0,
        };
        for byte in stop.bytes().skip(1) {
            pattern.advance(byte);
            pattern.falls.push(pattern.matched);
        }
        pattern.matched = 0;
        pattern
    }

    /// Takes one byte; the stop string's length if it is complete.
    fn step(&mut self, byte: u8) -> Option<usize> {
        self.advance(byte);
        (self.matched == self.bytes.len()).then_some(self.matched)
    }

    fn advance(&mut self, byte: u8) {
        while self.matched > 0 && self.bytes.get(self.matched) != Some(&byte) {
            self.matched = self.falls.get(self.matched - 1).copied().unwrap_or(0);
        }
        self.matched += usize::from(self.bytes.get(self.matched) == Some(&byte));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text released after each piece, the whole text, and whether a stop string was found.
    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, String, bool) {
        let (mut matcher, mut out, mut steps) = (StopMatcher::new(stops), String::new(), Vec::new());
        let mut found = false;
        for piece in pieces {
            found = matcher.push(piece, &mut out);
            steps.push(out.clone());
        }
        matcher.finish(&mut out);
        (steps, out, found)
    }

    #[test]
    fn a_stop_string_over_three_pieces_is_found_and_never_shown() {
        let (steps, text, found) = run(&["STOP"], &["go S", "TO", "P on"]);
        assert_eq!(
            (steps, text.as_str(), found),
            (vec!["go ".into(), "go ".into(), "go ".into()], "go ", true)
        );
    }

    #[test]
    fn a_partial_match_at_the_end_is_flushed() {
        assert_eq!(
            run(&["abcd"], &["x", "ab"]),
            (vec!["x".into(), "x".into()], "xab".into(), false)
        );
    }

    #[test]
    fn what_turns_out_harmless_is_released_at_once() {
        assert_eq!(run(&["aab"], &["aa", "ac"]).0, ["", "aaac"]);
        assert_eq!(run(&["aab"], &["aa", "a"]).0, ["", "a"]);
    }

    #[test]
    fn the_stop_string_that_ends_first_wins() {
        assert_eq!(run(&["abcd", "c"], &["abcd"]).1, "ab");
        assert_eq!(run(&["bc", "abc"], &["xabc"]).1, "x");
    }

    #[test]
    fn characters_are_never_cut() {
        assert_eq!(run(&["éa"], &["é", "é", "b"]).0, ["", "é", "ééb"]);
    }

    #[test]
    fn nothing_is_released_after_a_match() {
        assert_eq!(run(&["."], &["a.", "b", "c"]).1, "a");
    }

    /// What the module's doc promises, by trying every end.
    fn expected(stops: &[String], text: &str) -> (String, bool) {
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let longest = stops
                .iter()
                .filter(|s| !s.is_empty() && text[..end].ends_with(*s))
                .map(String::len)
                .max();
            if let Some(len) = longest {
                return (text[..end - len].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    proptest! {
        #[test]
        fn cuts_do_not_change_the_text(
            stops in prop::collection::vec("[abé]{0,4}", 0..4),
            pieces in prop::collection::vec("[abé]{0,5}", 0..8),
        ) {
            let (mut matcher, mut out, mut found) = (StopMatcher::new(&stops), String::new(), false);
            for piece in &pieces {
                found = matcher.push(piece, &mut out);
                prop_assert!(stops.iter().all(|stop| stop.is_empty() || !out.contains(stop.as_str())));
            }
            matcher.finish(&mut out);
            prop_assert_eq!((out, found), expected(&stops, &pieces.concat()));
        }
    }
}
