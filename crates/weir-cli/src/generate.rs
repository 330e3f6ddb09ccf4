//! `weir generate`: one prompt through a model in this process, without plane or frontend.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use weir_model::Threads;
use weir_model::model::Model;
use weir_model::sample::{Sampling, sample};
use weir_model::tokenizer::{Encode, TextStream, Tokenizer};

/// Arguments of `weir generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// File, or name of a fetched model.
    #[arg(long)]
    model: String,
    /// The prompt as text.
    #[arg(long, conflicts_with = "prompt_ids", required_unless_present = "prompt_ids")]
    prompt: Option<String>,
    /// The prompt as token ids.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    prompt_ids: Vec<u32>,
    /// Recognise control tokens written out in the prompt.
    #[arg(long)]
    special: bool,
    /// Tokens to make at most.
    #[arg(long, default_value_t = 128)]
    max_tokens: usize,
    /// Always take the likeliest token.
    #[arg(long, conflicts_with = "temperature")]
    greedy: bool,
    /// Randomness; 0 is greedy.
    #[arg(long, default_value_t = 0.7)]
    temperature: f32,
    /// Keep this many of the likeliest tokens; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Keep the likeliest tokens up to this probability.
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Keep tokens at least this likely compared with the likeliest.
    #[arg(long, default_value_t = 0.0)]
    min_p: f32,
    /// Where randomness comes from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Feed these ids instead of the model's own choices.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    force_ids: Vec<u32>,
    /// Report this many of the largest logits of each step.
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_logits: usize,
    /// Threads [default: one a core].
    #[arg(long)]
    threads: Option<usize>,
    /// Stages the model is cut into, all in this process.
    #[arg(long, default_value_t = 1)]
    stages: usize,
    /// Print one JSON object at the end instead of streaming text.
    #[arg(long)]
    json: bool,
}

/// What a run gave.
#[derive(Default)]
struct Outcome {
    ids: Vec<u32>,
    text: String,
    steps: Vec<serde_json::Value>,
    prefill: Span,
    decode: Span,
}

/// Tokens fed, and the time and processor time it took.
#[derive(Default)]
struct Span {
    tokens: usize,
    seconds: f64,
    cpu_seconds: f64,
}

impl Span {
    fn measure<T>(&mut self, tokens: usize, work: impl FnOnce() -> T) -> T {
        let (begin, cpu) = (Instant::now(), cpu_seconds());
        let result = work();
        self.tokens += tokens;
        self.seconds += begin.elapsed().as_secs_f64();
        self.cpu_seconds += cpu_seconds() - cpu;
        result
    }

    fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.tokens as f64 / self.seconds
        } else {
            0.0
        }
    }

    fn cpu_ms(&self) -> f64 {
        if self.tokens > 0 {
            1e3 * self.cpu_seconds / self.tokens as f64
        } else {
            0.0
        }
    }
}

/// Runs `weir generate`.
///
/// # Errors
/// When the model cannot be loaded, or the prompt does not fit it.
#[expect(clippy::print_stdout, reason = "the command's output")]
pub(crate) fn run(args: GenerateArgs) -> Result<()> {
    let gguf = Arc::new(crate::model::open(&args.model)?);
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let how = sampling(&args);
    how.validate()?;
    let prompt = match &args.prompt {
        Some(text) => tokenizer.encode(
            text.as_bytes(),
            Encode {
                with_bos: true,
                parse_special: args.special,
            },
        ),
        None => args.prompt_ids.clone(),
    };
    if prompt.is_empty() {
        bail!("the prompt has no tokens");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = Threads::new(args.threads.unwrap_or(cores))?;
    let mut model = Model::load(&gguf, args.stages, &threads)?;
    let outcome = generate(&args, &mut model, &tokenizer, &how, &prompt)?;
    if !args.json {
        println!();
        return Ok(());
    }
    let about = json!({
        "prompt_ids": prompt,
        "output_ids": outcome.ids,
        "text": outcome.text,
        "steps": outcome.steps,
        "prefill_tok_s": outcome.prefill.rate(),
        "decode_tok_s": outcome.decode.rate(),
        "cpu_ms_per_token": outcome.decode.cpu_ms(),
        "rss_mib": status_mib("VmRSS:"),
        "peak_rss_mib": status_mib("VmHWM:"),
    });
    println!("{about}");
    Ok(())
}

fn sampling(args: &GenerateArgs) -> Sampling {
    Sampling {
        temperature: if args.greedy { 0.0 } else { args.temperature },
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
        ..Sampling::default()
    }
}

fn generate(
    args: &GenerateArgs,
    model: &mut Model,
    tokenizer: &Tokenizer,
    how: &Sampling,
    prompt: &[u32],
) -> Result<Outcome> {
    const SEQUENCE: u64 = 1;
    let wanted = if args.force_ids.is_empty() {
        args.max_tokens
    } else {
        args.force_ids.len()
    };
    model.open(SEQUENCE, prompt.len() + wanted)?;
    let mut outcome = Outcome::default();
    let mut logits = Vec::new();
    let (mut stream, mut bytes, mut piece) = (TextStream::new(), Vec::new(), String::new());
    let fed = outcome
        .prefill
        .measure(prompt.len(), || model.feed(SEQUENCE, prompt, &mut logits));
    fed?;
    for step in 0..wanted {
        if args.top_logits > 0 {
            outcome
                .steps
                .push(json!({ "top": top(&logits, args.top_logits) }));
        }
        let chosen = sample(&mut logits, how, prompt, &outcome.ids, step);
        let id = args.force_ids.get(step).copied().unwrap_or(chosen);
        if args.force_ids.is_empty() && tokenizer.is_end(id) {
            break;
        }
        outcome.ids.push(id);
        bytes.clear();
        tokenizer.piece(id, false, &mut bytes);
        stream.push(&bytes, &mut piece);
        emit(args.json, &mut piece, &mut outcome.text)?;
        if step + 1 < wanted {
            let fed = outcome
                .decode
                .measure(1, || model.feed(SEQUENCE, &[id], &mut logits));
            fed?;
        }
    }
    stream.finish(&mut piece);
    emit(args.json, &mut piece, &mut outcome.text)?;
    Ok(outcome)
}

/// Shows a piece of text as it comes, and adds it to the whole.
fn emit(quiet: bool, piece: &mut String, text: &mut String) -> Result<()> {
    if !quiet && !piece.is_empty() {
        let mut out = std::io::stdout().lock();
        out.write_all(piece.as_bytes())?;
        out.flush()?;
    }
    text.push_str(piece);
    piece.clear();
    Ok(())
}

/// The largest logits, the lowest id of equals first.
fn top(logits: &[f32], count: usize) -> Vec<(usize, f32)> {
    let mut all: Vec<(usize, f32)> = logits.iter().copied().enumerate().collect();
    let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if count < all.len() {
        all.select_nth_unstable_by(count, order);
        all.truncate(count);
    }
    all.sort_unstable_by(order);
    all
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// A line of `/proc/self/status` in MiB; 0 where there is none.
fn status_mib(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u32>().ok());
    f64::from(kib.unwrap_or(0)) / 1024.0
}
