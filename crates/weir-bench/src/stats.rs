//! Exact quantiles of samples that may be infinite.
//!
//! Every sample is kept and sorted once; no bucket rounds a figure. A failed request enters as infinity, so a quantile
//! that falls among failures is infinite and is written as `null`.

use serde::Serialize;

/// Samples in ascending order.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().filter(|sample| !sample.is_nan()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self(sorted)
    }
}

/// A distribution as it is written to JSON. `null` where there is no sample, or where the figure is infinite.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are the percentiles")]
pub struct Distribution {
    /// Number of samples.
    pub n: usize,
    /// How many of them are infinite.
    pub infinite: usize,
    pub mean: Option<f64>,
    pub std: Option<f64>,
    pub min: Option<f64>,
    pub p1: Option<f64>,
    pub p5: Option<f64>,
    pub p10: Option<f64>,
    pub p25: Option<f64>,
    pub p50: Option<f64>,
    pub p75: Option<f64>,
    pub p90: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

impl Samples {
    /// Number of samples.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest sample such that at least `percent` of all are not above it; nothing without samples.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank between 0 and the number of samples"
    )]
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let rank = (percent / 100.0 * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied()
    }

    /// The middle sample, or the mean of the two in the middle.
    pub fn median(&self) -> Option<f64> {
        let middle = self.0.len() / 2;
        let upper = self.0.get(middle)?;
        if self.0.len() % 2 == 1 {
            return Some(*upper);
        }
        let lower = self.0.get(middle.checked_sub(1)?)?;
        Some(f64::midpoint(*lower, *upper))
    }

    /// All figures at once.
    pub fn distribution(&self) -> Distribution {
        let at = |percent| self.percentile(percent).filter(|value| value.is_finite());
        let (mean, std) = self.moments();
        Distribution {
            n: self.len(),
            infinite: self.0.iter().filter(|sample| sample.is_infinite()).count(),
            mean,
            std,
            min: at(0.0),
            p1: at(1.0),
            p5: at(5.0),
            p10: at(10.0),
            p25: at(25.0),
            p50: at(50.0),
            p75: at(75.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            max: at(100.0),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52 samples")]
    fn moments(&self) -> (Option<f64>, Option<f64>) {
        let n = self.0.len() as f64;
        let mean = self.0.iter().sum::<f64>() / n;
        if !mean.is_finite() {
            return (None, None);
        }
        let variance = self.0.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / n;
        (Some(mean), Some(variance.sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        values.iter().copied().collect()
    }

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let all = samples(&(1..=100).rev().map(f64::from).collect::<Vec<_>>());
        let at = |percent| all.percentile(percent).unwrap();
        assert_eq!(
            (at(0.0), at(1.0), at(50.0), at(99.0), at(99.5), at(100.0)),
            (1.0, 1.0, 50.0, 99.0, 100.0, 100.0)
        );
    }

    #[test]
    fn a_failure_moves_the_tail_to_infinity_and_not_the_median() {
        let all = samples(&[1.0, 2.0, 3.0, f64::INFINITY]);
        let figures = all.distribution();
        assert_eq!((figures.n, figures.infinite), (4, 1));
        assert_eq!((figures.p50, figures.p99, figures.mean), (Some(2.0), None, None));
    }

    #[test]
    fn no_sample_gives_no_figure() {
        let figures = samples(&[]).distribution();
        assert_eq!((figures.n, figures.p50, figures.mean), (0, None, None));
        assert_eq!(samples(&[]).median(), None);
    }

    #[test]
    fn a_median_of_two_lies_between_them() {
        assert_eq!(samples(&[4.0, 1.0]).median(), Some(2.5));
        assert_eq!(samples(&[9.0, 1.0, 4.0]).median(), Some(4.0));
    }

    #[test]
    fn spread_is_the_population_deviation() {
        let figures = samples(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).distribution();
        assert_eq!((figures.mean, figures.std), (Some(5.0), Some(2.0)));
    }
}
