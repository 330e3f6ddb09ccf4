//! Byte-pair training: joins the most frequent pair of tokens, again and again.
//!
//! Deterministic: words are counted in a sorted map and ties go to the lowest pair. A pair must occur twice. The file
//! `words.txt` lists words from common to rare and its words are weighted by their rank; the others are plain text.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::Path,
};

/// How many merges are learnt.
pub(crate) const MERGES: u16 = 2048;

/// A word as tokens, and how often it occurs.
type Counted = (Vec<u16>, u64);

/// Trains on every file of `corpus`; returns the lines of `merges.txt`.
pub(crate) fn train(corpus: &Path) -> io::Result<String> {
    let mut words = count_words(corpus)?;
    let mut lines = String::new();
    for id in 256..256 + MERGES {
        let Some(pair) = most_frequent(&words) else { break };
        lines.push_str(&format!("{} {}\n", pair.0, pair.1));
        words.iter_mut().for_each(|(tokens, _)| join(tokens, pair, id));
    }
    Ok(lines)
}

fn count_words(corpus: &Path) -> io::Result<Vec<Counted>> {
    let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut paths: Vec<_> = fs::read_dir(corpus)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let ranked = path.ends_with("words.txt");
        for (rank, word) in (1..).zip(weir_engine::tokenizer::words(&fs::read(path)?)) {
            *counts.entry(word.to_vec()).or_default() += if ranked { 2 + 2000 / rank } else { 1 };
        }
    }
    Ok(counts
        .into_iter()
        .map(|(word, count)| (word.into_iter().map(u16::from).collect(), count))
        .collect())
}

fn most_frequent(words: &[Counted]) -> Option<(u16, u16)> {
    let mut counts: HashMap<(u16, u16), u64> = HashMap::new();
    for (tokens, count) in words {
        for pair in tokens.windows(2) {
            *counts.entry((pair[0], pair[1])).or_default() += count;
        }
    }
    let best = counts
        .into_iter()
        .max_by_key(|&(pair, count)| (count, std::cmp::Reverse(pair)))?;
    (best.1 > 1).then_some(best.0)
}

fn join(tokens: &mut Vec<u16>, pair: (u16, u16), id: u16) {
    let mut at = 0;
    while at + 1 < tokens.len() {
        if (tokens[at], tokens[at + 1]) == pair {
            tokens[at] = id;
            tokens.remove(at + 1);
        }
        at += 1;
    }
}
