//! The corpora of `fuzz/`, replayed as they are and mutated by seed. `WEIR_FUZZ_ROUNDS=N` mutates N times as often.

use std::{
    fmt::Write as _,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use weir_sim::{Rng, fuzz};

use crate::number;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpora")
        .join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One change: a bit, a byte, a piece less, a piece twice, or a piece of another input.
fn mutate(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = rng.index(input.len() + 1);
    let len = rng.size(64).min(input.len() - at);
    match rng.below(6) {
        0 if at < input.len() => input[at] ^= 1 << rng.below(8),
        1 if at < input.len() => input[at] = rng.pick(&[0, 1, 127, 128, 255]),
        2 => drop(input.drain(at..at + len)),
        3 => input.extend_from_within(at..at + len),
        4 => {
            let from = rng.index(other.len() + 1);
            let until = (from + rng.size(64)).min(other.len());
            input.splice(at..at + len, other[from..until].iter().copied());
        }
        _ => input.insert(at, rng.below(256) as u8),
    }
    input.truncate(4096);
}

fn holds(name: &str, target: fuzz::Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let hex = input.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        panic!("target {name} fails on {hex}");
    }
}

/// Replays and mutates a target's corpus.
fn replay(name: &str, mutations: u64) {
    let (_, target) = *fuzz::TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let seeds = corpus(name);
    assert!(seeds.len() >= 3, "the corpus of {name} is empty");
    seeds.iter().for_each(|seed| holds(name, target, seed));
    let mut rng = Rng::new(mutations);
    for _ in 0..mutations * number("WEIR_FUZZ_ROUNDS").unwrap_or(1) {
        let mut input = seeds[rng.index(seeds.len())].clone();
        for _ in 0..=rng.below(8) {
            mutate(&mut input, &seeds[rng.index(seeds.len())], &mut rng);
        }
        holds(name, target, &input);
    }
}

#[test]
fn frames_are_the_same_however_they_are_cut() {
    replay("frame", 20_000);
}

#[test]
fn no_record_does_harm() {
    replay("record", 10_000);
}

#[test]
fn a_ticket_is_what_it_encodes_to() {
    replay("ticket", 50_000);
}

#[test]
fn a_hello_says_the_same_again() {
    replay("hello", 50_000);
}

#[test]
fn a_pair_keeps_its_promises_in_any_order() {
    replay("pair", 1_000);
}

#[test]
fn every_corpus_has_its_target() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpora");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(fuzz::TARGETS.iter().any(|(known, _)| *known == name), "{name}");
    }
}
