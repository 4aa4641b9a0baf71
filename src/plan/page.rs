//! Hidden memory nodes: which pages of a buffer are visited, how often, and from which CPUs.

use super::memory_latency::{Chase, footprint};
use super::stream::{self, sizes};
use super::{Domains, Needs, Preset, Scope, standing_caveats};
use crate::caveat::{Caveat, LeftOut};
use crate::machine::Machine;
use crate::memory::chain::BLOCK_BYTES;
use crate::units::{Bytes, CpuId, CpuSet, NodeId, NodeSet};
use serde::Serialize;

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Visits of each page.
    pub samples: Option<u32>,
    /// Seed of the choice of pages and of every order.
    pub seed: u64,
    /// How thorough.
    pub preset: Preset,
}

/// Which pages will be visited.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// The buffer; `None` where nothing can be measured.
    pub buffer: Option<Buffer>,
    /// Pages that are chosen from it at random.
    pub pages: u32,
    /// Visits of each page by each CPU.
    pub passes: u32,
    /// Seed of the choice of pages and of every order.
    pub seed: u64,
    /// What cannot be measured here.
    pub left_out: Vec<LeftOut>,
}

/// One buffer and those who visit its pages.
#[derive(Clone, Debug, Serialize)]
pub struct Buffer {
    /// The first CPU in scope and, if there is another core, the one farthest from it by what is reported.
    pub chases: Vec<Chase>,
    /// Cores of the first one's node: they touch the buffer.
    pub builders: Vec<CpuId>,
    /// Node that its pages lie on, by first touch.
    pub memory_node: Option<NodeId>,
    /// Its bytes.
    pub footprint_bytes: Bytes,
    /// What is known to taint the numbers beforehand.
    pub caveats: Vec<Caveat>,
}

/// Plans visits from two CPUs, where one node is reported or none.
pub fn plan(machine: &Machine, scope: &Scope, options: &Options) -> Plan {
    let quick = options.preset == Preset::Quick;
    let mut left_out = Vec::new();
    let buffer = match buffer(machine, scope) {
        Ok(buffer) => Some(buffer),
        Err(reason) => {
            left_out.push(LeftOut { what: "latency of pages".into(), reason });
            None
        }
    };
    Plan {
        buffer,
        pages: if quick { 1024 } else { 2048 },
        passes: options.samples.unwrap_or(if quick { 3 } else { 5 }),
        seed: options.seed,
        left_out,
    }
}

fn buffer(machine: &Machine, scope: &Scope) -> Result<Buffer, String> {
    let topology = &machine.topology;
    if topology.memory_nodes().len() > 1 {
        return Err("several nodes are reported: memory latency by node shows them".into());
    }
    let cores = &scope.cpus[..scope.cores];
    let first = *cores.first().ok_or("no CPU is in scope")?;
    let domains = Domains::of(topology);
    // Of equally far ones the last, which most often is on another node if any is.
    let far = cores[1..].iter().copied().max_by_key(|cpu| domains.shared(&[first, *cpu]));
    let node = |cpu: CpuId| topology.pu(cpu).and_then(|pu| pu.node);
    let chase = |cpu: CpuId| {
        let cache_bytes = sizes::least(machine, &CpuSet::from_iter([cpu])).1;
        Chase { cpu, cpu_node: node(cpu), cache_bytes }
    };
    let chases: Vec<Chase> = [Some(first), far].into_iter().flatten().map(chase).collect();
    let memory_node = scope.nodes.first();
    let nodes: NodeSet = memory_node.into_iter().collect();
    let (footprint_bytes, caveats) = footprint(machine, &chases, &nodes, None).map_err(|error| error.to_string())?;
    Ok(Buffer {
        builders: cores.iter().copied().filter(|cpu| node(*cpu) == node(first)).collect(),
        chases,
        memory_node,
        footprint_bytes,
        caveats: caveats.into_iter().chain(standing_caveats(machine, &[first])).collect(),
    })
}

impl Plan {
    /// The buffer, and time.
    pub fn needs(&self) -> Needs {
        /// Guess: start two teams.
        const START_S: f64 = 0.01;
        /// Guess: a page of lines in random order, from far memory.
        const VISIT_S: f64 = 15e-6;
        let Some(buffer) = &self.buffer else { return Needs::default() };
        let bytes = buffer.footprint_bytes.0 as f64;
        let pass_s = bytes / stream::STREAM + f64::from(self.pages) * VISIT_S;
        let touch_s = bytes / stream::TOUCH / buffer.builders.len().clamp(1, 64) as f64;
        let visits_s = buffer.chases.len() as f64 * (START_S + f64::from(self.passes) * pass_s);
        Needs { memory_bytes: buffer.footprint_bytes, estimated_s: touch_s + visits_s }
    }
}

/// The pages that are visited, ascending: a random choice of at most a quarter of the buffer's, so that what lies between
/// them is at least three times a cache that the buffer exceeds four times.
pub fn sample(footprint: Bytes, pages: u32, seed: u64) -> Vec<u32> {
    let all = u32::try_from(footprint.0 / BLOCK_BYTES).unwrap_or(u32::MAX);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut chosen = std::collections::BTreeSet::new();
    let wanted = pages.min((all / 4).max(1));
    while (chosen.len() as u32) < wanted.min(all) {
        chosen.insert(random.u32(..all));
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(description: &str, preset: Preset) -> Plan {
        let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        plan(&machine, &scope, &Options { preset, ..Options::default() })
    }

    #[test]
    fn the_first_cpu_and_the_farthest_visit_pages_that_no_cache_holds() {
        let plan = planned("pack:2 [numa(memory=400GB)] l3:2(size=32MiB) core:2 pu:2", Preset::Default);
        assert!(plan.buffer.is_none() && plan.left_out[0].reason.contains("several nodes are reported"));
        assert_eq!(plan.needs(), Needs::default());

        let cpus = |plan: &Plan| {
            plan.buffer.iter().flat_map(|buffer| &buffer.chases).map(|chase| chase.cpu.0).collect::<Vec<_>>()
        };
        let plan = planned("[numa(memory=400GB)] pack:1 l3:2(size=32MiB) core:2 pu:2", Preset::Quick);
        let buffer = plan.buffer.as_ref().unwrap();
        assert_eq!((buffer.footprint_bytes, buffer.builders.len()), (Bytes(128 << 20), 4));
        assert_eq!(cpus(&plan), [0, 6], "the last core's first thread");
        assert!(plan.passes == 3 && plan.needs().memory_bytes == Bytes(128 << 20));
        assert_eq!(cpus(&planned("[numa(memory=40GB)] l3:1(size=32MiB) core:1 pu:2", Preset::Default)), [0]);
    }

    #[test]
    fn pages_are_strewn_over_the_buffer_and_leave_most_of_it_alone() {
        let pages = sample(Bytes(128 << 20), 2048, 1);
        assert!(pages.len() == 2048 && pages.is_sorted() && pages[2047] < 32768);
        for quarter in 0..4 {
            let there = pages.iter().filter(|page| **page / 8192 == quarter).count();
            assert!((400..630).contains(&there), "{there} in quarter {quarter}");
        }
        assert_eq!(sample(Bytes(64 << 10), 2048, 1).len(), 4);
        assert_eq!(sample(Bytes(4096), 2048, 1), [0]);
        assert!(sample(Bytes(0), 2048, 1).is_empty());
    }
}
