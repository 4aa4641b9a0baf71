//! What limits a token, how sure that is, and one sentence with the numbers.

use super::parts::Measured;
use super::{Advice, Attribution, Part};
use crate::caveat::Caveat;
use crate::record::DecodeStep;
use crate::stats;
use crate::units::{Bytes, Threads};
use serde::{Deserialize, Serialize};

/// What takes the largest part of a token's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Memory at its roof.
    Bandwidth,
    /// These threads and slices do not reach the roof.
    Reach,
    /// Pages in the wrong place.
    Placement,
    /// Arithmetic.
    Compute,
    /// The barrier's own cost.
    Barrier,
    /// Waiting for late threads; all waiting, where the barrier's own cost could not be told apart.
    Skew,
    /// Activations moving, single-thread phases.
    Exchange,
    /// What the replay leaves out of an engine.
    Engine,
    /// The record does not say.
    #[default]
    Inconclusive,
}

impl Limit {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Bandwidth => "bandwidth",
            Limit::Reach => "reach",
            Limit::Placement => "placement",
            Limit::Compute => "compute",
            Limit::Barrier => "barrier",
            Limit::Skew => "skew",
            Limit::Exchange => "exchange",
            Limit::Engine => "engine",
            Limit::Inconclusive => "inconclusive",
        }
    }

    /// What a token is limited by, in words.
    fn in_words(self) -> &'static str {
        match self {
            Limit::Bandwidth => "memory bandwidth",
            Limit::Reach => "threads that do not reach the memory's roof",
            Limit::Placement => "where its pages lie",
            Limit::Compute => "arithmetic",
            Limit::Barrier => "the barrier itself",
            Limit::Skew => "threads waiting for each other",
            Limit::Exchange => "activations moving between threads",
            Limit::Engine => "what the engine does besides",
            Limit::Inconclusive => "nothing that this record could name",
        }
    }
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Inconclusive; or fewer than 7 rounds; or the token's time spread by more than 10 %.
    #[default]
    Low,
    /// Between the two.
    Medium,
    /// At least 7 rounds; the largest part's interval begins above 1.5 times the end of the second's; the token's time
    /// spread by at most 5 %; at most a tenth of the runs disturbed (throttled, stolen from, preempted, detours); no
    /// doubt that it was memory that was read.
    High,
}

/// What limits a token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// The largest part, or that it cannot be told.
    pub limit: Limit,
    /// The second largest part; of an inconclusive verdict the largest, if there is one.
    pub second: Option<Limit>,
    /// How sure that is.
    pub confidence: Confidence,
    /// In words, with numbers.
    pub sentence: String,
    /// What would help, best first.
    pub advice: Vec<Advice>,
}

/// Fewest rounds for a verdict: below, the bootstrap has nothing to resample.
const ROUNDS_LEAST: usize = 5;
/// Rounds for more than low confidence.
const ROUNDS_SURE: usize = 7;
/// Half the distance between quartiles over the median: above the first no verdict, above the others less confidence.
const SPREAD_MOST: f64 = 0.25;
const SPREAD_LOW: f64 = 0.10;
const SPREAD_HIGH: f64 = 0.05;
/// Share of disturbed runs above which there is no verdict, and above which confidence is not high.
const DISTURBED_MOST: f64 = 0.25;
const DISTURBED_SURE: f64 = 0.10;
/// How far the largest part must be clear of the second for high confidence.
const CLEAR: f64 = 1.5;

/// Judges one attribution. `Inconclusive` when one of these holds, named in the sentence:
/// fewer than 5 rounds; more threads than CPUs or than the quota; more than a quarter of the runs throttled, stolen from
/// or preempted; the roof or the full arm on two levels or spread by more than 25 %; the two largest parts' intervals
/// overlap.
pub(super) fn judge(
    attribution: &Attribution,
    measured: &Measured,
    steps: &[&DecodeStep],
    advice: Vec<Advice>,
) -> Verdict {
    let mut ranked: Vec<(Limit, Part)> = attribution.parts.iter().collect();
    ranked.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then(a.0.cmp(&b.0)));
    let [(largest, first), (next, second), ..] = ranked[..] else {
        return Verdict { advice, ..Verdict::default() };
    };
    let disturbed = |is: fn(&Caveat) -> bool| {
        let count = steps.iter().filter(|step| step.step.caveats.iter().any(is)).count();
        count as f64 / steps.len().max(1) as f64
    };
    let levels = levels(measured);
    let doubt = doubt(attribution, disturbed(is_heavy), &levels, first, second);
    let subject = subject(attribution);
    if let Some(doubt) = doubt {
        let sentence = format!(
            "{subject}: what limits it cannot be told, because {doubt}. {}",
            shares(attribution).replacen("of", "Of", 1)
        );
        let second = (attribution.rounds >= ROUNDS_LEAST).then_some(largest);
        return Verdict { limit: Limit::Inconclusive, second, confidence: Confidence::Low, sentence, advice };
    }
    let clear = match (first.interval, second.interval) {
        (Some(first), Some(second)) => first.low > CLEAR * second.high,
        _ => false,
    };
    let cached = |caveat: &Caveat| matches!(caveat, Caveat::CacheResident { .. } | Caveat::CacheSizeUnknown { .. });
    let is_high = clear
        && levels.full_spread <= SPREAD_HIGH
        && disturbed(is_disturbance) <= DISTURBED_SURE
        && !attribution.caveats.iter().any(cached);
    let confidence = if attribution.rounds < ROUNDS_SURE || levels.full_spread > SPREAD_LOW {
        Confidence::Low
    } else if is_high {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let sentence = format!("{subject} is limited by {}: {}", largest.in_words(), shares(attribution));
    Verdict { limit: largest, second: Some(next), confidence, sentence, advice }
}

fn is_disturbance(caveat: &Caveat) -> bool {
    is_heavy(caveat) || matches!(caveat, Caveat::Detours { .. })
}

fn is_heavy(caveat: &Caveat) -> bool {
    matches!(caveat, Caveat::Throttled { .. } | Caveat::Stolen { .. } | Caveat::Preempted { .. })
}

/// How steady the roof and the full arm were.
struct Levels {
    two: Option<(&'static str, f64, f64)>,
    roof_spread: f64,
    full_spread: f64,
}

fn levels(measured: &Measured) -> Levels {
    let roof: Vec<f64> = measured.rounds.iter().map(|round| round.roof).collect();
    let full: Vec<f64> = measured.rounds.iter().map(|round| round.full).collect();
    let named = |name, values: &[f64]| stats::two_levels(values).map(|(low, high)| (name, low, high));
    Levels {
        two: named("the roof", &roof).or_else(|| named("the whole token", &full)),
        roof_spread: stats::relative_spread(&roof).unwrap_or(f64::INFINITY),
        full_spread: stats::relative_spread(&full).unwrap_or(f64::INFINITY),
    }
}

/// Why there is no verdict, if so.
fn doubt(attribution: &Attribution, disturbed: f64, levels: &Levels, first: Part, second: Part) -> Option<String> {
    let crowded = |caveat: &Caveat| matches!(caveat, Caveat::Oversubscribed { .. } | Caveat::QuotaBelowThreads { .. });
    if attribution.rounds < ROUNDS_LEAST {
        let rounds = attribution.rounds;
        return Some(format!("only {rounds} of at least {ROUNDS_LEAST} rounds were measured"));
    }
    if let Some(caveat) = attribution.caveats.iter().find(|caveat| crowded(caveat)) {
        return Some(format!("threads had to share CPUs ({caveat})"));
    }
    if disturbed > DISTURBED_MOST {
        return Some(format!("in {:.0} % of the runs CPU time was throttled, stolen or taken away", disturbed * 100.0));
    }
    if let Some((what, low, high)) = levels.two {
        return Some(format!("{what} moved between two levels, {} and {}", span(low), span(high)));
    }
    let spread = levels.roof_spread.max(levels.full_spread);
    if spread > SPREAD_MOST {
        return Some(format!("times spread by ±{:.0} % from round to round", spread * 100.0));
    }
    match (first.interval, second.interval) {
        (Some(first), Some(second)) if !first.overlaps(&second) => None,
        _ => Some("the two largest parts overlap within their intervals".into()),
    }
}

fn subject(attribution: &Attribution) -> String {
    format!("{} {} with {}", attribution.model, attribution.quantization, Threads(attribution.threads))
}

/// "of 55.1 ms a token, 53.0 ms (96 %) are …; …", largest part first.
fn shares(attribution: &Attribution) -> String {
    let full = attribution.full_ns as f64;
    let mut ranked: Vec<(Limit, Part)> = attribution.parts.iter().collect();
    ranked.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then(a.0.cmp(&b.0)));
    let doing = |limit: Limit, part: Part| match limit {
        Limit::Bandwidth => {
            let rate = if part.ns > 0 { attribution.bytes_per_token.0 as f64 / part.ns as f64 } else { 0.0 };
            format!("reading {} at the roof of {rate:.1} GB/s", gigabytes(attribution.bytes_per_token))
        }
        Limit::Reach => "reading slower than the roof".into(),
        Limit::Compute => "arithmetic".into(),
        Limit::Barrier => format!("{} barriers themselves", grouped(attribution.barriers_per_token)),
        Limit::Skew => format!("waiting at {} barriers", grouped(attribution.barriers_per_token)),
        Limit::Exchange => "moving activations and single-thread phases".into(),
        other => other.in_words().into(),
    };
    let mut verb = "go to";
    let parts: Vec<String> = ranked
        .iter()
        .map(|(limit, part)| {
            let ns = part.ns as f64;
            let text = format!("{} ({:.0} %) {verb} {}", span(ns), 100.0 * ns / full, doing(*limit, *part));
            verb = "to";
            text
        })
        .collect();
    format!("of {} a token, {}.", span(full), parts.join("; "))
}

/// A time with its sign.
fn span(ns: f64) -> String {
    match ns.abs() {
        0.0..1e5 => format!("{:.1} µs", ns / 1e3),
        1e5..1e7 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

fn gigabytes(bytes: Bytes) -> String {
    format!("{:.2} GB", bytes.0 as f64 / 1e9)
}

/// With a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
