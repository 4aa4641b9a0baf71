//! /sys/devices/system/node read directly, under a root directory that tests replace:
//! hwloc drops memory-less nodes, and a plan must know them.

use super::topology::{Distances, Node, Topology};
use crate::caveat::Caveat;
use crate::units::{Bytes, CpuId, CpuSet, NodeId, NodeSet};
use std::path::Path;

/// The text of a small file of /sys or /proc without the newline at its end; `None` when it cannot be read.
pub(super) fn text(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// What /sys says of one node.
#[derive(Debug)]
struct Told {
    id: NodeId,
    cpus: Option<CpuSet>,
    memory_bytes: Option<Bytes>,
    distances: Option<Vec<u64>>,
}

/// Adds to `topology` what `root` knows and hwloc did not tell. Returns what the two do not agree on.
pub(super) fn complete(topology: &mut Topology, root: &Path) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let mut incomplete = |detail: String| caveats.push(Caveat::TopologyIncomplete { detail });
    let told = read(root);
    if told.is_empty() {
        incomplete("no NUMA nodes in /sys/devices/system/node".to_string());
        return caveats;
    }

    let known = topology.cpus();
    for node in &told {
        let cpus = node.cpus.as_ref().map(|cpus| cpus.intersection(&known));
        let Some(seen) = topology.nodes.iter_mut().find(|seen| seen.id == node.id) else {
            let cpus = cpus.unwrap_or_default();
            let memory_bytes = node.memory_bytes;
            if memory_bytes != Some(Bytes(0)) {
                incomplete(format!("hwloc lacks node {}, which /sys has", node.id));
            }
            topology.nodes.push(Node { id: node.id, near_cpus: cpus.clone(), cpus, memory_bytes });
            continue;
        };
        match (seen.memory_bytes, node.memory_bytes) {
            (None, told) => seen.memory_bytes = told,
            (Some(hwloc), Some(told)) if hwloc != told => {
                incomplete(format!("node {} has {} bytes for hwloc, {} for /sys", node.id, hwloc.0, told.0));
            }
            _ => {}
        }
        if let Some(cpus) = cpus {
            seen.cpus = cpus;
        }
    }
    topology.nodes.sort_by_key(|node| node.id);
    let told_ids: NodeSet = told.iter().map(|node| node.id).collect();
    let unknown = topology.nodes.iter().map(|node| node.id).collect::<NodeSet>().difference(&told_ids);
    if !unknown.is_empty() {
        incomplete(format!("/sys lacks node {unknown}, which hwloc has"));
    }

    for node in &topology.nodes {
        for cpu in node.cpus.iter() {
            if let Ok(index) = topology.pus.binary_search_by_key(&cpu, |pu| pu.id) {
                topology.pus[index].node = Some(node.id);
            }
        }
    }
    if let Some(distances) = matrix(&told) {
        topology.distances = Some(distances);
    }

    // On some guests a node tells less memory than the machine has.
    let nodes: Option<u64> = topology.nodes.iter().map(|node| node.memory_bytes.map(|bytes| bytes.0)).sum();
    let total = text(root.join("proc/meminfo")).and_then(|text| meminfo(&text, "MemTotal"));
    if let (Some(nodes), Some(Bytes(total))) = (nodes, total)
        && nodes.abs_diff(total) > total / 10
    {
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let (nodes, total) = (gb(nodes), gb(total));
        incomplete(format!("the nodes hold {nodes:.1} GB together, /proc/meminfo says {total:.1} GB"));
    }
    caveats
}

/// The nodes that are online. Numbers may have holes.
fn read(root: &Path) -> Vec<Told> {
    let base = root.join("sys/devices/system/node");
    let listed = |name: &str| text(base.join(name)).and_then(|list| list.parse::<NodeSet>().ok());
    let ids = listed("online").or_else(|| listed("possible")).unwrap_or_default();
    let has_memory = listed("has_memory");
    let node = |id: NodeId| {
        let dir = base.join(format!("node{id}"));
        let cpus = text(dir.join("cpulist")).and_then(|list| list.parse().ok());
        let total = text(dir.join("meminfo")).and_then(|text| meminfo(&text, "MemTotal"));
        let without = has_memory.as_ref().is_some_and(|nodes| !nodes.contains(id));
        dir.is_dir().then(|| Told {
            id,
            cpus: cpus.or_else(|| text(dir.join("cpumap")).and_then(|mask| cpu_mask(&mask))),
            memory_bytes: total.or(without.then_some(Bytes(0))),
            distances: text(dir.join("distance"))
                .and_then(|row| row.split_whitespace().map(|distance| distance.parse().ok()).collect()),
        })
    };
    ids.iter().filter_map(node).collect()
}

/// The matrix of all nodes, when each of them has a whole row.
fn matrix(told: &[Told]) -> Option<Distances> {
    let whole = |node: &Told| node.distances.clone().filter(|row| row.len() == told.len());
    let rows = told.iter().map(whole).collect::<Option<Vec<_>>>()?;
    Some(Distances { nodes: told.iter().map(|node| node.id).collect(), rows })
}

/// The value of a line `Name: 123 kB`, in /proc/meminfo or a node's.
pub(super) fn meminfo(text: &str, name: &str) -> Option<Bytes> {
    let value = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.split_whitespace().next_back()? == name).then_some(())?;
        let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
        kib.checked_mul(1024).map(Bytes)
    };
    text.lines().find_map(value)
}

/// The kernel's mask form: 32 bits a word, the highest first.
fn cpu_mask(text: &str) -> Option<CpuSet> {
    let mut cpus = CpuSet::default();
    for (position, word) in text.trim().rsplit(',').enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        let base = u32::try_from(position).ok()?.checked_mul(32)?;
        (0..32).filter(|bit| word >> bit & 1 == 1).for_each(|bit| cpus.insert(CpuId(base + bit)));
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::environment::tests::Tree;
    use crate::machine::topology;

    #[test]
    fn nodes_that_hwloc_lacks_are_added() {
        let tree = Tree::new("sysfs-nodes");
        for (path, text) in [
            ("online", "0,2-3"),
            ("has_memory", "0,3"),
            ("node0/cpulist", "0-3"),
            ("node0/meminfo", "Node 0 MemTotal: 1048576 kB\nNode 0 MemFree: 1 kB"),
            ("node0/distance", "10 20 30"),
            ("node2/cpulist", "4-7"),
            ("node2/meminfo", "Node 2 MemTotal: 0 kB"),
            ("node2/distance", "20 10 30"),
            ("node3/cpulist", ""),
            ("node3/meminfo", "Node 3 MemTotal: 2048 kB"),
            ("node3/distance", "30 30 10"),
        ] {
            tree.write(&format!("sys/devices/system/node/{path}"), text);
        }
        let mut topology = topology::synthetic("pack:1 [numa(memory=1073741824)] core:8 pu:1").unwrap();
        let caveats = complete(&mut topology, &tree.root);
        assert_eq!(caveats, [Caveat::TopologyIncomplete { detail: "hwloc lacks node 3, which /sys has".to_string() }]);
        let ids: Vec<u32> = topology.nodes.iter().map(|node| node.id.0).collect();
        assert_eq!(ids, [0, 2, 3]);
        assert_eq!(topology.memory_nodes().to_string(), "0,3");
        assert_eq!(topology.nodes[2].cpus.len(), 0);
        assert_eq!(topology.pu(CpuId(5)).unwrap().node, Some(NodeId(2)));
        assert_eq!(topology.distances.unwrap().rows[1], [20, 10, 30]);
    }

    #[test]
    fn a_system_without_nodes_keeps_what_hwloc_says() {
        let tree = Tree::new("sysfs-none");
        let mut topology = topology::synthetic("core:2 pu:2").unwrap();
        let before = topology.clone();
        assert_eq!(complete(&mut topology, &tree.root).len(), 1);
        assert_eq!(topology, before);
    }

    #[test]
    fn masks_and_sizes_are_read() {
        assert_eq!(cpu_mask("00000001,80000003").unwrap().to_string(), "0-1,31-32");
        assert_eq!(cpu_mask("xyz"), None);
        assert_eq!(meminfo("MemTotal: 4 kB\nMemAvailable:  2 kB", "MemAvailable"), Some(Bytes(2048)));
        assert_eq!(meminfo("Node 0 MemTotal: junk", "MemTotal"), None);
    }
}
