//! The arm `llama.cpp`: its public Python binding in a child process, one JSON request a line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::weir::prompt_ids;
use super::{ModelBench, Timing};

/// What the child runs.
const DRIVER: &str = include_str!("llama_arm.py");

pub(super) struct Arm {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Arm {
    pub(super) fn start(python: &Path, model: &Path, threads: usize, context: usize) -> Result<Self> {
        let mut child = Command::new(python)
            .arg("-c")
            .arg(DRIVER)
            .arg(model)
            .args([threads.to_string(), context.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", python.display()))?;
        let requests = child.stdin.take().context("the child has no input")?;
        let answers = BufReader::new(child.stdout.take().context("the child has no output")?);
        let mut arm = Self {
            child,
            requests,
            answers,
        };
        let ready = arm
            .answer()
            .context("the llama.cpp arm did not start: can this Python import llama_cpp and numpy?")?;
        if ready["ready"] != true {
            bail!("the llama.cpp arm did not start: {ready}");
        }
        Ok(arm)
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the llama.cpp arm ended");
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// The logits behind the prompt, and behind each forced id.
    pub(super) fn logits(&mut self, prompt: &[u32], forced: &[u32]) -> Result<Vec<Vec<f64>>> {
        let request = json!({"op": "logits", "prompt": prompt, "forced": forced});
        writeln!(self.requests, "{request}")?;
        let mut answer = self.answer()?;
        Ok(serde_json::from_value(answer["steps"].take())?)
    }

    pub(super) fn run(&mut self, bench: &ModelBench) -> Result<Timing> {
        let request = json!({"op": "speed", "prompt": prompt_ids(bench.prompt), "decode": bench.decode});
        writeln!(self.requests, "{request}")?;
        let answer = self.answer()?;
        let seconds = |key: &str| {
            answer[key]
                .as_f64()
                .with_context(|| format!("the llama.cpp arm answered {answer}"))
        };
        Ok(Timing {
            prefill_s: seconds("prefill_s")?,
            decode_s: seconds("decode_s")?,
            decode_cpu_s: seconds("decode_cpu_s")?,
        })
    }
}

impl Drop for Arm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
