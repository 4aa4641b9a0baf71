//! Strings out: what a person reads and what a script reads. Functions of records (or of plans and machines) alone.

mod atomic;
mod barrier;
mod bandwidth;
mod clusters;
mod csv;
mod detour;
mod dispatch;
mod document;
mod drift;
mod inspection;
mod listing;
mod loaded;
mod measured;
mod memory;
mod page;
mod plan;
mod sibling;
mod stream;
mod summary;
pub mod topology;
mod validate;

pub use clusters::paste;
pub use csv::csv;
pub use document::{Document, Table};
pub use inspection::inspection;
pub use listing::{barriers, kernels, models, protocols};
pub use measured::document;
pub use plan::{by_reason, document as plan_document};
pub use stream::{STREAM_OPERATIONS, stream};
pub use summary::{Summary, summary};
