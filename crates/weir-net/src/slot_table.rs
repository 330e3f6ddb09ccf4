//! The node's table of consumer slots: pages that are made once and never move, a lock a slot.
//!
//! Invariant: a peer may name only indexes that were handed out; anything else is outside the table.

use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::Duration,
};

use weir_proto::{ConsumerEvent, ConsumerSlot, SlotAllocator};

use crate::{
    link::Link,
    sync::{AtomicU32, Mutex, OnceLock},
};

const PAGE: usize = 64;

/// A slot, the link its ticket was minted for, and what its consumer asked for.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pub(crate) slot: ConsumerSlot<Waker>,
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) progress_timeout: Option<Duration>,
}

type Page = Box<[Mutex<Cell>]>;

/// See the module.
#[derive(Debug)]
pub(crate) struct SlotTable {
    pages: Box<[OnceLock<Page>]>,
    allocator: Mutex<SlotAllocator>,
    /// Indexes below this were handed out.
    used: AtomicU32,
    max: u32,
}

impl SlotTable {
    pub(crate) fn new(max: u32) -> Self {
        let pages = (max as usize).div_ceil(PAGE);
        Self {
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
            allocator: Mutex::new(SlotAllocator::new(max)),
            used: AtomicU32::new(0),
            max,
        }
    }

    pub(crate) fn max(&self) -> u32 {
        self.max
    }

    pub(crate) fn live(&self) -> u32 {
        self.allocator.lock().live()
    }

    /// A free slot, if there is one.
    pub(crate) fn allocate(&self) -> Option<(u32, &Mutex<Cell>)> {
        let index = {
            let mut allocator = self.allocator.lock();
            let index = allocator.allocate()?;
            self.used.store(allocator.used(), Ordering::Relaxed);
            index
        };
        let page = self.pages.get(index as usize / PAGE)?;
        let page = page.get_or_init(|| (0..PAGE).map(|_| Mutex::default()).collect());
        Some((index, page.get(index as usize % PAGE)?))
    }

    /// The slot at an index, if it was ever handed out.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Mutex<Cell>> {
        if index >= self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.pages
            .get(index as usize / PAGE)?
            .get()?
            .get(index as usize % PAGE)
    }

    /// Does what an operation on the slot at `index` asks for. The caller may still hold its lock.
    pub(crate) fn settle(&self, index: u32, cell: &mut Cell, event: ConsumerEvent) {
        if let (Some(mark), Some(link)) = (event.mark, &cell.link) {
            link.mark(index, mark);
        }
        if event.freed {
            if let Some(link) = cell.link.take() {
                link.owned.remove(index);
            }
            cell.progress_timeout = None;
            self.allocator.lock().free(index);
        }
    }
}
