//! What limits a token, how sure that is, and one sentence with the numbers.

use super::parts::{Measured, Round};
use super::{Advice, Attribution, Part, Parts};
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

    /// Its name in tables and sentences, where the barrier itself is not told apart.
    pub fn noun(self) -> &'static str {
        match self {
            Limit::Skew => "waiting",
            other => other.name(),
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
    /// Inconclusive; or fewer than 7 rounds; or the token's time spread by more than 10 % on one level; or pages
    /// elsewhere than asked.
    #[default]
    Low,
    /// Between the two.
    Medium,
    /// Arithmetic was replayed as well; at least 7 rounds on one level; the largest part's interval begins above 1.5 times the end of the second's; the
    /// token's time spread by at most 5 %; CPUs taken away for at most 1 % of the time; no doubt that it was memory that
    /// was read.
    High,
}

impl Confidence {
    /// Its name in JSON and in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
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
/// Share of the time for which CPUs were taken away (quota, hypervisor, other tasks), in the mean over all runs, above
/// which there is no verdict, and above which confidence is not high.
const LOST_MOST: f64 = 0.05;
const LOST_SURE: f64 = 0.01;
/// How far the largest part must be clear of the second for high confidence.
const CLEAR: f64 = 1.5;

/// Judges one attribution. `Inconclusive` when one of these holds, named in the sentence: fewer than 5 rounds; tokens that
/// took no time; threads elsewhere than asked; weights read again before the caches are through; more threads than CPUs or
/// than the quota; CPUs taken away for more than 5 % of the time; times spread by more than 25 %; the two largest parts'
/// intervals overlap; the machine moved between two levels, unless each level has 5 rounds and they agree.
pub(super) fn judge(
    attribution: &Attribution,
    measured: &Measured,
    steps: &[&DecodeStep],
    seed: u64,
    advice: Vec<Advice>,
) -> Verdict {
    let ranked = attribution.parts.ranked();
    let [(largest, first), (next, second), ..] = ranked[..] else {
        return Verdict { advice, ..Verdict::default() };
    };
    let lost = lost(steps);
    let subject = subject(attribution);
    let steady = match doubt(attribution, lost) {
        Some(doubt) => Err(doubt),
        None => steady(measured, seed),
    };
    let levels = match steady {
        Ok(levels) => levels,
        Err(doubt) => {
            let sentence = format!(
                "{subject}: what limits it cannot be told, because {doubt}. {}",
                shares(attribution).replacen("of", "Of", 1)
            );
            let second = (attribution.rounds >= ROUNDS_LEAST).then_some(largest);
            // What was measured while others took the CPUs is nothing to act on.
            let advice = if lost > LOST_MOST { vec![Advice::again()] } else { advice };
            return Verdict { limit: Limit::Inconclusive, second, confidence: Confidence::Low, sentence, advice };
        }
    };
    let clear = match (first.interval, second.interval) {
        (Some(first), Some(second)) => first.low > CLEAR * second.high,
        _ => false,
    };
    let cached = |caveat: &Caveat| matches!(caveat, Caveat::CacheResident { .. } | Caveat::CacheSizeUnknown { .. });
    let full_spread = spread(&measured.rounds, |round| round.full);
    let is_high = clear
        && levels.is_none()
        && full_spread <= SPREAD_HIGH
        && lost <= LOST_SURE
        && attribution.parts.compute.is_some()
        && !attribution.caveats.iter().any(|tainted| cached(&tainted.worst));
    let misplaced =
        |caveat: &Caveat| matches!(caveat, Caveat::PagesElsewhere { .. } | Caveat::PlacementUnverified { .. });
    let shaky = attribution.caveats.iter().any(|tainted| misplaced(&tainted.worst))
        || attribution.rounds < ROUNDS_SURE
        || (full_spread > SPREAD_LOW && levels.is_none());
    let confidence = if shaky {
        Confidence::Low
    } else if is_high {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let both =
        levels.map_or(String::new(), |levels| format!(" (the machine moved between two levels, {levels}: on both)"));
    let sentence = format!("{subject} is limited by {}{both}: {}", largest.in_words(), shares(attribution));
    Verdict { limit: largest, second: Some(next), confidence, sentence, advice }
}

/// Share of the time for which CPUs were taken away, in the mean over these steps.
fn lost(steps: &[&DecodeStep]) -> f64 {
    let of_step = |step: &&DecodeStep| {
        let elapsed = step.step.samples_ns.iter().fold(1u64, |sum, ns| sum.saturating_add(*ns)) as f64;
        let shares = step.step.caveats.iter().map(|caveat| match caveat {
            Caveat::Throttled { throttled_ns } => (*throttled_ns as f64 / elapsed).min(1.0),
            Caveat::Stolen { share } | Caveat::Preempted { share, .. } => *share,
            _ => 0.0,
        });
        shares.fold(0.0, f64::max)
    };
    steps.iter().map(of_step).sum::<f64>() / steps.len().max(1) as f64
}

fn spread(rounds: &[Round], of: fn(&Round) -> f64) -> f64 {
    stats::relative_spread(&rounds.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::INFINITY)
}

/// Why there can be no verdict, whatever the parts are.
fn doubt(attribution: &Attribution, lost: f64) -> Option<String> {
    let crowded = |caveat: &Caveat| matches!(caveat, Caveat::Oversubscribed { .. } | Caveat::QuotaBelowThreads { .. });
    if attribution.rounds < ROUNDS_LEAST {
        let rounds = attribution.rounds;
        return Some(format!("only {rounds} of at least {ROUNDS_LEAST} rounds were measured"));
    }
    if let Some(caveat) = attribution.caveats.iter().map(|tainted| &tainted.worst).find(|caveat| crowded(caveat)) {
        return Some(format!("threads had to share CPUs ({caveat})"));
    }
    if attribution.full_ns <= 0 {
        return Some("its tokens took no time".into());
    }
    let strayed = |caveat: &Caveat| matches!(caveat, Caveat::PinNotHonoured { .. });
    if let Some(tainted) = attribution.caveats.iter().find(|tainted| strayed(&tainted.worst)) {
        return Some(format!("threads were not where they should be ({})", tainted.worst));
    }
    let in_cache = attribution.caveats.iter().find_map(|tainted| match tainted.worst {
        Caveat::CacheResident { reuse_bytes, cache_bytes } if reuse_bytes <= cache_bytes => Some(&tainted.worst),
        _ => None,
    });
    if let Some(caveat) = in_cache {
        return Some(format!("it may not be memory that was read ({caveat})"));
    }
    (lost > LOST_MOST)
        .then(|| format!("CPUs were throttled, stolen or taken away for {:.0} % of the time", lost * 100.0))
}

/// Whether these rounds agree on the largest part. `Ok(None)`: as one. `Ok(levels)`: on each of two levels, which are
/// named. `Err`: they do not, and why.
fn steady(measured: &Measured, seed: u64) -> Result<Option<String>, String> {
    let rounds = &measured.rounds;
    let roof: fn(&Round) -> f64 = |round| round.roof;
    let full: fn(&Round) -> f64 = |round| round.full;
    let two = [("the roof", roof), ("the whole token", full)].into_iter().find_map(|(name, of)| {
        let (low, high) = stats::two_levels(&rounds.iter().map(of).collect::<Vec<_>>())?;
        Some((name, of, low, high))
    });
    let Some((name, of, low, high)) = two else {
        clear_limit(rounds, seed)?;
        return Ok(None);
    };
    let levels = format!("{name} at {} and {}", span(low), span(high));
    let (fast, slow): (Vec<Round>, Vec<Round>) = rounds.iter().partition(|round| of(round) < (low + high) / 2.0);
    let doubt = |reason: &str| format!("the machine moved between two levels, {levels}, and {reason}");
    if fast.len().min(slow.len()) < ROUNDS_LEAST {
        return Err(doubt("one of them has too few rounds"));
    }
    let on = |rounds, which| clear_limit(rounds, seed).map_err(|reason| doubt(&format!("on the {which} one {reason}")));
    match (on(&fast, "faster")?, on(&slow, "slower")?) {
        (fast, slow) if fast == slow => Ok(Some(levels)),
        (fast, slow) => Err(doubt(&format!(
            "is limited by {} on the faster and {} on the slower",
            fast.in_words(),
            slow.in_words()
        ))),
    }
}

/// The largest part over these rounds, if they are steady and it is clear of the second.
fn clear_limit(rounds: &[Round], seed: u64) -> Result<Limit, String> {
    let widest = spread(rounds, |round| round.roof).max(spread(rounds, |round| round.full));
    if widest > SPREAD_MOST {
        return Err(format!("times spread by ±{:.0} % from round to round", widest * 100.0));
    }
    let ranked = Parts::over(rounds, seed).map(|parts| parts.ranked()).unwrap_or_default();
    match ranked[..] {
        [(limit, Part { interval: Some(first), .. }), (_, Part { interval: Some(second), .. }), ..]
            if !first.overlaps(&second) =>
        {
            Ok(limit)
        }
        _ => Err("the two largest parts overlap within their intervals".into()),
    }
}

fn subject(attribution: &Attribution) -> String {
    format!("{} {} with {}", attribution.model, attribution.quantization, Threads(attribution.threads))
}

/// "of 55.1 ms a token, 53.0 ms (96 %) are …; …", largest part first.
fn shares(attribution: &Attribution) -> String {
    let full = (attribution.full_ns as f64).max(1.0);
    let ranked = attribution.parts.ranked();
    let doing = |limit: Limit, part: Part| match limit {
        Limit::Bandwidth => {
            let rate = if part.ns > 0 { attribution.bytes_per_token.0 as f64 / part.ns as f64 } else { 0.0 };
            format!("reading {} at the roof of {rate:.1} GB/s", gigabytes(attribution.bytes_per_token))
        }
        Limit::Reach => "reading slower than the roof".into(),
        Limit::Compute => "arithmetic".into(),
        Limit::Barrier => format!("{} barriers themselves", grouped(attribution.barriers_per_token)),
        Limit::Skew if attribution.parts.barrier.is_some() => "waiting for late threads".into(),
        Limit::Skew => format!("waiting at {} barriers", grouped(attribution.barriers_per_token)),
        Limit::Exchange => "moving activations and single-thread phases".into(),
        other => other.in_words().into(),
    };
    let (real, below): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|(_, part)| part.ns >= 0);
    // Adding zero turns a rounded −0 into 0.
    let percent = |part: &Part| (100.0 * part.ns as f64 / full).round() + 0.0;
    let share = |part: &Part| format!("{} ({:.0} %)", span(part.ns as f64), percent(part));
    let mut verb = "go to";
    let real: Vec<String> = real
        .iter()
        .map(|(limit, part)| {
            let text = format!("{} {verb} {}", share(part), doing(*limit, *part));
            verb = "to";
            text
        })
        .collect();
    let below: Vec<String> =
        below.iter().map(|(limit, part)| format!("{} came out at {}", limit.noun(), share(part))).collect();
    let unresolved =
        if below.is_empty() { String::new() } else { format!("; not resolved here: {}", below.join(", ")) };
    let missing = if attribution.parts.compute.is_some() { "" } else { " Arithmetic is not in it." };
    format!("of {} a token, {}{unresolved}.{missing}", span(full), real.join("; "))
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
