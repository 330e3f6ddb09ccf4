//! The mutation list: each sync taken out, or exchanged with another, makes a crash test fail.
//!
//! Run alone with `cargo test -p weir-journal --test it mutations`.

use weir_journal::fs::{Mutation, Step};

use crate::crash::worlds;

const LIST: [Mutation; 12] = [
    Mutation::Drop(Step::Commit),
    Mutation::Drop(Step::Flush),
    Mutation::Drop(Step::SpareFile),
    Mutation::Drop(Step::SpareDir),
    Mutation::Drop(Step::Stamp),
    Mutation::Drop(Step::Reopen),
    Mutation::Drop(Step::ReopenDir),
    Mutation::Drop(Step::RootDir),
    Mutation::Swap(Step::SpareFile, Step::SpareDir),
    Mutation::Swap(Step::Stamp, Step::Commit),
    Mutation::Swap(Step::SpareDir, Step::Commit),
    Mutation::Swap(Step::Commit, Step::SpareDir),
];

#[test]
fn each_mutation_is_caught_by_a_crash_test() {
    let missed: Vec<Mutation> = LIST
        .into_iter()
        .filter(|mutation| match worlds(0..4000, Some(*mutation)) {
            Ok(()) => true,
            Err(told) => {
                println!("{mutation:?}: {told}");
                false
            }
        })
        .collect();
    assert!(missed.is_empty(), "no crash test noticed {missed:?}");
}
