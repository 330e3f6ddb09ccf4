//! The workers a frontend knows, by model.
//!
//! Changes come from discovery and from links; requests read a snapshot. Invariant: the first registration of a model
//! sets its card, and while any process serves under that card, a worker whose card differs is rejected by name.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use weir_engine::ModelCard;
use weir_net::{Health, Peer};

use crate::discovery::Registration;

/// All workers, as they were at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    models: BTreeMap<String, Arc<Model>>,
    rejected: Vec<Rejected>,
    /// Linked processes: name, link, number of workers.
    processes: Vec<(String, Peer, usize)>,
}

/// One model and who serves it now.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) card: ModelCard,
    /// Unix seconds of the first registration.
    pub(crate) created: u64,
    targets: Vec<Target>,
    /// The round robin's place, kept over snapshots.
    turn: Arc<AtomicUsize>,
}

/// One worker that can be picked.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Name of its process.
    pub(crate) process: Arc<str>,
    /// Which worker of the process.
    pub(crate) index: u16,
    /// Link to the process.
    pub(crate) peer: Peer,
}

/// A worker that is not used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) worker: String,
    pub(crate) model: String,
    pub(crate) reason: String,
}

impl Snapshot {
    /// The model, if any worker ever served it.
    pub(crate) fn model(&self, name: &str) -> Option<&Arc<Model>> {
        self.models.get(name)
    }

    /// Models that have a worker now.
    pub(crate) fn served(&self) -> impl Iterator<Item = &Model> {
        self.models
            .values()
            .map(Arc::as_ref)
            .filter(|model| model.is_served())
    }

    /// Whether no model has a worker.
    pub(crate) fn is_empty(&self) -> bool {
        self.served().next().is_none()
    }

    /// Workers that can be picked.
    pub(crate) fn workers(&self) -> usize {
        self.models.values().map(|model| model.targets.len()).sum()
    }

    pub(crate) fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    pub(crate) fn processes(&self) -> &[(String, Peer, usize)] {
        &self.processes
    }
}

impl Model {
    /// Whether it has a worker now.
    pub(crate) fn is_served(&self) -> bool {
        !self.targets.is_empty()
    }

    /// The next worker in turn whose link is up and that `skip` does not name.
    pub(crate) fn pick(&self, skip: impl Fn(&Target) -> bool) -> Option<&Target> {
        let count = self.targets.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        (0..count)
            .filter_map(|at| self.targets.get(first.wrapping_add(at) % count))
            .find(|target| !skip(target) && target.peer.health() == Health::Up)
    }
}

/// The workers a frontend knows.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Fingerprint of the frontend's tokenizer.
    tokenizer: String,
    known: Mutex<Known>,
    snapshot: Mutex<Arc<Snapshot>>,
}

#[derive(Debug, Default)]
struct Known {
    processes: BTreeMap<String, Process>,
    models: BTreeMap<String, Arc<Model>>,
}

#[derive(Debug)]
struct Process {
    cards: Vec<ModelCard>,
    link: Option<Peer>,
}

impl Fleet {
    /// An empty fleet for workers with this tokenizer.
    pub(crate) fn new(tokenizer: &str) -> Self {
        Self {
            tokenizer: tokenizer.to_owned(),
            known: Mutex::default(),
            snapshot: Mutex::default(),
        }
    }

    /// The workers now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A process has registered.
    pub(crate) fn add(&self, registration: &Registration) {
        let mut known = self.known();
        let process = Process {
            cards: registration.workers.clone(),
            link: None,
        };
        known.processes.insert(registration.name.clone(), process);
        self.publish(known);
    }

    /// A process is registered no more. Requests that run there go on.
    pub(crate) fn remove(&self, name: &str) {
        let mut known = self.known();
        known.processes.remove(name);
        self.publish(known);
    }

    /// The link to a process is up, or is gone.
    pub(crate) fn set_link(&self, name: &str, link: Option<Peer>) {
        let mut known = self.known();
        if let Some(process) = known.processes.get_mut(name) {
            process.link = link;
            self.publish(known);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a snapshot of what is known.
    fn publish(&self, mut known: MutexGuard<'_, Known>) {
        let next = known.sort(&self.tokenizer);
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        for rejected in next
            .rejected
            .iter()
            .filter(|rejected| !snapshot.rejected.contains(rejected))
        {
            let Rejected {
                worker,
                model,
                reason,
            } = rejected;
            tracing::warn!(
                worker,
                model,
                reason,
                "worker rejected; the fleet serves on without it"
            );
        }
        *snapshot = Arc::new(next);
    }
}

impl Known {
    /// Sorts the workers by model.
    fn sort(&mut self, tokenizer: &str) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut sorted: BTreeMap<String, (ModelCard, Vec<Target>)> = BTreeMap::new();
        for (name, index, card) in self.in_turn() {
            let process = &self.processes[name];
            let kept = self.models.get(&card.name).map(|model| &model.card);
            // A card that was set before holds only as long as a registered worker has it.
            let kept = kept.filter(|kept| {
                self.processes
                    .values()
                    .any(|process| process.cards.contains(kept))
            });
            let (model, targets) = sorted
                .entry(card.name.clone())
                .or_insert_with(|| (kept.unwrap_or(card).clone(), Vec::new()));
            if let Some(reason) = objection(card, model, tokenizer) {
                let worker = format!("{name}/{index}");
                snapshot.rejected.push(Rejected {
                    worker,
                    model: card.name.clone(),
                    reason,
                });
            } else if let Some(peer) = &process.link {
                targets.push(Target {
                    process: Arc::from(name.as_str()),
                    index,
                    peer: peer.clone(),
                });
            }
        }
        snapshot.processes = self.linked();
        self.models = self.merge(sorted);
        snapshot.models.clone_from(&self.models);
        snapshot
    }

    /// All workers: the first of every process, then the second, so that neighbours in turn are in other processes.
    fn in_turn(&self) -> Vec<(&String, u16, &ModelCard)> {
        let all = self.processes.iter().flat_map(|(name, process)| {
            (0..=u16::MAX)
                .zip(&process.cards)
                .map(move |(index, card)| (name, index, card))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, index, _)| *index);
        all
    }

    fn linked(&self) -> Vec<(String, Peer, usize)> {
        let linked = self.processes.iter().filter_map(|(name, process)| {
            process
                .link
                .as_ref()
                .map(|peer| (name.clone(), peer.clone(), process.cards.len()))
        });
        linked.collect()
    }

    /// The models of before, those without workers too, with the targets of now.
    fn merge(&self, mut sorted: BTreeMap<String, (ModelCard, Vec<Target>)>) -> BTreeMap<String, Arc<Model>> {
        for (name, model) in &self.models {
            sorted
                .entry(name.clone())
                .or_insert_with(|| (model.card.clone(), Vec::new()));
        }
        let models = sorted.into_iter().map(|(name, (card, targets))| {
            let before = self.models.get(&name);
            let created = before.map_or_else(crate::frontend::unix_seconds, |model| model.created);
            let turn = before.map(|model| Arc::clone(&model.turn)).unwrap_or_default();
            (
                name,
                Arc::new(Model {
                    card,
                    created,
                    targets,
                    turn,
                }),
            )
        });
        models.collect()
    }
}

/// Why a worker with `card` cannot serve the model.
fn objection(card: &ModelCard, model: &ModelCard, tokenizer: &str) -> Option<String> {
    let differs = |what: &str, ours: &dyn std::fmt::Display, its: &dyn std::fmt::Display| {
        Some(format!("its {what} is {its}, not {ours}"))
    };
    if card.tokenizer != tokenizer {
        return differs("tokenizer", &tokenizer, &card.tokenizer);
    }
    if card.context_length != model.context_length {
        return differs("context length", &model.context_length, &card.context_length);
    }
    (card != model).then(|| "its model card differs from the model's".to_owned())
}
