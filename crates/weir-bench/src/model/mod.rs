//! How fast a model runs: `weir bench model`.
//!
//! The engine of this repository runs in this process. llama.cpp, when a Python with `llama-cpp-python` is given, runs in
//! a child, one run of each in turn, so that a busy minute of the machine hits both. All figures are medians of the runs;
//! ratios are taken between medians of the same table.
//! What is measured is printed, not judged.

pub mod agree;
mod llama;
mod weir;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::process::{allowed_cores, cpu_time, rss_mib};
use crate::stats::Samples;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ModelBench {
    /// The GGUF file.
    pub model: PathBuf,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Numbers of sequences decoded together.
    pub batches: Vec<usize>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens decoded.
    pub decode: usize,
    /// Runs of each arm.
    pub runs: usize,
    /// How long to watch the loaded model do nothing; zero skips it.
    pub idle: Duration,
    /// Measure decoding once more beside a busy loop on every core.
    pub burner: bool,
    /// A Python that can import `llama_cpp`, for the arm `llama.cpp`.
    pub llama_python: Option<PathBuf>,
}

/// Medians of one arm in one setting.
#[derive(Clone, Debug, Serialize)]
pub struct ModelRow {
    /// `weir`, `weir beside burners` or `llama.cpp`.
    pub arm: String,
    /// Threads.
    pub threads: usize,
    /// Sequences decoded together.
    pub batch: usize,
    /// Prompt tokens a second, where it was measured.
    pub prefill_tok_s: Option<f64>,
    /// Decoded tokens a second, all sequences together.
    pub decode_tok_s: f64,
    /// Processor time a decoded token.
    pub cpu_ms_per_token: f64,
}

/// What a run of the bench found.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// One row for each arm and setting.
    pub rows: Vec<ModelRow>,
    /// Percent of one core used while idle.
    pub idle_percent: Option<f64>,
    /// Resident memory of this process with the model loaded.
    pub rss_mib: f64,
    /// How long loading took.
    pub load_seconds: f64,
}

/// One run of one arm.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    prefill_s: f64,
    decode_s: f64,
    decode_cpu_s: f64,
}

/// The runs of one arm in one setting.
#[derive(Default)]
struct Runs(Vec<Timing>);

impl Runs {
    fn row(&self, bench: &ModelBench, arm: &str, threads: usize, batch: usize) -> ModelRow {
        let median = |value: &dyn Fn(&Timing) -> f64| {
            let samples: Samples = self.0.iter().map(value).collect();
            samples.median().unwrap_or(f64::NAN)
        };
        let decoded = (bench.decode * batch) as f64;
        let prefill = median(&|timing| bench.prompt as f64 / timing.prefill_s);
        ModelRow {
            arm: arm.to_owned(),
            threads,
            batch,
            prefill_tok_s: prefill.is_finite().then_some(prefill),
            decode_tok_s: median(&|timing| decoded / timing.decode_s),
            cpu_ms_per_token: median(&|timing| 1e3 * timing.decode_cpu_s / decoded),
        }
    }
}

/// Runs the bench; `say` is told what is going on.
///
/// # Errors
/// When the model cannot be loaded, or the child with llama.cpp fails.
pub fn run(bench: &ModelBench, say: &mut dyn FnMut(&str)) -> Result<ModelReport> {
    let mut rows = Vec::new();
    let (mut idle_percent, mut rss, mut load_seconds) = (None, 0.0, 0.0);
    for &threads in &bench.threads {
        let mut ours = weir::Arm::load(&bench.model, threads)?;
        load_seconds = ours.load_seconds;
        rss = rss_mib()?;
        let context = (bench.prompt + bench.decode + 1).next_multiple_of(256);
        let start = |python: &PathBuf| llama::Arm::start(python, &bench.model, threads, context);
        let mut theirs = bench.llama_python.as_ref().map(start).transpose()?;
        for &batch in &bench.batches {
            say(&format!("{threads} threads, {batch} sequences"));
            let (mut our_runs, mut their_runs) = (Runs::default(), Runs::default());
            // The first round warms caches and clocks and is not counted.
            for round in 0..=bench.runs {
                let timing = ours.run(bench, batch)?;
                let other = theirs
                    .as_mut()
                    .filter(|_| batch == 1)
                    .map(|arm| arm.run(bench))
                    .transpose()?;
                if round > 0 {
                    our_runs.0.push(timing);
                    their_runs.0.extend(other);
                }
            }
            rows.push(our_runs.row(bench, "weir", threads, batch));
            if !their_runs.0.is_empty() {
                rows.push(their_runs.row(bench, "llama.cpp", threads, batch));
            }
        }
        if bench.burner {
            say(&format!("{threads} threads beside a busy loop on every core"));
            let runs = beside_burners(|| {
                (0..bench.runs)
                    .map(|_| ours.run(bench, 1))
                    .collect::<Result<Vec<_>>>()
            })??;
            rows.push(Runs(runs).row(bench, "weir beside burners", threads, 1));
        }
        if !bench.idle.is_zero() {
            say(&format!("idle for {} s", bench.idle.as_secs()));
            let before = cpu_time();
            std::thread::sleep(bench.idle);
            let used = (cpu_time() - before).as_secs_f64();
            idle_percent = Some(
                idle_percent
                    .unwrap_or(0.0_f64)
                    .max(100.0 * used / bench.idle.as_secs_f64()),
            );
        }
    }
    Ok(ModelReport {
        rows,
        idle_percent,
        rss_mib: rss,
        load_seconds,
    })
}

/// Runs `work` while one thread a core does nothing but burn time.
fn beside_burners<T>(work: impl FnOnce() -> T) -> Result<T> {
    let cores = allowed_cores()?;
    let stop = AtomicBool::new(false);
    Ok(std::thread::scope(|scope| {
        for core in cores {
            let stop = &stop;
            scope.spawn(move || {
                // Without its own core a burner burns anyway.
                let _ = crate::process::pin_to(core);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    }))
}

/// The table people read, with the ratio of each `weir` row to llama.cpp's in the same setting.
#[must_use]
pub fn table(report: &ModelReport) -> String {
    let mut out = String::from(
        "arm                  threads  batch  prefill tok/s  decode tok/s  cpu ms/token  vs llama.cpp\n",
    );
    for row in &report.rows {
        let other = report.rows.iter().find(|other| {
            other.arm == "llama.cpp"
                && row.arm == "weir"
                && (other.threads, other.batch) == (row.threads, row.batch)
        });
        let ratio = other.map_or_else(String::new, |other| {
            let prefill = row
                .prefill_tok_s
                .zip(other.prefill_tok_s)
                .map_or(f64::NAN, |(ours, theirs)| ours / theirs);
            format!(
                "prefill {prefill:.2} x, decode {:.2} x",
                row.decode_tok_s / other.decode_tok_s
            )
        });
        let prefill = row
            .prefill_tok_s
            .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
        out.push_str(&format!(
            "{:<20} {:>7} {:>6} {prefill:>14} {:>13.1} {:>13.2}  {ratio}\n",
            row.arm, row.threads, row.batch, row.decode_tok_s, row.cpu_ms_per_token
        ));
    }
    out.push_str(&format!(
        "loaded in {:.2} s, {:.0} MiB resident",
        report.load_seconds, report.rss_mib
    ));
    if let Some(percent) = report.idle_percent {
        out.push_str(&format!(", {percent:.2}% of a core while idle"));
    }
    out.push('\n');
    out
}
