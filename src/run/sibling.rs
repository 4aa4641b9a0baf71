//! Hidden hardware threads: pairs of CPUs multiply alone and together, and a group test says which pairs are worth it.

use super::team::{self, Seat};
use super::{Context, Outcome, calibrate, spans};
use crate::caveat::LeftOut;
use crate::error::{Error, Result};
use crate::plan::sibling::{self as rule, Decoded, Plan, Planned};
use crate::record::{Line, SiblingStep, Step};
use crate::stats;
use crate::units::{CpuId, CpuSet, Nanos};
use std::collections::BTreeMap;
use std::hint::black_box;

/// Independent products in a turn: a multiplier takes a new one each cycle and needs three to five for one, so eight keep one
/// or two of them busy.
const PRODUCTS: usize = 8;
/// Any odd number: its powers never become zero.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Turns of a check.
const VERIFIED_TURNS: u64 = 1000;

/// Measures a sibling plan.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    if context.verify && !plan.pairs.is_empty() {
        (context.outcome)(Outcome::Starting("multiplications".to_owned()))?;
        return verify().or_else(|error| (context.outcome)(Outcome::Failed(error)));
    }
    let test = group_test(plan, context)?;
    let mut pairs = plan.pairs.clone();
    pairs.extend(plan.candidates(&test.decoded));
    if !pairs.is_empty() {
        (context.outcome)(Outcome::Starting(format!("{} pairs of CPUs that may be siblings", pairs.len())))?;
    }
    let mut crowded = CpuSet::default();
    for (index, planned) in pairs.iter().enumerate() {
        if let Some(reason) = context.stop_reason() {
            let what = format!("{} of {} pairs that may be siblings", pairs.len() - index, pairs.len());
            (context.outcome)(Outcome::LeftOut(LeftOut { what, reason: reason.to_owned() }))?;
            break;
        }
        match measure(plan, planned, context) {
            Ok(step) => {
                test.crowded(&step, &mut crowded);
                (context.outcome)(Outcome::Measured(Box::new(Line::Sibling(step))))?;
            }
            Err(error) => (context.outcome)(Outcome::Failed(error))?,
        }
    }
    let unclear: CpuSet = test.decoded.unclear.iter().map(|position| plan.tested[*position]).collect();
    for (cpus, reason) in [
        (
            unclear,
            "somebody slows them, and who could not be told: more than two threads a core, or they were disturbed",
        ),
        (crowded, "when all compute they take over three times as long as alone: cores with more than two threads"),
    ] {
        if !cpus.is_empty() {
            let what = format!("all siblings of CPUs {cpus}");
            (context.outcome)(Outcome::LeftOut(LeftOut { what, reason: reason.to_owned() }))?;
        }
    }
    Ok(())
}

/// What a group test leaves behind.
#[derive(Default)]
struct Test {
    decoded: Decoded,
    /// Time of a turn of each CPU when all computed, ns.
    together: BTreeMap<CpuId, f64>,
}

impl Test {
    /// Adds the CPUs of a pair that have more siblings than one.
    fn crowded(&self, step: &SiblingStep, found: &mut CpuSet) {
        let turns = step.step.units_per_sample.max(1) as f64;
        for (cpu, alone) in [(step.cpu_a, &step.alone_a_ns), (step.cpu_b, &step.alone_b_ns)] {
            let alone = stats::median(&alone.iter().map(|ns| *ns as f64 / turns).collect::<Vec<_>>());
            let together = self.together.get(&cpu);
            if alone.zip(together).is_some_and(|(alone, together)| *together >= rule::CROWDED * alone) {
                found.insert(cpu);
            }
        }
    }
}

/// Lets sides of the CPUs compute at the same time, and says who slows whom. Says itself what fails.
fn group_test(plan: &Plan, context: &mut Context<'_>) -> Result<Test> {
    let what = format!("group test of {} CPUs for siblings", plan.tested.len());
    let Some(first) = plan.tested.first() else { return Ok(Test::default()) };
    if context.leave_out(&what)? {
        return Ok(Test::default());
    }
    (context.outcome)(Outcome::Starting(what.clone()))?;
    match test(plan, *first, context) {
        Ok(Some(test)) => Ok(test),
        Ok(None) => context.leave_out(&what).map(|_| Test::default()),
        Err(error) => (context.outcome)(Outcome::Failed(error)).map(|()| Test::default()),
    }
}

/// `None` when it was time to stop.
fn test(plan: &Plan, first: CpuId, context: &Context<'_>) -> Result<Option<Test>> {
    let least = least(plan, context);
    let stop = context.stop;
    let late = |now| stop.reason(now).is_some();
    let calibrated = team::run(&[first], context.clock, |mut seat| {
        calibrate::units(&mut seat, least, late, |seat, turns| elapsed(timed(seat, turns)))
    })?;
    let turns = calibrated.results[0];
    let mut times: Vec<Vec<f64>> = Vec::new();
    for members in rule::rounds(plan.tested.len()) {
        if context.stop_reason().is_some() {
            return Ok(None);
        }
        let cpus: Vec<CpuId> = members.iter().map(|position| plan.tested[*position]).collect();
        // Teams of their own: who waits at a meeting would be in the way of a sibling.
        let outcome = team::run(&cpus, context.clock, |seat| {
            let mut times = Vec::with_capacity(plan.round_samples as usize);
            for _ in 0..plan.round_samples {
                seat.meet();
                times.push(elapsed(timed(&seat, turns)).0 as f64);
            }
            times
        })?;
        times.push(outcome.results.iter().map(|times| stats::median(times).unwrap_or_default()).collect());
    }
    let decoded = rule::decode(&rule::slowed(plan.tested.len(), &times));
    let together = times.first().into_iter().flatten().map(|ns| ns / turns as f64);
    Ok(Some(Test { decoded, together: plan.tested.iter().copied().zip(together).collect() }))
}

/// How long a CPU computes alone at least. Calibration takes what lasts half as long.
fn least(plan: &Plan, context: &Context<'_>) -> Nanos {
    Nanos(plan.sample_least_ns.max(2 * spans::CLOCK_STEPS * context.clock_step.0))
}

fn measure(plan: &Plan, planned: &Planned, context: &Context<'_>) -> Result<SiblingStep> {
    let pair = &planned.pair;
    let (least, stop) = (least(plan, context), context.stop);
    let outcome = team::run(&[pair.a, pair.b], context.clock, |mut seat| {
        let clock = seat.clock;
        let late = |now| stop.reason(now).is_some();
        // Both compute, so that this takes as long as it will together; alone it may be half of that.
        let turns = calibrate::units(&mut seat, least, late, |seat, turns| {
            seat.meet();
            elapsed(timed(seat, turns))
        });
        let mut alone = Vec::with_capacity(plan.samples as usize);
        let mut together = Vec::with_capacity(plan.samples as usize);
        for sample in 0..plan.samples {
            if !seat.go_on(|| sample == 0 || !late(clock.now())) {
                break;
            }
            // One after the other, while the other one waits at the next meeting; then both.
            for turn in 0..2 {
                seat.meet();
                if seat.index == turn {
                    alone.push(elapsed(timed(&seat, turns)).0);
                }
            }
            seat.meet();
            together.push(timed(&seat, turns));
        }
        (alone, together, turns)
    })?;
    let per_sample = spans::by_sample(outcome.results.iter().map(|(_, together, _)| together));
    let mut caveats = plan.caveats.clone();
    caveats.extend(outcome.caveats);
    caveats.extend(context.cut_short(per_sample.len() as u32, plan.samples, "time budget"));
    let mut step = Step {
        threads: 2,
        cpus: vec![pair.a, pair.b],
        caveats,
        samples_ns: per_sample.iter().map(spans::elapsed).collect(),
        units_per_sample: outcome.results[0].2,
        disturbance: outcome.disturbance,
        ..Step::default()
    };
    step.caveats.extend(spans::too_short(&step, context.clock_step));
    let alone = |index: usize| outcome.results.get(index).map(|(alone, _, _)| alone.clone()).unwrap_or_default();
    let (alone_a_ns, alone_b_ns) = (alone(0), alone(1));
    let summary = stats::sibling(&step, &alone_a_ns, &alone_b_ns);
    Ok(SiblingStep {
        step,
        cpu_a: pair.a,
        cpu_b: pair.b,
        alone_a_ns,
        alone_b_ns,
        chosen: planned.chosen.name().to_owned(),
        reported_class: pair.class.name().to_owned(),
        summary,
    })
}

fn timed(seat: &Seat<'_>, turns: u64) -> (Nanos, Nanos) {
    let start = seat.now();
    black_box(multiply(turns));
    (start, seat.now())
}

fn elapsed((start, finish): (Nanos, Nanos)) -> Nanos {
    Nanos(finish.0 - start.0)
}

/// Multiplies eight independent numbers by the same one, over and over: a core's multiplier is busy all the time.
#[inline(never)]
fn multiply(turns: u64) -> [u64; PRODUCTS] {
    let mut products = [1u64, 3, 5, 7, 9, 11, 13, 15];
    for _ in 0..turns {
        // Not known to the compiler, so that it cannot multiply by a power of it instead. It is stored and loaded once a turn,
        // which is not on the way from one product to the next.
        let factor = black_box(FACTOR);
        for product in &mut products {
            *product = product.wrapping_mul(factor);
        }
    }
    products
}

/// Whether the products are those of a power.
fn verify() -> Result<()> {
    let power = (0..VERIFIED_TURNS).fold(1u64, |power, _| power.wrapping_mul(FACTOR));
    let first = [1u64, 3, 5, 7, 9, 11, 13, 15];
    if multiply(VERIFIED_TURNS) == first.map(|number| number.wrapping_mul(power)) {
        return Ok(());
    }
    Err(Error::refused("trust multiplications", "they gave wrong products", "report this as a bug"))
}
