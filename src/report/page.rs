//! Latency of pages: whether memory lies on nodes that are not reported.

use super::{Document, Table};
use crate::attribute::page::{Finding, Modes, Pages, Seen, steps};
use crate::record::Record;
use serde::Serialize;

/// What pages say of the memory, in the summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// Whether pages lie on nodes that are not reported; null where that cannot be told.
    hidden_nodes: Option<bool>,
    rank_correlation: Option<f64>,
    sentence: String,
}

/// The finding.
pub fn summary(record: &Record) -> Option<Page> {
    let pages = Pages::of(record)?;
    let hidden_nodes = match pages.finding {
        Finding::Hidden => Some(true),
        Finding::None => Some(false),
        Finding::SlowPages | Finding::Unclear | Finding::FarCpu { .. } | Finding::Untold => None,
    };
    Some(Page { hidden_nodes, rank_correlation: pages.correlation, sentence: pages.sentence() })
}

/// What each CPU saw, and what it means.
pub fn section(record: &Record, document: &mut Document) {
    let (Some(first), Some(pages)) = (steps(record).next(), Pages::of(record)) else { return };
    document.heading(format!(
        "Latency of {} pages strewn over {}: ns a load, lines of one page in random order",
        first.pages, first.footprint_bytes
    ));
    let mut table = Table::new(["from", "median page", "faster pages", "slower pages", "of them slower"]);
    for Seen { cpu, median_ns, modes } in &pages.cpus {
        let step = steps(record).find(|step| step.step.cpus.first() == Some(cpu));
        let mark = table.mark(step.iter().flat_map(|step| &step.step.caveats));
        let of = |of: &dyn Fn(&Modes) -> String| modes.as_ref().map_or("–".to_owned(), of);
        table.row(vec![
            format!("CPU {cpu}"),
            format!("{median_ns:.1}{mark}"),
            of(&|modes| format!("{:.1}", modes.low_ns)),
            of(&|modes| format!("{:.1}", modes.high_ns)),
            of(&|modes| format!("{:.0} %", modes.high_share * 100.0)),
        ]);
    }
    document.table(table);
    document.paragraph(pages.sentence());
}
