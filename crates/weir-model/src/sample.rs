//! Choosing the next token: a pure function of logits, parameters, seed, position and the ids so far.
//!
//! Nothing is carried from token to token, so a sequence can be resumed anywhere and goes on as it would have. The random
//! number of a position is a hash of seed and position.

use serde::{Deserialize, Serialize};

use crate::kernels::vector::exp;

/// How to choose. The default is greedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// 0 is greedy: the largest logit, the lowest id of equals. Default 0.
    pub temperature: f32,
    /// Keep this many of the likeliest tokens; 0 keeps all. Default 0.
    pub top_k: usize,
    /// Keep the likeliest tokens that together reach this probability. Default 1.
    pub top_p: f32,
    /// Keep tokens at least this likely compared with the likeliest. Default 0.
    pub min_p: f32,
    /// Divides (or multiplies, when negative) the logit of every id seen in prompt or answer. Default 1.
    pub repetition_penalty: f32,
    /// Taken from the logit of an id for each time it is in the answer. Default 0.
    pub frequency_penalty: f32,
    /// Taken from the logit of an id that is in the answer. Default 0.
    pub presence_penalty: f32,
    /// Added to logits before anything else.
    pub logit_bias: Vec<(u32, f32)>,
    /// Where randomness comes from.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// A parameter outside of its bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {value}, possible are {bounds}")]
pub struct SamplingError {
    /// The parameter.
    pub field: &'static str,
    /// Its value.
    pub value: f32,
    /// What is possible.
    pub bounds: &'static str,
}

impl Sampling {
    /// Checks every parameter.
    ///
    /// # Errors
    /// [`SamplingError`] names the first that is out of bounds.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let check = |field, value: f32, ok: bool, bounds| {
            if ok && value.is_finite() {
                Ok(())
            } else {
                Err(SamplingError { field, value, bounds })
            }
        };
        check(
            "temperature",
            self.temperature,
            (0.0..=100.0).contains(&self.temperature),
            "0 to 100",
        )?;
        check(
            "top_p",
            self.top_p,
            self.top_p > 0.0 && self.top_p <= 1.0,
            "above 0 up to 1",
        )?;
        check("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "0 to 1")?;
        let repetition = self.repetition_penalty;
        check(
            "repetition_penalty",
            repetition,
            repetition > 0.0 && repetition <= 100.0,
            "above 0 up to 100",
        )?;
        check(
            "frequency_penalty",
            self.frequency_penalty,
            self.frequency_penalty.abs() <= 100.0,
            "-100 to 100",
        )?;
        check(
            "presence_penalty",
            self.presence_penalty,
            self.presence_penalty.abs() <= 100.0,
            "-100 to 100",
        )?;
        self.logit_bias
            .iter()
            .try_for_each(|(_, bias)| check("logit_bias", *bias, bias.abs() <= 1000.0, "-1000 to 1000"))
    }

    fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }
}

/// Chooses the token at `position`. `prompt` and `answer` are the ids before it; `logits` is changed by bias and penalties.
#[must_use]
pub fn sample(logits: &mut [f32], how: &Sampling, prompt: &[u32], answer: &[u32], position: usize) -> u32 {
    adjust(logits, how, prompt, answer);
    if how.is_greedy() {
        return id(crate::kernels::argmax(crate::kernels::Isa::detect(), logits));
    }
    let largest = logits
        .iter()
        .fold(f32::NEG_INFINITY, |most, logit| most.max(*logit));
    let weight = |logit: f32| exp((logit - largest) / how.temperature);
    let random = unit(how.seed, position);
    if how.top_k == 0 && how.top_p >= 1.0 && how.min_p <= 0.0 {
        return draw(logits.iter().map(|logit| weight(*logit)).zip(0_usize..), random);
    }
    let kept = keep(logits, how, weight);
    draw(kept.into_iter(), random)
}

fn id(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn adjust(logits: &mut [f32], how: &Sampling, prompt: &[u32], answer: &[u32]) {
    for (id, bias) in &how.logit_bias {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit += bias;
        }
    }
    let penal = how.frequency_penalty.abs() + how.presence_penalty.abs() > 0.0;
    if (how.repetition_penalty - 1.0).abs() > 0.0 {
        let mut seen: Vec<u32> = prompt.iter().chain(answer).copied().collect();
        seen.sort_unstable();
        seen.dedup();
        for id in seen {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = if *logit > 0.0 {
                    *logit / how.repetition_penalty
                } else {
                    *logit * how.repetition_penalty
                };
            }
        }
    }
    if penal {
        let mut seen = answer.to_vec();
        seen.sort_unstable();
        for run in seen.chunk_by(|a, b| a == b) {
            if let Some(logit) = logits.get_mut(run[0] as usize) {
                let times = run.len() as f32;
                *logit -= how.presence_penalty + how.frequency_penalty * times;
            }
        }
    }
}

/// The tokens that remain, likeliest first, ties by id.
fn keep(logits: &[f32], how: &Sampling, weight: impl Fn(f32) -> f32) -> Vec<(f32, usize)> {
    let all = || logits.iter().map(|logit| weight(*logit)).zip(0_usize..);
    let total: f64 = if how.top_k == 0 {
        all().map(|(weight, _)| f64::from(weight)).sum()
    } else {
        0.0
    };
    let mut kept: Vec<(f32, usize)> = all()
        .filter(|(weight, _)| *weight > 0.0 && *weight >= how.min_p)
        .collect();
    let order = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if how.top_k > 0 && how.top_k < kept.len() {
        kept.select_nth_unstable_by(how.top_k, order);
        kept.truncate(how.top_k);
    }
    if how.top_p >= 1.0 {
        kept.sort_unstable_by(order);
        return kept;
    }
    let total = if how.top_k == 0 {
        total
    } else {
        kept.iter().map(|(weight, _)| f64::from(*weight)).sum()
    };
    // The likeliest few usually suffice; look at more only when they do not.
    let mut looked = 256;
    loop {
        let count = looked.min(kept.len());
        if count < kept.len() {
            kept.select_nth_unstable_by(count, order);
        }
        kept[..count].sort_unstable_by(order);
        let mut sum = 0.0;
        for index in 0..count {
            sum += f64::from(kept[index].0);
            if sum >= f64::from(how.top_p) * total {
                kept.truncate(index + 1);
                return kept;
            }
        }
        if count == kept.len() {
            return kept;
        }
        looked *= 8;
    }
}

/// Draws one of the weighted tokens.
fn draw(weighted: impl Iterator<Item = (f32, usize)> + Clone, random: f64) -> u32 {
    let total: f64 = weighted.clone().map(|(weight, _)| f64::from(weight)).sum();
    let mut left = random * total;
    let mut last = 0;
    for (weight, index) in weighted {
        if weight > 0.0 {
            last = index;
            left -= f64::from(weight);
            if left < 0.0 {
                break;
            }
        }
    }
    id(last)
}

/// A number in [0, 1) that is a function of seed and position.
fn unit(seed: u64, position: usize) -> f64 {
    let mut mixed = seed ^ (position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(how: &Sampling, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for position in 0..draws {
            counts[sample(&mut logits.to_vec(), how, &[], &[], position) as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        assert_eq!(
            sample(&mut [0.0, 3.0, 3.0, -1.0], &Sampling::default(), &[], &[], 0),
            1
        );
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let logits = [0.0, 2.0_f32.ln(), 5.0_f32.ln()];
        let how = Sampling {
            temperature: 1.0,
            seed: 7,
            ..Sampling::default()
        };
        let counts = counts(&how, &logits, 80_000);
        for (count, share) in counts.iter().zip([1.0, 2.0, 5.0]) {
            let expected = 10_000.0 * share;
            assert!(
                (f64::from(u32::try_from(*count).unwrap()) - expected).abs() < 0.04 * expected,
                "{counts:?}"
            );
        }
    }

    #[test]
    fn each_limit_removes_what_it_says() {
        let logits: Vec<f32> = [1.0, 2.0, 3.0, 4.0, 90.0].map(f32::ln).to_vec();
        let base = Sampling {
            temperature: 1.0,
            ..Sampling::default()
        };
        let possible = |how: &Sampling| {
            counts(how, &logits, 4000)
                .iter()
                .filter(|count| **count > 0)
                .count()
        };
        assert_eq!(possible(&base), 5);
        assert_eq!(
            possible(&Sampling {
                top_k: 2,
                ..base.clone()
            }),
            2
        );
        assert_eq!(
            possible(&Sampling {
                top_p: 0.93,
                ..base.clone()
            }),
            2
        );
        assert_eq!(
            possible(&Sampling {
                min_p: 0.03,
                ..base.clone()
            }),
            3
        );
        assert_eq!(
            possible(&Sampling {
                top_k: 3,
                top_p: 0.93,
                ..base
            }),
            2
        );
    }

    #[test]
    fn a_wide_nucleus_is_found() {
        let logits = vec![0.0; 5000];
        let how = Sampling {
            temperature: 1.0,
            top_p: 0.9,
            ..Sampling::default()
        };
        let kept = keep(&logits, &how, |_| 1.0);
        assert_eq!(kept.len(), 4500);
        assert_eq!(kept.last().unwrap().1, 4499);
    }

    #[test]
    fn penalties_and_bias_move_the_choice() {
        let logits = [1.0, 1.5, 1.4];
        let greedy = |how: &Sampling, answer: &[u32]| sample(&mut logits.to_vec(), how, &[], answer, 0);
        assert_eq!(greedy(&Sampling::default(), &[1, 1]), 1);
        assert_eq!(
            greedy(
                &Sampling {
                    presence_penalty: 0.2,
                    ..Sampling::default()
                },
                &[1]
            ),
            2
        );
        assert_eq!(
            greedy(
                &Sampling {
                    frequency_penalty: 0.06,
                    ..Sampling::default()
                },
                &[1, 1]
            ),
            2
        );
        assert_eq!(
            greedy(
                &Sampling {
                    repetition_penalty: 1.2,
                    ..Sampling::default()
                },
                &[1]
            ),
            2
        );
        assert_eq!(
            greedy(
                &Sampling {
                    logit_bias: vec![(0, 3.0)],
                    ..Sampling::default()
                },
                &[]
            ),
            0
        );
    }

    #[test]
    fn the_choice_is_a_function_of_seed_and_position() {
        let logits: Vec<f32> = (0_u8..100).map(|index| f32::from(index % 7)).collect();
        let how = |seed| Sampling {
            temperature: 1.0,
            seed,
            ..Sampling::default()
        };
        let run = |seed| {
            (0..50)
                .map(|at| sample(&mut logits.clone(), &how(seed), &[], &[], at))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn parameters_out_of_bounds_are_named() {
        let bad = Sampling {
            top_p: 0.0,
            ..Sampling::default()
        };
        assert_eq!(bad.validate().unwrap_err().field, "top_p");
        let bad = Sampling {
            temperature: f32::NAN,
            ..Sampling::default()
        };
        assert_eq!(bad.validate().unwrap_err().field, "temperature");
        assert!(Sampling::default().validate().is_ok());
    }
}
