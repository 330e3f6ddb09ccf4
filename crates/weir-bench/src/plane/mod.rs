//! The plane bench: the same streams over different planes, two pinned processes, one row a rep.
//!
//! The parent ([`run`]) interleaves the arms and starts both processes of a rep afresh ([`rep`]); each runs [`side`] by
//! re-executing the current binary. Everything measured is harness code that all arms share ([`frontend`],
//! [`worker`]); an arm supplies only what [`arm::PlaneArm`] asks for. No arm is given work that another is spared.

mod arm;
mod control;
mod floor;
mod frontend;
mod payload;
mod rep;
mod row;
mod run;
mod shape;
mod side;
mod table;
#[cfg(feature = "peers")]
mod velo;
mod weir;
mod worker;

pub use arm::{Arm, UnknownArm};
pub use rep::SideCommand;
pub use row::Row;
pub use run::{BenchConfig, run};
pub use shape::{Shape, UnknownShape};
pub use side::{SideSpec, run_side};
pub use table::render as render_table;
