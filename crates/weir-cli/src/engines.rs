//! Which engines a worker process hosts: the arguments, what they mean, and the start of the engines.
//!
//! `weir up` has the same arguments and hands them on. A model needs no `--engine`: naming one is enough.

use std::{ffi::OsString, path::Path, sync::Arc};

use anyhow::Result;
use clap::{Args, ValueEnum};
use weir_engine::{
    Engine,
    mock::{MockConfig, MockEngine},
    scripted::{ScriptedConfig, ScriptedEngine},
};
use weir_model::{
    fetch,
    serve::{ServeOptions, serve},
};

use crate::{exit::usage, model, up::flag_with};

/// Which engines a process hosts.
#[derive(Debug, Clone, Args)]
pub(crate) struct EngineArgs {
    /// Engine of every worker. Default: model if there is a --model, else mock.
    #[arg(long, value_enum)]
    engine: Option<EngineKind>,
    /// Workers (engines) in a process.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) workers: u16,
    /// Divides the mock engine's times; `inf` for no waiting at all.
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = 1.0, value_parser = parse_speedup)]
    speedup: f64,
    /// Model to serve: a GGUF file, or the name of a known model.
    #[arg(long, value_name = "FILE|NAME")]
    model: Option<String>,
    /// Name clients ask for. Default: that of the model, or of its file without .gguf.
    #[arg(long, value_name = "NAME", requires = "model")]
    model_name: Option<String>,
    /// Memory for the contexts of all requests, such as 512M or 2G. Default: half of what is free beside the weights.
    #[arg(long, value_name = "SIZE", requires = "model", value_parser = parse_bytes)]
    kv_memory: Option<usize>,
}

/// Engines by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineKind {
    /// Makes tokens up, with a model's timing.
    Mock,
    /// Plays the script that a request brings.
    Scripted,
    /// Runs a model.
    Model,
}

/// What the arguments ask for.
pub(crate) enum Chosen<'a> {
    Mock,
    Scripted,
    /// The model as it was typed.
    Model(&'a str),
}

fn parse_speedup(text: &str) -> Result<f64, String> {
    let speedup: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if speedup > 0.0 {
        Ok(speedup)
    } else {
        Err("it must be over 0".to_owned())
    }
}

/// A whole number of bytes, or of K, M or G (powers of 1024).
fn parse_bytes(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: usize = digits
        .parse()
        .map_err(|_| "not a size; write 512M or 2G".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "more than any machine has".to_owned())
}

impl EngineArgs {
    /// What the arguments mean together.
    ///
    /// # Errors
    /// Names those that do not fit each other.
    pub(crate) fn chosen(&self) -> Result<Chosen<'_>> {
        match (self.engine, self.model()) {
            (None | Some(EngineKind::Mock), None) => Ok(Chosen::Mock),
            (Some(EngineKind::Scripted), None) => Ok(Chosen::Scripted),
            (Some(EngineKind::Model), None) => Err(usage("--engine model needs a --model")),
            (Some(EngineKind::Mock | EngineKind::Scripted), Some(_)) => {
                Err(usage("--model goes with --engine model only"))
            }
            (None | Some(EngineKind::Model), Some(_)) if self.workers > 1 => Err(usage(
                "--workers must be 1 with a model: one engine takes many requests at once; for more, start more processes",
            )),
            (None | Some(EngineKind::Model), Some(model)) => Ok(Chosen::Model(model)),
        }
    }

    /// The model to serve, if any, as it was typed.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Fetches the model if it is a known one and no file, verifying what is there already.
    ///
    /// # Errors
    /// Says why it is not there.
    #[expect(clippy::print_stderr, reason = "progress, before any log")]
    pub(crate) fn fetch(&self) -> Result<()> {
        let known = self.model().filter(|typed| !Path::new(typed).exists());
        if let Some(Ok(known)) = known.map(fetch::known) {
            fetch::fetch(known, &fetch::cache_dir()?, &mut |text| eprintln!("{text}"))?;
        }
        Ok(())
    }

    /// Appends the arguments for a worker process.
    pub(crate) fn append_to(&self, args: &mut Vec<OsString>) {
        let engine = self.engine.and_then(|engine| engine.to_possible_value());
        args.extend(engine.map(|engine| flag_with("--engine", engine.get_name())));
        args.push(flag_with("--workers", &self.workers.to_string()));
        args.push(flag_with("--speedup", &self.speedup.to_string()));
        args.extend(self.model().map(|model| flag_with("--model", model)));
        args.extend(self.model_name.iter().map(|name| flag_with("--model-name", name)));
        let memory = self.kv_memory.map(|bytes| bytes.to_string());
        args.extend(memory.map(|bytes| flag_with("--kv-memory", &bytes)));
    }

    /// Starts the engines on the current tokio runtime; `threads` are for a model.
    ///
    /// # Errors
    /// Arguments that do not fit each other, or a model that cannot be served.
    pub(crate) fn start(&self, threads: Option<u16>) -> Result<Vec<Arc<dyn Engine>>> {
        let speedup = self.speedup;
        let mock = |_| -> Arc<dyn Engine> {
            Arc::new(MockEngine::start(&MockConfig {
                speedup,
                ..Default::default()
            }))
        };
        let scripted = |_| -> Arc<dyn Engine> { Arc::new(ScriptedEngine::start(&ScriptedConfig::default())) };
        Ok(match self.chosen()? {
            Chosen::Mock => (0..self.workers).map(mock).collect(),
            Chosen::Scripted => (0..self.workers).map(scripted).collect(),
            Chosen::Model(model) => vec![self.start_model(model, threads)?],
        })
    }

    fn start_model(&self, typed: &str, threads: Option<u16>) -> Result<Arc<dyn Engine>> {
        let failed = |error: anyhow::Error| usage(format!("--model {typed}: {error:#}"));
        let gguf = Arc::new(model::open(typed).map_err(failed)?);
        let options = ServeOptions {
            name: self.name_of(typed)?,
            threads: threads.map(usize::from),
            kv_memory: self.kv_memory,
        };
        let engine = serve(&gguf, &options).map_err(|error| failed(error.into()))?;
        let card = engine.card();
        tracing::info!(model = card.name, context = card.context_length, "model loaded");
        Ok(Arc::new(engine))
    }

    fn name_of(&self, typed: &str) -> Result<String> {
        let file = || {
            let file = Path::new(typed).file_name()?.to_str()?;
            Some(file.strip_suffix(".gguf").unwrap_or(file).to_owned())
        };
        match self.model_name.clone().or_else(file) {
            Some(name) if !name.is_empty() => Ok(name),
            _ => Err(usage(format!(
                "--model {typed} gives no name; give one with --model-name"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn sizes_are_read_and_nonsense_is_not() {
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!((parse_bytes("2g"), parse_bytes("7")), (Ok(2 << 30), Ok(7)));
        for nonsense in ["", "M", "1.5G", "-1", "3T", "99999999999999G", "1\u{4d3}"] {
            assert!(parse_bytes(nonsense).is_err(), "{nonsense}");
        }
    }
}
