//! How many units make a sample: found by timing, never a constant, since an emulated machine is thousands of times slower.

use super::team::Seat;
use crate::units::Nanos;

/// The number of units that takes at least about `least`. All threads of the team call this together, and `run` does that
/// many units on each of them and returns how long its own took; thread 0's time decides.
///
/// The number grows at most tenfold at a time, and only a count that was itself seen to take half of `least` twice is
/// used: a single preemption would make a few units look long enough. It stops growing when `give_up` says so.
pub fn units(
    seat: &mut Seat<'_>,
    least: Nanos,
    give_up: impl Fn(Nanos) -> bool,
    mut run: impl FnMut(&Seat<'_>, u64) -> Nanos,
) -> u64 {
    /// What takes no time at all must end as well.
    const MOST: u64 = 1 << 40;
    let mut units = 1u64;
    loop {
        let once = run(seat, units).0.max(1);
        let twice = run(seat, units).0.max(1);
        let elapsed = once.min(twice);
        let now = seat.now();
        let next = seat.agree(|| match elapsed {
            elapsed if elapsed * 2 >= least.0 || units >= MOST || give_up(now) => units,
            elapsed => units.saturating_mul(least.0.div_ceil(elapsed).clamp(2, 10)),
        });
        if next == units {
            return units;
        }
        units = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::clock::Clock;
    use crate::run::team;

    /// The count that comes of a machine on which a unit takes `cost`, and the third look at the clock sees a hiccup.
    fn found(cost: u64, hiccup: u64) -> u64 {
        let cpus: Vec<_> = crate::machine::current_affinity().iter().take(1).collect();
        let outcome = team::run(&cpus, Clock::start(), |mut seat| {
            let mut looks = 0;
            units(
                &mut seat,
                Nanos(1_000_000),
                |_| false,
                |_, units| {
                    looks += 1;
                    Nanos(units * cost + if looks == 3 { hiccup } else { 0 })
                },
            )
        });
        outcome.unwrap().results[0]
    }

    #[test]
    fn what_takes_no_time_and_what_must_stop_end_as_well() {
        let cpus: Vec<_> = crate::machine::current_affinity().iter().take(1).collect();
        let with = |give_up: bool| {
            let outcome = team::run(&cpus, Clock::start(), |mut seat| {
                units(&mut seat, Nanos(1_000_000), |_| give_up, |_, _| Nanos(0))
            });
            outcome.unwrap().results[0]
        };
        assert!(with(false) < 1 << 44);
        assert_eq!(with(true), 1);
    }

    #[test]
    fn a_sample_is_long_enough_and_one_hiccup_changes_nothing() {
        for cost in [1, 7, 100, 65_000, 900_000, 80_000_000] {
            let calm = found(cost, 0);
            assert!(calm * cost * 2 >= 1_000_000, "{cost} ns: {calm} units");
            assert!(calm == 1 || calm * cost <= 10_000_000, "{cost} ns: {calm} units");
            assert_eq!(found(cost, 5_000_000), calm);
        }
    }
}
