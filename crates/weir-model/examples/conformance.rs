//! The real model against what llama.cpp gave for it, and against itself cut, chunked and batched.
//!
//! `cargo run --release -p weir-model --example conformance -- PATH_TO_GGUF [THREADS]`
//! Not a test of `cargo test`, because it needs the 253 MB file (`weir model get gemma3-270m`); without it this fails.
//! Prints a line for each check and exits with an error when one does not hold.
#![expect(clippy::print_stdout, reason = "a report")]

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value;
use weir_model::gguf::Gguf;
use weir_model::kernels::{Isa, argmax};
use weir_model::model::Model;
use weir_model::tokenizer::{Encode, TextStream, Tokenizer};
use weir_model::{Row, Stage, StageSpec, Threads};

/// The limits of agreement with another engine: see docs/models.md.
const MEAN_LIMIT: f64 = 0.5;
const LARGEST_LIMIT: f64 = 3.0;
const CLEAR_GAP: f64 = 1.0;
const TOP_SHARE: f64 = 0.95;

struct Report {
    failed: usize,
}

impl Report {
    fn check(&mut self, holds: bool, what: &str) {
        println!("{} {what}", if holds { "ok  " } else { "FAIL" });
        self.failed += usize::from(!holds);
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: conformance PATH_TO_GGUF [THREADS]; `weir model get gemma3-270m` prints the path");
        return ExitCode::FAILURE;
    };
    let threads = args.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    match run(&path, threads) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} checks failed");
            ExitCode::FAILURE
        }
        Err(fault) => {
            eprintln!("cannot check {path}: {fault}; `weir model get gemma3-270m` fetches the model");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str, threads: usize) -> Result<usize, Box<dyn std::error::Error>> {
    let gguf = Arc::new(Gguf::open(path.as_ref())?);
    let reference: Value =
        serde_json::from_str(include_str!("../tests/fixtures/gemma3-270m-reference.json"))?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let mut report = Report { failed: 0 };
    check_tokens(&tokenizer, &reference, &mut report);
    check_pieces(&tokenizer, &reference, &mut report);
    check_stream(&tokenizer, &reference, &mut report);
    let threads = Threads::new(threads)?;
    check_middle_stage(&gguf, &threads, &mut report)?;
    let (begin, cpu) = (std::time::Instant::now(), cpu_seconds());
    let mut model = Model::load(&gguf, 1, &threads)?;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    // Processor time, so that a busy machine does not decide the check.
    report.check(
        cpu < 2.0,
        &format!("loading took {cpu:.2} s of processor time, {seconds:.2} s in all"),
    );
    check_logits(&mut model, &reference, &mut report)?;
    check_chunks(&mut model, &reference, &mut report)?;
    check_batch(&mut model, &reference, &mut report)?;
    let whole = cut_logits(&mut model, &reference)?;
    drop(model);
    for cuts in [vec![9], vec![6, 12], vec![5, 9, 14], vec![0, 18, 18], vec![18]] {
        let mut cut = Model::load_cut(&gguf, &cuts, &threads)?;
        report.check(
            cut_logits(&mut cut, &reference)? == whole,
            &format!("cut after {cuts:?}: logits bit-equal"),
        );
    }
    Ok(report.failed)
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn ids(value: &Value, key: &str) -> Vec<u32> {
    list(value, key)
        .iter()
        .filter_map(|id| u32::try_from(id.as_u64()?).ok())
        .collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .filter_map(|at| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_tokens(tokenizer: &Tokenizer, reference: &Value, report: &mut Report) {
    let (mut count, mut equal) = (0, 0);
    for case in list(reference, "tokenize") {
        let input = bytes(case["hex"].as_str().unwrap_or_default());
        for (with_bos, parse_special) in [(false, false), (false, true), (true, false), (true, true)] {
            let key = format!("bos{}_special{}", u8::from(with_bos), u8::from(parse_special));
            count += 1;
            equal += usize::from(
                tokenizer.encode(
                    &input,
                    Encode {
                        with_bos,
                        parse_special,
                    },
                ) == ids(case, &key),
            );
        }
    }
    for case in ["completions", "chats", "long"]
        .iter()
        .flat_map(|set| list(reference, set))
    {
        let prompt = case["prompt"].as_str().unwrap_or_default();
        let how = Encode {
            with_bos: true,
            parse_special: true,
        };
        count += 1;
        equal += usize::from(tokenizer.encode(prompt.as_bytes(), how) == ids(case, "prompt_ids"));
    }
    report.check(
        equal == count && count > 200,
        &format!("token ids: {equal} of {count} equal"),
    );
}

fn check_pieces(tokenizer: &Tokenizer, reference: &Value, report: &mut Report) {
    let (mut count, mut equal) = (0, 0);
    for (id, piece) in reference["pieces"].as_object().into_iter().flatten() {
        let Ok(id) = id.parse() else { continue };
        let (mut plain, mut special) = (Vec::new(), Vec::new());
        tokenizer.piece(id, false, &mut plain);
        tokenizer.piece(id, true, &mut special);
        let same = Some(hex(&plain).as_str()) == piece["plain"].as_str()
            && Some(hex(&special).as_str()) == piece["special"].as_str()
            && Some(tokenizer.is_control(id)) == piece["control"].as_bool()
            && Some(tokenizer.is_end(id)) == piece["eog"].as_bool();
        count += 1;
        equal += usize::from(same);
    }
    report.check(
        equal == count && count > 900,
        &format!("pieces: {equal} of {count} equal"),
    );
}

fn check_stream(tokenizer: &Tokenizer, reference: &Value, report: &mut Report) {
    let (mut count, mut equal) = (0, 0);
    for case in list(reference, "tokenize") {
        let ids = ids(case, "bos0_special0");
        let (mut stream, mut text, mut bytes) = (TextStream::new(), String::new(), Vec::new());
        for id in &ids {
            bytes.clear();
            tokenizer.piece(*id, false, &mut bytes);
            stream.push(&bytes, &mut text);
        }
        stream.finish(&mut text);
        count += 1;
        equal += usize::from(text == tokenizer.decode(&ids));
    }
    report.check(
        equal == count,
        &format!("streamed text: {equal} of {count} equal to unstreamed"),
    );
}

fn check_middle_stage(
    gguf: &Arc<Gguf>,
    threads: &Threads,
    report: &mut Report,
) -> Result<(), Box<dyn std::error::Error>> {
    let stage = Stage::load(
        gguf,
        StageSpec {
            layers: 5..9,
            embedding: false,
            head: false,
        },
        threads,
    )?;
    let mib = stage.loaded_bytes() as f64 / 1_048_576.0;
    report.check(
        mib < 60.0,
        &format!("a middle stage of four holds {mib:.1} MiB of weights"),
    );
    Ok(())
}

/// How one prompt compares under forced decoding.
#[derive(Default)]
struct Compared {
    sum: f64,
    count: usize,
    largest: f64,
    steps: usize,
    top_equal: usize,
    clear_lost: usize,
}

fn compare(model: &mut Model, case: &Value) -> Result<Compared, Box<dyn std::error::Error>> {
    const SEQUENCE: u64 = 1;
    let (prompt, output) = (ids(case, "prompt_ids"), ids(case, "output_ids"));
    let mut found = Compared::default();
    let mut logits = Vec::new();
    model.open(SEQUENCE, prompt.len() + output.len())?;
    model.feed(SEQUENCE, &prompt, &mut logits)?;
    for (step, id) in list(case, "steps").iter().zip(&output) {
        let top: Vec<(usize, f64)> = list(step, "top")
            .iter()
            .filter_map(|pair| Some((usize::try_from(pair[0].as_u64()?).ok()?, pair[1].as_f64()?)))
            .collect();
        for (id, logit) in &top {
            let difference = (f64::from(logits[*id]) - logit).abs();
            found.sum += difference;
            found.count += 1;
            found.largest = found.largest.max(difference);
        }
        let same = argmax(Isa::detect(), &logits) == top[0].0;
        found.steps += 1;
        found.top_equal += usize::from(same);
        found.clear_lost += usize::from(!same && top[0].1 - top[1].1 > CLEAR_GAP);
        model.feed(SEQUENCE, &[*id], &mut logits)?;
    }
    model.close(SEQUENCE);
    Ok(found)
}

fn check_logits(
    model: &mut Model,
    reference: &Value,
    report: &mut Report,
) -> Result<(), Box<dyn std::error::Error>> {
    let (mut steps, mut top_equal) = (0, 0);
    for case in ["completions", "chats", "long"]
        .iter()
        .flat_map(|set| list(reference, set))
    {
        let found = compare(model, case)?;
        let mean = found.sum / found.count as f64;
        steps += found.steps;
        top_equal += found.top_equal;
        let holds = mean < MEAN_LIMIT && found.largest < LARGEST_LIMIT && found.clear_lost == 0;
        let name = case["name"].as_str().unwrap_or_default();
        report.check(
            holds,
            &format!(
                "{name}: mean difference {mean:.3}, largest {:.2}, top-1 {} of {}, clear ones lost {}",
                found.largest, found.top_equal, found.steps, found.clear_lost
            ),
        );
    }
    let share = top_equal as f64 / steps as f64;
    report.check(
        share >= TOP_SHARE && steps > 300,
        &format!("top-1 equal on {top_equal} of {steps} steps"),
    );
    Ok(())
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

fn long_prompt(reference: &Value) -> Vec<u32> {
    list(reference, "long")
        .first()
        .map(|case| ids(case, "prompt_ids"))
        .unwrap_or_default()
}

fn check_chunks(
    model: &mut Model,
    reference: &Value,
    report: &mut Report,
) -> Result<(), Box<dyn std::error::Error>> {
    let prompt = long_prompt(reference);
    let mut expected = None;
    for chunk in [prompt.len(), 256, 128, 77, 1] {
        let mut logits = Vec::new();
        model.open(1, prompt.len())?;
        for piece in prompt.chunks(chunk) {
            model.feed(1, piece, &mut logits)?;
        }
        model.close(1);
        let found = bits(&logits);
        let same = *expected.get_or_insert_with(|| found.clone()) == found;
        report.check(
            same,
            &format!("{} tokens fed {chunk} at a time: logits bit-equal", prompt.len()),
        );
    }
    Ok(())
}

fn check_batch(
    model: &mut Model,
    reference: &Value,
    report: &mut Report,
) -> Result<(), Box<dyn std::error::Error>> {
    let cases = list(reference, "completions")
        .iter()
        .chain(list(reference, "chats"))
        .take(8);
    let prompts: Vec<Vec<u32>> = cases.map(|case| ids(case, "prompt_ids")).collect();
    let mut alone = Vec::new();
    let mut logits = Vec::new();
    for prompt in &prompts {
        model.open(1, 256)?;
        model.feed(1, prompt, &mut logits)?;
        let id = u32::try_from(argmax(Isa::detect(), &logits))?;
        model.feed(1, &[id], &mut logits)?;
        alone.push((id, bits(&logits)));
        model.close(1);
    }
    let (mut rows, mut tokens) = (Vec::new(), Vec::new());
    for ((sequence, prompt), (id, _)) in (0..).zip(&prompts).zip(&alone) {
        model.open(sequence, 256)?;
        model.feed(sequence, prompt, &mut logits)?;
        rows.push(Row {
            sequence,
            position: prompt.len(),
        });
        tokens.push(*id);
    }
    let all: Vec<usize> = (0..rows.len()).collect();
    model.step(&rows, &tokens, &all, &mut logits)?;
    let vocabulary = model.arch().vocabulary;
    let equal = logits
        .chunks(vocabulary)
        .zip(&alone)
        .filter(|(logits, (_, alone))| bits(logits) == *alone)
        .count();
    report.check(
        equal == 8,
        &format!("{equal} of 8 sequences in a batch bit-equal to their solo runs"),
    );
    (0..8).for_each(|sequence| model.close(sequence));
    Ok(())
}

/// The logits of a short and a long prompt, and of a few steps after each.
fn cut_logits(model: &mut Model, reference: &Value) -> Result<Vec<u32>, Box<dyn std::error::Error>> {
    let long = long_prompt(reference);
    let mut all = Vec::new();
    let mut logits = Vec::new();
    for prompt in [&long[..1], &long[..37], &long[..600]] {
        model.open(1, 700)?;
        model.feed(1, prompt, &mut logits)?;
        all.extend(bits(&logits));
        for _ in 0..6 {
            let id = u32::try_from(argmax(Isa::detect(), &logits))?;
            model.feed(1, &[id], &mut logits)?;
            all.extend(bits(&logits));
        }
        model.close(1);
    }
    Ok(all)
}
