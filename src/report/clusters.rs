//! Groups of CPUs by latency, measured against reported: in a report, and to paste.

use super::{Document, Table};
use crate::attribute::clusters::{Clusters, Comparison, Unclear};
use crate::record::{Line, Record};
use crate::units::{CpuId, CpuSet};
use std::fmt::Write;

/// More lists than that are left to `membar topology`.
const LISTS: usize = 64;

/// What latencies say of the reported topology. Nothing without them, nor beside other measurements of too few CPUs.
pub fn section(record: &Record, document: &mut Document) {
    let clusters = match Clusters::of(record) {
        None => return,
        Some(Err(Unclear::FewCpus { .. })) if !is_latency_alone(record) => return,
        Some(Err(unclear)) => return document.paragraph(format!("Reported against measured: {unclear}.")),
        Some(Ok(clusters)) => clusters,
    };
    let comparison = clusters.against(&record.header);
    document.heading(format!("Groups of CPUs by latency ({}), measured against reported", clusters.protocol));
    let mut table = Table::new(["median, ns", "pairs", "groups", "CPUs each", "reported as"]);
    for (index, class) in clusters.classes.iter().enumerate() {
        let reported = comparison.reported_as.get(index).copied().flatten();
        let last = index + 1 == clusters.classes.len();
        table.row(vec![
            class.median_ns.map_or("–".into(), |ns| format!("{ns:.1}")),
            class.pairs.to_string(),
            class.groups.len().to_string(),
            sizes(&class.groups),
            reported.unwrap_or(if last { "everything" } else { "nothing" }).to_owned(),
        ]);
    }
    document.table(table);
    for disagreement in &comparison.disagreements {
        document.paragraph(format!("Note: {disagreement}."));
    }
    for (index, class) in clusters.classes.iter().enumerate() {
        let unreported = comparison.reported_as.get(index).is_some_and(Option::is_none);
        if unreported && index + 1 < clusters.classes.len() && class.groups.len() <= LISTS {
            let lists: Vec<String> = class.groups.iter().map(CpuSet::to_string).collect();
            document.paragraph(format!("CPUs of these {}: {}.", class.groups.len(), lists.join(" | ")));
        }
        if !class.unplaced.is_empty() {
            let pairs = "too few of their pairs were measured";
            document.paragraph(format!("CPUs {} are in no group of this level: {pairs}.", class.unplaced));
        }
    }
    for note in &comparison.notes {
        document.paragraph(format!("Also: {note}."));
    }
    if let Some((low, high)) = clusters.unexplained {
        document.paragraph(format!(
            "Latencies around {low:.1} and {high:.1} ns follow no groups of CPUs: too few pairs were measured, or the machine \
             moved meanwhile."
        ));
    }
    let groups = if clusters.classes.len() > 1 {
        format!(" At least {:.0} % of the pairs fit the groups of each level.", (100.0 * clusters.fit).floor())
    } else {
        String::new()
    };
    let verdict = match comparison.agrees {
        Some(true) => "As far as latencies tell, last-level caches are as reported.",
        Some(false) => {
            "`membar topology --topology measured:RECORD` prints the groups to paste; plans take the same source."
        }
        None => "Whether last-level caches are as reported cannot be told from these latencies.",
    };
    document.paragraph(format!("{verdict}{groups}"));
}

/// Whether nothing but latency was measured.
fn is_latency_alone(record: &Record) -> bool {
    record.lines.iter().all(|line| {
        !matches!(line, Line::Stream(_) | Line::Barrier(_) | Line::Decode(_) | Line::Engine(_) | Line::Peer(_))
    })
}

fn sizes(groups: &[CpuSet]) -> String {
    let sizes = || groups.iter().map(CpuSet::len);
    match (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0)) {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    }
}

/// Every group of every level as a list (`taskset -c`, `--cpus`) and as a mask (`taskset`).
pub fn paste(clusters: &Clusters, comparison: &Comparison) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{text}");
    };
    line(format!("\ngroups by latency ({}, {} pairs): CPU list, mask", clusters.protocol, clusters.pairs()));
    for (index, class) in clusters.classes.iter().enumerate() {
        let reported = comparison.reported_as.get(index).copied().flatten();
        let reported = reported.map(|name| format!(", reported as {name}")).unwrap_or_default();
        let median = class.median_ns.map_or("unknown".into(), |ns| format!("{ns:.1} ns"));
        let used = if index == comparison.last_level { ", taken as last-level caches" } else { "" };
        let count = class.groups.len();
        let plural = if count == 1 { "" } else { "s" };
        line(format!("  median {median}: {count} group{plural}{reported}{used}"));
        let width = class.groups.iter().map(|group| group.to_string().len()).max().unwrap_or(0);
        for group in &class.groups {
            line(format!("    {:width$}  {}", group.to_string(), mask(group)));
        }
        if !class.unplaced.is_empty() {
            line(format!("    in no group, too few pairs: {}", class.unplaced));
        }
    }
    comparison.disagreements.iter().for_each(|text| line(format!("  {text}")));
    out
}

/// `0x` and hexadecimal digits, as `taskset` takes them.
fn mask(cpus: &CpuSet) -> String {
    let last = cpus.iter().next_back().map_or(0, |cpu| cpu.0);
    let digit =
        |nibble: u32| (0..4).filter(|bit| cpus.contains(CpuId(4 * nibble + bit))).map(|bit| 1 << bit).sum::<u32>();
    let digits = (0..=last / 4).rev().filter_map(|nibble| char::from_digit(digit(nibble), 16));
    std::iter::once("0x").map(String::from).chain([digits.collect()]).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn masks_are_what_taskset_takes() {
        let mask = |list: &str| super::mask(&list.parse().unwrap());
        assert_eq!(
            (mask("0"), mask("0-3"), mask("4,8-11"), mask("")),
            ("0x1".into(), "0xf".into(), "0xf10".into(), "0x0".into())
        );
        assert_eq!(mask("64-71"), format!("0xff{}", "0".repeat(16)));
    }
}
