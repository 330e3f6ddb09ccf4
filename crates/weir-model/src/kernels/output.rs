//! A row-major result that several threads fill, each its own columns.
//!
//! Invariant: [`Output`] borrows the slice mutably for its whole life, and no two threads write the same tile of columns,
//! because [`super::pool::Pool::run`] gives every part to exactly one thread.
#![expect(unsafe_code, reason = "disjoint columns of a row-major slice cannot be split safely")]

use std::marker::PhantomData;

use super::format::TILE_ROWS;

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
        Self { start: slice.as_mut_ptr(), rows: slice.len() / columns.max(1), columns, slice: PhantomData }
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
        assert!(row < self.rows && begin < self.columns, "a tile outside of the output");
        let count = TILE_ROWS.min(self.columns - begin);
        // SAFETY: the place lies inside the slice, as checked, and is written by this thread alone.
        unsafe {
            let to = self.start.add(row * self.columns + begin);
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count);
        }
    }

    /// A part of one row, for writing.
    ///
    /// # Safety
    /// No other thread may use this part of the row at the same time, and the caller may hold it only once.
    #[expect(clippy::mut_from_ref, reason = "the caller vouches that parts are disjoint")]
    pub(crate) unsafe fn part(&self, row: usize, begin: usize, len: usize) -> &mut [f32] {
        assert!(row < self.rows && begin + len <= self.columns, "a part outside of the output");
        // SAFETY: the part lies inside the slice, as checked, and is used by this thread alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.columns + begin), len) }
    }
}
