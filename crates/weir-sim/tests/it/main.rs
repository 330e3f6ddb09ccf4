//! Worlds by seed. `WEIR_SIM_SEEDS=N` lives through N worlds, `WEIR_SIM_SEED=K` through one, with its trace.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod replay;

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_sim::{Summary, run};

pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}: give a number")),
    )
}

#[test]
fn every_world_keeps_its_promises() {
    if let Some(seed) = number("WEIR_SIM_SEED") {
        println!("seed {seed}: {:?}", run(seed, true));
        return;
    }
    let seeds = number("WEIR_SIM_SEEDS").unwrap_or(500);
    let mut sum = Summary::default();
    for seed in 0..seeds {
        match catch_unwind(AssertUnwindSafe(|| run(seed, false))) {
            Ok(summary) => sum.add(&summary),
            Err(_) => {
                eprintln!("seed {seed} fails; again, with its trace:");
                let _same = run(seed, true);
                panic!("seed {seed} failed and did not fail again: the world is not its seed");
            }
        }
    }
    println!("{seeds} worlds: {sum:?}");
    if seeds >= 500 {
        assert!(
            sum.endings.iter().all(|count| *count > 0),
            "an ending was never seen: {sum:?}"
        );
        assert!(
            sum.links_lost > 20 && sum.flushes > 200 && sum.stale > 20,
            "too tame: {sum:?}"
        );
    }
}
