//! From token bytes to text that may leave: whole characters only, and never the start of a stop string.
//!
//! Pure state machines; what comes out does not depend on how the input was cut into tokens.

mod detokenizer;
mod stop;

pub use detokenizer::Detokenizer;
pub use stop::StopMatcher;
