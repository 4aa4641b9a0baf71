//! What would help: changes that were measured in the same rounds, then what the parts predict.

use super::{Arms, Attribution, Configurations, time};
use crate::record::DecodeStep;
use crate::stats::{self, Interval};
use crate::units::Threads;
use crate::workload::Arm;
use crate::workload::Model;
use serde::Serialize;

/// A change and what it gains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// What to do.
    pub change: String,
    /// Tokens per second more, as a share of now: 0.1 is 10 % more.
    pub gain: f64,
    /// Of the gain, 95 % bootstrap over rounds; absent for predictions.
    pub interval: Option<Interval>,
    /// Whether it was measured against the present state in the same rounds, or predicted from the parts.
    pub measured: bool,
}

impl Advice {
    /// What to do when nothing that was measured can be trusted.
    pub(super) fn again() -> Advice {
        let change = "run again while nothing else runs on this machine".to_owned();
        Advice { change, gain: 0.0, interval: None, measured: false }
    }
}

/// Changes from the configuration `number`: measured ones that help by more than their interval, best first (if none does,
/// one entry that says so), then predicted ones.
pub(super) fn advise(
    attribution: &Attribution,
    configurations: &Configurations<'_>,
    number: u32,
    seed: u64,
) -> Vec<Advice> {
    let full = |number: &u32| configurations.get(number).and_then(|arms| arms.get(&Arm::Full));
    let Some(now) = full(&number) else { return Vec::new() };
    let mut tried: Vec<Advice> = configurations
        .keys()
        .filter(|other| **other != number)
        .filter_map(|other| {
            let then = full(other)?;
            let (gain, interval) = gain(now, then, seed)?;
            let change = change(now.values().next()?, then.values().next()?);
            Some(Advice { change, gain, interval: Some(interval), measured: true })
        })
        .collect();
    tried.sort_by(|a, b| b.gain.total_cmp(&a.gain).then_with(|| a.change.cmp(&b.change)));
    let helps = |advice: &Advice| advice.interval.is_some_and(|interval| interval.low > 0.0);
    let mut list: Vec<Advice> = tried.iter().filter(|advice| helps(advice)).cloned().collect();
    if let (true, Some(best)) = (list.is_empty(), tried.first()) {
        let count = tried.len();
        let changes = if count == 1 { "the one change".into() } else { format!("none of the {count} changes") };
        let verb = if count == 1 { "is not" } else { "is" };
        let change = format!(
            "keep it as it is: {changes} tried {verb} faster beyond the spread; the best was {} ({:+.1} %, 95 % interval \
             {:+.1} to {:+.1} %)",
            best.change,
            best.gain * 100.0,
            best.interval.map_or(0.0, |interval| interval.low * 100.0),
            best.interval.map_or(0.0, |interval| interval.high * 100.0)
        );
        list.push(Advice { change, gain: 0.0, interval: best.interval, measured: true });
    }
    list.extend(smaller_quantizations(attribution));
    list
}

/// The median over common rounds of how many more tokens per second `then` makes than `now`.
fn gain(now: &Arms<'_>, then: &Arms<'_>, seed: u64) -> Option<(f64, Interval)> {
    let in_round = |(round, now): (&u32, &&DecodeStep)| {
        let then = time(then.get(round)?)?;
        (then > 0.0).then_some(time(now)? / then - 1.0)
    };
    let gains: Vec<f64> = now.iter().filter_map(in_round).collect();
    Some((stats::median(&gains)?, stats::bootstrap(&gains, seed, stats::median)?))
}

fn change(from: &DecodeStep, to: &DecodeStep) -> String {
    let mut changes = Vec::new();
    if from.step.threads != to.step.threads {
        changes.push(format!("{} instead of {}", Threads(to.step.threads), from.step.threads));
    } else if from.step.cpus != to.step.cpus {
        changes.push("other CPUs".to_owned());
    }
    if from.barrier != to.barrier {
        changes.push(format!("the barrier {} instead of {}", to.barrier, from.barrier));
    }
    if from.wait != to.wait {
        changes.push(format!("waiting by {} instead of {}", to.wait, from.wait));
    }
    changes.join(", ")
}

/// Fewer bytes take bandwidth and reach down in proportion and leave the rest as it is. The two that save most.
fn smaller_quantizations(attribution: &Attribution) -> Vec<Advice> {
    let Ok(model) = Model::find(&attribution.model) else { return Vec::new() };
    let now = attribution.bytes_per_token.0 as f64;
    let (full, parts) = (attribution.full_ns as f64, &attribution.parts);
    let ns = |part: Option<super::Part>| part.map_or(0.0, |part| part.ns as f64);
    let reading = ns(parts.bandwidth) + ns(parts.reach);
    let predict = |quantization: &crate::workload::Quantization| {
        let bytes = quantization.read_bytes_per_token as f64;
        let then = full - reading * (1.0 - bytes / now);
        let gain = full / then - 1.0;
        (bytes < now && then > 0.0 && gain > 0.0).then(|| Advice {
            change: format!(
                "{} {} instead of {}: {:.2} GB a token instead of {:.2} GB (another model file, of another quality)",
                model.name,
                quantization.name,
                attribution.quantization,
                bytes / 1e9,
                now / 1e9
            ),
            gain,
            interval: None,
            measured: false,
        })
    };
    let mut list: Vec<Advice> = model.quantizations.iter().filter_map(predict).collect();
    list.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    list.truncate(2);
    list
}
