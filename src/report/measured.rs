//! A record as tables: bandwidth, latency, barriers, decode, verdict.

use super::plan::by_reason;
use super::{Document, Table};
use crate::attribute::{self, Attribution, Limit};
use crate::machine::Topology;
use crate::record::{CoreLatencyStep, Line, Record};
use crate::stats;
use crate::units::{CpuId, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// Widest matrix that a terminal shows; larger ones are summed up by class.
const MATRIX_CPUS: usize = 16;

/// Everything that the record holds, for a person.
pub fn document(record: &Record) -> Document {
    let mut document = Document::default();
    machine(record, &mut document);
    super::drift::paragraph(record, &mut document);
    super::bandwidth::bandwidth(record, &mut document);
    super::validate::section(record, &mut document);
    super::engine::section(record, &mut document);
    latency(record, &mut document);
    super::clusters::section(record, &mut document);
    super::sibling::section(record, &mut document);
    super::memory::section(record, &mut document);
    super::page::section(record, &mut document);
    super::loaded::section(record, &mut document);
    super::atomic::section(record, &mut document);
    super::detour::section(record, &mut document);
    super::barrier::section(record, &mut document);
    super::dispatch::section(record, &mut document);
    decode(record, &mut document);
    remarks(record, &mut document);
    document
}

/// `1 package`, `2 packages`.
fn count(number: usize, what: &str) -> String {
    let plural = match what {
        "node" => "memory nodes",
        "package" => "packages",
        _ => "CPUs",
    };
    match (number, what) {
        (1, "node") => "1 memory node".into(),
        (1, _) => format!("1 {what}"),
        _ => format!("{number} {plural}"),
    }
}

fn machine(record: &Record, document: &mut Document) {
    let header = &record.header;
    document.heading(format!("{} on {}", header.cpu.model_name, header.host));
    let topology: &Topology = &header.topology;
    let mut facts = vec![count(header.allowed_cpus.len(), "CPU")];
    if !topology.packages.is_empty() {
        facts.push(count(topology.packages.len(), "package"));
    }
    if !topology.nodes.is_empty() {
        facts.push(count(topology.nodes.len(), "node"));
    }
    let caches = topology.last_level_caches(&header.allowed_cpus);
    if let (Some(first), Some(sum)) = (caches.first(), topology.last_level_bytes(&header.allowed_cpus)) {
        facts.push(format!("{} of L{} in {}", sum, first.level, caches.len()));
    }
    facts.push(format!("instructions up to {}", header.cpu.isa.last().map_or("rust", String::as_str)));
    facts.extend(header.environment.kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
    document.paragraph(format!("{}; membar {}, {}", facts.join(", "), header.version, header.started_utc));
    if !header.labels.is_empty() {
        let labels: Vec<String> = header.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        document.paragraph(labels.join(", "));
    }
    for caveat in &header.caveats {
        document.paragraph(format!("Note: {caveat}."));
    }
}

fn latencies(record: &Record) -> impl Iterator<Item = &CoreLatencyStep> {
    record.lines.iter().filter_map(|line| match line {
        Line::CoreLatency(step) => Some(step),
        _ => None,
    })
}

fn latency(record: &Record, document: &mut Document) {
    let steps: Vec<&CoreLatencyStep> = latencies(record).collect();
    if steps.is_empty() {
        return;
    }
    document.heading("Core to core: ns one way (half a round trip) for a modified line");
    // Where no line lived anywhere else than at the first CPU there is nothing to tell apart.
    let side = |step: &CoreLatencyStep| home_side(step, &record.header.topology);
    let sides = steps.iter().any(|step| side(step) > Side::First);
    let mut groups: BTreeMap<(&str, usize, Side), Vec<&CoreLatencyStep>> = BTreeMap::new();
    const CLASSES: [&str; 5] = ["smt", "l3", "node", "socket", "machine"];
    for step in &steps {
        let class = CLASSES.iter().position(|class| *class == step.reported_class).unwrap_or(CLASSES.len() - 1);
        let side = if sides { side(step) } else { Side::Unknown };
        groups.entry((&step.protocol, class, side)).or_default().push(step);
    }
    let mut table = Table::new(["protocol", "reported to share"]);
    if sides {
        table.column("line homed at".to_owned());
    }
    for column in ["pairs", "median", "fastest pair", "slowest pair"] {
        table.column(column.to_owned());
    }
    for ((protocol, class, side), members) in groups {
        let medians: Vec<f64> = members.iter().filter_map(|step| step.summary.median_ns).collect();
        let at = |q| stats::quantile(&medians, q).map_or("–".into(), |ns: f64| format!("{ns:.1}"));
        let mark = table.mark(members.iter().flat_map(|step| &step.step.caveats));
        let pairs = members.len().to_string();
        let shares = match CLASSES[class] {
            "smt" => "core",
            "l3" => "last-level cache",
            other => other,
        };
        let mut row = vec![protocol.to_owned(), shares.to_owned()];
        row.extend(sides.then(|| side.name().to_owned()));
        row.extend([pairs, format!("{}{mark}", at(0.5)), at(0.0), at(1.0)]);
        table.row(row);
    }
    document.table(table);
    if steps.iter().any(|step| step.protocol == "message") {
        document.paragraph(
            "message: receive less send by one clock, mean of both directions; about one clock read is in it.",
        );
    }
    let protocols: BTreeSet<&str> = steps.iter().map(|step| step.protocol.as_str()).collect();
    for protocol in protocols {
        let steps = steps.iter().copied().filter(|step| step.protocol == protocol);
        matrix(protocol, sides, steps.map(|step| (step, side(step))), document);
    }
}

/// At whose side the shared line of a pair was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// The system did not tell.
    Unknown,
    /// On the node of the first CPU, which may be that of both.
    First,
    /// On the node of the second CPU.
    Second,
    /// On a third node.
    Elsewhere,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Unknown => "unknown",
            Side::First => "first CPU",
            Side::Second => "second CPU",
            Side::Elsewhere => "a third node",
        }
    }
}

fn home_side(step: &CoreLatencyStep, topology: &Topology) -> Side {
    let node = |cpu: CpuId| topology.pu(cpu).and_then(|pu| pu.node);
    match step.home_node {
        None => Side::Unknown,
        home if home == node(step.cpu_a) => Side::First,
        home if home == node(step.cpu_b) => Side::Second,
        _ => Side::Elsewhere,
    }
}

/// CPUs against CPUs, labelled on both sides. With `sides`, a row is the CPU at whose side the line was homed.
fn matrix<'a>(
    protocol: &str,
    sides: bool,
    steps: impl Iterator<Item = (&'a CoreLatencyStep, Side)>,
    document: &mut Document,
) {
    let mut cells: BTreeMap<(CpuId, CpuId), f64> = BTreeMap::new();
    let mut cpus = BTreeSet::new();
    for (step, side) in steps {
        if let Some(median) = step.summary.median_ns {
            let (there, back) = ((step.cpu_a, step.cpu_b), (step.cpu_b, step.cpu_a));
            let (own, other) = if side == Side::Second { (back, there) } else { (there, back) };
            cells.insert(own, median);
            // What was measured with the line at that side counts there.
            cells.entry(other).or_insert(median);
            cpus.extend([step.cpu_a, step.cpu_b]);
        }
    }
    if cpus.len() > MATRIX_CPUS {
        document.paragraph(format!(
            "The matrix of {} CPUs by {protocol} does not fit here: `membar report RECORD --format csv` has every pair.",
            cpus.len()
        ));
        return;
    }
    let corner = if sides { format!("{protocol}, ns, line homed at") } else { format!("{protocol}, ns") };
    let mut table = Table::new([corner.as_str()]);
    for cpu in &cpus {
        table.column(format!("CPU {cpu}"));
    }
    for a in &cpus {
        let mut row = vec![format!("CPU {a}")];
        row.extend(cpus.iter().map(|b| cells.get(&(*a, *b)).map_or(String::new(), |ns| format!("{ns:.1}"))));
        table.row(row);
    }
    document.table(table);
}

fn milliseconds(ns: f64) -> String {
    let ms = ns / 1e6;
    if ms.abs() < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}

fn decode(record: &Record, document: &mut Document) {
    let attributions = attribute::attributions(record);
    if attributions.is_empty() {
        return;
    }
    document.heading("Decode replay: where a token's time goes, ms (parts add up to the token)");
    let mut table = Table::new([
        "model",
        "threads",
        "barrier",
        "tokens/s",
        "token",
        "bandwidth",
        "reach",
        "compute",
        "barrier",
        "waiting",
        "exchange",
        "limit",
        "rounds",
    ]);
    for attribution in &attributions {
        let runs = attribution.runs;
        let mark = table.mark(attribution.caveats.iter().map(|tainted| tainted.among(runs)));
        let part = |part: &Option<attribute::Part>| part.map_or(String::new(), |part| milliseconds(part.ns as f64));
        let parts = &attribution.parts;
        table.row(vec![
            format!("{} {}", attribution.model, attribution.quantization),
            attribution.threads.to_string(),
            attribution.barrier.clone(),
            attribution.tokens_per_s.map_or("–".into(), |rate| format!("{rate:.1}{mark}")),
            milliseconds(attribution.full_ns as f64),
            part(&parts.bandwidth),
            part(&parts.reach),
            part(&parts.compute),
            part(&parts.barrier),
            part(&parts.skew),
            part(&parts.exchange),
            attribution.verdict.limit.noun().to_owned(),
            attribution.rounds.to_string(),
        ]);
    }
    document.table(table);
    let is_whole = attributions.iter().all(|attribution| attribution.parts.compute.is_some());
    let arithmetic = if is_whole {
        ""
    } else {
        " Where compute is empty, arithmetic was not replayed, and a real engine is slower."
    };
    document.paragraph(format!(
        "bandwidth: reading the weights as fast as this machine can; reach: what these threads and slices fall short of \
         that; compute: arithmetic that does not hide behind loads; barrier: what barriers themselves take; waiting: for \
         late threads (and for barriers, where that column is empty); exchange: activations between cores and \
         single-thread phases.{arithmetic}"
    ));
    verdict(record, &attributions, document);
}

fn verdict(record: &Record, attributions: &[Attribution], document: &mut Document) {
    let Some(overall) = attribute::overall(record) else { return };
    document.heading("Verdict");
    let with_confidence = |attribution: &Attribution| {
        let verdict = &attribution.verdict;
        match verdict.limit {
            Limit::Inconclusive => verdict.sentence.clone(),
            _ => format!("{} (Confidence: {}.)", verdict.sentence, verdict.confidence.name()),
        }
    };
    document.paragraph(with_confidence(&overall));
    for advice in &overall.verdict.advice {
        let gain = match (advice.measured, advice.gain) {
            (_, 0.0) => String::new(),
            (true, gain) => format!(" (measured {:+.1} %)", gain * 100.0),
            (false, gain) => format!(" (predicted {:+.1} %)", gain * 100.0),
        };
        document.paragraph(format!("→ {}{gain}", advice.change));
    }
    for other in attributions.iter().filter(|other| other.baseline && other.model != overall.model) {
        document.paragraph(format!("Also: {}", with_confidence(other)));
    }
}

fn remarks(record: &Record, document: &mut Document) {
    let mut remarks = record.remarks.clone();
    /// Enough to see what is wrong.
    const DISAGREEMENTS: usize = 5;
    let disagreements = stats::disagreements(&record.lines);
    remarks.extend(disagreements.iter().take(DISAGREEMENTS).cloned());
    if disagreements.len() > DISAGREEMENTS {
        remarks.push(format!("and {} more steps like these", disagreements.len() - DISAGREEMENTS));
    }
    if let Some(Line::End(end)) = record.lines.last() {
        if end.outcome != "complete" {
            remarks.push(format!("the run ended early: {}", end.outcome));
        }
        let by_reason = by_reason(&end.left_out);
        remarks.extend(by_reason.iter().map(|(reason, what)| format!("not measured ({reason}): {}", what.join(", "))));
        remarks.extend(end.failures.iter().map(|failure| format!("failed: {failure}")));
        remarks.push(format!("took {}", Nanos(end.elapsed_ns)));
    }
    if !remarks.is_empty() {
        document.heading("Remarks");
        for remark in remarks {
            document.paragraph(remark);
        }
    }
}
