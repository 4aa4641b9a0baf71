//! Detours: every CPU does nothing but read the clock, all at the same time; gaps are time that somebody else took.

use super::{Context, Outcome, team, watch};
use crate::caveat::Caveat;
use crate::error::Result;
use crate::plan::detour::Plan;
use crate::record::{DetourStep, Line, Step};
use crate::stats;
use crate::units::{CpuId, Nanos, Threads};

/// What one thread saw.
struct Seen {
    watched: Nanos,
    count: u64,
    total: u64,
    longest: Vec<u64>,
}

/// Watches all CPUs of the plan.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    let what = format!("detours of {}", Threads(plan.cpus.len() as u32));
    if context.leave_out(&what)? {
        return Ok(());
    }
    (context.outcome)(Outcome::Starting(what))?;
    let stop = context.stop;
    let windows = if context.verify { 1 } else { plan.windows };
    let outcome = team::run(&plan.cpus, context.clock, |seat| {
        let mut seen = Seen { watched: Nanos(0), count: 0, total: 0, longest: Vec::with_capacity(windows as usize) };
        seat.meet();
        let start = seat.now();
        let mut last = start;
        for window in 1..=u64::from(windows) {
            let mut longest = 0;
            // A gap belongs to the window that it began in; one longer than a window leaves those it spans empty.
            while last.0 - start.0 < window * plan.window_ns {
                let now = seat.now();
                let gap = now.0 - last.0;
                if gap > watch::DETOUR.0 {
                    seen.count += 1;
                    seen.total += gap;
                    longest = longest.max(gap);
                }
                last = now;
            }
            seen.longest.push(longest);
            if stop.reason(last).is_some() {
                break;
            }
        }
        seen.watched = Nanos(last.0 - start.0);
        seen
    });
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return (context.outcome)(Outcome::Failed(error)),
    };
    if context.verify {
        return Ok(());
    }
    let detours = outcome.disturbance.detours.clone();
    for (index, (cpu, seen)) in plan.cpus.iter().zip(outcome.results).enumerate() {
        let taken = seen.longest.len() as u32;
        let mut caveats: Vec<Caveat> =
            outcome.caveats.iter().filter(|caveat| speaks_of(caveat, *cpu)).cloned().collect();
        caveats.extend(context.cut_short(taken, windows, "time budget"));
        let mut disturbance = outcome.disturbance.clone();
        disturbance.detours = detours.get(index).copied().into_iter().collect();
        let step = Step {
            threads: 1,
            cpus: vec![*cpu],
            caveats,
            samples_ns: vec![seen.watched.0],
            units_per_sample: u64::from(taken),
            disturbance,
            ..Step::default()
        };
        let summary = stats::detour(&step, (seen.count, seen.total), &seen.longest);
        let line = DetourStep {
            step,
            threshold_ns: watch::DETOUR.0,
            window_ns: plan.window_ns,
            count: seen.count,
            total_ns: seen.total,
            window_longest_ns: seen.longest,
            summary,
        };
        (context.outcome)(Outcome::Measured(Box::new(Line::Detour(line))))?;
    }
    Ok(())
}

/// Whether a caveat of the team concerns this CPU. What took its time is what is measured here, and no caveat.
fn speaks_of(caveat: &Caveat, cpu: CpuId) -> bool {
    match caveat {
        Caveat::PinNotHonoured { asked, .. } => *asked == cpu,
        Caveat::Detours { .. } | Caveat::Preempted { .. } | Caveat::Stolen { .. } => false,
        _ => true,
    }
}
