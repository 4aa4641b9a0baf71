//! Latency with whatever CPUs there are: nothing here depends on a timing.

use super::*;
use crate::machine::Machine;
use crate::plan::latency::{Options, Planned as PlannedPair};
use crate::plan::{Class, Scope, latency};
use crate::run::Stop;
use crate::run::clock::Clock;
use crate::units::{CpuId, NodeId};
use std::sync::atomic::AtomicUsize;

/// All that comes of a plan.
fn outcomes(plan: &Plan, clock_step: Nanos, deadline: Option<Nanos>) -> (Vec<CoreLatencyStep>, Vec<LeftOut>) {
    let signal = AtomicUsize::new(0);
    let (mut lines, mut left_out) = (Vec::new(), Vec::new());
    let mut outcome = |outcome: Outcome| -> Result<()> {
        match outcome {
            Outcome::Measured(line) => match *line {
                Line::CoreLatency(line) => lines.push(line),
                other => panic!("{other:?}"),
            },
            Outcome::LeftOut(left) => left_out.push(left),
            Outcome::Failed(error) => panic!("{error}"),
            Outcome::Starting(_) => {}
        }
        Ok(())
    };
    let clock = Clock::start();
    let stop = Stop { signal: &signal, deadline };
    let mut context = Context { clock, stop, outcome: &mut outcome, clock_step, verify: false };
    run(plan, &mut context).unwrap();
    (lines, left_out)
}

/// Two allowed CPUs, where there are two.
fn two() -> Option<[CpuId; 2]> {
    let cpus: Vec<CpuId> = crate::machine::current_affinity().iter().take(2).collect();
    <[CpuId; 2]>::try_from(cpus).ok()
}

fn plan_of(pairs: &[[CpuId; 2]], protocols: &[Protocol]) -> Plan {
    let planned = |[a, b]: &[CpuId; 2]| PlannedPair {
        pair: Pair { a: *a, b: *b, class: Class::L3 },
        homes: vec![Home::FirstCpu(None)],
        protocols: protocols.to_vec(),
    };
    Plan {
        pairs: pairs.iter().map(planned).collect(),
        protocols: protocols.to_vec(),
        samples: 3,
        sample_least_ns: 2_000,
        left_out: Vec::new(),
    }
}

#[test]
fn every_protocol_is_measured_and_says_what_it_is() {
    let machine = Machine::this_system().unwrap();
    let scope = Scope::new(&machine, None, None).unwrap();
    let plan = latency::plan(&machine, &scope, &Options { samples: Some(3), ..Options::default() });
    if plan.pairs.is_empty() {
        return;
    }
    let (lines, left_out) = outcomes(&plan, Nanos(20), None);
    let messages = left_out.iter().filter(|left| left.what.contains("message")).count();
    assert!(lines.len() + messages >= 3.min(plan.steps().count()), "{left_out:?}");
    for line in &lines {
        assert_eq!((line.path.as_str(), line.line_state.as_deref()), ("one_way", Some("modified")));
        assert_eq!(line.step.samples_ns.len(), 3);
        assert!(line.step.samples_ns.iter().all(|ns| *ns > 0) && line.step.units_per_sample >= 2);
        assert!(line.summary.median_ns.is_some_and(|ns| ns > 0.0 && ns.is_finite()));
        let message = line.protocol == "message";
        assert_eq!(line.backward_ns.len(), if message { 3 } else { 0 });
        assert_eq!(line.flags_round_trip_ns.is_some(), message);
        assert!(line.backward_ns.iter().zip(&line.step.samples_ns).all(|(back, both)| back < both));
    }
}

#[test]
fn two_threads_move_through_hundreds_of_pairs() {
    let Some([a, b]) = two() else { return };
    let pairs: Vec<_> = (0..300).map(|turn| if turn % 2 == 0 { [a, b] } else { [b, a] }).collect();
    let (lines, left_out) = outcomes(&plan_of(&pairs, &[Protocol::Flags]), Nanos(20), None);
    assert_eq!((lines.len(), left_out.len()), (300, 0));
    for (line, [a, b]) in lines.iter().zip(&pairs) {
        assert_eq!((line.cpu_a, line.cpu_b), (*a, *b));
        assert!(!line.step.caveats.iter().any(|caveat| matches!(caveat, Caveat::PinNotHonoured { .. })));
        assert_eq!(line.step.disturbance, Disturbance::default(), "it would fill the record");
    }
}

#[test]
fn a_cpu_that_does_not_exist_taints_its_pairs_alone() {
    let Some([a, b]) = two() else { return };
    let mut pairs = vec![[a, b]; 101];
    pairs[50] = [a, CpuId(5000)];
    let (lines, _) = outcomes(&plan_of(&pairs, &[Protocol::Cas]), Nanos(20), None);
    assert_eq!(lines.len(), 101);
    let tainted = |line: &CoreLatencyStep| {
        line.step.caveats.iter().any(|caveat| matches!(caveat, Caveat::PinNotHonoured { asked: CpuId(5000), .. }))
    };
    let tainted: Vec<usize> = (0..101).filter(|index| tainted(&lines[*index])).collect();
    assert_eq!(tainted, [50]);
}

#[test]
fn a_coarse_clock_means_longer_samples_and_no_messages() {
    let Some([a, b]) = two() else { return };
    let coarse = Nanos(50_000);
    let (lines, left_out) = outcomes(&plan_of(&[[a, b]], &Protocol::ALL), coarse, None);
    assert_eq!(lines.len(), 2);
    for line in lines {
        let short = line.step.caveats.iter().any(|caveat| matches!(caveat, Caveat::BelowClockResolution { .. }));
        assert!(short || line.step.samples_ns.iter().all(|ns| *ns >= 100 * coarse.0));
    }
    assert!(left_out[0].reason.contains("too coarse"), "{left_out:?}");
}

#[test]
fn a_deadline_leaves_out_the_rest_and_says_so() {
    let Some([a, b]) = two() else { return };
    let (lines, left_out) = outcomes(&plan_of(&vec![[a, b]; 200], &[Protocol::Cas]), Nanos(20), Some(Nanos(1)));
    assert!(lines.is_empty());
    assert_eq!((left_out[0].what.as_str(), left_out[0].reason.as_str()), ("200 of 200 latencies", "time budget"));
}

#[test]
fn messages_are_held_against_flags() {
    let refusal =
        |forward: &[i64], backward: &[i64]| disagreement(forward, backward, 10, 100.0).map(|(refusal, _)| refusal);
    assert_eq!(refusal(&[700, 690], &[600, 610]), None);
    assert_eq!(refusal(&[1250, 1240], &[20, 30]), None, "an offset that leaves both positive cancels in the sum");
    assert_eq!(refusal(&[1400, 1390], &[-100, -90]), Some(Refusal::Negative));
    assert_eq!(refusal(&[300, 310], &[200, 210]), Some(Refusal::Short));
}

#[test]
fn a_page_elsewhere_is_a_caveat() {
    let [zero, one] = [NodeId(0), NodeId(1)];
    assert_eq!(misplaced(Home::FirstCpu(None), Some(one), &[]), None);
    assert_eq!(misplaced(Home::Bound(one), Some(one), &[]), None);
    let elsewhere = misplaced(Home::SecondCpu(Some(one)), Some(zero), &[]);
    assert!(matches!(elsewhere, Some(Caveat::PagesElsewhere { share_there: 0.0, .. })));
    assert!(matches!(misplaced(Home::Bound(one), None, &[]), Some(Caveat::PlacementUnverified { .. })));
    let refused = [Caveat::PlacementUnverified { reason: "mbind".into() }];
    assert_eq!(misplaced(Home::Bound(one), None, &refused), None);
}

/// `cargo test --lib what_a_pair_costs -- --ignored --nocapture`: the same two CPUs swap places again and again, by two threads,
/// as on a large machine. The least of many short runs, since whoever else runs here is in the others; a quarter of starting and
/// watching the threads is in each pair, where 256 pairs would share it.
#[test]
#[ignore = "a measurement, not a check"]
fn what_a_pair_costs() {
    let Some([a, b]) = two() else { return };
    let turns = 4;
    let pairs: Vec<_> = (0..turns).map(|turn| if turn % 2 == 0 { [a, b] } else { [b, a] }).collect();
    let signal = AtomicUsize::new(0);
    let clock = Clock::start();
    let mut outcome = |_: Outcome| Ok(());
    let stop = Stop { signal: &signal, deadline: None };
    let context = Context { clock, stop, outcome: &mut outcome, clock_step: Nanos(20), verify: false };
    for (samples, sample_least_ns) in [(5, 100_000), (5, 2_000), (0, 2_000)] {
        let steps: Vec<Planned> = plan_of(&pairs, &[Protocol::Cas]).steps().collect();
        let mut known = Known::new();
        let times: Vec<f64> = (0..200)
            .map(|_| {
                let start = clock.now();
                measure_all(&steps, (samples, sample_least_ns), &mut known, &context).unwrap();
                (clock.now().0 - start.0) as f64 / f64::from(turns)
            })
            .collect();
        let [least, middle] = [0.0, 0.5].map(|q| stats::quantile(&times, q).unwrap() / 1e3);
        println!(
            "{samples} samples of {sample_least_ns} ns: {least:.0} µs a pair (median {middle:.0}), 69,006 pairs in {:.0} s ({:.0})",
            least * 0.069_006,
            middle * 0.069_006
        );
    }
}
