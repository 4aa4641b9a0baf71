//! Siblings: which CPUs slow each other as hardware threads of one core do.

use super::{Document, Table};
use crate::attribute::sibling::{self, Siblings as Found, steps};
use crate::plan::sibling::SHARED;
use crate::record::{Record, SiblingStep};
use crate::stats;
use crate::units::CpuId;
use serde::Serialize;

/// Pairs or sentences that are listed one by one.
const ROWS: usize = 28;

/// All pairs together, in the summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Siblings {
    pairs: usize,
    /// Pairs that slow each other as the threads of a core do.
    shared: Vec<(CpuId, CpuId)>,
    agrees_with_reported: Option<bool>,
}

/// What pairs of CPUs say of cores.
pub fn summary(record: &Record) -> Option<Siblings> {
    let found = Found::of(record)?;
    Some(Siblings {
        pairs: found.pairs,
        shared: found.shared.iter().map(|(a, b, _)| (*a, *b)).collect(),
        agrees_with_reported: found.agrees(),
    })
}

/// How the report calls the pairs that were chosen like this.
fn title(chosen: &str) -> &str {
    match chosen {
        "all" => "all pairs",
        "reported" => "reported as one core",
        "candidate" => "found by the group test",
        "control" => "at random",
        other => other,
    }
}

/// The slowdowns, and what they say of the reported cores.
pub fn section(record: &Record, document: &mut Document) {
    let Some(found) = Found::of(record) else { return };
    document.heading(
        "Siblings: times as long as alone when two CPUs multiply at the same time; about 2 on one core, 1 on two",
    );
    let measured: Vec<&SiblingStep> = sibling::steps(record).collect();
    if measured.len() <= ROWS {
        let mut table = Table::new(["CPUs", "slowdown", "reported to share"]);
        for step in &measured {
            let mark = table.mark(&step.step.caveats);
            let slowdown = step.summary.slowdown.map_or("–".to_owned(), |slowdown| format!("{slowdown:.2}{mark}"));
            let shares = match step.reported_class.as_str() {
                "smt" => "core",
                "l3" => "last-level cache",
                other => other,
            };
            table.row(vec![format!("{} and {}", step.cpu_a, step.cpu_b), slowdown, shares.to_owned()]);
        }
        document.table(table);
    } else {
        let mut table = Table::new(["pairs", "measured", "median", "least", "most"]);
        for chosen in ["all", "reported", "candidate", "control"] {
            let of = steps(record).filter(|step| step.chosen == chosen);
            let slowdowns: Vec<f64> = of.filter_map(|step| step.summary.slowdown).collect();
            let at =
                |q| stats::quantile(&slowdowns, q).map_or("–".to_owned(), |slowdown: f64| format!("{slowdown:.2}"));
            if !slowdowns.is_empty() {
                table.row(vec![title(chosen).to_owned(), slowdowns.len().to_string(), at(0.5), at(0.0), at(1.0)]);
            }
        }
        document.table(table);
    }
    let disagreements = found.disagreements();
    for disagreement in disagreements.iter().take(ROWS) {
        document.paragraph(format!("Note: {disagreement}."));
    }
    if disagreements.len() > ROWS {
        document
            .paragraph(format!("And {} more like these: the record and the CSV have all.", disagreements.len() - ROWS));
    }
    let verdict = match found.agrees() {
        Some(true) if found.shared.is_empty() => {
            "No two of these CPUs are threads of one core, as reported.".to_owned()
        }
        Some(true) => format!("{} of {} pairs are threads of one core, as reported.", found.shared.len(), found.pairs),
        Some(false) => {
            "Cores are not as reported: of threads that share one, the second adds little to what only computes."
                .to_owned()
        }
        None => "Whether cores are as reported cannot be told: CPUs were taken away meanwhile.".to_owned(),
    };
    let untold = match found.untold {
        some if some > 0 && some < found.pairs => format!(" {some} pairs were disturbed too much to tell."),
        _ => String::new(),
    };
    document.paragraph(format!("{verdict}{untold} From {SHARED} times on a pair counts as one core (a guess)."));
}
