//! The schedule of a bench: every rep runs every shape with every arm, the arms in a seeded shuffle.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    Arm, Row, Shape,
    rep::{self, SideCommand},
    side::{Role, SideSpec},
};
use crate::{progress, rng::Rng};

/// What to measure and how.
#[derive(Debug, Clone)]
pub struct BenchConfig {
    /// Arms; ratios are taken to the last one.
    pub arms: Vec<Arm>,
    /// Shapes.
    pub shapes: Vec<Shape>,
    /// Reps of each shape and arm.
    pub reps: u32,
    /// Seed of the order of the arms.
    pub seed: u64,
    /// Core of the frontend's process; not pinned if `None`.
    pub frontend_core: Option<usize>,
    /// Core of the workers' process; not pinned if `None`.
    pub worker_core: Option<usize>,
    /// Runtime threads a side.
    pub threads: usize,
    /// Longest time from the first start request to the last record.
    pub patience: Duration,
    /// Rows are written here after every rep; `None` for no file.
    pub json: Option<PathBuf>,
    /// How to start a side.
    pub side: SideCommand,
}

/// Runs the bench; a rep without a result becomes a row whose streams are all errors. Ends early, with the rows so
/// far, when `interrupted` resolves.
///
/// # Errors
/// The rows cannot be written.
pub async fn run(config: &BenchConfig, interrupted: impl Future<Output = ()>) -> Result<Vec<Row>> {
    let schedule = schedule(config);
    let bar = progress::bar(schedule.len() as u64, "reps");
    let mut rows = Vec::with_capacity(schedule.len());
    let mut interrupted = std::pin::pin!(interrupted);
    write(config, &rows)?;
    for (rep, shape, arm) in schedule {
        bar.set_message(format!("{} {}", shape.name, arm.name()));
        let row = tokio::select! {
            row = one(config, shape, arm, rep, &bar) => row,
            () = &mut interrupted => break,
        };
        rows.push(row);
        write(config, &rows)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn schedule(config: &BenchConfig) -> Vec<(u32, &Shape, Arm)> {
    let mut rng = Rng::new(config.seed);
    let mut schedule = Vec::new();
    for rep in 0..config.reps {
        for shape in &config.shapes {
            let mut arms = config.arms.clone();
            rng.shuffle(&mut arms);
            schedule.extend(arms.into_iter().map(|arm| (rep, shape, arm)));
        }
    }
    schedule
}

async fn one(config: &BenchConfig, shape: &Shape, arm: Arm, rep: u32, bar: &indicatif::ProgressBar) -> Row {
    let side = |role, core| SideSpec {
        role,
        arm,
        shape: shape.clone(),
        core,
        threads: config.threads,
        patience: config.patience,
    };
    let frontend = side(Role::Frontend, config.frontend_core);
    let worker = side(Role::Worker, config.worker_core);
    // Start-up and reports take their time too; 20 s of them is a process that hangs.
    let deadline = config.patience + Duration::from_secs(20);
    match rep::run(&config.side, (&frontend, &worker), deadline).await {
        Ok((frontend, worker)) => Row::measured((arm, shape, rep), &frontend, &worker),
        Err(error) => {
            let line = format!(
                "rep {rep} of {} over {} failed: {error:#}",
                shape.name,
                arm.name()
            );
            #[expect(
                clippy::print_stderr,
                reason = "a failed rep is told at once, above the progress bar"
            )]
            bar.suspend(|| eprintln!("{line}"));
            Row::failed((arm, shape, rep))
        }
    }
}

fn write(config: &BenchConfig, rows: &[Row]) -> Result<()> {
    let Some(path) = &config.json else { return Ok(()) };
    let mut text = serde_json::to_string_pretty(rows)?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(program: &str) -> BenchConfig {
        BenchConfig {
            arms: vec![Arm::Weir, Arm::Floor],
            shapes: vec!["single".parse().unwrap(), "paced-512".parse().unwrap()],
            reps: 8,
            seed: 1,
            frontend_core: None,
            worker_core: None,
            threads: 1,
            patience: Duration::from_secs(60),
            json: None,
            side: SideCommand {
                program: program.into(),
                args: vec![],
            },
        }
    }

    #[test]
    fn arms_are_interleaved_in_an_order_that_changes_with_the_rep() {
        let config = config("unused");
        let schedule = schedule(&config);
        assert_eq!(schedule.len(), 32);
        let pairs: Vec<[Arm; 2]> = schedule.chunks(2).map(|pair| [pair[0].2, pair[1].2]).collect();
        assert!(pairs.iter().all(|[first, second]| first != second));
        assert!(pairs.contains(&[Arm::Weir, Arm::Floor]) && pairs.contains(&[Arm::Floor, Arm::Weir]));
        assert!(
            schedule
                .chunks(4)
                .enumerate()
                .all(|(rep, group)| group.iter().all(|item| item.0 as usize == rep))
        );
    }

    #[tokio::test]
    async fn processes_that_die_are_error_rows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.json");
        let config = BenchConfig {
            reps: 1,
            json: Some(path.clone()),
            ..config("/bin/false")
        };
        let rows = run(&config, std::future::pending()).await.unwrap();
        assert_eq!(
            rows.iter().map(|row| row.errors).collect::<Vec<_>>(),
            [1, 1, 512, 512]
        );
        let text = std::fs::read_to_string(path).unwrap();
        let written: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(written.len(), 4);
        assert!(written[0]["records_per_s"].is_null());
    }

    #[tokio::test]
    async fn an_interrupted_bench_keeps_its_rows() {
        let config = BenchConfig {
            reps: 1,
            ..config("/bin/false")
        };
        let rows = run(&config, std::future::ready(())).await.unwrap();
        assert!(rows.len() < 4, "{rows:?}");
    }
}
