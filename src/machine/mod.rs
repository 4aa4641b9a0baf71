//! What this computer is: the only module that probes it.
//!
//! [`Machine`] is plain data. `plan` reads it and never asks the system again; `record` writes it down.

mod cgroup;
mod counters;
mod cpu;
mod environment;
mod library;
mod lock;
mod openmp;
mod sysfs;
mod topology;

pub use counters::{Counters, ThreadCounters};
pub use cpu::{Cpu, Extension, Isa, IsaSet, MonitorWait};
pub use environment::{Dimms, Environment};
pub use library::Library;
pub use lock::RunLock;
pub use openmp::OpenMp;
pub use topology::{Cache, Core, Distances, Group, Node, Pu, Topology};

use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::units::{Bytes, CpuId, CpuSet, NodeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Everything that a plan needs to know about a computer.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where these facts come from. Only [`Source::ThisSystem`] may be measured.
    pub source: Source,
    /// Packages, nodes, caches, cores.
    pub topology: Topology,
    /// The processor of *this* computer, whatever the topology's source.
    pub cpu: Cpu,
    /// Limits and settings of the operating system.
    pub environment: Environment,
    /// CPUs that this process may use (affinity mask at start, cgroup cpuset), or all of a foreign topology.
    pub allowed_cpus: CpuSet,
    /// Memory nodes that this process may use.
    pub allowed_nodes: NodeSet,
    /// What is wrong or unknown about these facts.
    pub caveats: Vec<Caveat>,
}

/// Where a topology comes from: `--topology` in all its forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The running system.
    ThisSystem,
    /// An hwloc XML file (`lstopo out.xml`).
    Xml(PathBuf),
    /// An hwloc synthetic description, `synthetic:"pack:2 numa:3 …"`.
    Synthetic(String),
    /// A recorded file-system tree that holds `sys/` and `proc/`, `sysfs:DIR`.
    Sysfs(PathBuf),
    /// The machine of a record with last-level caches as its latencies show them, `measured:RECORD`.
    Measured(PathBuf),
}

impl Machine {
    /// Probes the running system. The affinity mask is read once in the life of the process: call this before anything
    /// pins a thread.
    ///
    /// # Errors
    /// When hwloc cannot read the topology at all, or describes another system.
    pub fn this_system() -> Result<Machine> {
        let root = Path::new("/");
        // Before hwloc: where the system refuses to tell, hwloc asks again for ever.
        let mask = affinity();
        if mask.is_none() {
            return Err(Error::refused(
                "ask which CPUs this process may use",
                "the system does not tell (sched_getaffinity)",
                "allow that call in this sandbox",
            ));
        }
        let (mut topology, permitted) = topology::this_system()?;
        let mut caveats = sysfs::complete(&mut topology, root);
        let known = topology.cpus();
        if let Some(missing) = mask.as_ref().map(|mask| mask.difference(&known)).filter(|missing| !missing.is_empty()) {
            let detail = format!("this process may use CPUs {missing}, which hwloc does not know");
            caveats.push(Caveat::TopologyIncomplete { detail });
        }
        let allowed_cpus =
            mask.map_or_else(|| known.clone(), |mask| mask.intersection(&known)).intersection(&permitted);
        if allowed_cpus.is_empty() {
            return Err(Error::refused(
                "find a CPU to measure on",
                "the affinity mask and the topology have none in common",
                "start it with `taskset -c` and a CPU that is online",
            ));
        }
        let nodes: NodeSet = topology.nodes.iter().map(|node| node.id).collect();
        let allowed_nodes =
            environment::allowed_nodes(root).map_or_else(|| nodes.clone(), |list| list.intersection(&nodes));
        let environment = Environment { openmp: OpenMp::installed(), ..Environment::read(root) };
        let cpu = Cpu::detect();
        caveats.extend(cpu.hypervisor.clone().map(|hypervisor| Caveat::Virtualised { hypervisor }));
        let line_bytes = cpu.line_bytes;
        let source = Source::ThisSystem;
        Ok(Machine { source, topology, cpu, environment, allowed_cpus, allowed_nodes, caveats }.with_doubts(line_bytes))
    }

    /// Reads a topology for planning: `FILE.xml`, `synthetic:…` or `sysfs:DIR`. All its CPUs count as allowed, and
    /// nothing of the local limits counts. (`sysfs:` needs a process without other threads.)
    ///
    /// # Errors
    /// A usage error when `source` is none of these or hwloc refuses it.
    pub fn from_source(source: &str) -> Result<Machine> {
        let mut caveats = Vec::new();
        let (source, topology) = match Source::parse(source)? {
            Source::ThisSystem => return Machine::this_system(),
            // Records come after machines in the order of modules.
            Source::Measured(record) => {
                return Err(Error::usage(
                    format!("read the topology measured:{}", record.display()),
                    "groups come from a record's latencies, which are not read here",
                    "give it to --topology",
                ));
            }
            Source::Xml(path) => {
                let topology = topology::xml_file(&path)?;
                (Source::Xml(path), topology)
            }
            Source::Synthetic(description) => {
                let topology = topology::synthetic(&description)?;
                (Source::Synthetic(description), topology)
            }
            Source::Sysfs(dir) => {
                let mut topology = topology::sysfs_tree(&dir)?;
                caveats = sysfs::complete(&mut topology, &dir);
                (Source::Sysfs(dir), topology)
            }
        };
        let line_bytes = topology.caches.iter().filter_map(|cache| cache.line_bytes).max();
        let machine = Machine {
            source,
            allowed_cpus: topology.cpus(),
            allowed_nodes: topology.nodes.iter().map(|node| node.id).collect(),
            topology,
            cpu: Cpu::detect(),
            environment: Environment::default(),
            caveats,
        };
        Ok(machine.with_doubts(line_bytes))
    }

    /// The machine of a record, for planning: its topology, already regrouped, and what its process was allowed. `record` is
    /// where it lies. Local limits do not count.
    pub fn measured(
        record: PathBuf,
        topology: Topology,
        allowed_cpus: CpuSet,
        allowed_nodes: NodeSet,
        caveats: Vec<Caveat>,
    ) -> Machine {
        let line_bytes = topology.caches.iter().filter_map(|cache| cache.line_bytes).max();
        let (source, cpu, environment) = (Source::Measured(record), Cpu::detect(), Environment::default());
        Machine { source, topology, cpu, environment, allowed_cpus, allowed_nodes, caveats }.with_doubts(line_bytes)
    }

    /// Adds the caveats that apply to any source.
    fn with_doubts(mut self, line_bytes: Option<u32>) -> Machine {
        /// What shared words are padded to (crossbeam's CachePadded).
        const PADDING_BYTES: u32 = 128;
        if self.usable_memory().is_none() {
            self.caveats.push(Caveat::MemorySizeUnknown);
        }
        if let Some(line_bytes) = line_bytes.filter(|bytes| *bytes > PADDING_BYTES) {
            self.caveats.push(Caveat::LineLongerThanPadding { line_bytes });
        }
        self
    }

    /// Bytes that a run may allocate on these nodes. Nodes that hold only a part of the memory bound it by their sizes;
    /// all of them together do not, since some guests report nodes smaller than the memory that they have.
    pub fn usable_memory_on(&self, nodes: &NodeSet) -> Option<Bytes> {
        let usable = self.usable_memory();
        if nodes.is_empty() || self.topology.memory_nodes().difference(nodes).is_empty() {
            return usable;
        }
        let sizes = nodes.iter().map(|id| self.topology.node(id)?.memory_bytes.map(|bytes| bytes.0));
        let sum = sizes.sum::<Option<u64>>().map(|bytes| Bytes(bytes.saturating_sub(reserve(bytes))));
        sum.into_iter().chain(usable).min()
    }

    /// Whether measurements on these facts mean anything. hwloc's binding calls succeed as no-ops on a foreign topology.
    pub fn is_this_system(&self) -> bool {
        self.source == Source::ThisSystem
    }

    /// Bytes that a run may allocate: the smaller of what the system has available and what the cgroup leaves,
    /// less a reserve for everybody else. `None` when neither is known.
    /// For a foreign topology it is the memory of its nodes, less the reserve.
    pub fn usable_memory(&self) -> Option<Bytes> {
        let bytes = if self.is_this_system() {
            let environment = &self.environment;
            let used = environment.memory_used_bytes.unwrap_or_default();
            let left = environment.memory_limit_bytes.map(|limit| limit.0.saturating_sub(used.0));
            let available = environment.memory_available_bytes.map(|bytes| bytes.0);
            let threads = self.allowed_cpus.len() as u64 * THREAD_ADDRESSES;
            let address_space = environment.address_space_limit_bytes.map(|bytes| bytes.0.saturating_sub(threads));
            left.into_iter().chain(available).chain(address_space).min()?
        } else {
            let sizes = self.topology.nodes.iter().map(|node| node.memory_bytes.map(|bytes| bytes.0));
            sizes.sum::<Option<u64>>().filter(|bytes| *bytes > 0)?
        };
        Some(Bytes(bytes.saturating_sub(reserve(bytes))))
    }
}

/// Addresses that a thread takes: its stack (2 MiB) and the arena that glibc's malloc reserves for it (64 MiB).
const THREAD_ADDRESSES: u64 = 66 << 20;

/// What a run leaves of this much memory, a guess: 5 %, but 256 MiB of more than 1 GiB and a quarter of less. Room for the
/// page tables and for what else runs.
fn reserve(bytes: u64) -> u64 {
    const LEAST: u64 = 256 << 20;
    LEAST.min(bytes / 4).max(bytes / 20)
}

impl Source {
    fn parse(text: &str) -> Result<Source> {
        if let Some(description) = text.strip_prefix("synthetic:") {
            return Ok(Source::Synthetic(description.trim_matches(['"', '\'', ' ']).to_string()));
        }
        if let Some(dir) = text.strip_prefix("sysfs:") {
            return Ok(Source::Sysfs(PathBuf::from(dir)));
        }
        if let Some(record) = text.strip_prefix("measured:") {
            return Ok(Source::Measured(PathBuf::from(record)));
        }
        if let Some(path) = text.strip_prefix("xml:") {
            return Ok(Source::Xml(PathBuf::from(path)));
        }
        // A word and a colon look like a scheme; a file of such a name can be written xml:FILE.
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        if text.is_empty() || scheme.is_some_and(|word| word.chars().all(|c| c.is_ascii_alphanumeric())) {
            return Err(Error::usage(
                format!("read the topology '{text}'"),
                "it is in no form that is known",
                "write FILE.xml, xml:FILE, synthetic:\"pack:2 numa:3 l3:1 core:8 pu:2\", sysfs:DIR or measured:RECORD",
            ));
        }
        Ok(Source::Xml(PathBuf::from(text)))
    }
}

/// CPUs that this process was allowed at its start; `None` when the system does not tell.
fn affinity() -> Option<CpuSet> {
    static AT_START: OnceLock<Option<CpuSet>> = OnceLock::new();
    AT_START
        .get_or_init(|| {
            // core_affinity asks for 1,024 CPUs, which kernels made for more refuse.
            let cores = core_affinity::get_core_ids().filter(|cores| !cores.is_empty());
            let cpus =
                cores.map(|cores| cores.iter().filter_map(|core| u32::try_from(core.id).ok()).map(CpuId).collect());
            cpus.or_else(thread_affinity)
        })
        .clone()
}

/// The name of this host; `unknown` where the system does not tell.
pub fn host_name() -> String {
    sysfs::text("/proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".to_owned())
}

/// CPUs on which the calling thread may run now; empty when the system does not tell.
pub fn current_affinity() -> CpuSet {
    thread_affinity().unwrap_or_default()
}

/// The calling thread's mask. It grows until the kernel takes it, since a `cpu_set_t` ends at 1,024 CPUs.
fn thread_affinity() -> Option<CpuSet> {
    const WORD_BITS: u32 = libc::c_ulong::BITS;
    let mut words = 1024 / WORD_BITS;
    while words * WORD_BITS <= CpuSet::NUMBER_LIMIT {
        let mut mask: Vec<libc::c_ulong> = vec![0; words as usize];
        // SAFETY: the pointer and the length describe `mask`, which the kernel fills no further.
        let status = unsafe { libc::sched_getaffinity(0, std::mem::size_of_val(&mask[..]), mask.as_mut_ptr().cast()) };
        if status == 0 {
            let set = |number: &u32| mask[(number / WORD_BITS) as usize] >> (number % WORD_BITS) & 1 == 1;
            return Some((0..words * WORD_BITS).filter(set).map(CpuId).collect());
        }
        words *= 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_the_affinity_mask_agree() {
        if let (Some(one), Some(other)) = (affinity(), thread_affinity()) {
            assert_eq!(one, other);
        }
    }

    #[test]
    fn usable_memory_is_the_smallest_number_less_a_reserve() {
        let mut machine = Machine::from_source("synthetic:\"numa:2(memory=10000000000) core:2 pu:1\"").unwrap();
        assert_eq!(machine.usable_memory(), Some(Bytes(19_000_000_000)));
        machine.environment.memory_available_bytes = Some(Bytes(1 << 30));
        assert_eq!(machine.usable_memory(), Some(Bytes(19_000_000_000)), "the local environment does not count");
        machine.source = Source::ThisSystem;
        assert_eq!(machine.usable_memory(), Some(Bytes(768 << 20)));
        machine.environment.memory_limit_bytes = Some(Bytes(512 << 20));
        machine.environment.memory_used_bytes = Some(Bytes(64 << 20));
        assert_eq!(machine.usable_memory(), Some(Bytes(336 << 20)));
        machine.environment.memory_limit_bytes = Some(Bytes(1 << 20));
        assert_eq!(machine.usable_memory(), Some(Bytes(0)));
        machine.environment.memory_limit_bytes = None;
        // Four threads take 264 MiB of addresses.
        machine.environment.address_space_limit_bytes = Some(Bytes(664 << 20));
        assert_eq!(machine.usable_memory(), Some(Bytes(300 << 20)));
        machine.environment = Environment::default();
        assert_eq!(machine.usable_memory(), None);
    }

    #[test]
    fn a_part_of_the_nodes_bounds_memory_by_its_size() {
        let machine = Machine::from_source("synthetic:\"numa:2(memory=10000000000) core:2 pu:1\"").unwrap();
        let on = |nodes: &str| machine.usable_memory_on(&nodes.parse().unwrap());
        assert_eq!(on("1"), Some(Bytes(9_500_000_000)));
        assert_eq!(on("0-1"), Some(Bytes(19_000_000_000)));
        assert_eq!(on(""), machine.usable_memory());
    }

    #[test]
    fn this_system_is_read() {
        let machine = Machine::this_system().unwrap();
        assert!(machine.is_this_system());
        assert!(!machine.allowed_cpus.is_empty());
        assert!(machine.allowed_cpus.iter().all(|cpu| machine.topology.pu(cpu).is_some()));
    }
}
