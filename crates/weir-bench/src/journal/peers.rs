//! The arms `raft-engine`, `fjall` and `redb`: crates that could be used instead.
//!
//! Each is used as its documentation says for this purpose, with segments of 4 MiB where it has any, as ours has.

use std::path::{Path, PathBuf};

use protobuf::well_known_types::BytesValue;
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize, RecoveryMode};
use redb::{Database, TableDefinition};

use super::Level;
use super::arm::{Arm, Writer};
use super::measure::Cell;

/// raft-engine: entries of one region a writer, compacted behind the newest 32.
pub(crate) struct Raft {
    engine: Engine,
    folder: PathBuf,
    sync: bool,
}

/// An entry that starts with its index.
struct Entry;

impl MessageExt for Entry {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        entry
            .value
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

impl Raft {
    pub(crate) fn open(dir: &Path, cell: &Cell) -> anyhow::Result<Self> {
        let config = Config {
            dir: dir.join("raft").display().to_string(),
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            batch_compression_threshold: ReadableSize(0),
            target_file_size: ReadableSize::mb(4),
            purge_threshold: ReadableSize::mb(16),
            ..Config::default()
        };
        let engine = Engine::open(config)?;
        Ok(Self {
            engine,
            folder: dir.join("raft"),
            sync: cell.durability == Level::Data,
        })
    }
}

struct RaftWriter<'a> {
    journal: &'a Raft,
    region: u64,
    appended: u64,
    settled: Option<u64>,
}

impl Arm for Raft {
    fn writer(&self, index: usize) -> anyhow::Result<Box<dyn Writer + '_>> {
        let region = index as u64 + 1;
        Ok(Box::new(RaftWriter {
            journal: self,
            region,
            appended: 0,
            settled: None,
        }))
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

impl Writer for RaftWriter<'_> {
    fn append(&mut self, n: u64, payload: &[u8]) -> anyhow::Result<()> {
        let mut value = payload.to_vec();
        let prefix = value.len().min(8);
        value[..prefix].copy_from_slice(&n.to_le_bytes()[..prefix]);
        let mut batch = LogBatch::default();
        batch.add_entries::<Entry>(
            self.region,
            &[BytesValue {
                value,
                ..BytesValue::default()
            }],
        )?;
        if let Some(settled) = self.settled.take() {
            batch.add_command(self.region, Command::Compact { index: settled + 1 });
        }
        self.journal.engine.write(&mut batch, self.journal.sync)?;
        self.appended += 1;
        if self.appended.is_multiple_of(1024) {
            self.journal.engine.purge_expired_files()?;
        }
        Ok(())
    }

    fn settle(&mut self, n: u64) -> anyhow::Result<()> {
        self.settled = Some(n);
        Ok(())
    }
}

/// fjall: one keyspace, insert and persist.
pub(crate) struct Fjall {
    database: fjall::Database,
    records: fjall::Keyspace,
    folder: PathBuf,
    level: Level,
}

impl Fjall {
    pub(crate) fn open(dir: &Path, cell: &Cell) -> anyhow::Result<Self> {
        let folder = dir.join("fjall");
        let database = fjall::Database::builder(&folder).open()?;
        let records = database.keyspace("records", fjall::KeyspaceCreateOptions::default)?;
        Ok(Self {
            database,
            records,
            folder,
            level: cell.durability,
        })
    }
}

struct FjallWriter<'a> {
    journal: &'a Fjall,
    index: u64,
}

impl Arm for Fjall {
    fn writer(&self, index: usize) -> anyhow::Result<Box<dyn Writer + '_>> {
        Ok(Box::new(FjallWriter {
            journal: self,
            index: index as u64,
        }))
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

/// A key that orders by writer, then record.
fn key(writer: u64, n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&writer.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

impl Writer for FjallWriter<'_> {
    fn append(&mut self, n: u64, payload: &[u8]) -> anyhow::Result<()> {
        self.journal.records.insert(key(self.index, n), payload)?;
        let mode = match self.journal.level {
            Level::Data => fjall::PersistMode::SyncData,
            Level::Buffered => fjall::PersistMode::Buffer,
        };
        Ok(self.journal.database.persist(mode)?)
    }

    fn settle(&mut self, n: u64) -> anyhow::Result<()> {
        Ok(self.journal.records.remove(key(self.index, n))?)
    }
}

/// redb: one table, one transaction a record, the settle riding with the next insert.
pub(crate) struct Redb {
    database: Database,
    folder: PathBuf,
    level: Level,
}

const RECORDS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("records");

impl Redb {
    pub(crate) fn open(dir: &Path, cell: &Cell) -> anyhow::Result<Self> {
        let folder = dir.join("redb");
        std::fs::create_dir(&folder)?;
        let database = Database::create(folder.join("records.redb"))?;
        Ok(Self {
            database,
            folder,
            level: cell.durability,
        })
    }
}

struct RedbWriter<'a> {
    journal: &'a Redb,
    index: u64,
    settled: Option<u64>,
}

impl Arm for Redb {
    fn writer(&self, index: usize) -> anyhow::Result<Box<dyn Writer + '_>> {
        Ok(Box::new(RedbWriter {
            journal: self,
            index: index as u64,
            settled: None,
        }))
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

impl Writer for RedbWriter<'_> {
    fn append(&mut self, n: u64, payload: &[u8]) -> anyhow::Result<()> {
        let mut transaction = self.journal.database.begin_write()?;
        if self.journal.level == Level::Buffered {
            transaction.set_durability(redb::Durability::None)?;
        }
        {
            let mut table = transaction.open_table(RECORDS)?;
            table.insert((self.index, n), payload)?;
            if let Some(settled) = self.settled.take() {
                table.remove((self.index, settled))?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn settle(&mut self, n: u64) -> anyhow::Result<()> {
        self.settled = Some(n);
        Ok(())
    }
}
