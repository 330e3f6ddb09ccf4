//! Crashes against a model: processes die and hosts lose power at any operation, again and again on one disk.
//!
//! The model knows what was acknowledged. After each crash the open records are compared with it: none lost, none
//! invented, order kept, settled ones gone where that was made durable.

use std::collections::{BTreeMap, BTreeSet};

use weir_journal::fs::{Fault, FaultyFs, Mutation, Step};
use weir_journal::{AppendError, Durability, Journal, Options};

use crate::kit::{Dice, contents, meta, open, payload, small, twin};

/// What may and must be found.
#[derive(Default)]
struct Model {
    /// Acknowledged and not settled.
    must: BTreeMap<u64, Vec<u8>>,
    /// Settled, and that was not made durable.
    may: BTreeMap<u64, Vec<u8>>,
    /// Appended with an answer that leaves it open.
    ghosts: Vec<Vec<u8>>,
    /// Of `must` and `may`, what a loss of power cannot take.
    safe: BTreeSet<u64>,
    highest: u64,
    written: u64,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Closed,
    Killed,
    PowerLost,
}

impl Model {
    fn act(&mut self, journal: &Journal, dice: &mut Dice, level: Durability) -> Result<(), String> {
        match dice.below(12) {
            0..=5 => self.append(journal, dice, level),
            6..=9 => {
                if let Some(seq) = self.pick(dice) {
                    journal.settle(seq);
                    if let Some(payload) = self.must.remove(&seq) {
                        self.may.insert(seq, payload);
                    }
                }
                Ok(())
            }
            10 => {
                if journal.sync().is_ok() && journal.stats().pending_marks == 0 {
                    self.may.clear();
                    self.safe = self.must.keys().copied().collect();
                }
                Ok(())
            }
            _ => match self.pick(dice) {
                Some(seq) => match journal.read(seq) {
                    Ok(record) if Some(&record.payload) != self.must.get(&seq) => {
                        Err(format!("{seq} reads wrong"))
                    }
                    _ => Ok(()),
                },
                None => Ok(()),
            },
        }
    }

    fn append(&mut self, journal: &Journal, dice: &mut Dice, level: Durability) -> Result<(), String> {
        let len = if dice.once_in(4) {
            dice.below(3000)
        } else {
            dice.below(500)
        };
        self.written += 1;
        let body = payload(self.written, len as usize);
        match journal.append_blocking(meta(0), &body) {
            Ok(seq) if seq <= self.highest => Err(format!("seq {seq} was given before")),
            Ok(seq) => {
                self.highest = seq;
                self.must.insert(seq, body);
                if level == Durability::Data {
                    self.safe.insert(seq);
                }
                Ok(())
            }
            Err(AppendError::Poisoned(_)) => {
                self.ghosts.push(body);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    fn pick(&self, dice: &mut Dice) -> Option<u64> {
        let n = self.must.len() as u64;
        // Mostly the oldest, sometimes any: stragglers and holes.
        let at = if n > 0 && dice.once_in(3) {
            dice.below(n)
        } else {
            0
        };
        self.must.keys().nth(at as usize).copied()
    }

    /// Compares, and takes what was found as what must be found from now on.
    fn check(&mut self, found: &[(u64, Vec<u8>)], end: End) -> Result<(), String> {
        let last = found.last().map_or(0, |(seq, _)| *seq);
        for (seq, body) in &self.must {
            let kept = end != End::PowerLost || self.safe.contains(seq) || *seq < last;
            if kept && !found.contains(&(*seq, body.clone())) {
                return Err(format!("{end:?}: acknowledged record {seq} is lost"));
            }
        }
        let mut before = 0;
        for (seq, body) in found {
            let known = self.must.get(seq).or(self.may.get(seq));
            let ghost = *seq > self.highest && self.ghosts.contains(body);
            if known.is_some_and(|b| b != body) || (known.is_none() && !ghost) {
                return Err(format!(
                    "{end:?}: record {seq} was never open, or was settled for good"
                ));
            }
            if *seq <= before {
                return Err(format!("{end:?}: record {seq} is out of order"));
            }
            before = *seq;
        }
        self.must = found.iter().cloned().collect();
        self.highest = self.highest.max(last);
        self.safe = self.must.keys().copied().collect();
        self.may.clear();
        self.ghosts.clear();
        Ok(())
    }
}

fn options(dice: &mut Dice, level: Durability) -> Options {
    Options {
        capacity: (4 + dice.below(5)) * (16 << 10),
        ..small(level)
    }
}

/// One disk, several lives.
fn world(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    let mut dice = Dice(seed);
    let level = if dice.once_in(3) {
        Durability::Buffered
    } else {
        Durability::Data
    };
    let options = options(&mut dice, level);
    let mut fs = twin();
    if let Some(mutation) = mutation {
        fs.mutate(mutation);
    }
    let mut model = Model::default();
    for life in 0..7 {
        plan(&fs, &mut dice);
        let end = match open(&fs, &options) {
            Ok(journal) => {
                if life == 0 && journal.report().made {
                    model.highest = 0;
                }
                live(&mut model, journal, &fs, &mut dice, level)?
            }
            // The fault hit the opening itself; the next one has no fault.
            Err(_) => End::Killed,
        };
        let end = if end == End::Killed && dice.once_in(2) {
            End::PowerLost
        } else {
            end
        };
        fs = if end == End::PowerLost {
            fs.lose_power(dice.below(u64::MAX))
        } else {
            fs.kill()
        };
        let journal = open(&fs, &options).map_err(|e| format!("life {life}, {end:?}: {e}"))?;
        model
            .check(&contents(&journal), end)
            .map_err(|e| format!("life {life}: {e}"))?;
        let next = if dice.once_in(2) {
            fs.kill()
        } else {
            fs.lose_power(dice.below(u64::MAX))
        };
        drop(journal);
        fs = next;
    }
    Ok(())
}

/// What goes wrong in this life, if anything.
fn plan(fs: &FaultyFs, dice: &mut Dice) {
    const STEPS: [Step; 8] = [
        Step::Commit,
        Step::Flush,
        Step::SpareFile,
        Step::SpareName,
        Step::SpareDir,
        Step::Stamp,
        Step::Reopen,
        Step::Write,
    ];
    match dice.below(5) {
        0 => {}
        1 => fs.fail_step(STEPS[dice.below(8) as usize], 1 + dice.below(3), Fault::Die),
        2 => fs.fail_step(STEPS[dice.below(8) as usize], 1 + dice.below(6), Fault::Errno(5)),
        _ => fs.fail_at(1 + dice.below(250), Fault::Die),
    }
}

fn live(
    model: &mut Model,
    journal: Journal,
    fs: &FaultyFs,
    dice: &mut Dice,
    level: Durability,
) -> Result<End, String> {
    for _ in 0..20 + dice.below(80) {
        model.act(&journal, dice, level)?;
        if journal.poisoned().is_some() {
            break;
        }
    }
    let dead = journal.poisoned().is_some();
    if !dead && dice.once_in(4) {
        drop(journal);
        return Ok(End::Closed);
    }
    let after = fs.kill();
    drop(journal);
    drop(after);
    Ok(End::Killed)
}

/// Runs the worlds of `seeds`; the first that breaks a promise is told.
pub(crate) fn worlds(seeds: std::ops::Range<u64>, mutation: Option<Mutation>) -> Result<(), String> {
    for seed in seeds {
        world(seed, mutation).map_err(|e| format!("seed {seed}: {e}"))?;
    }
    Ok(())
}

#[test]
fn no_crash_at_any_operation_breaks_a_promise() {
    worlds(0..2000, None).unwrap();
}
