//! Server-sent events from bytes, however they are cut.
//!
//! Pure: bytes in, events out. Lines end with LF, CRLF or CR, also when a chunk ends between the two; comments and
//! unknown fields are skipped; an event that is not followed by its empty line is never delivered.

/// Longest event, in bytes of its lines.
const MAX_EVENT: usize = 4 * 1024 * 1024;

/// A parser's state between chunks.
#[derive(Debug, Default)]
pub struct Sse {
    line: Vec<u8>,
    data: Vec<u8>,
    name: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    after_bom: bool,
}

/// One event; borrowed from the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The field `event`; empty if absent.
    pub name: &'a [u8],
    /// The `data` fields, joined by LF.
    pub data: &'a [u8],
}

/// An event is over 4 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTooLarge;

impl Sse {
    /// Takes the next bytes; calls `on_event` for each event that they complete.
    ///
    /// # Errors
    /// [`EventTooLarge`]; the parser is of no further use.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut on_event: impl FnMut(SseEvent<'_>),
    ) -> Result<(), EventTooLarge> {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = bytes.split_at(1).1;
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + self.data.len() + part.len() > MAX_EVENT {
                return Err(EventTooLarge);
            }
            self.line.extend_from_slice(part);
            let Some((terminator, rest)) = rest.split_first() else {
                return Ok(());
            };
            self.after_cr = *terminator == b'\r';
            bytes = rest;
            self.end_line(&mut on_event);
        }
        Ok(())
    }

    fn end_line(&mut self, on_event: &mut impl FnMut(SseEvent<'_>)) {
        let mut line = self.line.as_slice();
        if !std::mem::replace(&mut self.after_bom, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            if self.has_data {
                on_event(SseEvent {
                    name: &self.name,
                    data: &self.data,
                });
            }
            self.data.clear();
            self.name.clear();
            self.has_data = false;
        } else {
            let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
            let (field, value) = line.split_at(colon);
            let value = value.strip_prefix(b":").unwrap_or(value);
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match field {
                b"data" => {
                    if std::mem::replace(&mut self.has_data, true) {
                        self.data.push(b'\n');
                    }
                    self.data.extend_from_slice(value);
                }
                b"event" => value.clone_into(&mut self.name),
                _ => {}
            }
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Events = Vec<(String, String)>;

    fn parse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Events {
        let (mut sse, mut events) = (Sse::default(), Events::new());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for chunk in chunks {
            sse.push(chunk, |event| events.push((text(event.name), text(event.data))))
                .unwrap();
        }
        events
    }

    const STREAM: &[u8] =
        "\u{feff}: hello\ndata: {\"a\": \"\u{e9}\"}\n\ndata:two\r\ndata: lines\r\n\r\nevent: error\r\
        data: x\r\rid: 7\nretry: 1\n\ndata\n\ndata: [DONE]\n\ndata: cut off\n"
            .as_bytes();

    fn expected() -> Events {
        [
            ("", "{\"a\": \"\u{e9}\"}"),
            ("", "two\nlines"),
            ("error", "x"),
            ("", ""),
            ("", "[DONE]"),
        ]
        .map(|(name, data)| (name.to_owned(), data.to_owned()))
        .to_vec()
    }

    #[test]
    fn every_cut_of_a_stream_gives_the_same_events() {
        assert_eq!(parse([STREAM]), expected());
        assert_eq!(parse(STREAM.chunks(1)), expected(), "byte by byte");
        for cut in 0..=STREAM.len() {
            let (head, tail) = STREAM.split_at(cut);
            assert_eq!(parse([head, tail]), expected(), "cut at {cut}");
        }
        for size in 2..20 {
            assert_eq!(parse(STREAM.chunks(size)), expected(), "in pieces of {size}");
        }
    }

    #[test]
    fn every_line_ending_separates_lines_and_events() {
        for ending in ["\n", "\r\n", "\r"] {
            let stream = format!("data: a{ending}{ending}data: b{ending}{ending}");
            let events = parse(stream.as_bytes().chunks(1));
            assert_eq!(
                events,
                [(String::new(), "a".into()), (String::new(), "b".into())],
                "{ending:?}"
            );
        }
    }

    #[test]
    fn a_name_does_not_leak_into_the_next_event() {
        let events = parse([b"event: error\n\ndata: x\n\n".as_slice()]);
        assert_eq!(events, [(String::new(), "x".into())]);
    }

    #[test]
    fn an_event_without_end_is_refused_before_it_fills_memory() {
        let mut sse = Sse::default();
        let chunk = vec![b'x'; MAX_EVENT / 2];
        assert_eq!(sse.push(&chunk, |_| ()), Ok(()));
        assert_eq!(sse.push(&chunk, |_| ()), Ok(()));
        assert_eq!(sse.push(b"x", |_| ()), Err(EventTooLarge));
    }

    #[test]
    fn many_data_lines_count_together() {
        let mut sse = Sse::default();
        let line = [b"data:".as_slice(), &vec![b'x'; MAX_EVENT / 4], b"\n"].concat();
        let refused = (0..5).map(|_| sse.push(&line, |_| ())).find(Result::is_err);
        assert_eq!(refused, Some(Err(EventTooLarge)));
    }
}
