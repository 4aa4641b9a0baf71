//! Bandwidth for a person: rows by thread count, what scales and what does not, nodes, and the column.

use super::{Document, Table};
use crate::attribute::bandwidth::{
    Column, Doubling, Halves, Matrix, Scaling, by_threads, column, halves, matrices, memory_sweep, store_ratios,
    streams, sweep,
};
use crate::kernel::Kernel;
use crate::plan::stream::MACHINE;
use crate::record::{Record, StreamStep};
use crate::stats;
use crate::units::{Bytes, BytesPerSecond, CpuSet, NodeId, Threads};
use std::collections::{BTreeMap, BTreeSet};

/// Thread counts beside each other that a terminal shows with every row.
const COUNTS_MOST: usize = 4;

/// All that the record says of bandwidth; the column comes last.
pub fn bandwidth(record: &Record, document: &mut Document) {
    let steps: Vec<&StreamStep> = streams(record).filter(|step| step.scope == MACHINE).collect();
    if !steps.is_empty() {
        rows(&steps, record, document);
        roof(record, document);
        stores(record, document);
        if let Some(halves) = halves(record) {
            document.paragraph(halves_sentence(&halves));
        }
    }
    parts(record, document);
    for matrix in matrices(record) {
        self::matrix(&matrix, record, document);
    }
    without_cpus(record, document);
    if let Some(column) = column(record) {
        document.paragraph(column_sentence(&column, record));
        document.paragraph(copies_sentence(&column, record));
    }
}

/// `arrays of 128 MiB (last-level caches 32 MiB)`, or ranges.
fn arrays(steps: &[&StreamStep]) -> String {
    let range = |of: &dyn Fn(&StreamStep) -> Bytes| {
        let sizes: BTreeSet<Bytes> = steps.iter().map(|step| of(step)).collect();
        match (sizes.first(), sizes.last()) {
            (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
            (Some(only), _) => only.to_string(),
            _ => String::new(),
        }
    };
    format!("arrays of {}, last-level caches of {}", range(&|step| step.array_bytes), range(&|step| step.cache_bytes))
}

/// Every row at few thread counts, then the rows that were swept at all of them.
fn rows(steps: &[&StreamStep], record: &Record, document: &mut Document) {
    let counts: BTreeSet<u32> = steps.iter().map(|step| step.step.threads).collect();
    let kernels = in_table_order(steps);
    let samples: BTreeSet<usize> = steps.iter().map(|step| stats::unit_times(&step.step).len()).collect();
    let samples = match (samples.first(), samples.last()) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
        (least, _) => least.map_or(0, |least| *least).to_string(),
    };
    document.heading(format!(
        "Bandwidth of the machine: GB/s of counted bytes, best (median) of {samples} samples; {}",
        arrays(steps)
    ));
    let shown: Vec<u32> = if counts.len() <= COUNTS_MOST {
        counts.iter().copied().collect()
    } else {
        // Where every row was measured, and where the copies peak.
        let rows_at = |threads: &u32| steps.iter().filter(|step| step.step.threads == *threads).count();
        let fullest = counts.iter().copied().max_by_key(rows_at);
        let peak = column(record).map(|column| column.threads);
        counts.first().copied().into_iter().chain(fullest).chain(peak).collect::<BTreeSet<u32>>().into_iter().collect()
    };
    let mut table = Table::new(["kernel"]);
    for threads in &shown {
        table.column(Threads(*threads).to_string());
    }
    let widest = shown.last().copied().unwrap_or(0);
    table.column(format!("on the bus, {}", Threads(widest)));
    for kernel in &kernels {
        let at = |threads: u32| {
            steps.iter().rev().find(|step| step.kernel == *kernel && step.step.threads == threads).copied()
        };
        let mut row = vec![(*kernel).to_owned()];
        for threads in &shown {
            row.push(at(*threads).map_or(String::new(), |step| best_and_median(step, &mut table)));
        }
        row.push(at(widest).map_or(String::new(), on_the_bus));
        table.row(row);
    }
    document.table(table);
    if counts.len() > shown.len() {
        let swept: Vec<&str> = kernels
            .iter()
            .copied()
            .filter(|kernel| steps.iter().filter(|step| step.kernel == *kernel).count() > shown.len())
            .collect();
        let mut table = Table::new(["threads"]);
        for kernel in &swept {
            table.column(*kernel);
        }
        for threads in &counts {
            let mut row = vec![threads.to_string()];
            for kernel in &swept {
                let step = steps.iter().rev().find(|step| step.kernel == *kernel && step.step.threads == *threads);
                row.push(step.map_or(String::new(), |step| {
                    let mark = table.mark(&step.step.caveats);
                    format!("{}{mark}", rate(step.summary.best_bytes_per_s))
                }));
            }
            table.row(row);
        }
        document.table(table);
    }
    let pages: BTreeSet<(&str, Option<u32>)> = steps
        .iter()
        .map(|step| (step.page_kind.as_str(), step.huge_page_share.map(|share| (share * 100.0).round() as u32)))
        .collect();
    for (kind, huge) in pages {
        match huge {
            Some(percent) => {
                document.paragraph(format!("Pages: {kind} asked for, {percent} % of the arrays in huge ones."))
            }
            None if kind != "default" => {
                document.paragraph(format!("Pages: {kind} asked for; what was granted is unknown."))
            }
            None => {}
        }
    }
}

/// The rows of these steps in the order of the kernel table; rows that it does not know come last.
fn in_table_order<'a>(steps: &[&'a StreamStep]) -> Vec<&'a str> {
    let mut kernels = distinct(steps.iter().map(|step| step.kernel.as_str()));
    let place = |kernel: &&str| Kernel::table().iter().position(|row| row.name == *kernel).unwrap_or(usize::MAX);
    kernels.sort_by_key(place);
    kernels
}

/// The distinct words, in their order.
fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known = Vec::new();
    for word in words {
        if !known.contains(&word) {
            known.push(word);
        }
    }
    known
}

fn best_and_median(step: &StreamStep, table: &mut Table) -> String {
    let mark = table.mark(&step.step.caveats);
    format!("{} ({}){mark}", rate(step.summary.best_bytes_per_s), rate(step.summary.median_bytes_per_s))
}

fn rate(rate: Option<BytesPerSecond>) -> String {
    rate.map_or("–".into(), |rate| gb(rate.0))
}

fn gb(bytes_per_s: f64) -> String {
    let gb = bytes_per_s / 1e9;
    if gb < 100.0 { format!("{gb:.1}") } else { format!("{gb:.0}") }
}

/// The best rate in bus bytes: a range where ordinary stores may read the line first.
fn on_the_bus(step: &StreamStep) -> String {
    let Some(best) = step.summary.best_bytes_per_s else { return String::new() };
    let bus = |bytes: Bytes| gb(best.0 * bytes.0 as f64 / step.counted_bytes.0.max(1) as f64);
    let (least, most) = (bus(step.bus_bytes_min), bus(step.bus_bytes_max));
    if least == most { least } else { format!("{least} to {most}") }
}

/// What reading reaches, how it and the copies scale.
fn roof(record: &Record, document: &mut Document) {
    let read = by_threads(record, |step| step.operation == "read");
    let peak = read.iter().map(|(threads, rate)| (*threads, *rate)).reduce(|a, b| if b.1 > a.1 { b } else { a });
    if let Some((threads, rate)) = peak {
        let share = share_of_peak(rate, record).map_or(String::new(), |share| format!(", {share}"));
        document.paragraph(format!(
            "Roof of everything that only reads, as decode nearly does: {} with {}{share}.",
            BytesPerSecond(rate),
            Threads(threads)
        ));
    }
    for (what, points) in [("Reading", read), ("Copying", by_threads(record, |step| step.operation == "copy"))] {
        document_scaling(what, &points, document);
    }
}

fn document_scaling(what: &str, points: &BTreeMap<u32, f64>, document: &mut Document) {
    let Some(scaling) = Scaling::of(points) else { return };
    let Scaling { peak, knee, most } = scaling;
    let below = (1.0 - most.1 / peak.1) * 100.0;
    let end = if most.0 == peak.0 { String::new() } else { format!("; {} are {below:.0} % below it", Threads(most.0)) };
    document.paragraph(format!(
        "{what}: {:.0} % of the peak of {} ({}) is reached with {}{end}.",
        Scaling::KNEE * 100.0,
        BytesPerSecond(peak.1),
        Threads(peak.0),
        Threads(knee)
    ));
}

/// The share of the memory's theoretical peak, where somebody said what it is or the firmware does.
fn share_of_peak(rate: f64, record: &Record) -> Option<String> {
    let header = &record.header;
    let (peak, whose) = match header.peak_bytes_per_s {
        Some(peak) if peak.is_finite() && peak > 0.0 => (peak, "the theoretical peak"),
        Some(_) => return None,
        // An upper bound: two modules may share a channel.
        None => (header.environment.dimms.as_ref()?.peak_bytes_per_s?, "what the memory modules could at most"),
    };
    Some(format!("{:.0} % of {whose} ({})", rate / peak * 100.0, BytesPerSecond(peak)))
}

/// What ordinary stores cost here.
fn stores(record: &Record, document: &mut Document) {
    let ratios = store_ratios(record);
    let Some(last) = ratios.last() else { return };
    let listed: Vec<String> = ratios.iter().map(|at| format!("{:.2} ({})", at.ratio, Threads(at.threads))).collect();
    let listed = match &listed[..] {
        [first, .., last] if listed.len() > COUNTS_MOST => format!("{first} to {last}"),
        all => all.join(", "),
    };
    let tainted = memory_sweep(record).any(|(step, _)| {
        step.operation == "copy" && step.step.threads == last.threads && !step.step.caveats.is_empty()
    });
    let doubt = if tainted { " (these numbers carry caveats)" } else { "" };
    document
        .paragraph(format!("Copy with non-temporal over ordinary stores: {listed}: {}{doubt}.", meaning(last.ratio)));
}

/// Whether two halves of the cores are in each other's way.
fn halves_sentence(halves: &Halves) -> String {
    let Halves { alone: [first, second], together } = halves;
    let ratio = halves.ratio();
    let meaning = match ratio {
        // Guesses: halfway between the cases and what noise makes of them.
        ratio if ratio >= 0.9 => "bandwidths add: separate memory controllers, or neither half saturates",
        ratio if ratio <= 0.65 => "they share one memory, or its limit",
        _ => "they share a part of the way to memory, or both together nearly saturate it",
    };
    format!(
        "Halves of the CPUs read {} and {} GB/s alone, {} together: {ratio:.2} of the sum: {meaning}.",
        gb(*first),
        gb(*second),
        gb(*together)
    )
}

/// `node` as this machine may call it.
fn node_word(record: &Record) -> &'static str {
    if record.header.cpu.hypervisor.is_some() { "guest node" } else { "node" }
}

/// Sockets, nodes by themselves and interleaved pages.
fn parts(record: &Record, document: &mut Document) {
    let is_part = |scope: &str| {
        let node = scope.strip_prefix("node ").is_some_and(|rest| !rest.contains(' '));
        node || scope.starts_with("socket ") || scope.ends_with(" interleaved")
    };
    let steps: Vec<&StreamStep> = streams(record).filter(|step| is_part(&step.scope)).collect();
    if steps.is_empty() {
        return;
    }
    document.heading(format!("Parts of the machine: GB/s of counted bytes, best of each row; {}", arrays(&steps)));
    let kernels = in_table_order(&steps);
    let scopes = distinct(steps.iter().map(|step| step.scope.as_str()));
    let mut table = Table::new(["part", "threads", "memory of"]);
    for kernel in &kernels {
        table.column(*kernel);
    }
    for scope in scopes {
        let of: Vec<&&StreamStep> = steps.iter().filter(|step| step.scope == scope).collect();
        let mut row = vec![
            scope.replace("node", node_word(record)),
            of[0].step.threads.to_string(),
            format!("{} {}", node_word(record), of[0].memory_nodes),
        ];
        for kernel in &kernels {
            let step = of.iter().find(|step| step.kernel == *kernel);
            row.push(step.map_or(String::new(), |step| {
                let mark = table.mark(&step.step.caveats);
                format!("{}{mark}", rate(step.summary.best_bytes_per_s))
            }));
        }
        table.row(row);
    }
    document.table(table);
}

/// Nodes against nodes, both axes named.
fn matrix(matrix: &Matrix, record: &Record, document: &mut Document) {
    let word = node_word(record);
    document.heading(format!(
        "{} from each {word}'s cores to each {word}'s memory: GB/s of counted bytes, best",
        matrix.kernel
    ));
    let mut table = Table::new(["cores of \\ memory of"]);
    for to in &matrix.to {
        table.column(format!("{word} {to}"));
    }
    for from in &matrix.from {
        let mut row = vec![format!("{word} {from}")];
        row.extend(matrix.to.iter().map(|to| matrix.cells.get(&(*from, *to)).map_or(String::new(), |rate| gb(*rate))));
        table.row(row);
    }
    document.table(table);
}

/// Says from where the memory of a node without CPUs was read.
fn without_cpus(record: &Record, document: &mut Document) {
    let topology = &record.header.topology;
    let word = node_word(record);
    for node in topology.nodes.iter().filter(|node| node.cpus.is_empty()) {
        let scope = format!("node {}", node.id);
        let Some(step) = streams(record).find(|step| step.scope == scope) else { continue };
        let cpus: CpuSet = step.step.cpus.iter().copied().collect();
        let of: BTreeSet<NodeId> = step.cpu_nodes.iter().collect();
        let of: Vec<String> = of.iter().map(ToString::to_string).collect();
        document.paragraph(format!(
            "{word} {} has no CPUs: read from CPUs {cpus} of {word} {}, which the topology places next to it.",
            node.id,
            of.join(", ")
        ));
    }
    let without: Vec<String> = topology
        .nodes
        .iter()
        .filter(|node| node.memory_bytes == Some(Bytes(0)))
        .map(|node| node.id.to_string())
        .collect();
    if !without.is_empty() && streams(record).next().is_some() {
        document.paragraph(format!("No local row for {word} {}: without memory.", without.join(", ")));
    }
}

/// The number that tables of machines print, and what it rests on.
fn column_sentence(column: &Column, record: &Record) -> String {
    let Column { kernel, array_bytes, cache_bytes, cpu_nodes, .. } = column;
    let why = format!(
        "arrays of {array_bytes}, {:.1} times the last-level caches of {cache_bytes}",
        array_bytes.0 as f64 / cache_bytes.0.max(1) as f64
    );
    let scope =
        if cpu_nodes.is_empty() { String::new() } else { format!("; cores of {} {cpu_nodes}", node_word(record)) };
    let with = format!("{kernel} with {}", Threads(column.threads));
    let rate = BytesPerSecond(column.rate);
    let mut text = match column.doubling {
        Doubling::Confirmed(change) => {
            let share = share_of_peak(column.rate, record).map_or(String::new(), |share| format!(", {share}"));
            format!(
                "Bandwidth column: {rate}{share}, by {with} (a variant of STREAM copy: the sweep's best, taken again); \
                 {why}{scope}; doubled arrays change it by {:+.1} %.",
                change * 100.0
            )
        }
        Doubling::Differs(change) => format!(
            "Bandwidth column: none. {with} over {why}{scope} gave {rate}, and {:+.1} % over doubled arrays: {}; larger \
             arrays did not fit or were not finished.",
            change * 100.0,
            if change < 0.0 {
                "some cache is larger than reported, or the machine does not hold still"
            } else {
                "the machine does not hold still"
            }
        ),
        Doubling::NotMeasured => format!(
            "Bandwidth column: none. The best copy is {rate} by {with} over {why}{scope}, but it was not repeated over \
             doubled arrays, which shows whether some cache is larger than reported."
        ),
    };
    if !column.caveats.is_empty() {
        let caveats: Vec<String> = column.caveats.iter().map(ToString::to_string).collect();
        text.push_str(&format!(" But do not build on it: {}.", caveats.join("; ")));
    }
    text
}

/// The copies beside each other, and what a compiled STREAM is likely to call.
fn copies_sentence(column: &Column, record: &Record) -> String {
    let at: Vec<(&StreamStep, f64)> =
        sweep(record).filter(|(step, _)| step.operation == "copy" && step.step.threads == column.threads).collect();
    let listed: Vec<String> = at.iter().map(|(step, rate)| format!("{} {}", step.kernel, gb(*rate))).collect();
    let mut text = format!("Copies of the sweep with {}: {} GB/s.", Threads(column.threads), listed.join(", "));
    if at.iter().any(|(step, _)| step.kernel == "copy_libc") {
        text.push_str(
            " gcc makes a call of memcpy of STREAM's copy loop, which is what copy_libc does; `membar validate --stream` \
             compares with the STREAM that you compiled.",
        );
    }
    text
}

/// What non-temporal over ordinary copy says.
fn meaning(ratio: f64) -> &'static str {
    match ratio {
        ratio if ratio > 1.6 => {
            "more than the 1.5 that reading each written line first explains: these threads wait for single lines more than \
             for the bus"
        }
        ratio if ratio >= 1.4 => {
            "as if each written line were read first (24 bytes for 16): this CPU allocates on write"
        }
        ratio if ratio > 1.1 => {
            "between 1 (no line is read before it is written) and 1.5 (each one is): the CPU avoids a part of those reads, or \
             something else than the bus is the limit as well"
        }
        ratio if ratio >= 0.9 => "ordinary stores cost no more: this CPU avoids reading lines that it writes whole",
        _ => "non-temporal stores are the slower ones here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_of_stores_is_read_by_stated_bounds() {
        for (ratio, said) in [
            (1.69, "more than the 1.5"),
            (1.5, "allocates on write"),
            (1.41, "allocates on write"),
            (1.39, "avoids a part"),
            (1.11, "avoids a part"),
            (1.0, "cost no more"),
            (0.91, "cost no more"),
            (0.89, "the slower ones"),
        ] {
            assert!(meaning(ratio).contains(said), "{ratio}: {}", meaning(ratio));
        }
    }
}
