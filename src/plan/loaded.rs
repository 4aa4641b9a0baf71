//! Loaded latency: one thread chases through memory while the others read, from not at all to as fast as they can.

use super::stream::{self, sizes};
use super::{Needs, Preset, Scope, standing_caveats};
use crate::caveat::{Caveat, LeftOut};
use crate::machine::Machine;
use crate::memory::chain::BLOCK_BYTES;
use crate::units::{Bytes, CpuId, CpuSet, NodeId, NodeSet};
use serde::Serialize;

/// Which curves will be measured.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// One curve after another.
    pub groups: Vec<Group>,
    /// Shares of the readers' fastest pace, in the order they are taken: all of it first, since the others follow from it.
    pub paces: Vec<f64>,
    /// Samples of each point.
    pub samples: u32,
    /// A sample lasts this long at least.
    pub sample_least_ns: u64,
    /// Seed of the chain.
    pub seed: u64,
    /// What cannot be measured here.
    pub left_out: Vec<LeftOut>,
}

/// One part of the machine.
#[derive(Debug, Serialize)]
pub struct Group {
    /// `machine` or `node N`.
    pub scope: String,
    /// The CPU that chases, then those that read.
    pub cpus: Vec<CpuId>,
    /// CPUs on the node of the one that chases: they touch the chain.
    pub builders: Vec<CpuId>,
    /// The last-level caches of all these CPUs.
    pub cache_bytes: Bytes,
    /// Node of the one that chases.
    pub cpu_node: Option<NodeId>,
    /// Node that its chain lies on, by first touch.
    pub memory_node: Option<NodeId>,
    /// Bytes of the chain.
    pub chain_bytes: Bytes,
    /// Bytes of the readers' array, all together.
    pub array_bytes: Bytes,
    /// What is known to taint the numbers beforehand.
    pub caveats: Vec<Caveat>,
}

/// Plans a curve for the machine, and with several nodes one for each.
pub fn plan(machine: &Machine, scope: &Scope, samples: Option<u32>, seed: u64, preset: Preset) -> Plan {
    let quick = preset == Preset::Quick;
    let mut plan = Plan {
        groups: Vec::new(),
        paces: vec![1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2, 0.1, 0.0],
        samples: samples.unwrap_or(if quick { 3 } else { 7 }),
        sample_least_ns: 2_000_000,
        seed,
        left_out: Vec::new(),
    };
    let cores = &scope.cpus[..scope.cores];
    let mut parts = vec![("machine".to_owned(), cores.to_vec())];
    let node_of = |cpu: &CpuId| machine.topology.pu(*cpu).and_then(|pu| pu.node);
    let nodes: NodeSet = cores.iter().filter_map(node_of).collect();
    if nodes.len() > 1 && !quick {
        parts.extend(nodes.iter().map(|node| {
            let own = cores.iter().copied().filter(|cpu| node_of(cpu) == Some(node)).collect();
            (format!("node {node}"), own)
        }));
    }
    for (name, cpus) in parts {
        match group(machine, scope, name.clone(), cpus) {
            Ok(group) => plan.groups.push(group),
            Err(reason) => plan.left_out.push(LeftOut { what: format!("loaded latency of {name}"), reason }),
        }
    }
    plan
}

/// No chain is smaller: four million lines are more than a curve visits on any machine.
const CHAIN_LEAST: u64 = 256 << 20;

fn group(machine: &Machine, scope: &Scope, name: String, cpus: Vec<CpuId>) -> Result<Group, String> {
    let Some((chaser, _)) = cpus.split_first().filter(|(_, readers)| !readers.is_empty()) else {
        return Err("it takes a core that chases and others that read, and there is one".to_owned());
    };
    let chaser = *chaser;
    let node_of = |cpu: &CpuId| machine.topology.pu(*cpu).and_then(|pu| pu.node);
    let nodes: NodeSet = cpus.iter().filter_map(node_of).collect();
    if !nodes.difference(&scope.nodes).is_empty() {
        return Err("its memory is not in scope, or it has none".to_owned());
    }
    // The readers' array exceeds the caches of all that take part, so that it also drives the chain out of them: then
    // every line of the chain is memory until it is visited.
    let set = cpus.iter().copied().collect();
    let place = sizes::Place { cpus: &set, nodes: &nodes, touched_by: Some(&cpus) };
    let arrays =
        sizes::arrays(machine, &name, place, 1, &stream::Options::default()).map_err(|error| error.to_string())?;
    let one = sizes::least(machine, &CpuSet::from_iter([chaser])).0;
    let chain_bytes = Bytes((one.0 / 2).max(CHAIN_LEAST).next_multiple_of(BLOCK_BYTES));
    if let Some(usable) = machine.usable_memory_on(&nodes).filter(|usable| chain_bytes.0 + arrays.bytes.0 > usable.0) {
        let needed = Bytes(chain_bytes.0 + arrays.bytes.0);
        return Err(format!("its chain and the readers' array are {needed}, and {usable} of memory can be used"));
    }
    let caveats = arrays.caveats.into_iter().chain(standing_caveats(machine, &cpus)).collect();
    let builders = cpus.iter().copied().filter(|cpu| node_of(cpu) == node_of(&chaser)).collect();
    Ok(Group {
        scope: name,
        builders,
        cache_bytes: arrays.cache,
        cpu_node: node_of(&chaser),
        memory_node: node_of(&chaser),
        chain_bytes,
        array_bytes: arrays.bytes,
        caveats,
        cpus,
    })
}

impl Plan {
    /// Both buffers of the largest group, and time.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for group in &self.groups {
            let held = group.chain_bytes.0 + group.array_bytes.0;
            // With its last huge page.
            needs.memory_bytes = needs.memory_bytes.max(Bytes(held + (4 << 20)));
            let threads = group.cpus.len().clamp(1, 64) as f64;
            let points = self.paces.len() as f64;
            let sampling = f64::from(self.samples + 3) * self.sample_least_ns as f64 * 1.5e-9;
            needs.estimated_s += held as f64 / stream::TOUCH / threads + points * (sampling + 0.01);
        }
        needs
    }
}
