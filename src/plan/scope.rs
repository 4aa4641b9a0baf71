//! Which CPUs and nodes are in scope, in the order in which a sweep takes them.

use crate::error::{Error, Result};
use crate::machine::{Machine, Topology};
use crate::units::{CpuId, CpuSet, NodeSet};
use serde::Serialize;
use std::collections::BTreeSet;

/// CPUs and memory nodes of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scope {
    /// One hardware thread of each core first, neighbours next to each other, then the second ones.
    pub cpus: Vec<CpuId>,
    /// How many of `cpus` are the first of their core.
    pub cores: usize,
    /// Nodes that pages may be asked onto.
    pub nodes: NodeSet,
    /// Whether the user named the CPUs.
    pub given: bool,
}

impl Scope {
    /// The CPUs of `--cpus` (else those next to the nodes of `--nodes`, else all allowed) and the nodes of `--nodes`
    /// (else all allowed that have memory).
    ///
    /// # Errors
    /// A usage error for a CPU or node that does not exist or is not allowed.
    pub fn new(machine: &Machine, cpus: Option<&CpuSet>, nodes: Option<&NodeSet>) -> Result<Scope> {
        let topology = &machine.topology;
        let memory_nodes = topology.memory_nodes().intersection(&machine.allowed_nodes);
        let named = [cpus.map(|cpus| ("--cpus", cpus.is_empty())), nodes.map(|nodes| ("--nodes", nodes.is_empty()))];
        if let Some((flag, _)) = named.into_iter().flatten().find(|(_, empty)| *empty) {
            let all = format!("name some of CPUs {} or nodes {memory_nodes}", machine.allowed_cpus);
            return Err(Error::usage(format!("use the list of {flag}"), "it is empty", all));
        }
        if let Some(asked) = nodes {
            let missing = asked.difference(&memory_nodes);
            if !missing.is_empty() {
                return Err(Error::usage(
                    format!("use the memory nodes {asked}"),
                    format!("node {missing} does not exist, has no memory or is not allowed"),
                    format!("name some of {memory_nodes}"),
                ));
            }
        }
        let in_scope = match (cpus, nodes) {
            (Some(asked), _) => {
                let missing = asked.difference(&machine.allowed_cpus);
                if !missing.is_empty() {
                    return Err(Error::usage(
                        format!("use the CPUs {asked}"),
                        format!("CPU {missing} does not exist, is offline or is not allowed to this process"),
                        format!("name some of {}", machine.allowed_cpus),
                    ));
                }
                asked.clone()
            }
            (None, Some(asked)) => {
                let near: CpuSet = asked
                    .iter()
                    .filter_map(|id| topology.node(id))
                    .flat_map(|node| if node.cpus.is_empty() { node.near_cpus.iter() } else { node.cpus.iter() })
                    .collect();
                near.intersection(&machine.allowed_cpus)
            }
            (None, None) => machine.allowed_cpus.clone(),
        };
        let order = topology.cores_first(&in_scope);
        if order.is_empty() {
            return Err(Error::usage(
                "find CPUs to measure with",
                "no allowed CPU belongs to these nodes",
                format!("name some of {} with --cpus", machine.allowed_cpus),
            ));
        }
        let cores: BTreeSet<u32> = order.iter().filter_map(|cpu| topology.pu(*cpu)).map(|pu| pu.core).collect();
        Ok(Scope {
            cpus: order,
            cores: cores.len(),
            nodes: nodes.cloned().unwrap_or(memory_nodes),
            given: cpus.is_some(),
        })
    }

    /// The CPUs as a set.
    pub fn set(&self) -> CpuSet {
        self.cpus.iter().copied().collect()
    }

    /// Thread counts at which machines bend: 1, powers of two, one last-level cache, quarters of a node, a node, a socket,
    /// all cores less two and one (room for the system), all cores, all hardware threads.
    pub fn natural_threads(&self, topology: &Topology, quick: bool) -> Vec<u32> {
        let Some(first) = self.cpus.first().and_then(|cpu| topology.pu(*cpu)) else { return Vec::new() };
        let cores = self.cores as u32;
        // Sizes of the domains that the first core is in: a compact set fills them one after another.
        let same = |shares: &dyn Fn(&crate::machine::Pu) -> bool| {
            self.cpus[..self.cores].iter().filter_map(|cpu| topology.pu(*cpu)).filter(|pu| shares(pu)).count() as u32
        };
        let cache = same(&|pu| pu.last_level_cache.is_some() && pu.last_level_cache == first.last_level_cache);
        let node = same(&|pu| pu.node.is_some() && pu.node == first.node);
        let socket = same(&|pu| pu.package.is_some() && pu.package == first.package);
        let mut counts = BTreeSet::from([1, cache, node, socket, cores]);
        if quick {
            counts.insert(cores / 2);
        } else {
            counts.extend((0..).map(|power| 1u32 << power).take_while(|count| *count < cores));
            counts.extend([node / 4, node / 2, node * 3 / 4, cores.saturating_sub(1), cores.saturating_sub(2)]);
            counts.insert(self.cpus.len() as u32);
        }
        counts.remove(&0);
        counts.into_iter().collect()
    }

    /// The first `threads` CPUs, repeated when there are not enough.
    pub fn compact(&self, threads: u32) -> Vec<CpuId> {
        self.cpus.iter().copied().cycle().take(threads as usize).collect()
    }
}
