//! From the records of a stream to the text of an answer.
//!
//! A [`Choice`] owns an anchor, a detokenizer and a stop matcher; the event stream and the whole answer are two ways
//! of draining choices, so both give the same text and the same end. Invariant: dropping a choice cancels its stream.

mod choice;
mod choices;
mod events;

pub(crate) use choice::{Choice, Step, describe};
pub(crate) use choices::Choices;
pub(crate) use events::{EventStream, Page};
