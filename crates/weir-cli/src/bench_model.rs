//! `weir bench model`: how fast the model engine is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use weir_bench::model::{ModelBench, agree, run as run_bench, table};

/// Arguments of `weir bench model`.
#[derive(Debug, Args)]
pub(crate) struct BenchModelArgs {
    /// File, or name of a fetched model.
    #[arg(
        long,
        required_unless_present = "agree",
        default_value_if("agree", "true", "")
    )]
    model: String,
    /// Instead of timing, compare logits of tiny files of every architecture with llama.cpp's.
    #[arg(long, requires = "llama_python")]
    agree: bool,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Numbers of sequences decoded together.
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    batch: Vec<usize>,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 512)]
    prompt: usize,
    /// Tokens decoded.
    #[arg(long, default_value_t = 64)]
    decode: usize,
    /// Runs of each arm, one of each in turn.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Seconds to watch the loaded model do nothing; 0 skips it.
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Measure once more beside a busy loop on every core.
    #[arg(long)]
    burner: bool,
    /// A Python with `llama-cpp-python` and `numpy`: adds the arm llama.cpp.
    #[arg(long, value_name = "PATH")]
    llama_python: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs `weir bench model`.
#[expect(clippy::print_stdout, reason = "the command's output")]
pub(crate) fn run(args: &BenchModelArgs) -> Result<()> {
    if let Some(python) = args.llama_python.as_ref().filter(|_| args.agree) {
        return compare(python, args.json);
    }
    // Says what to do when the model is not there, before anything is measured.
    drop(crate::model::open(&args.model)?);
    let bench = ModelBench {
        model: weir_model::fetch::resolve(&args.model)?,
        threads: args.threads.clone(),
        batches: args.batch.clone(),
        prompt: args.prompt.max(1),
        decode: args.decode.max(1),
        runs: args.runs.max(1),
        idle: Duration::from_secs(args.idle),
        burner: args.burner,
        llama_python: args.llama_python.clone(),
    };
    let report = run_bench(&bench, &mut |text| eprintln!("{text}"))?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", table(&report));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the command's output")]
fn compare(python: &Path, json: bool) -> Result<()> {
    let all = agree::run(python, &mut |text| eprintln!("{text}"))?;
    if json {
        println!("{}", serde_json::to_string(&all)?);
    } else {
        print!("{}", agree::table(&all));
    }
    let failed = all.iter().filter(|row| !row.holds()).count();
    anyhow::ensure!(
        failed == 0,
        "{failed} of {} files do not agree with llama.cpp",
        all.len()
    );
    Ok(())
}
