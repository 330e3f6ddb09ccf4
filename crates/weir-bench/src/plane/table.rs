//! The rows for people: medians over reps, and each arm's ratio to the last arm named.

use std::fmt::Write as _;

use super::{Arm, Row, Shape};
use crate::stats::Samples;

type Column = (&'static str, fn(&Row) -> Option<f64>);

const COLUMNS: [Column; 9] = [
    ("frontend us/rec", |row| row.frontend_cpu_us_per_record),
    ("worker us/rec", |row| row.worker_cpu_us_per_record),
    ("records/s", |row| row.records_per_s),
    ("ttft p50 ms", |row| row.ttft_ms_p50),
    ("ttft p99 ms", |row| row.ttft_ms_p99),
    ("gap p50 ms", |row| row.gap_ms_p50),
    ("gap p99 ms", |row| row.gap_ms_p99),
    ("rec/batch", |row| row.records_per_batch),
    ("rss MiB", |row| row.rss_mib),
];

/// A table a shape: the median of each figure over the reps without errors, in brackets the ratio of medians to the
/// last of `arms`.
pub fn render(rows: &[Row], shapes: &[Shape], arms: &[Arm]) -> String {
    let mut text = String::new();
    let Some(last) = arms.last() else { return text };
    for shape in shapes {
        let of = |arm: Arm| {
            rows.iter()
                .filter(move |row| row.arm == arm.name() && row.shape == shape.name)
        };
        let _ = writeln!(
            text,
            "{} (medians; in brackets the ratio to {})",
            shape.name,
            last.name()
        );
        let _ = write!(text, "  {:<6} {:>4} {:>6}", "arm", "reps", "errors");
        COLUMNS
            .iter()
            .for_each(|(title, _)| _ = write!(text, " {title:>18}"));
        text.push('\n');
        for &arm in arms {
            let errors: u64 = of(arm).map(|row| row.errors).sum();
            let _ = write!(text, "  {:<6} {:>4} {errors:>6}", arm.name(), of(arm).count());
            for (_, figure) in &COLUMNS {
                let median = |arm| {
                    of(arm)
                        .filter(|row| row.errors == 0)
                        .filter_map(figure)
                        .collect::<Samples>()
                        .median()
                };
                let _ = write!(text, " {:>18}", cell(median(arm), median(*last)));
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

fn cell(value: Option<f64>, base: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let digits = match value {
        value if value >= 1_000.0 => 0,
        value if value >= 10.0 => 1,
        _ => 3,
    };
    match base.filter(|&base| base > 0.0) {
        Some(base) => format!("{value:.digits$} ({:.2})", value / base),
        None => format!("{value:.digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arm: Arm, records_per_s: f64) -> Row {
        let shape: Shape = "single".parse().unwrap();
        Row {
            records_per_s: Some(records_per_s),
            errors: 0,
            ..Row::failed((arm, &shape, 0))
        }
    }

    #[test]
    fn ratios_are_taken_to_the_last_arm_and_errors_are_left_out_of_medians() {
        let failed = Row {
            errors: 3,
            ..row(Arm::Floor, 1.0)
        };
        let rows = [
            row(Arm::Weir, 4_000.0),
            row(Arm::Weir, 6_000.0),
            row(Arm::Floor, 2_000.0),
            failed,
        ];
        let text = render(&rows, &["single".parse().unwrap()], &[Arm::Weir, Arm::Floor]);
        assert!(text.contains("5000 (2.50)"), "{text}");
        assert!(text.contains("2000 (1.00)"), "{text}");
        let floor = text
            .lines()
            .find(|line| line.trim().starts_with("floor"))
            .unwrap();
        assert_eq!(
            floor.split_whitespace().take(3).collect::<Vec<_>>(),
            ["floor", "2", "3"]
        );
    }

    #[test]
    fn a_missing_figure_is_a_dash() {
        assert_eq!(cell(None, Some(1.0)), "-");
        assert_eq!(cell(Some(0.25), None), "0.250");
    }
}
