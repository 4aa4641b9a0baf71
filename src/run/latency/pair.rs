//! One thread's part in measuring pairs: move to the next CPU, touch, find the length of a sample, take samples.

use super::exchange::{End, Trips};
use crate::caveat::Caveat;
use crate::memory::Words;
use crate::plan::Class;
use crate::plan::latency::{Home, Protocol, Step};
use crate::run::clock::{involuntary_switches, thread_cpu_time};
use crate::run::team::Seat;
use crate::run::{Stop, affinity, calibrate, spans};
use crate::units::{Nanos, NodeId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// A sample is aimed at so many times the least, since pairs of one class differ a little.
const AIM: f64 = 1.25;
/// And taken for too long beyond so many times.
const TOO_LONG: u64 = 3;
/// Samples that turn out too short for the clock, since the pair became faster than it was found, are taken again so often.
const ATTEMPTS: usize = 3;
/// Exchanges of flags before and after messages, to hold these against.
const CHECKS: usize = 2;
/// A share of its time off its CPU above which a thread's numbers are marked, as for any other step.
const OFF_CPU_SHARE: f64 = 0.02;

/// Round-trip times that pairs of the same class were seen to have: what the next one is likely to take.
pub type Known = BTreeMap<(Protocol, Class), f64>;

/// What both threads share for one measurement.
#[derive(Debug)]
pub struct Page {
    /// The fresh page.
    pub words: Words,
    /// Whether a thread could not be pinned: then nothing is known beforehand.
    pub loose: AtomicBool,
}

/// How samples are taken.
#[derive(Clone, Copy, Debug)]
pub struct Sampling<'a> {
    /// Samples; none when nothing is timed.
    pub samples: u32,
    /// Least length of a sample.
    pub least: Nanos,
    /// The clock's step.
    pub clock_step: Nanos,
    /// When to stop early.
    pub stop: Stop<'a>,
}

/// What one thread saw of one measurement.
#[derive(Debug)]
pub struct Share {
    /// Its part in each sample; none where the clock is too coarse for messages.
    pub samples: Vec<Trips>,
    /// Round trips in a sample.
    pub trips: u64,
    /// Of thread 0, for messages: a round trip by flags, and the least of those around.
    pub flags_round_trip_ns: Option<f64>,
    /// Of thread 0: the node where the page was seen.
    pub home: Option<NodeId>,
    /// What this thread noticed.
    pub caveats: Vec<Caveat>,
}

/// Takes part in one measurement.
pub fn measure(seat: &mut Seat<'_>, step: &Step, page: &Page, sampling: Sampling<'_>, known: &mut Known) -> Share {
    let leads = seat.index == 0;
    let cpu = if leads { step.pair.a } else { step.pair.b };
    let pin = affinity::pin(cpu);
    if pin.is_some() {
        // Relaxed: the meeting orders it.
        page.loose.store(true, Ordering::Relaxed);
    }
    let mut end = End::new(leads, &page.words, seat.clock);
    if leads != matches!(step.home, Home::SecondCpu(_)) {
        end.touch();
    }
    seat.meet();
    if page.loose.load(Ordering::Relaxed) {
        known.clear();
    }

    let mut taker = Taker { seat, end: &mut end, class: step.pair.class, sampling, known };
    let mut flags = Vec::new();
    let mut coarse = false;
    if step.protocol == Protocol::Message {
        taker.check(&mut flags);
        let step_ns = sampling.clock_step.0 as f64;
        let round_trip = least(&flags);
        coarse = !taker.seat.go_on(|| round_trip.is_none_or(|ns| step_ns <= ns));
    }
    let (mut samples, mut trips, mut off) = (Vec::new(), 0, None);
    if !coarse {
        trips = taker.trips(step.protocol);
        samples.reserve(sampling.samples as usize);
        for attempt in 1..=ATTEMPTS {
            samples.clear();
            let before = (taker.seat.now(), thread_cpu_time(), involuntary_switches());
            for _ in 0..sampling.samples {
                samples.push(taker.exchange(step.protocol, trips));
            }
            off = off_cpu(before, (taker.seat.now(), thread_cpu_time(), involuntary_switches()));
            let shortest = samples.iter().map(Trips::elapsed).min();
            let longer = taker.seat.agree(|| longer(trips, shortest, sampling.clock_step));
            if longer == trips || attempt == ATTEMPTS {
                break;
            }
            trips = longer;
        }
        if step.protocol == Protocol::Message {
            taker.check(&mut flags);
        }
    }
    // The last exchange of thread 0 ends before that of thread 1 may: nobody leaves while the other still polls.
    seat.meet();
    let seen = affinity::observed();
    let moved = (!seen.contains(cpu)).then_some(Caveat::PinNotHonoured { asked: cpu, got: seen });
    Share {
        samples,
        trips,
        flags_round_trip_ns: least(&flags).filter(|_| leads),
        // Asked now: later the kernel may have moved it.
        home: if leads { page.words.home() } else { None },
        caveats: pin.or(moved).into_iter().chain(off).collect(),
    }
}

/// Round trips with which the shortest sample would have been long enough for the clock.
fn longer(trips: u64, shortest: Option<Nanos>, clock_step: Nanos) -> u64 {
    let needed = spans::CLOCK_STEPS * clock_step.0;
    match shortest {
        Some(Nanos(shortest)) if shortest < needed => {
            let times = needed as f64 * AIM / shortest.max(1) as f64;
            (trips as f64 * times.min(1000.0)).ceil() as u64
        }
        _ => trips,
    }
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

/// A caveat when the thread was away for too much of the time.
fn off_cpu(before: (Nanos, Option<Nanos>, Option<u64>), after: (Nanos, Option<Nanos>, Option<u64>)) -> Option<Caveat> {
    let wall = after.0.0.saturating_sub(before.0.0);
    let away = wall.saturating_sub(after.1?.0.saturating_sub(before.1?.0));
    let share = away as f64 / wall.max(1) as f64;
    let switches = after.2?.saturating_sub(before.2?);
    (share > OFF_CPU_SHARE && switches > 0).then_some(Caveat::Preempted { switches, share })
}

/// One end of an exchange, in step with the other.
struct Taker<'a, 'team, 'page> {
    seat: &'a mut Seat<'team>,
    end: &'a mut End<'page>,
    class: Class,
    sampling: Sampling<'a>,
    known: &'a mut Known,
}

impl Taker<'_, '_, '_> {
    fn exchange(&mut self, protocol: Protocol, trips: u64) -> Trips {
        self.seat.meet();
        self.end.exchange(protocol, trips)
    }

    /// Round trips that last at least as long as a sample must.
    fn trips(&mut self, protocol: Protocol) -> u64 {
        let least = self.sampling.least;
        let aim = |round_trip_ns: f64| ((least.0 as f64 * AIM / round_trip_ns.max(0.01)).ceil() as u64).max(1);
        let key = (protocol, self.class);
        let expected = self.known.get(&key).copied();
        let expected = self.seat.agree(|| expected.map_or(0, aim));
        if expected > 0 {
            // What holds for the class is tried out on this pair, which also warms it up.
            let elapsed = self.exchange(protocol, expected).elapsed();
            let right = |elapsed: Nanos| (least.0..=TOO_LONG * least.0).contains(&elapsed.0);
            if self.seat.go_on(|| right(elapsed)) {
                return expected;
            }
        }
        // Calibration is content with half of what it is asked for.
        let asked = Nanos(least.0.saturating_mul(2));
        let (clock, stop) = (self.seat.clock, self.sampling.stop);
        let end = &mut *self.end;
        let mut last = [Nanos(u64::MAX); 2];
        let found = calibrate::units(
            self.seat,
            asked,
            |_| stop.reason(clock.now()).is_some(),
            |seat, trips| {
                seat.meet();
                last = [last[1], end.exchange(protocol, trips).elapsed()];
                last[1]
            },
        );
        let round_trip_ns = last[0].min(last[1]).0 as f64 / found as f64;
        self.known.insert(key, round_trip_ns);
        // It may have overshot.
        self.seat.agree(|| aim(round_trip_ns).min(found))
    }

    /// Exchanges flags a few times; on thread 0, adds the median round trip.
    fn check(&mut self, round_trips_ns: &mut Vec<f64>) {
        let trips = self.trips(Protocol::Flags);
        for _ in 0..CHECKS {
            let elapsed = self.exchange(Protocol::Flags, trips).elapsed();
            round_trips_ns.push(elapsed.0 as f64 / trips as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_too_short_for_the_clock_are_taken_again_longer() {
        let step = Nanos(20);
        assert_eq!(longer(50, Some(Nanos(2_000)), step), 50, "a hundred steps");
        assert_eq!(longer(50, Some(Nanos(1_000)), step), 125);
        assert_eq!(longer(50, Some(Nanos(0)), step), 50_000, "bounded");
        assert_eq!(longer(50, None, step), 50);
    }
}
