//! Parses and bounds a script.

use std::time::Duration;

use crate::ScriptStep;

/// Most steps of a script.
pub const MAX_STEPS: usize = 65_536;
/// Most bytes of one token.
pub const MAX_TOKEN_BYTES: usize = 4_096;
/// Most bytes of all tokens together.
pub const MAX_BYTES: usize = 1 << 20;
/// Longest delay before a token.
pub const MAX_DELAY: Duration = Duration::from_secs(600);

/// A script that keeps its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Delay and bytes of each token.
    pub steps: Vec<(Duration, Vec<u8>)>,
}

/// What is wrong with a script; steps count from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// No steps at all.
    #[error("weir_script is empty: give it one step a token")]
    Empty,
    /// More than [`MAX_STEPS`].
    #[error("weir_script has {0} steps; at most {MAX_STEPS} are allowed")]
    TooManySteps(usize),
    /// A delay over [`MAX_DELAY`].
    #[error("weir_script[{step}].delay_ms is {delay_ms}; at most {} are allowed", MAX_DELAY.as_millis())]
    Delay {
        /// Which step.
        step: usize,
        /// Its delay.
        delay_ms: u64,
    },
    /// Not pairs of hexadecimal digits.
    #[error("weir_script[{step}].bytes_hex is not pairs of hexadecimal digits")]
    Hex {
        /// Which step.
        step: usize,
    },
    /// A token over [`MAX_TOKEN_BYTES`].
    #[error("weir_script[{step}].bytes_hex is {size} bytes; at most {MAX_TOKEN_BYTES} are allowed")]
    TokenSize {
        /// Which step.
        step: usize,
        /// Bytes of its token.
        size: usize,
    },
    /// More than [`MAX_BYTES`] in all.
    #[error("weir_script has over {MAX_BYTES} bytes of tokens")]
    TooManyBytes,
}

impl Script {
    /// Parses a request's script.
    ///
    /// # Errors
    /// [`ScriptError`] names the step and the bound.
    pub fn parse(steps: &[ScriptStep]) -> Result<Self, ScriptError> {
        if steps.is_empty() {
            return Err(ScriptError::Empty);
        }
        if steps.len() > MAX_STEPS {
            return Err(ScriptError::TooManySteps(steps.len()));
        }
        if steps.iter().map(|step| step.bytes_hex.len() / 2).sum::<usize>() > MAX_BYTES {
            return Err(ScriptError::TooManyBytes);
        }
        let steps = steps
            .iter()
            .enumerate()
            .map(|(at, step)| parse_step(at, step))
            .collect::<Result<_, _>>()?;
        Ok(Self { steps })
    }
}

fn parse_step(at: usize, step: &ScriptStep) -> Result<(Duration, Vec<u8>), ScriptError> {
    let delay = Duration::from_millis(step.delay_ms);
    if delay > MAX_DELAY {
        return Err(ScriptError::Delay {
            step: at,
            delay_ms: step.delay_ms,
        });
    }
    let size = step.bytes_hex.len() / 2;
    if size > MAX_TOKEN_BYTES {
        return Err(ScriptError::TokenSize { step: at, size });
    }
    Ok((
        delay,
        parse_hex(&step.bytes_hex).ok_or(ScriptError::Hex { step: at })?,
    ))
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(bytes_hex: &str, delay_ms: u64) -> ScriptStep {
        ScriptStep {
            delay_ms,
            bytes_hex: bytes_hex.to_owned(),
        }
    }

    #[test]
    fn hexadecimal_of_both_cases_is_read() {
        let script = Script::parse(&[step("c3A9", 5), step("", 0)]).unwrap();
        assert_eq!(
            script.steps,
            [
                (Duration::from_millis(5), vec![0xc3, 0xa9]),
                (Duration::ZERO, vec![])
            ]
        );
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        let parse = |steps: &[ScriptStep]| Script::parse(steps).unwrap_err();
        assert_eq!(parse(&[]), ScriptError::Empty);
        assert_eq!(
            parse(&[step("00", 0), step("0", 0)]),
            ScriptError::Hex { step: 1 }
        );
        assert_eq!(parse(&[step("0é", 0)]), ScriptError::Hex { step: 0 });
        assert_eq!(parse(&[step("+1", 0)]), ScriptError::Hex { step: 0 });
        assert_eq!(
            parse(&[step("00", 600_001)]),
            ScriptError::Delay {
                step: 0,
                delay_ms: 600_001
            }
        );
        let long = "00".repeat(MAX_TOKEN_BYTES + 1);
        assert_eq!(
            parse(&[step(&long, 0)]),
            ScriptError::TokenSize {
                step: 0,
                size: MAX_TOKEN_BYTES + 1
            }
        );
        assert_eq!(parse(&vec![step(&long, 0); 256]), ScriptError::TooManyBytes);
        assert_eq!(
            parse(&vec![step("", 0); MAX_STEPS + 1]),
            ScriptError::TooManySteps(MAX_STEPS + 1)
        );
        assert_eq!(
            parse(&[step("0", 0)]).to_string(),
            "weir_script[0].bytes_hex is not pairs of hexadecimal digits"
        );
    }

    proptest! {
        #[test]
        fn hexadecimal_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(parse_hex(&text), Some(bytes));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _ = parse_hex(&text);
        }
    }
}
