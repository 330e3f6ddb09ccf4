//! The random operations of a world.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    agenda::{EndId, Event},
    world::World,
};

impl World {
    /// One operation, and the plan for the next.
    pub(crate) fn operation(&mut self) {
        self.summary.last_operation = self.now;
        self.operations_left -= 1;
        if self.operations_left > 0 {
            let gap = self.mood.gap;
            let burst = self.rng.chance(50);
            let after = if burst { Duration::ZERO } else { self.rng.upto(gap) };
            self.agenda.plan(self.now + after, Event::Operation);
        }
        self.reconnect();
        let live: Vec<EndId> = self
            .ends
            .iter()
            .filter(|end| !end.gone && !end.closing)
            .map(|end| end.id)
            .collect();
        if live.is_empty() {
            return;
        }
        let end = self.rng.pick(&live);
        if self.rng.chance(self.mood.cuts) {
            self.cut(end);
        } else if self.rng.chance(self.mood.slow) {
            self.stall(end);
        } else {
            match self.rng.below(100) {
                0..60 => self.mint(end),
                60..80 => self.call(end),
                80..95 => self.flush(end),
                _ => self.announce(end),
            }
        }
    }

    fn reconnect(&mut self) {
        let count = self.nodes.len();
        for a in 0..count {
            for b in a + 1..count {
                let linked = self.nodes[a].links.contains_key(&b) || self.nodes[b].links.contains_key(&a);
                if !linked && self.rng.chance(30) {
                    self.connect(a, b);
                }
            }
        }
    }

    fn cut(&mut self, end: EndId) {
        let now = self.now;
        if self.rng.chance(30) {
            self.trace.say(now, || format!("end {end} closes"));
            self.ends[end].closing = true;
            self.wake_writer(end);
            return;
        }
        self.trace
            .say(now, || format!("the connection of end {end} is cut"));
        for end in [end, end ^ 1] {
            self.pipes[end].cut(&mut self.rng);
            self.pipes[end].broken = true;
            let after = self.rng.upto(Duration::from_millis(300));
            self.agenda.plan(now + after, Event::Lose(end));
        }
    }

    fn stall(&mut self, end: EndId) {
        let time = if self.rng.chance(5) {
            Duration::from_secs(12)
        } else {
            self.rng.upto(Duration::from_secs(2))
        };
        let now = self.now;
        self.trace
            .say(now, || format!("what end {end} writes stalls for {time:?}"));
        let pipe = &mut self.pipes[end];
        pipe.stalled_until = pipe.stalled_until.max(now + time);
    }

    /// Announces a change of handlers.
    pub(crate) fn announce(&mut self, end: EndId) {
        let mut changes: Vec<(bool, String)> = Vec::new();
        for _ in 0..=self.rng.below(3) {
            let name = format!("handler-{}", self.rng.below(6));
            changes.push((self.rng.chance(70), name));
        }
        let known: &mut BTreeSet<String> = &mut self.ends[end].announced;
        for (added, name) in &changes {
            if *added {
                known.insert(name.clone());
            } else {
                known.remove(name);
            }
        }
        self.stage(end, |outbox| {
            outbox.announce(changes.iter().map(|(added, name)| (*added, name.as_str())))
        });
    }
}
