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
mod engine;
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

use crate::caveat::Caveat;

/// What is added to a sentence that rests on steps of which some were disturbed.
fn disturbed<'a>(caveats: impl IntoIterator<Item = &'a Caveat>) -> &'static str {
    let some = caveats.into_iter().any(Caveat::is_disturbance);
    if some { " (somebody else ran during some of these steps, so take it as a hint)" } else { "" }
}

pub use clusters::paste;
pub use csv::csv;
pub use document::{Document, Table};
pub use inspection::inspection;
pub use listing::{barriers, kernels, models, protocols};
pub use measured::document;
pub use plan::{by_reason, document as plan_document};
pub use stream::{STREAM_OPERATIONS, stream};
pub use summary::{Summary, summary};
