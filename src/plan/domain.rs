//! What CPUs share, as the topology reports it.

use crate::barrier::{Seating, Wait};
use crate::machine::Topology;
use crate::units::CpuId;
use serde::Serialize;
use std::collections::BTreeMap;

/// The closest thing that some CPUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A core.
    Smt,
    /// A last-level cache.
    L3,
    /// A NUMA node.
    Node,
    /// A package.
    Socket,
    /// Nothing but the machine.
    Machine,
}

impl Class {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Class::Smt => "smt",
            Class::L3 => "l3",
            Class::Node => "node",
            Class::Socket => "socket",
            Class::Machine => "machine",
        }
    }
}

/// For each CPU the core, cache, node and package that it is in, and how many CPUs each of them has.
#[derive(Debug, Default)]
pub struct Domains(BTreeMap<CpuId, [Option<Domain>; 4]>);

/// A numbered set of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Domain {
    id: u32,
    cpus: usize,
}

impl Domains {
    /// Those of a machine.
    pub fn of(topology: &Topology) -> Domains {
        let node_sizes: BTreeMap<u32, usize> = topology.nodes.iter().map(|node| (node.id.0, node.cpus.len())).collect();
        let package_sizes: BTreeMap<u32, usize> =
            topology.packages.iter().map(|package| (package.id, package.cpus.len())).collect();
        let places = topology.pus.iter().map(|pu| {
            let core = topology.cores.get(pu.core as usize).map(|core| core.cpus.len());
            let cache = pu.last_level_cache.and_then(|index| {
                let cache = topology.caches.get(index as usize)?;
                Some(Domain { id: index, cpus: cache.cpus.len() })
            });
            let sized = |id: u32, sizes: &BTreeMap<u32, usize>| sizes.get(&id).map(|cpus| Domain { id, cpus: *cpus });
            let place = [
                core.map(|cpus| Domain { id: pu.core, cpus }),
                cache,
                pu.node.and_then(|node| sized(node.0, &node_sizes)),
                pu.package.and_then(|package| sized(package, &package_sizes)),
            ];
            (pu.id, place)
        });
        Domains(places.collect())
    }

    /// The smallest domain that holds all these CPUs. Caches may span nodes (sub-NUMA clusters) or nodes span caches
    /// (chiplets): their sizes decide, and of equal ones the inner name counts.
    pub fn shared(&self, cpus: &[CpuId]) -> Class {
        const CLASSES: [Class; 4] = [Class::Smt, Class::L3, Class::Node, Class::Socket];
        let places: Option<Vec<_>> = cpus.iter().map(|cpu| self.0.get(cpu)).collect();
        let Some([first, rest @ ..]) = places.as_deref() else { return Class::Machine };
        let common = CLASSES.iter().enumerate().filter_map(|(index, class)| {
            let domain = first[index]?;
            rest.iter().all(|place| place[index] == Some(domain)).then_some((domain.cpus, *class))
        });
        common.min().map_or(Class::Machine, |(_, class)| class)
    }
}

/// For each CPU the number of its last-level cache: the groups of a barrier that looks at them.
#[derive(Clone, Debug, Default)]
pub struct CacheGroups(BTreeMap<CpuId, u32>);

impl CacheGroups {
    /// Those of a machine.
    pub fn of(topology: &Topology) -> CacheGroups {
        CacheGroups(topology.pus.iter().filter_map(|pu| Some((pu.id, pu.last_level_cache?))).collect())
    }

    /// One thread on each of these CPUs, grouped by cache. CPUs whose cache is not reported are one group.
    pub fn seating(&self, cpus: &[CpuId], wait: Wait) -> Seating {
        Seating { wait, groups: cpus.iter().map(|cpu| self.0.get(cpu).copied().unwrap_or(u32::MAX)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn threads_are_grouped_by_last_level_cache() {
        let machine = Machine::from_source("synthetic:pack:2 [numa] l3:2 core:2 pu:1").unwrap();
        let cpus: Vec<CpuId> = [0, 1, 2, 6, 4, 0, 999].map(CpuId).into();
        let groups = CacheGroups::of(&machine.topology).seating(&cpus, Wait::Spin).groups;
        let same: Vec<bool> = groups.iter().map(|group| *group == groups[0]).collect();
        assert_eq!(same, [true, true, false, false, false, true, false], "{groups:?}");
        assert!(groups[2] != groups[3] && groups[3] != groups[4], "{groups:?}");
    }

    fn shared(description: &str, pairs: &[(u32, u32, Class)]) {
        let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
        let domains = Domains::of(&machine.topology);
        for (a, b, class) in pairs {
            assert_eq!(domains.shared(&[CpuId(*a), CpuId(*b)]), *class, "{description}: {a} and {b}");
        }
    }

    #[test]
    fn the_smallest_common_domain_names_the_class() {
        let chiplets = [(0, 1, Class::Smt), (0, 2, Class::L3), (0, 4, Class::Node), (0, 8, Class::Machine)];
        shared("pack:2 [numa] l3:2 core:2 pu:2", &chiplets);
        // A cache over three nodes, as with sub-NUMA clustering.
        let clusters = [(0, 1, Class::Smt), (0, 2, Class::Node), (0, 4, Class::L3), (0, 12, Class::Machine)];
        shared("pack:2 l3:1 group:3 [numa] core:2 pu:2", &clusters);
        shared("pack:2 group:3 [numa] core:2 pu:2", &[(0, 2, Class::Node), (0, 4, Class::Socket)]);
        shared("core:2 pu:1", &[(0, 1, Class::Node), (0, 999, Class::Machine)]);
    }
}
