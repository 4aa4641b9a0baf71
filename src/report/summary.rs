//! The object that `membar run --format json` prints. Its names are a contract: scripts read them.

use super::atomic::Atomic;
use super::detour::Detour;
use super::loaded::Loaded;
use super::memory::{self, Level, Memory};
use super::page::Page;
use super::sibling::Siblings;
use crate::attribute::bandwidth::{Column, Doubling, best, column, sweep};
use crate::attribute::clusters::{Class, Clusters};
use crate::attribute::{self, Advice, Attribution, Confidence, Limit, Part};
use crate::caveat::Caveat;
use crate::record::{Line, Record, SCHEMA};
use crate::stats;
use crate::units::Bytes;
use serde::Serialize;

/// One run in one object.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    schema: u32,
    stream: Option<Stream>,
    core_latency: Option<CoreLatency>,
    siblings: Option<Siblings>,
    memory_latency: Vec<Memory>,
    levels: Vec<Level>,
    page_latency: Option<Page>,
    loaded_latency: Vec<Loaded>,
    atomic: Vec<Atomic>,
    detour: Option<Detour>,
    barrier: Vec<super::barrier::Barrier>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    granularity: Vec<super::barrier::Granularity>,
    decode: Vec<Decode>,
    verdict: Option<Overall>,
    record: Option<String>,
    report: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Stream {
    copy_bytes_per_s: Option<f64>,
    copy_nt_bytes_per_s: Option<f64>,
    triad_bytes_per_s: Option<f64>,
    triad_nt_bytes_per_s: Option<f64>,
    read_bytes_per_s: Option<f64>,
    column_bytes_per_s: Option<f64>,
    /// Relative change with doubled arrays; absent when that was not measured.
    column_doubling: Option<f64>,
    column_caveats: Vec<Caveat>,
    column_kernel: Option<String>,
    threads_at_peak: Option<u32>,
    array_bytes: Option<Bytes>,
}

#[derive(Clone, Debug, Serialize)]
struct CoreLatency {
    protocol: &'static str,
    path: String,
    median_ns: Option<f64>,
    min_ns: Option<f64>,
    max_ns: Option<f64>,
    /// Classes of pairs by latency, fastest first; absent where too little was measured to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<Class>>,
    /// Whether the groups are as reported; null where that cannot be told.
    agrees_with_reported: Option<bool>,
}
#[derive(Clone, Debug, Serialize)]
struct Decode {
    model: String,
    quantization: String,
    threads: u32,
    tokens_per_s: Option<f64>,
    bytes_per_token: Bytes,
    barriers_per_token: u64,
    full_ns: i64,
    parts_ns: Parts,
    engine_ns: Option<u64>,
    verdict: Short,
}

#[derive(Clone, Debug, Serialize)]
struct Parts {
    bandwidth: Option<i64>,
    reach: Option<i64>,
    compute: Option<i64>,
    barrier: Option<i64>,
    skew: Option<i64>,
    exchange: Option<i64>,
}

#[derive(Clone, Debug, Serialize)]
struct Short {
    limit: Limit,
    second: Option<Limit>,
    confidence: Confidence,
}

#[derive(Clone, Debug, Serialize)]
struct Overall {
    model: String,
    threads: u32,
    #[serde(flatten)]
    short: Short,
    sentence: String,
    advice: Vec<Change>,
}

#[derive(Clone, Debug, Serialize)]
struct Change {
    change: String,
    gain: f64,
    measured: bool,
}

/// Sums up a record. `path` is where it lies.
pub fn summary(record: &Record, path: Option<String>) -> Summary {
    let attributions = attribute::attributions(record);
    Summary {
        schema: SCHEMA,
        stream: stream(record),
        core_latency: core_latency(record),
        siblings: super::sibling::summary(record),
        memory_latency: memory::chases(record),
        levels: memory::measured_levels(record),
        page_latency: super::page::summary(record),
        loaded_latency: super::loaded::summary(record),
        atomic: super::atomic::summary(record),
        detour: super::detour::summary(record),
        barrier: super::barrier::summary(record),
        granularity: super::barrier::granularity(record),
        decode: attributions.iter().map(decode).collect(),
        verdict: attribute::overall(record).map(|overall| Overall {
            model: overall.model.clone(),
            threads: overall.threads,
            short: short(&overall),
            sentence: overall.verdict.sentence.clone(),
            advice: overall.verdict.advice.iter().map(change).collect(),
        }),
        record: path,
        report: None,
    }
}

fn stream(record: &Record) -> Option<Stream> {
    sweep(record).next()?;
    let of = |operation: &str, store: Option<&str>| {
        let rows = sweep(record)
            .filter(|(step, _)| step.operation == operation && (store.is_none() || step.store.as_deref() == store));
        best(rows).map(|(_, rate)| rate)
    };
    let column = column(record);
    Some(Stream {
        copy_bytes_per_s: of("copy", Some("ordinary")),
        copy_nt_bytes_per_s: of("copy", Some("non_temporal")),
        triad_bytes_per_s: of("triad", Some("ordinary")),
        triad_nt_bytes_per_s: of("triad", Some("non_temporal")),
        read_bytes_per_s: of("read", None),
        column_bytes_per_s: column.as_ref().and_then(Column::bytes_per_s),
        column_doubling: column.as_ref().and_then(|column| match column.doubling {
            Doubling::Confirmed(change) | Doubling::Differs(change) => Some(change),
            Doubling::NotMeasured => None,
        }),
        column_caveats: column.as_ref().map(|column| column.caveats.clone()).unwrap_or_default(),
        column_kernel: column.as_ref().map(|column| column.kernel.clone()),
        threads_at_peak: column.as_ref().map(|column| column.threads),
        array_bytes: column
            .as_ref()
            .map(|column| column.array_bytes)
            .or_else(|| sweep(record).next().map(|(step, _)| step.array_bytes)),
    })
}

fn core_latency(record: &Record) -> Option<CoreLatency> {
    let steps = || {
        record.lines.iter().filter_map(|line| match line {
            Line::CoreLatency(step) if step.protocol == "cas" => Some(step),
            _ => None,
        })
    };
    let medians: Vec<f64> = steps().filter_map(|step| step.summary.median_ns).collect();
    let path = steps().next()?.path.clone();
    let at = |q| stats::quantile(&medians, q);
    let clusters = Clusters::of(record).and_then(Result::ok);
    let agrees_with_reported = clusters.as_ref().and_then(|clusters| clusters.against(&record.header).agrees);
    let (median_ns, min_ns, max_ns) = (at(0.5), at(0.0), at(1.0));
    let classes = clusters.map(|clusters| clusters.classes);
    Some(CoreLatency { protocol: "cas", path, median_ns, min_ns, max_ns, classes, agrees_with_reported })
}

fn decode(attribution: &Attribution) -> Decode {
    let ns = |part: &Option<Part>| part.map(|part| part.ns);
    let parts = &attribution.parts;
    Decode {
        model: attribution.model.clone(),
        quantization: attribution.quantization.clone(),
        threads: attribution.threads,
        tokens_per_s: attribution.tokens_per_s,
        bytes_per_token: attribution.bytes_per_token,
        barriers_per_token: attribution.barriers_per_token,
        full_ns: attribution.full_ns,
        parts_ns: Parts {
            bandwidth: ns(&parts.bandwidth),
            reach: ns(&parts.reach),
            compute: ns(&parts.compute),
            barrier: ns(&parts.barrier),
            skew: ns(&parts.skew),
            exchange: ns(&parts.exchange),
        },
        engine_ns: None,
        verdict: short(attribution),
    }
}

fn short(attribution: &Attribution) -> Short {
    let verdict = &attribution.verdict;
    Short { limit: verdict.limit, second: verdict.second, confidence: verdict.confidence }
}

fn change(advice: &Advice) -> Change {
    Change { change: advice.change.clone(), gain: advice.gain, measured: advice.measured }
}
