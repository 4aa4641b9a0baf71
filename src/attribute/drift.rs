//! Whether the machine stayed what it was while it was measured: what reference steps say, from the record alone.

use crate::caveat::Caveat;
use crate::record::{Line, Record, ReferenceStep, Repeated};
use crate::stats;
use crate::units::{Bytes, BytesPerSecond, Threads};
use serde::Serialize;

/// Two medians are apart when they differ by more than this (as `stats::two_levels` has it) and no sample of the one is
/// among those of the other. A guess: on a calm guest the medians of references lie within 5 %.
const APART: f64 = 0.15;

/// The reference steps of a run that nobody disturbed.
#[derive(Clone, Debug, PartialEq)]
pub struct References {
    taken: Vec<Taken>,
    disturbed: usize,
    threads: u32,
    counted_bytes: Bytes,
}

/// One reference: both quantities, taken one right after the other.
#[derive(Clone, Debug, Default, PartialEq)]
struct Taken {
    at_ns: u64,
    read: Times,
    pair: Times,
}

/// The times of one quantity at one reference; empty where it was not taken.
type Times = Vec<f64>;

/// What the machine was at some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct State {
    /// What the reference threads read.
    pub read_bytes_per_s: Option<BytesPerSecond>,
    /// A round trip of flags between the reference pair.
    pub pair_ns: Option<f64>,
}

/// How a machine did not stay what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Movement {
    /// From one level to another one, once or to and fro.
    Levels,
    /// The last reference is not the first.
    Drifted,
    /// The last one is the first again, but some between are not.
    Wandered,
}

/// A machine that did not stay what it was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// How.
    pub movement: Movement,
    /// The level of the first reference; the first reference; the lower figure of each quantity.
    pub from: State,
    /// The other level; the last reference; the higher figures.
    pub to: State,
    /// When each reference was taken, in seconds of the run, and whether it was on the other level. Empty without levels.
    pub on_other_level: Vec<(f64, bool)>,
    /// All of this in words.
    pub sentence: String,
}

impl References {
    /// Those of a record; `None` when it has none.
    pub fn of(record: &Record) -> Option<References> {
        let mut found = References { taken: Vec::new(), disturbed: 0, threads: 0, counted_bytes: Bytes(0) };
        let mut lines = record.lines.iter().peekable();
        while let Some(line) = lines.next() {
            let Line::Reference(first) = line else { continue };
            let second = lines.next_if(|line| {
                matches!(line, Line::Reference(second) if first.what == Repeated::Read && second.what != first.what)
            });
            let both = [Some(line), second].into_iter().flatten().filter_map(|line| match line {
                Line::Reference(step) => Some(step),
                _ => None,
            });
            found.add(first.at_ns, both);
        }
        (found.disturbed > 0 || !found.taken.is_empty()).then_some(found)
    }

    fn add<'a>(&mut self, at_ns: u64, steps: impl Iterator<Item = &'a ReferenceStep>) {
        let mut taken = Taken { at_ns, ..Taken::default() };
        for ReferenceStep { step, what, counted_bytes, .. } in steps {
            if step.caveats.iter().any(Caveat::is_disturbance) {
                self.disturbed += 1;
                return;
            }
            let times = stats::unit_times(step);
            let counted = *what == Repeated::PairLatency || counted_bytes.is_some_and(|bytes| bytes.0 > 0);
            if times.is_empty() || times.contains(&0.0) || !counted {
                // Nothing that can be: an edited record.
                continue;
            }
            match what {
                Repeated::Read => {
                    taken.read = times;
                    self.threads = step.threads;
                    self.counted_bytes = counted_bytes.unwrap_or_default();
                }
                Repeated::PairLatency => taken.pair = times,
            }
        }
        if !(taken.read.is_empty() && taken.pair.is_empty()) {
            self.taken.push(taken);
        }
    }

    /// What moved, if anything did.
    pub fn drift(&self) -> Option<Drift> {
        if let Some(on_other) = [Taken::read as Quantity, Taken::pair].into_iter().find_map(|what| self.levels(what)) {
            let side = |other: bool| {
                self.state(self.taken.iter().zip(&on_other).filter(|(_, on)| **on == other).map(|(taken, _)| taken))
            };
            let (from, to) = (side(false), side(true));
            let seconds = self.taken.iter().map(|taken| taken.at_ns as f64 / 1e9);
            let on_other_level: Vec<(f64, bool)> = seconds.zip(on_other).collect();
            let sentence = format!(
                "The machine moved between two levels while this ran: {}; {}.",
                self.words(from, to, ["at ", " and at ", ""]),
                when(&on_other_level)
            );
            return Some(Drift { movement: Movement::Levels, from, to, on_other_level, sentence });
        }
        let ends = [self.taken.first()?, self.taken.last()?];
        let any_apart = |pairs: [(&[f64], &[f64]); 2]| pairs.iter().any(|(a, b)| apart(a, b));
        if any_apart([(&ends[0].read, &ends[1].read), (&ends[0].pair, &ends[1].pair)]) {
            let (from, to) = (self.state([ends[0]]), self.state([ends[1]]));
            let words = self.words(from, to, ["from ", " to ", "from "]);
            let sentence = format!("The machine drifted while this ran: {words}.");
            return Some(Drift { movement: Movement::Drifted, from, to, on_other_level: Vec::new(), sentence });
        }
        let (read, pair) = (self.extremes(Taken::read), self.extremes(Taken::pair));
        if !any_apart([read, pair]) {
            return None;
        }
        let of =
            |read: &[f64], pair: &[f64]| self.state([&Taken { at_ns: 0, read: read.to_vec(), pair: pair.to_vec() }]);
        let (from, to) = (of(read.1, pair.0), of(read.0, pair.1));
        let words = self.words(from, to, ["between ", " and ", "between "]);
        let sentence = format!("The machine wandered while this ran: {words}.");
        Some(Drift { movement: Movement::Wandered, from, to, on_other_level: Vec::new(), sentence })
    }

    /// What the reference steps say, in one line.
    pub fn sentence(&self) -> String {
        let disturbed = match self.disturbed {
            0 => String::new(),
            1 => " One more was disturbed by other work and does not count.".to_owned(),
            more => format!(" {more} more were disturbed by other work and do not count."),
        };
        if let Some(drift) = self.drift() {
            return format!("{} Numbers from different times of this run do not compare.{disturbed}", drift.sentence);
        }
        let [first, .., last] = &self.taken[..] else {
            return format!("Reference steps: too few to see drift.{disturbed}");
        };
        let fastest_and_slowest = |what: Quantity| {
            let (fastest, slowest) = self.extremes(what);
            stats::median(fastest).zip(stats::median(slowest))
        };
        let read = fastest_and_slowest(Taken::read).map(|(fastest, slowest)| {
            let rate = |ns: f64| format!("{:.1}", self.counted_bytes.0 as f64 / ns);
            format!("read {} GB/s", range(rate(slowest), rate(fastest)))
        });
        let pair = fastest_and_slowest(Taken::pair)
            .map(|(fastest, slowest)| format!("pair latency {} ns", range(nanos(fastest), nanos(slowest))));
        let both: Vec<String> = read.into_iter().chain(pair).collect();
        let span_s = last.at_ns.saturating_sub(first.at_ns) as f64 / 1e9;
        let near = |what| {
            fastest_and_slowest(what).is_none_or(|(fastest, slowest)| stats::same_level(fastest, slowest, APART))
        };
        let steady =
            if near(Taken::read) && near(Taken::pair) { "steady" } else { "no more apart than the samples of each" };
        format!("Reference steps: {} over {span_s:.0} s: {steady}.{disturbed}", both.join(", "))
    }

    /// For each reference, whether it is on another level than the first one; `None` without two levels, or when they
    /// change inside references only.
    fn levels(&self, what: Quantity) -> Option<Vec<bool>> {
        let all: Vec<f64> = self.taken.iter().flat_map(what).copied().collect();
        let (low, high) = stats::two_levels(&all)?;
        let middle = (low * high).sqrt();
        let on_high: Option<Vec<bool>> =
            self.taken.iter().map(|taken| Some(stats::median(what(taken))? > middle)).collect();
        let on_high = on_high?;
        let first = *on_high.first()?;
        on_high.contains(&!first).then(|| on_high.into_iter().map(|on| on != first).collect())
    }

    /// The fastest and the slowest reference.
    fn extremes(&self, what: Quantity) -> (&[f64], &[f64]) {
        let mut taken: Vec<&[f64]> = self.taken.iter().map(what).filter(|times| !times.is_empty()).collect();
        let median = |times: &[f64]| stats::median(times).unwrap_or_default();
        taken.sort_by(|a, b| median(a).total_cmp(&median(b)));
        (taken.first().copied().unwrap_or_default(), taken.last().copied().unwrap_or_default())
    }

    /// The median of some references' medians.
    fn state<'a>(&self, taken: impl IntoIterator<Item = &'a Taken>) -> State {
        let (read, pair): (Vec<_>, Vec<_>) =
            taken.into_iter().map(|taken| (stats::median(&taken.read), stats::median(&taken.pair))).unzip();
        let middle = |medians: Vec<Option<f64>>| stats::median(&medians.into_iter().flatten().collect::<Vec<_>>());
        let rate = |ns: f64| BytesPerSecond(self.counted_bytes.0 as f64 * 1e9 / ns);
        State { read_bytes_per_s: middle(read).filter(|ns| *ns > 0.0).map(rate), pair_ns: middle(pair) }
    }

    /// Two states with these words before the first, between them, and before the first pair latency.
    fn words(&self, from: State, to: State, [before, between, before_pair]: [&str; 3]) -> String {
        let rates = from.read_bytes_per_s.zip(to.read_bytes_per_s);
        let pairs = from.pair_ns.zip(to.pair_ns).map(|(from, to)| (nanos(from), nanos(to)));
        match (rates, pairs) {
            // Each level has its pair latency beside it; else both stand behind both rates.
            (Some((a, b)), Some((pair_a, pair_b))) if before_pair.is_empty() => format!(
                "reading by {} {before}{a} (pair latency {pair_a} ns){between}{b} ({pair_b} ns)",
                Threads(self.threads)
            ),
            (Some((a, b)), Some((pair, same))) if pair == same => {
                format!("reading by {} {before}{a}{between}{b} (pair latency {pair} ns)", Threads(self.threads))
            }
            (Some((a, b)), Some((pair_a, pair_b))) => format!(
                "reading by {} {before}{a}{between}{b} (pair latency {before_pair}{pair_a}{between}{pair_b} ns)",
                Threads(self.threads)
            ),
            (Some((a, b)), None) => format!("reading by {} {before}{a}{between}{b}", Threads(self.threads)),
            (None, Some((a, b))) => format!("pair latency {before}{a}{between}{b} ns"),
            (None, None) => String::new(),
        }
    }
}

/// Read or pair latency.
type Quantity = fn(&Taken) -> &[f64];

impl Taken {
    fn read(&self) -> &[f64] {
        &self.read
    }

    fn pair(&self) -> &[f64] {
        &self.pair
    }
}

/// Whether two references are apart, see [`APART`].
fn apart(a: &[f64], b: &[f64]) -> bool {
    let (Some(middle_a), Some(middle_b)) = (stats::median(a), stats::median(b)) else { return false };
    let (low, high) = if middle_a < middle_b { (a, b) } else { (b, a) };
    let most = low.iter().copied().fold(f64::MIN, f64::max);
    let least = high.iter().copied().fold(f64::MAX, f64::min);
    !stats::same_level(middle_a, middle_b, APART) && most < least
}

/// When the machine was on the level of the first reference.
fn when(on_other: &[(f64, bool)]) -> String {
    let first: Vec<f64> = on_other.iter().filter(|(_, other)| !other).map(|(at, _)| *at).collect();
    match (on_other.is_sorted_by_key(|(_, other)| *other), first.last()) {
        (true, Some(last)) => format!("the first until {last:.0} s"),
        _ => format!("the first at {} of {} reference steps", first.len(), on_other.len()),
    }
}

/// `61`, or `3.2` where tenths matter.
fn nanos(ns: f64) -> String {
    if ns < 10.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

/// `32.8 to 33.1`, or one of them where both read the same.
fn range(low: String, high: String) -> String {
    if low == high { low } else { format!("{low} to {high}") }
}
