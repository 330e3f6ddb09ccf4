//! The run's files, written as it goes. Without a directory, nothing is written.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::{
    clock::Clock,
    config::{InvalidConfig, LoadConfig},
    record::Record,
    summary::Summary,
};

/// The open files of a run.
#[derive(Debug)]
pub(super) struct Output {
    files: Option<Files>,
    clock: Clock,
    broken: Option<String>,
}

#[derive(Debug)]
struct Files {
    directory: PathBuf,
    requests: BufWriter<File>,
    log: File,
}

impl Output {
    /// Creates the directory and writes `config.json`.
    pub(super) fn create(config: &LoadConfig, clock: Clock) -> Result<Self, InvalidConfig> {
        let create = |directory| Files::create(directory, config);
        let files = config.out.as_deref().map(create).transpose();
        let files = files.map_err(|error| InvalidConfig(format!("--out cannot be used: {error:#}")))?;
        Ok(Self {
            files,
            clock,
            broken: None,
        })
    }

    /// Appends one line to `requests.jsonl`.
    pub(super) fn record(&mut self, record: &Record) {
        self.attempt(|files| {
            serde_json::to_writer(&mut files.requests, record)?;
            Ok(files.requests.write_all(b"\n")?)
        });
    }

    /// Hands all records so far to the kernel.
    pub(super) fn flush(&mut self) {
        self.attempt(|files| Ok(files.requests.flush()?));
    }

    /// Appends one line to `run.log`, after the UTC nanoseconds.
    pub(super) fn log(&mut self, what: &str) {
        let stamp = self.clock.wall_ns + self.clock.now();
        self.attempt(|files| Ok(writeln!(files.log, "{stamp} {what}")?));
    }

    /// Writes `summary.json`.
    pub(super) fn finish(&mut self, summary: &Summary) -> Result<()> {
        self.flush();
        let Some(files) = &self.files else { return Ok(()) };
        write_json(&files.directory.join("summary.json"), summary)
    }

    /// Why some file is not complete.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// A file that cannot be written degrades the run and never ends it.
    fn attempt(&mut self, write: impl FnOnce(&mut Files) -> Result<()>) {
        if let Some(files) = &mut self.files
            && let Err(error) = write(files)
        {
            self.broken
                .get_or_insert_with(|| format!("cannot write to {}: {error}", files.directory.display()));
        }
    }
}

impl Files {
    fn create(directory: &Path, config: &LoadConfig) -> Result<Self> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let open = |name: &str| {
            let path = directory.join(name);
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))
        };
        write_json(&directory.join("config.json"), config)?;
        Ok(Self {
            directory: directory.to_owned(),
            requests: BufWriter::new(open("requests.jsonl")?),
            log: open("run.log")?,
        })
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
