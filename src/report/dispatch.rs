//! Fork and join: what waking a team costs, by polling level and idle time.

use super::{Document, Table};
use crate::record::{DispatchStep, Line, Record};
use crate::units::Nanos;

fn steps(record: &Record) -> impl Iterator<Item = &DispatchStep> {
    record.lines.iter().filter_map(|line| match line {
        Line::Dispatch(step) => Some(step),
        _ => None,
    })
}

/// From handing out a job to its end.
pub fn section(record: &Record, document: &mut Document) {
    let mut table = Table::new(["threads", "spread", "poll", "without a job", "all begun, ns", "all done, ns"]);
    for step in steps(record) {
        let mark = table.mark(&step.step.caveats);
        let ns = |ns: Option<f64>| ns.map_or("–".to_owned(), |ns| format!("{ns:.0}"));
        table.row(vec![
            step.step.threads.to_string(),
            step.spread.clone(),
            step.poll.to_string(),
            Nanos(step.idle_ns).to_string(),
            ns(step.summary.started_ns),
            format!("{}{mark}", ns(step.summary.median_ns)),
        ]);
    }
    if steps(record).next().is_some() {
        document.heading("Fork and join: a job that does nothing, handed out by thread 0 (median)");
        document.table(table);
        document.paragraph(
            "poll: how long threads poll for a job before they sleep, as llama.cpp's --poll (0: not at all, 50: the default).",
        );
    }
}
