//! What a world knows to be true: who sent what, and what may come of it.
//!
//! It is written by the applications of the world, never by the protocol under test.

use std::time::Duration;

use bytes::Bytes;
use weir_proto::{Amount, End, Ending, StreamFate, StreamKey, Time, wire};

use crate::{agenda::EndId, content::content};

/// A record as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) id: u64,
    pub(crate) len: usize,
}

impl Sent {
    pub(crate) fn bytes(self) -> Bytes {
        content(self.id, self.len)
    }
}

/// A minted ticket and its stream, as the consumer's application sees it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) ticket: wire::Ticket,
    pub(crate) node: usize,
    pub(crate) end: EndId,
    pub(crate) minted: Time,
    pub(crate) claimed: bool,
    pub(crate) lost: bool,
    /// The consumer asked to stop, or went, or ended it.
    pub(crate) stopped: bool,
    pub(crate) gone: bool,
    pub(crate) ended_here: bool,
    pub(crate) progress_timeout: Option<Duration>,
    pub(crate) taken: Amount,
    pub(crate) granted: Amount,
    pub(crate) received: Amount,
    /// The producer's end has arrived.
    pub(crate) end_came: bool,
    pub(crate) over: Option<(Ending, u64)>,
    pub(crate) attempts: Vec<usize>,
    /// Attempts that may be the one whose records come.
    pub(crate) candidates: Vec<usize>,
}

/// One use of a ticket by a producer.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) stream: usize,
    pub(crate) ticket: wire::Ticket,
    pub(crate) node: usize,
    /// Token and node are right.
    pub(crate) right: bool,
    /// Set once it is open.
    pub(crate) open: Option<(EndId, StreamKey)>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) ended: Option<End>,
    pub(crate) fate: Option<StreamFate>,
}

/// A call or cast.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) end: EndId,
    pub(crate) cast: bool,
    pub(crate) body: Sent,
    /// How the handler answers.
    pub(crate) reply: Sent,
    pub(crate) arrived: bool,
    pub(crate) answered: bool,
    pub(crate) abandoned: bool,
}

impl Stream {
    /// Takes delivery of record number `at` and keeps those attempts that sent it so.
    pub(crate) fn deliver(&mut self, attempts: &[Attempt], at: usize, item: &Bytes) {
        self.candidates.retain(|attempt| {
            let sent = attempts[*attempt].sent.get(at);
            sent.is_some_and(|sent| sent.len == item.len() && sent.bytes() == *item)
        });
        let head = &item[..item.len().min(16)];
        assert!(
            !self.candidates.is_empty(),
            "record {at} of {} bytes ({head:?}) was sent by no attempt at {:?}",
            item.len(),
            self.ticket.slot
        );
    }

    /// Judges an ending and the count of records delivered before it.
    pub(crate) fn ends(&mut self, attempts: &[Attempt], ending: &Ending, delivered: u64, now: Time) {
        assert!(
            self.over.is_none(),
            "a second ending {ending:?} after {:?}",
            self.over
        );
        assert_eq!(delivered, self.taken.records, "delivered count of {ending:?}");
        match ending {
            Ending::Finished => self.complete(attempts, |end| *end == End::Finished, ending),
            Ending::Detached => self.complete(attempts, |end| *end == End::Detached, ending),
            Ending::Dropped => self.complete(attempts, |end| *end == End::Dropped, ending),
            Ending::Failed(code, message) => {
                self.complete(
                    attempts,
                    |end| matches!(end, End::Failed(c, m) if c == code && cut(m) == *message),
                    ending,
                );
            }
            Ending::PeerLost => assert!(self.lost, "PeerLost, and the link is up"),
            Ending::Expired => {
                assert!(!self.claimed && delivered == 0, "a claimed stream expired");
                assert!(self.ended_here && now >= self.minted, "expired early");
            }
            Ending::Stalled(after) => {
                assert_eq!(self.progress_timeout, Some(*after));
                assert!(self.ended_here, "stalled without a verdict");
            }
            Ending::Cancelled => panic!("cancelled, and nobody cancelled"),
        }
        self.over = Some((ending.clone(), delivered));
    }

    /// Some candidate sent exactly what was delivered and ended so.
    fn complete(&self, attempts: &[Attempt], kind: impl Fn(&End) -> bool, ending: &Ending) {
        let fits = self
            .candidates
            .iter()
            .map(|attempt| &attempts[*attempt])
            .any(|attempt| {
                attempt.sent.len() as u64 == self.taken.records && attempt.ended.as_ref().is_some_and(&kind)
            });
        let all: Vec<_> = self
            .candidates
            .iter()
            .map(|attempt| (attempts[*attempt].sent.len(), attempts[*attempt].ended.clone()))
            .collect();
        assert!(
            fits,
            "{ending:?} after {} records, candidates {all:?}",
            self.taken.records
        );
    }
}

fn cut(message: &str) -> String {
    message
        .chars()
        .scan(0, |len, c| {
            *len += c.len_utf8();
            (*len <= wire::MAX_MESSAGE).then_some(c)
        })
        .collect()
}
