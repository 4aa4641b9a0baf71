//! Core-to-core latency: which pairs, by which protocol, in which order.

use super::{Class, Domains, Needs, Preset, Scope};
use crate::caveat::LeftOut;
use crate::machine::{Machine, Pu};
use crate::units::{Bytes, CpuId};
use serde::Serialize;
use std::collections::BTreeMap;

/// How two threads hand a line to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Compare-and-swap by both on one line. A unit is one way: half a round trip.
    Cas,
    /// Each stores a flag on its own line and polls the other's. A unit is one way: half a round trip.
    Flags,
}

impl Protocol {
    /// Both.
    pub const ALL: [Protocol; 2] = [Protocol::Cas, Protocol::Flags];

    /// Its name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Cas => "cas",
            Protocol::Flags => "flags",
        }
    }

    /// What it does, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Protocol::Cas => "compare-and-swap by both threads on one line, half a round trip",
            Protocol::Flags => "each thread stores a flag on its own line and polls the other's, half a round trip",
        }
    }
}

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Protocols; empty means all.
    pub protocols: Vec<Protocol>,
    /// Samples a pair.
    pub samples: Option<u32>,
    /// Seed of the order and of the choice of pairs.
    pub seed: u64,
    /// How thorough.
    pub preset: Preset,
}

/// Which pairs will be measured.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// Pairs in the order they are taken.
    pub pairs: Vec<Pair>,
    /// Protocols, one after another for each pair.
    pub protocols: Vec<Protocol>,
    /// Samples a pair and protocol.
    pub samples: u32,
    /// A sample is at least this long, and at least 100 steps of the clock.
    pub sample_least_ns: u64,
    /// Pairs that were not chosen.
    pub left_out: Vec<LeftOut>,
}

/// Two CPUs and what the reported topology says they share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The CPU that starts, and on whose side the line is first touched.
    pub a: CpuId,
    /// The other one.
    pub b: CpuId,
    /// The closest thing they share.
    pub class: Class,
}

/// Cores of which every pair is looked at: 2,048 CPUs and their two million pairs plan in a few hundredths of a second.
const CORES_MOST: usize = 2048;

/// Plans every pair of cores in scope, and the hardware threads of each core with each other. Beyond the preset's number
/// of pairs a seeded choice is taken that has every class in it.
pub fn plan(machine: &Machine, scope: &Scope, options: &Options) -> Plan {
    let topology = &machine.topology;
    let most = match options.preset {
        Preset::Quick => 1_000,
        Preset::Default => 10_000,
        Preset::Full => 100_000,
    };
    let pus: Vec<&Pu> = scope.cpus.iter().filter_map(|cpu| topology.pu(*cpu)).collect();
    let (all_cores, siblings) = pus.split_at(scope.cores);
    let mut random = fastrand::Rng::with_seed(options.seed);
    // Pairs grow with the square: beyond this many cores, pairs of a seeded choice of cores are enough to choose from.
    let mut cores = all_cores.to_vec();
    if cores.len() > CORES_MOST {
        random.shuffle(&mut cores);
        cores.truncate(CORES_MOST);
    }

    let domains = Domains::of(topology);
    let mut by_class: BTreeMap<Class, Vec<(CpuId, CpuId)>> = BTreeMap::new();
    let total = all_cores.len() * all_cores.len().saturating_sub(1) / 2 + siblings.len();
    for (index, a) in cores.iter().enumerate() {
        for b in &cores[index + 1..] {
            by_class.entry(domains.shared(&[a.id, b.id])).or_default().push((a.id, b.id));
        }
    }
    let first_of: BTreeMap<u32, CpuId> = all_cores.iter().map(|pu| (pu.core, pu.id)).collect();
    for second in siblings {
        if let Some(first) = first_of.get(&second.core) {
            by_class.entry(Class::Smt).or_default().push((*first, second.id));
        }
    }

    let share = (most / by_class.len().max(1)).max(1);
    let mut pairs = Vec::new();
    for (class, mut members) in by_class {
        random.shuffle(&mut members);
        if total > most || all_cores.len() > CORES_MOST {
            members.truncate(share);
        }
        pairs.extend(members.into_iter().map(|(a, b)| Pair { a, b, class }));
    }
    random.shuffle(&mut pairs);
    let skipped = total - pairs.len();
    let too_many = (skipped > 0).then(|| LeftOut {
        what: format!("{skipped} of {total} pairs"),
        reason: format!("the preset takes about {most}, chosen at random from every class"),
    });
    let none = (total == 0).then(|| LeftOut {
        what: "latency between CPUs".into(),
        reason: format!("it takes two, and CPU {} is alone in scope", scope.set()),
    });
    Plan {
        // A short list affords long samples; a long one must end.
        sample_least_ns: if pairs.len() <= 100 { 500_000 } else { 40_000 },
        pairs,
        protocols: if options.protocols.is_empty() { Protocol::ALL.to_vec() } else { options.protocols.clone() },
        samples: options.samples.unwrap_or(15),
        left_out: too_many.into_iter().chain(none).collect(),
    }
}

impl Plan {
    /// A page a pair; time from the sample length and what starting two threads costs.
    pub fn needs(&self) -> Needs {
        /// Guess: start, pin and watch two threads.
        const START_S: f64 = 0.002;
        let runs = (self.pairs.len() * self.protocols.len()) as f64;
        let sampling = f64::from(self.samples + 1) * self.sample_least_ns as f64 * 1.5e-9;
        Needs { memory_bytes: Bytes(4096), estimated_s: runs * (START_S + sampling) }
    }
}
