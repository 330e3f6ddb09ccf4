//! Tiny files of every architecture and storage type, run here and by llama.cpp, logits compared.
//!
//! Both engines round activations to eight bits in their own way, so logits agree only to a share of their range; the
//! likeliest token must be the same wherever llama.cpp leaves no doubt about it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde::Serialize;
use weir_model::Threads;
use weir_model::arch::Family;
use weir_model::gguf::{Gguf, TensorType};
use weir_model::model::Model;
use weir_model::tiny::TinyModel;

use super::llama;

/// Logits may differ by this share of their range.
pub const SHARE_OF_RANGE: f64 = 0.05;

const FAMILIES: [Family; 4] = [Family::Gemma3, Family::Llama, Family::Qwen2, Family::Qwen3];
const FORMATS: [&str; 7] = ["F32", "F16", "Q8_0", "Q5_0", "Q4_0", "Q4_K", "Q6_K"];

/// How one tiny file compares.
#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// The architecture.
    pub family: &'static str,
    /// The storage type of all matrices.
    pub format: &'static str,
    /// Steps compared, under forced decoding.
    pub steps: usize,
    /// The largest difference of a logit, as a share of the range of that step's logits.
    pub worst_share: f64,
    /// Steps whose likeliest token differs although llama.cpp's margin is clear.
    pub clear_lost: usize,
}

impl Agreement {
    /// Whether the two engines agree.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.worst_share <= SHARE_OF_RANGE && self.clear_lost == 0 && self.steps > 0
    }
}

/// Compares all architectures and storage types.
///
/// # Errors
/// When a file cannot be written or llama.cpp cannot be run on it.
pub fn run(python: &Path, say: &mut dyn FnMut(&str)) -> Result<Vec<Agreement>> {
    let dir = std::env::temp_dir().join(format!("weir-agree-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let mut all = Vec::new();
    for family in FAMILIES {
        for format in FORMATS {
            say(&format!("{} in {format}", family.name()));
            let found = compare(python, &dir, family, format);
            if found.is_err() {
                let _ = fs::remove_dir_all(&dir);
            }
            all.push(found?);
        }
    }
    fs::remove_dir_all(&dir)?;
    Ok(all)
}

fn compare(python: &Path, dir: &Path, family: Family, format: &'static str) -> Result<Agreement> {
    let kind = TensorType::named(format).context("a storage type")?;
    let path = dir.join("tiny.gguf");
    fs::write(&path, TinyModel::new(family, kind).to_bytes()?)?;
    let ids = |from: usize, count: usize| -> Vec<u32> {
        (from..from + count)
            .filter_map(|at| u32::try_from(at * 37 % 251).ok())
            .collect()
    };
    let (prompt, forced) = (ids(3, 40), ids(90, 24));
    let theirs = llama::Arm::start(python, &path, 1, 512)?.logits(&prompt, &forced)?;
    let gguf = Arc::new(Gguf::open(&path)?);
    let mut model = Model::load(&gguf, 1, &Threads::new(1)?)?;
    let mut found = Agreement {
        family: family.name(),
        format,
        steps: 0,
        worst_share: 0.0,
        clear_lost: 0,
    };
    let mut logits = Vec::new();
    model.open(1, prompt.len() + forced.len())?;
    model.feed(1, &prompt, &mut logits)?;
    for (step, expected) in theirs.iter().enumerate() {
        judge(&mut found, &logits, expected);
        if let Some(id) = forced.get(step) {
            model.feed(1, &[*id], &mut logits)?;
        }
    }
    Ok(found)
}

fn judge(found: &mut Agreement, ours: &[f32], theirs: &[f64]) {
    let top = |values: &mut dyn Iterator<Item = f64>| {
        let mut sorted: Vec<(f64, usize)> = values.zip(0..).collect();
        sorted.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        sorted
    };
    let expected = top(&mut theirs.iter().copied());
    let likeliest = top(&mut ours.iter().map(|logit| f64::from(*logit)));
    let (Some(first), Some(second), Some(last)) = (expected.first(), expected.get(1), expected.last()) else {
        return;
    };
    let range = first.0 - last.0;
    let differences = ours
        .iter()
        .zip(theirs)
        .map(|(ours, theirs)| (f64::from(*ours) - theirs).abs());
    found.worst_share = found.worst_share.max(differences.fold(0.0, f64::max) / range);
    found.steps += 1;
    let clear = first.0 - second.0 > SHARE_OF_RANGE * range;
    found.clear_lost += usize::from(clear && likeliest.first().map(|top| top.1) != Some(first.1));
}

/// The table people read.
#[must_use]
pub fn table(all: &[Agreement]) -> String {
    let mut out = String::from("architecture  format  steps  worst share of range  clear top-1 lost\n");
    for row in all {
        let mark = if row.holds() { "" } else { "  FAIL" };
        out.push_str(&format!(
            "{:<13} {:<7} {:>5} {:>21.4} {:>17}{mark}\n",
            row.family, row.format, row.steps, row.worst_share, row.clear_lost
        ));
    }
    out
}
