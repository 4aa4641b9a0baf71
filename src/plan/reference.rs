//! Reference steps: a short read and a short exchange of flags, repeated through a run to see whether the machine stays
//! what it was.

use super::latency::Pair;
use super::stream::{self, sizes};
use super::{Domains, Needs, Scope, Suite, standing_caveats};
use crate::caveat::{Caveat, LeftOut};
use crate::machine::Machine;
use crate::units::{Bytes, CpuId, NodeSet};
use serde::Serialize;
use std::cmp::Reverse;

/// What is repeated, and how often.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// An array read by one thread a core; `None` where memory is short.
    pub read: Option<Read>,
    /// Two CPUs handing flags to each other; `None` where there is one.
    pub pair: Option<PairLatency>,
    /// While bandwidth is measured, this much time passes at least from one to the next.
    pub every_ns: u64,
    /// Guessed time of all of them.
    pub estimated_s: f64,
    /// What cannot be repeated here.
    pub left_out: Vec<LeftOut>,
}

/// Reading one array, which is kept for the whole run.
#[derive(Debug, PartialEq, Serialize)]
pub struct Read {
    /// One CPU a thread: the first of each core in scope.
    pub cpus: Vec<CpuId>,
    /// Bytes of the array, all threads together.
    pub array_bytes: Bytes,
    /// Passes over the array in a sample.
    pub passes: u64,
    /// Samples that count; one more comes first and is dropped, since it finds other steps' lines in the caches.
    pub samples: u32,
    /// What is known to taint the numbers beforehand.
    pub caveats: Vec<Caveat>,
}

/// A pair of CPUs.
#[derive(Debug, PartialEq, Serialize)]
pub struct PairLatency {
    /// The first CPU in scope and the one farthest from it.
    pub pair: Pair,
    /// Samples.
    pub samples: u32,
    /// A sample is at least this long, and at least 100 steps of the clock.
    pub sample_least_ns: u64,
}

/// Seconds between references while bandwidth is measured: a plateau lasts for tens of seconds.
const EVERY_S: f64 = 5.0;
const READS: u32 = 3;
const EXCHANGES: u32 = 5;
const EXCHANGE_NS: u64 = 500_000;
/// Bytes that a thread reads in a sample at least: 0.3 ms at 50 GB/s, which no core of 2026 exceeds by much.
const PART_LEAST: u64 = 16 << 20;

/// Plans the reference steps of a suite whose other parts are planned. `size` is the array's size where the user gave one.
pub fn plan(machine: &Machine, scope: &Scope, size: Option<Bytes>, suite: &Suite) -> Plan {
    let mut left_out = Vec::new();
    let mut leave_out = |what: &str, reason: String| left_out.push(LeftOut { what: what.to_owned(), reason });
    let read =
        read(machine, scope, size, suite).map_err(|reason| leave_out("reading as a reference step", reason)).ok();
    let pair = pair(machine, scope);
    if pair.is_none() {
        let reason = format!("it takes two, and CPU {} is alone in scope", scope.set());
        leave_out("pair latency as a reference step", reason);
    }
    let estimated_s = estimate(read.as_ref(), suite.needs().estimated_s);
    Plan { read, pair, every_ns: (EVERY_S * 1e9) as u64, estimated_s, left_out }
}

/// The read, or why there is none.
fn read(machine: &Machine, scope: &Scope, size: Option<Bytes>, suite: &Suite) -> Result<Read, String> {
    let cpus = scope.cpus[..scope.cores].to_vec();
    let nodes: NodeSet = cpus.iter().filter_map(|cpu| machine.topology.pu(*cpu)?.node).collect();
    let options = stream::Options { size, ..stream::Options::default() };
    let set = cpus.iter().copied().collect();
    let place = sizes::Place { cpus: &set, nodes: &nodes, touched_by: Some(&cpus) };
    let arrays = sizes::arrays(machine, "reference steps", place, 1, &options).map_err(|error| error.to_string())?;
    // The array is there all the time, so it must fit beside whatever else is. How it is spread over nodes is up to the
    // system; each of them shall have room for all of it.
    let everything = [(machine.topology.memory_nodes(), suite.needs().memory_bytes)];
    let groups = suite.stream.iter().flat_map(|plan| &plan.groups).map(|group| {
        (group.memory_nodes.clone(), Bytes(group.array_bytes.0.saturating_mul(stream::arrays(&group.kernels))))
    });
    for (nodes, held) in everything.into_iter().chain(groups) {
        let usable = machine.usable_memory_on(&nodes);
        if let Some(usable) = usable.filter(|usable| held.0.saturating_add(arrays.bytes.0) > usable.0) {
            return Err(format!(
                "an array of {} beside the {held} of other steps does not fit into the {usable} of memory that can be used",
                arrays.bytes
            ));
        }
    }
    Ok(Read {
        passes: (PART_LEAST * cpus.len() as u64).div_ceil(arrays.bytes.0.max(1)),
        array_bytes: arrays.bytes,
        samples: READS,
        caveats: arrays.caveats.into_iter().chain(standing_caveats(machine, &cpus)).collect(),
        cpus,
    })
}

/// The first CPU in scope with the first of those that are farthest from it.
fn pair(machine: &Machine, scope: &Scope) -> Option<PairLatency> {
    let (a, others) = scope.cpus.split_first()?;
    let domains = Domains::of(&machine.topology);
    let pairs = others.iter().map(|b| Pair { a: *a, b: *b, class: domains.shared(&[*a, *b]) });
    let pair = pairs.min_by_key(|pair| Reverse(pair.class))?;
    Some(PairLatency { pair, samples: EXCHANGES, sample_least_ns: EXCHANGE_NS })
}

/// Time of the first touch and of references through `rest_s` of other steps.
fn estimate(read: Option<&Read>, rest_s: f64) -> f64 {
    /// Guess: start two teams, calibrate and take the exchanges.
    const SHORT_S: f64 = 0.02;
    let (touch_s, pass_s) = read.map_or((0.0, 0.0), |read| {
        let threads = read.cpus.len() as f64;
        let bytes = read.array_bytes.0 as f64;
        let rate = (stream::STREAM * threads).min(stream::STREAM_MOST);
        (bytes / stream::TOUCH / threads.min(64.0), bytes * read.passes as f64 / rate)
    });
    let references = 2.0 + rest_s / EVERY_S;
    touch_s + references * (SHORT_S + f64::from(READS + 1) * pass_s)
}

impl Plan {
    /// The array, and time.
    pub fn needs(&self) -> Needs {
        let memory_bytes = self.read.as_ref().map_or(Bytes(0), |read| read.array_bytes);
        Needs { memory_bytes, estimated_s: self.estimated_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::IsaSet;
    use crate::plan::Class;

    /// A suite of bandwidth and its reference on a made-up machine.
    fn suite(description: &str, size: Option<Bytes>) -> Suite {
        let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let options = stream::Options { size, ..stream::Options::default() };
        let stream = stream::plan(&machine, &scope, &IsaSet::detect(), &options).unwrap();
        let mut suite = Suite { cpus: scope.cpus.clone(), stream: Some(stream), ..Suite::default() };
        suite.add_reference(&machine, &scope, size);
        suite
    }

    #[test]
    fn one_thread_a_core_reads_and_the_farthest_pair_exchanges() {
        let suite = suite("pack:2 [numa(memory=400GB)] l3:2(size=32MB) core:2 pu:2", None);
        let plan = suite.reference.as_ref().unwrap();
        let read = plan.read.as_ref().unwrap();
        assert_eq!(read.cpus, [0, 2, 4, 6, 8, 10, 12, 14].map(CpuId));
        assert!(read.array_bytes.0 >= 4 * 4 * 32_000_000 && read.passes == 1, "{read:?}");
        let pair = &plan.pair.as_ref().unwrap().pair;
        assert_eq!((pair.a, pair.b, pair.class), (CpuId(0), CpuId(8), Class::Machine));
        assert!(plan.left_out.is_empty(), "{:?}", plan.left_out);
    }

    #[test]
    fn the_array_is_held_beside_everything_else() {
        let with = suite("[numa(memory=40GB)] l3:1(size=32MB) core:4 pu:1", None);
        let array = with.reference.as_ref().unwrap().needs().memory_bytes;
        let largest = with.stream.as_ref().unwrap().needs().memory_bytes;
        assert!(with.needs().memory_bytes.0 >= array.0 + largest.0);
        let most = with.stream.as_ref().unwrap().groups[0].most_bytes.unwrap();
        assert!(most.0 * 2 + array.0 <= 40_000_000_000, "what a column may grow to leaves room");

        // Memory for three arrays, and not for a fourth: latency alone is repeated.
        let tight = suite("[numa(memory=550MB)] l3:1(size=32MB) core:4 pu:1", None);
        let plan = tight.reference.as_ref().unwrap();
        assert!(plan.read.is_none() && plan.pair.is_some());
        assert!(plan.left_out[0].reason.contains("does not fit"), "{:?}", plan.left_out);
    }

    #[test]
    fn one_cpu_has_no_pair_and_a_small_array_is_read_more_often() {
        let plan = suite("[numa(memory=40GB)] l3:1(size=32MB) core:1 pu:1", Some(Bytes(1 << 20))).reference.unwrap();
        assert_eq!(plan.read.unwrap().passes, 16);
        assert!(plan.pair.is_none());
        assert_eq!(plan.left_out.len(), 1);
    }
}
