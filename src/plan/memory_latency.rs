//! Memory latency: whose memory from which CPU, over which footprints, in pages of which size.

use super::stream::{self, sizes};
use super::{Needs, Preset, Scope, standing_caveats};
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::memory::chain::BLOCK_BYTES;
use crate::memory::{HUGE_PAGE_BYTES, Pages, Policy};
use crate::units::{Bytes, CpuId, CpuSet, NodeId, NodeSet};
use serde::Serialize;
use std::collections::BTreeSet;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this footprint.
    pub footprint: Option<Bytes>,
    /// Samples of each step.
    pub samples: Option<u32>,
    /// Seed of the random order.
    pub seed: u64,
    /// How thorough.
    pub preset: Preset,
}

/// Which chases will be timed.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// One buffer after another.
    pub groups: Vec<Group>,
    /// Samples of each chase over all of a buffer.
    pub samples: u32,
    /// A sample of these lasts this long at least.
    pub sample_least_ns: u64,
    /// Samples of each footprint of the ladder.
    pub ladder_samples: u32,
    /// A sample of these lasts this long at least.
    pub ladder_sample_least_ns: u64,
    /// Seed of the random order.
    pub seed: u64,
    /// What cannot be measured here.
    pub left_out: Vec<LeftOut>,
}

/// One buffer and those who chase through it.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Where its pages shall lie; `None` where the system reports no nodes.
    pub memory_node: Option<NodeId>,
    /// How they get there.
    pub placement: Policy,
    /// Page size to ask for.
    pub pages: Pages,
    /// Bytes of the buffer: the footprint of its chases.
    pub footprint_bytes: Bytes,
    /// CPUs that touch it.
    pub builders: Vec<CpuId>,
    /// Footprints below, on one CPU.
    pub ladder: Option<Ladder>,
    /// The CPUs that chase, one of each node.
    pub chases: Vec<Chase>,
    /// What is known to taint the numbers of `chases` beforehand.
    pub caveats: Vec<Caveat>,
}

/// A chase over all of a buffer.
#[derive(Clone, Debug, Serialize)]
pub struct Chase {
    /// Where.
    pub cpu: CpuId,
    /// Its node.
    pub cpu_node: Option<NodeId>,
    /// Its last-level cache, reported or assumed.
    pub cache_bytes: Bytes,
}

/// Chases over ever more of a buffer.
#[derive(Clone, Debug, Serialize)]
pub struct Ladder {
    /// Where.
    pub chase: Chase,
    /// Ascending.
    pub footprints: Vec<Bytes>,
}

/// Zones of a chain that no cache holds (see [`crate::memory::chain`]): the first is written first and visited first, and what
/// is written after it is three times the last-level cache, so none of it is left there.
pub const ZONES: u64 = 4;

/// Plans chases over every memory node from every node's first core, with 4 KiB and with huge pages, and the ladder on the first
/// CPU.
///
/// # Errors
/// When the footprint that was asked for does not fit into memory.
pub fn plan(machine: &Machine, scope: &Scope, options: &Options) -> Result<Plan> {
    /// Beyond this many nodes on either side an evenly spread choice is made: a guess that keeps every guest of 2026 whole.
    const NODES_MOST: usize = 16;
    let topology = &machine.topology;
    let quick = options.preset == Preset::Quick;
    let mut left_out = Vec::new();
    let cores = &scope.cpus[..scope.cores];

    let mut seen = BTreeSet::new();
    let chase = |cpu: CpuId| {
        let cpu_node = topology.pu(cpu).and_then(|pu| pu.node);
        Chase { cpu, cpu_node, cache_bytes: sizes::least(machine, &CpuSet::from_iter([cpu])).1 }
    };
    let chasers: Vec<Chase> = cores.iter().map(|cpu| chase(*cpu)).filter(|chase| seen.insert(chase.cpu_node)).collect();
    let chasers = spread(&chasers, NODES_MOST, "nodes whose CPUs chase", &mut left_out);
    let nodes: Vec<Option<NodeId>> = scope.nodes.iter().map(Some).collect();
    let nodes = if nodes.is_empty() { vec![None] } else { nodes };
    let nodes = spread(&nodes, NODES_MOST, "memory nodes", &mut left_out);

    let mut groups: Vec<Group> = Vec::new();
    for node in nodes {
        let memory_nodes: NodeSet = node.into_iter().collect();
        let near: CpuSet = node
            .and_then(|node| topology.node(node))
            .map(|node| if node.cpus.is_empty() { node.near_cpus.clone() } else { node.cpus.clone() })
            .unwrap_or_default();
        let close: Vec<CpuId> = cores.iter().copied().filter(|cpu| near.contains(*cpu)).collect();
        let name = node.map_or("memory".to_owned(), |node| format!("memory of node {node}"));
        let chases: Vec<Chase> = if !quick || chasers.len() == 1 {
            chasers.clone()
        } else {
            // Next to the memory only.
            close.first().map(|cpu| chase(*cpu)).into_iter().collect()
        };
        if chases.is_empty() {
            left_out.push(LeftOut { what: name, reason: "no CPU in scope is in it or next to it".into() });
            continue;
        }
        let builders = if close.is_empty() { cores.to_vec() } else { close };
        let only = topology.memory_nodes().len() <= 1;
        let placement = if only { Policy::FirstTouch } else { Policy::Bind(memory_nodes.clone()) };
        for pages in [Pages::Small, Pages::Thp] {
            let (footprint_bytes, caveats) = match footprint(machine, &chases, &memory_nodes, options.footprint) {
                Ok(found) => found,
                Err(error) if options.footprint.is_some() => return Err(error),
                Err(error) => {
                    left_out.push(LeftOut { what: name.clone(), reason: error.to_string() });
                    break;
                }
            };
            let pool = machine.environment.free_2m_pages.is_some_and(|free| free << 21 >= footprint_bytes.0);
            let pages = if pages == Pages::Thp && pool { Pages::Huge2M } else { pages };
            let first = groups.iter().all(|group| group.ladder.is_none());
            let ladder = (pages != Pages::Small && first && options.footprint.is_none()).then(|| {
                let chase = chases[0].clone();
                let reported: Vec<Bytes> = topology.caches_of(chase.cpu).iter().map(|(_, bytes)| *bytes).collect();
                Ladder { footprints: footprints(&reported, footprint_bytes, options.preset), chase }
            });
            groups.push(Group {
                memory_node: node,
                placement: placement.clone(),
                pages,
                footprint_bytes,
                builders: builders.clone(),
                ladder,
                caveats: caveats.into_iter().chain(standing_caveats(machine, &[chases[0].cpu])).collect(),
                chases: chases.clone(),
            });
        }
    }
    Ok(Plan {
        groups,
        samples: options.samples.unwrap_or(if quick { 5 } else { 9 }),
        sample_least_ns: 1_000_000,
        ladder_samples: options.samples.unwrap_or(if quick { 3 } else { 5 }),
        ladder_sample_least_ns: 200_000,
        seed: options.seed,
        left_out,
    })
}

/// At most so many of them, evenly spread.
pub(super) fn spread<T: Clone>(all: &[T], most: usize, what: &str, left_out: &mut Vec<LeftOut>) -> Vec<T> {
    let taken = all.len().min(most);
    if taken < all.len() {
        let what = format!("{} of {} {what}", all.len() - taken, all.len());
        left_out.push(LeftOut { what, reason: format!("{most}, evenly spread, are enough") });
    }
    (0..taken).map(|index| all[index * all.len() / taken].clone()).collect()
}

/// The footprint of chases over memory: as asked, else what the largest last-level cache of these CPUs cannot hold, by the rule of
/// bandwidth arrays for one thread, else (labelled) what fits.
pub(super) fn footprint(
    machine: &Machine,
    chases: &[Chase],
    nodes: &NodeSet,
    asked: Option<Bytes>,
) -> Result<(Bytes, Vec<Caveat>)> {
    let of = |chase: &Chase| sizes::least(machine, &CpuSet::from_iter([chase.cpu]));
    let Some((least, cache, unknown)) = chases.iter().map(of).max_by_key(|(least, _, _)| *least) else {
        return Ok((Bytes(BLOCK_BYTES), Vec::new()));
    };
    let mut caveats: Vec<Caveat> = unknown.into_iter().collect();
    let mut bytes =
        asked.map_or(least, |asked| Bytes(asked.0.div_ceil(BLOCK_BYTES).max(1).saturating_mul(BLOCK_BYTES)));
    if bytes < least {
        caveats.push(Caveat::CacheResident { reuse_bytes: bytes, cache_bytes: cache });
    }
    let set = chases.iter().map(|chase| chase.cpu).collect();
    let place = sizes::Place { cpus: &set, nodes, touched_by: None };
    match (machine.usable_memory_on(nodes), sizes::most(machine, place, 1, None)) {
        (Some(usable), Some(most)) if bytes > usable => {
            if asked.is_some() || most.0 == 0 {
                return Err(Error::refused(
                    "plan a chase through memory",
                    format!("its footprint is {bytes}, and {usable} of memory can be used"),
                    format!(
                        "the least that measures memory is {least} (last-level cache of {cache}); give this process more \
                         memory, or take a smaller --footprint and measure caches"
                    ),
                ));
            }
            bytes = most;
            caveats.push(Caveat::CannotBeDram { array_bytes: bytes, least_bytes: least, usable_bytes: usable });
        }
        (Some(_), _) => {}
        (None, _) => caveats.push(Caveat::MemorySizeUnknown),
    }
    Ok((bytes, caveats))
}

/// Footprints from 4 KiB to below `most`: one or two an octave, four in the octaves around each reported cache.
fn footprints(reported: &[Bytes], most: Bytes, preset: Preset) -> Vec<Bytes> {
    /// Above this, four an octave cost seconds: the levels there are far apart.
    const FINE_MOST: u64 = 64 << 20;
    let mut footprints = BTreeSet::new();
    for quarter in 0u32.. {
        let bytes = BLOCK_BYTES as f64 * (f64::from(quarter) / 4.0).exp2();
        if bytes >= most.0 as f64 {
            break;
        }
        let near = reported.iter().any(|cache| {
            let ratio = bytes / cache.0 as f64;
            (0.45..2.2).contains(&ratio) && cache.0 <= FINE_MOST
        });
        let taken = match preset {
            Preset::Quick => quarter % 4 == 0 || near && quarter % 2 == 0,
            Preset::Default => quarter % 2 == 0 || near,
            Preset::Full => true,
        };
        if taken {
            let blocks = (bytes / BLOCK_BYTES as f64).round() as u64;
            footprints.insert(Bytes(blocks * BLOCK_BYTES));
        }
    }
    // A cache's own size is the last that may fit.
    footprints.extend(reported.iter().map(|cache| Bytes(cache.0 / BLOCK_BYTES * BLOCK_BYTES)));
    footprints.retain(|bytes| bytes.0 > 0 && *bytes < most);
    footprints.into_iter().collect()
}

impl Plan {
    /// The largest buffer, and time.
    pub fn needs(&self) -> Needs {
        /// Guess: start two teams and calibrate.
        const START_S: f64 = 0.01;
        let mut needs = Needs::default();
        for group in &self.groups {
            let huge = if group.pages == Pages::Small { 0 } else { HUGE_PAGE_BYTES as u64 };
            needs.memory_bytes = needs.memory_bytes.max(Bytes(group.footprint_bytes.0 + huge));
            let threads = group.builders.len().clamp(1, 64) as f64;
            let sample_s = self.sample_least_ns as f64 * 1.5e-9;
            let chases = group.chases.len() as f64 * (START_S + f64::from(self.samples + 2) * sample_s);
            let footprints: &[Bytes] = group.ladder.as_ref().map_or(&[], |ladder| &ladder.footprints);
            let rebuilt = footprints.iter().map(|bytes| bytes.0).sum::<u64>() as f64 / (2.0 * stream::TOUCH) / threads;
            let ladder_s = f64::from(self.ladder_samples + 2) * self.ladder_sample_least_ns as f64 * 1.5e-9;
            needs.estimated_s += group.footprint_bytes.0 as f64 / stream::TOUCH / threads
                + rebuilt
                + footprints.len() as f64 * (2.0 * START_S + ladder_s)
                + chases;
        }
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(description: &str, options: &Options) -> Plan {
        let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        plan(&machine, &scope, options).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_memory_node_from_every_node_beyond_the_cache_of_one_cpu() {
        let plan = planned("pack:2 [numa(memory=400GB)] l3:4(size=32MiB) core:2 pu:2", &Options::default());
        assert_eq!(plan.groups.len(), 4, "two nodes, two page sizes");
        for group in &plan.groups {
            assert_eq!(group.chases.len(), 2);
            assert_eq!(group.footprint_bytes, Bytes(128 << 20), "four times one cache of four");
            assert_eq!(group.builders.len(), 8);
            assert_eq!(group.placement, Policy::Bind(group.memory_node.into_iter().collect()));
        }
        assert_eq!(plan.groups.iter().filter(|group| group.ladder.is_some()).count(), 1);
        let quick = Options { preset: Preset::Quick, ..Options::default() };
        let quick = planned("pack:2 [numa(memory=400GB)] l3:4(size=32MiB) core:2 pu:2", &quick);
        assert!(quick.groups.iter().all(|group| group.chases.len() == 1));
        assert!(quick.groups.iter().all(|group| group.chases[0].cpu_node == group.memory_node));
    }

    #[test]
    fn a_footprint_that_a_cache_holds_is_labelled_and_one_beyond_memory_refused() {
        let machine = Machine::from_source("synthetic:[numa(memory=40GB)] l3:1(size=32MiB) core:2 pu:1").unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let of = |bytes| plan(&machine, &scope, &Options { footprint: Some(Bytes(bytes)), ..Options::default() });
        let small = of(100_000).unwrap();
        assert!(small.groups.iter().all(|group| group.ladder.is_none() && group.footprint_bytes == Bytes(102_400)));
        let resident = |caveat: &Caveat| matches!(caveat, Caveat::CacheResident { .. });
        assert!(small.groups.iter().all(|group| group.caveats.iter().any(resident)));
        assert!(!of(1 << 30).unwrap().groups[0].caveats.iter().any(resident));
        assert!(of(1 << 40).unwrap_err().to_string().contains("the least that measures memory is 128 MiB"));
        assert!(of(u64::MAX).is_err());
    }

    #[test]
    fn the_ladder_is_dense_around_reported_caches() {
        let caches = [Bytes(48 << 10), Bytes(2 << 20), Bytes(32 << 20)];
        let ladder = footprints(&caches, Bytes(128 << 20), Preset::Default);
        assert_eq!(ladder.first(), Some(&Bytes(4096)));
        assert!(ladder.is_sorted() && caches.iter().all(|cache| ladder.contains(cache)), "{ladder:?}");
        let between = |low: u64, high: u64| ladder.iter().filter(|bytes| (low..high).contains(&bytes.0)).count();
        assert!(between(1 << 20, 2 << 20) >= 3, "{ladder:?}");
        assert_eq!(between(8 << 20, 14 << 20), 2);
        let unknown = footprints(&[], Bytes(128 << 20), Preset::Quick);
        assert_eq!(unknown.len(), 15);
    }
}
