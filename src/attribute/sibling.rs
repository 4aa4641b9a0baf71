//! Which CPUs are hardware threads of one core by how much they slow each other, beside what the topology reports.

use crate::caveat::Caveat;
use crate::plan::sibling::SHARED;
use crate::record::{Line, Record, SiblingStep};
use crate::units::CpuId;

/// Share of a step's time that the hypervisor or other tasks may have taken: what is left of 1.4 then still is a slowdown that
/// cannot be theirs.
const TAKEN_MOST: f64 = 0.1;

/// What pairs of CPUs say together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Siblings {
    /// Pairs that slow each other at least [`SHARED`] times, with their slowdown.
    pub shared: Vec<(CpuId, CpuId, f64)>,
    /// Of these, those that the topology reports as CPUs of two cores.
    pub hidden: Vec<(CpuId, CpuId, f64)>,
    /// Pairs that the topology reports as threads of one core and that do not slow each other.
    pub absent: Vec<(CpuId, CpuId, f64)>,
    /// Pairs that were disturbed too much to tell.
    pub untold: usize,
    /// Pairs that were measured.
    pub pairs: usize,
}

/// The sibling steps of a record, in order.
pub fn steps(record: &Record) -> impl Iterator<Item = &SiblingStep> {
    record.lines.iter().filter_map(|line| match line {
        Line::Sibling(step) => Some(step),
        _ => None,
    })
}

impl Siblings {
    /// Those of a record; `None` when it has no such steps.
    pub fn of(record: &Record) -> Option<Siblings> {
        let mut found = Siblings::default();
        for step in steps(record) {
            found.pairs += 1;
            let slowdown = step.summary.slowdown.filter(|slowdown| slowdown.is_finite());
            let Some(slowdown) = slowdown.filter(|_| !step.step.caveats.iter().any(tells_nothing)) else {
                found.untold += 1;
                continue;
            };
            let pair = (step.cpu_a, step.cpu_b, slowdown);
            let is_reported = step.reported_class == "smt";
            match slowdown >= SHARED {
                true => {
                    found.shared.push(pair);
                    found.hidden.extend((!is_reported).then_some(pair));
                }
                false => found.absent.extend(is_reported.then_some(pair)),
            }
        }
        (found.pairs > 0).then_some(found)
    }

    /// Whether cores are as reported; `None` where nothing was told.
    pub fn agrees(&self) -> Option<bool> {
        (self.untold < self.pairs).then_some(self.hidden.is_empty() && self.absent.is_empty())
    }

    /// Each disagreement in words, without a full stop.
    pub fn disagreements(&self) -> Vec<String> {
        let hidden = self.hidden.iter().map(|(a, b, slowdown)| {
            format!(
                "CPUs {a} and {b} slow each other {slowdown:.2}-fold, as hardware threads of one core do; the topology reports \
                 two cores"
            )
        });
        let absent = self.absent.iter().map(|(a, b, slowdown)| {
            format!(
                "CPUs {a} and {b} are reported as hardware threads of one core but do not slow each other ({slowdown:.2}-fold)"
            )
        });
        hidden.chain(absent).collect()
    }
}

/// Whether two CPUs may seem to share one because one of them was not there.
fn tells_nothing(caveat: &Caveat) -> bool {
    match caveat {
        Caveat::PinNotHonoured { .. } | Caveat::Throttled { .. } | Caveat::QuotaBelowThreads { .. } => true,
        Caveat::Stolen { share } | Caveat::Preempted { share, .. } => *share > TAKEN_MOST,
        _ => false,
    }
}
