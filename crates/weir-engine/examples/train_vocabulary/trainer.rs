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
type Counted = (Vec<u16>, i64);
type Pair = (u16, u16);

/// Trains on every file of `corpus`; returns the lines of `merges.txt`.
pub(crate) fn train(corpus: &Path) -> io::Result<String> {
    let mut words = count_words(corpus)?;
    let mut pairs = HashMap::new();
    words.iter().for_each(|word| tally(&mut pairs, word, 1));
    let mut lines = String::new();
    for id in 256..256 + MERGES {
        let Some(pair) = most_frequent(&pairs) else { break };
        lines.push_str(&format!("{} {}\n", pair.0, pair.1));
        for word in &mut words {
            if word.0.windows(2).any(|two| two == [pair.0, pair.1]) {
                tally(&mut pairs, word, -1);
                join(&mut word.0, pair, id);
                tally(&mut pairs, word, 1);
            }
        }
    }
    Ok(lines)
}

fn count_words(corpus: &Path) -> io::Result<Vec<Counted>> {
    let mut counts: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
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

/// Adds a word's pairs to the counts, or with -1 takes them out.
fn tally(pairs: &mut HashMap<Pair, i64>, (tokens, count): &Counted, sign: i64) {
    for two in tokens.windows(2) {
        *pairs.entry((two[0], two[1])).or_default() += sign * count;
    }
}

fn most_frequent(pairs: &HashMap<Pair, i64>) -> Option<Pair> {
    let best = pairs
        .iter()
        .max_by_key(|&(pair, count)| (count, std::cmp::Reverse(pair)))?;
    (*best.1 > 1).then_some(*best.0)
}

fn join(tokens: &mut Vec<u16>, pair: Pair, id: u16) {
    let mut at = 0;
    while at + 1 < tokens.len() {
        if (tokens[at], tokens[at + 1]) == pair {
            tokens[at] = id;
            tokens.remove(at + 1);
        }
        at += 1;
    }
}
