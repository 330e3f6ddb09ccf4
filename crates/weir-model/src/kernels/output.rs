//! A row-major result that several threads fill, each its own columns.
//!
//! Invariant: [`Output`] borrows the slice mutably for its whole life, and no two threads write the same tile of columns,
//! because [`super::pool::Pool::run`] gives every part to exactly one thread.
#![expect(
    unsafe_code,
    reason = "disjoint columns of a row-major slice cannot be split safely"
)]

use std::marker::PhantomData;

use super::format::TILE_ROWS;
use super::pool::Pool;

/// `rows` rows of `columns` floats being written.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: all writing goes through `write`, whose caller vouches that no other thread writes the same place.
unsafe impl Sync for Output<'_> {}
// SAFETY: as above.
unsafe impl Send for Output<'_> {}

impl<'a> Output<'a> {
    pub(crate) fn new(slice: &'a mut [f32], columns: usize) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            rows: slice.len() / columns.max(1),
            columns,
            slice: PhantomData,
        }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Writes the lanes of tile `tile` into row `row`; lanes beyond the last column are dropped.
    ///
    /// # Safety
    /// No other thread may write this tile of columns at the same time.
    pub(super) unsafe fn write(&self, row: usize, tile: usize, lanes: &[f32; TILE_ROWS]) {
        let begin = tile * TILE_ROWS;
        assert!(
            row < self.rows && begin < self.columns,
            "a tile outside of the output"
        );
        let count = TILE_ROWS.min(self.columns - begin);
        // SAFETY: the place lies inside the slice, as checked, and is written by this thread alone.
        unsafe {
            let to = self.start.add(row * self.columns + begin);
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count);
        }
    }
}

/// Calls `work` for every row of `data`, rows shared among the threads of the pool a few at a time.
pub(crate) fn each_row<T: Send>(
    pool: &Pool,
    data: &mut [T],
    width: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    // Some thousand values are worth handing to another thread.
    each_rows(pool, data, width, (2048 / width.max(1)).max(1), work);
}

/// As [`each_row`], with the number of rows that go together.
pub(crate) fn each_rows<T: Send>(
    pool: &Pool,
    data: &mut [T],
    width: usize,
    together: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    let rows = data.len() / width.max(1);
    let start = Shared(data.as_mut_ptr());
    pool.run(rows.div_ceil(together), &|part| {
        for row in part * together..((part + 1) * together).min(rows) {
            // SAFETY: the row lies inside the slice, and the pool gives each part, so each row, to one thread.
            let row_slice = unsafe { std::slice::from_raw_parts_mut(start.at(row * width), width) };
            work(row, row_slice);
        }
    });
}

/// The start of a slice that threads share by rows.
struct Shared<T>(*mut T);

// SAFETY: every thread makes slices of its own rows only, and values may move between threads.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}
