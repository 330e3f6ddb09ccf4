//! Real processes killed with SIGKILL, over and over on one root.
//!
//! This test binary is its own child. The child says on a pipe what it is about to do and what was acknowledged;
//! what it had said when it died is what the parent holds the journal to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use weir_journal::{Durability, Journal, Options};

use crate::kit::{Dice, contents, meta, payload};

const CHILD: &str = "WEIR_JOURNAL_TEST_CHILD";

fn options(level: Durability) -> Options {
    Options {
        durability: level,
        segment_bytes: 32 << 10,
        capacity: 8 * (32 << 10),
        max_record: 4000,
        holder: "the holder".to_owned(),
        ..Options::default()
    }
}

fn spawn(root: &Path, role: &str, seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kill::child", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("{role} {seed} {}", root.display()));
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A process that has opened `root`.
pub(crate) fn hold(root: &Path) -> Child {
    let mut child = spawn(root, "hold", 0);
    let mut said = BufReader::new(child.stdout.as_mut().unwrap());
    let mut line = String::new();
    while !line.contains("held") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the holder ended");
    }
    child
}

/// The child's side; nothing to do in the parent.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let mut words = task.splitn(3, ' ');
    let (role, seed, root) = (
        words.next().unwrap(),
        words.next().unwrap(),
        words.next().unwrap(),
    );
    if role == "hold" {
        let options = Options {
            segment_bytes: 64 << 10,
            capacity: 1 << 20,
            ..options(Durability::Data)
        };
        let _journal = Journal::open(Path::new(root), &options).unwrap();
        println!("held");
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let level = if role == "data" {
        Durability::Data
    } else {
        Durability::Buffered
    };
    work(Path::new(root), seed.parse().unwrap(), level);
}

/// Appends, settles and syncs until killed.
fn work(root: &Path, seed: u64, level: Durability) {
    let mut dice = Dice(seed);
    let journal = Journal::open(root, &options(level)).unwrap();
    let mut open: Vec<u64> = journal.open_records().iter().map(|record| record.seq).collect();
    let mut say = std::io::stdout().lock();
    for n in 0.. {
        let number = seed * 1_000_000 + n;
        if dice.once_in(2) && !open.is_empty() {
            let at = if dice.once_in(4) {
                dice.below(open.len() as u64) as usize
            } else {
                0
            };
            let seq = open.remove(at);
            writeln!(say, "\nsettling {seq}").unwrap();
            journal.settle(seq);
        } else if dice.once_in(40) {
            if journal.sync().is_ok() && journal.stats().pending_marks == 0 {
                writeln!(say, "\nsynced").unwrap();
            }
        } else {
            let len = dice.below(2000) as usize;
            writeln!(say, "\nappending {number} {len}").unwrap();
            if let Ok(seq) = journal.append_blocking(meta(0), &payload(number, len)) {
                open.push(seq);
                writeln!(say, "\nappended {seq}").unwrap();
            }
        }
    }
}

#[derive(Default)]
struct Model {
    must: BTreeMap<u64, Vec<u8>>,
    may: BTreeMap<u64, Vec<u8>>,
    under_way: Option<Vec<u8>>,
    highest: u64,
}

impl Model {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words.first().copied() {
            Some("appending") if words.len() == 3 => {
                self.under_way = Some(payload(number(1), number(2) as usize));
            }
            Some("appended") => {
                self.must.insert(number(1), self.under_way.take().unwrap());
                self.highest = number(1);
            }
            Some("settling") => {
                if let Some(body) = self.must.remove(&number(1)) {
                    self.may.insert(number(1), body);
                }
            }
            Some("synced") => self.may.clear(),
            _ => {}
        }
    }

    fn check(&mut self, found: Vec<(u64, Vec<u8>)>) {
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "order is kept");
        for (seq, body) in &found {
            let known = self.must.remove(seq).or_else(|| self.may.remove(seq));
            let known = known.or_else(|| (*seq > self.highest).then(|| self.under_way.take()).flatten());
            assert!(known.as_ref() == Some(body), "record {seq} was invented");
        }
        assert!(self.must.is_empty(), "lost: {:?}", self.must.keys());
        self.highest = self.highest.max(found.last().map_or(0, |(seq, _)| *seq));
        *self = Self {
            must: found.into_iter().collect(),
            highest: self.highest,
            ..Self::default()
        };
    }
}

/// `rounds` lives on one root, each killed after a number of lines that the seed decides.
fn rounds(rounds: u64, level: Durability) {
    let dir = tempfile::tempdir().unwrap();
    let role = if level == Durability::Data {
        "data"
    } else {
        "buffered"
    };
    let mut dice = Dice(rounds);
    let mut model = Model::default();
    for round in 0..rounds {
        let mut child = spawn(dir.path(), role, round + 1);
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut left = 20 + dice.below(400);
        let mut line = String::new();
        loop {
            line.clear();
            if said.read_line(&mut line).unwrap() == 0 {
                break;
            }
            // A line that death cut short was not said.
            if line.ends_with('\n') {
                model.hear(&line);
            }
            left = left.saturating_sub(1);
            if left == 0 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let journal = Journal::open(dir.path(), &options(level)).unwrap();
        model.check(contents(&journal));
    }
    assert!(model.highest > rounds, "work was done");
}

fn configured() -> u64 {
    std::env::var("WEIR_JOURNAL_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(250)
}

#[test]
fn no_kill_loses_or_invents_a_record_data() {
    rounds(configured(), Durability::Data);
}

#[test]
fn no_kill_loses_or_invents_a_record_buffered() {
    rounds(configured(), Durability::Buffered);
}
