//! What HiGHS has and its crate does not show: the basis, and the count of nodes.
//!
//! This is the one file with unsafe code. It hands pointers of buffers of the right length to four functions of C.
#![allow(unsafe_code)]

use highs::{Model, SolvedModel};
use highs_sys::{
    Highs_getBasis, Highs_getInt64InfoValue, Highs_getNumCol, Highs_getNumRow, Highs_setBasis,
    HighsInt, STATUS_OK,
};

/// Which columns and rows are basic, and at which bound the others are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Basis {
    columns: Vec<HighsInt>,
    rows: Vec<HighsInt>,
}

impl Basis {
    /// The basis of an answer; none if the engine has none.
    pub(super) fn of(solved: &SolvedModel, columns: usize, rows: usize) -> Option<Basis> {
        // SAFETY: the pointer is that of a living engine, which reads its own sizes.
        let sizes = unsafe { (Highs_getNumCol(solved.as_ptr()), Highs_getNumRow(solved.as_ptr())) };
        if (usize::try_from(sizes.0), usize::try_from(sizes.1)) != (Ok(columns), Ok(rows)) {
            return None;
        }
        let mut basis = Basis { columns: vec![0; columns], rows: vec![0; rows] };
        // SAFETY: the engine lives, and writes one status for each of its columns and rows; the buffers are that long,
        // as was checked above.
        let status = unsafe {
            Highs_getBasis(solved.as_ptr(), basis.columns.as_mut_ptr(), basis.rows.as_mut_ptr())
        };
        (status == STATUS_OK).then_some(basis)
    }

    /// Starts the next solve here, if the model has this shape. The engine refuses a basis that is none.
    pub(super) fn put(&self, engine: &mut Model) {
        if (engine.num_cols(), engine.num_rows()) != (self.columns.len(), self.rows.len()) {
            return;
        }
        // SAFETY: the engine lives and is not shared (`&mut`), and reads one status for each of its columns and rows;
        // the buffers are that long, as was checked above.
        let _ = unsafe {
            Highs_setBasis(engine.as_mut_ptr(), self.columns.as_ptr(), self.rows.as_ptr())
        };
    }
}

/// How many nodes the search has taken.
pub(super) fn nodes(solved: &SolvedModel) -> i64 {
    let mut nodes = 0;
    // SAFETY: the engine lives, the name ends with a zero byte, and one number is written to a place for one.
    let status =
        unsafe { Highs_getInt64InfoValue(solved.as_ptr(), c"mip_node_count".as_ptr(), &mut nodes) };
    if status == STATUS_OK { nodes } else { 0 }
}
