//! Packages, NUMA nodes, caches and cores as plain types, read through hwloc.

use crate::error::{Error, Result};
use crate::units::{Bytes, CpuId, CpuSet, Id, IdSet, NodeId, NodeSet};
use hwlocality::Topology as Hwloc;
use hwlocality::bitmap::BitmapIndex;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

/// The shape of a machine. All sets hold operating-system numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// Sockets.
    pub packages: Vec<Group>,
    /// Dies inside packages; empty when the system reports none.
    pub dies: Vec<Group>,
    /// NUMA nodes, also those without CPUs (HBM, CXL) and those without memory.
    pub nodes: Vec<Node>,
    /// Data and unified caches of level 2 and up, one entry for each cache.
    pub caches: Vec<Cache>,
    /// Physical cores.
    pub cores: Vec<Core>,
    /// Logical CPUs in ascending order, each with its place.
    pub pus: Vec<Pu>,
    /// Relative node distances as the firmware states them (local = 10).
    pub distances: Option<Distances>,
}

/// A numbered set of CPUs: a package or a die.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The operating system's number, or the position where it has none.
    pub id: u32,
    /// Its logical CPUs.
    pub cpus: CpuSet,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The kernel's number.
    pub id: NodeId,
    /// Its CPUs; empty for HBM, CXL and other memory-only nodes.
    pub cpus: CpuSet,
    /// CPUs that hwloc places this node next to: its own ones, or the nearest ones of a memory-only node.
    pub near_cpus: CpuSet,
    /// Its memory; `None` when unknown, `Some(0)` for a node that has none.
    pub memory_bytes: Option<Bytes>,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 2, 3 or 4.
    pub level: u8,
    /// Its capacity; `None` when the system does not say.
    pub bytes: Option<Bytes>,
    /// Line length in bytes, where known.
    pub line_bytes: Option<u32>,
    /// The CPUs that share it.
    pub cpus: CpuSet,
}

/// One physical core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Its hardware threads, first the one that comes first in the core.
    pub cpus: Vec<CpuId>,
    /// Efficiency rank on hybrid processors, higher is faster; `None` when all cores are of one kind.
    pub kind: Option<u32>,
    /// Capacity of its first-level data cache; `None` when the system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_level_bytes: Option<Bytes>,
}

/// One logical CPU and where it sits. Indices point into the vectors of [`Topology`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pu {
    /// The kernel's number.
    pub id: CpuId,
    /// Index into [`Topology::cores`].
    pub core: u32,
    /// 0 for the first hardware thread of its core, 1 for the second …
    pub smt: u32,
    /// Index into [`Topology::caches`] of its last-level cache (the highest level that covers it).
    pub last_level_cache: Option<u32>,
    /// Its NUMA node.
    pub node: Option<NodeId>,
    /// Its package: [`Group::id`].
    pub package: Option<u32>,
}

/// A square matrix of relative distances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distances {
    /// The nodes that rows and columns stand for.
    pub nodes: Vec<NodeId>,
    /// `rows[from][to]`, as the firmware states it.
    pub rows: Vec<Vec<u64>>,
}

impl Topology {
    /// The place of a CPU, if the machine has it.
    pub fn pu(&self, cpu: CpuId) -> Option<&Pu> {
        self.pus.binary_search_by_key(&cpu, |pu| pu.id).ok().map(|index| &self.pus[index])
    }

    /// The NUMA node with this number.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Nodes that can hold pages: those whose memory is unknown or above zero.
    pub fn memory_nodes(&self) -> NodeSet {
        self.nodes.iter().filter(|node| node.memory_bytes != Some(Bytes(0))).map(|node| node.id).collect()
    }

    /// The distinct last-level caches of these CPUs.
    pub fn last_level_caches(&self, cpus: &CpuSet) -> Vec<&Cache> {
        let indices: std::collections::BTreeSet<u32> =
            cpus.iter().filter_map(|cpu| self.pu(cpu)?.last_level_cache).collect();
        indices.into_iter().filter_map(|index| self.caches.get(index as usize)).collect()
    }

    /// The data and unified caches of one CPU as the system reports them: level and capacity, ascending.
    pub fn caches_of(&self, cpu: CpuId) -> Vec<(u8, Bytes)> {
        let core = self.pu(cpu).and_then(|pu| self.cores.get(pu.core as usize));
        let first = core.and_then(|core| core.first_level_bytes).map(|bytes| (1, bytes));
        let others = self.caches.iter().filter(|cache| cache.cpus.contains(cpu));
        let mut caches: Vec<(u8, Bytes)> =
            first.into_iter().chain(others.filter_map(|cache| Some((cache.level, cache.bytes?)))).collect();
        caches.sort_unstable();
        caches
    }

    /// The sum of the distinct last-level caches of these CPUs; `None` when a CPU has no known cache or a size is unknown.
    pub fn last_level_bytes(&self, cpus: &CpuSet) -> Option<Bytes> {
        if cpus.iter().any(|cpu| self.pu(cpu).is_none_or(|pu| pu.last_level_cache.is_none())) {
            return None;
        }
        self.last_level_caches(cpus)
            .iter()
            .map(|cache| cache.bytes.map(|bytes| bytes.0))
            .try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
            .map(Bytes)
    }

    /// Puts other last-level caches in place of these ones, each a set of CPUs and its size; caches below stay. A level-2
    /// cache that was the last one is no longer.
    pub fn replace_last_level(&mut self, groups: &[(CpuSet, Option<Bytes>)]) {
        let mut last: Vec<u32> = self.pus.iter().filter_map(|pu| pu.last_level_cache).collect();
        last.sort_unstable();
        last.dedup();
        let first = last.first().and_then(|index| self.caches.get(*index as usize));
        let (level, line_bytes) =
            (first.map_or(3, |cache| cache.level.max(3)), first.and_then(|cache| cache.line_bytes));
        let mut index = 0;
        self.caches.retain(|cache| {
            index += 1;
            cache.level < level || last.binary_search(&(index - 1)).is_err()
        });
        self.pus.iter_mut().for_each(|pu| pu.last_level_cache = None);
        for (cpus, bytes) in groups {
            let here = u32::try_from(self.caches.len()).ok();
            self.caches.push(Cache { level, bytes: *bytes, line_bytes, cpus: cpus.clone() });
            self.pus.iter_mut().filter(|pu| cpus.contains(pu.id)).for_each(|pu| pu.last_level_cache = here);
        }
    }

    /// These CPUs with one hardware thread a core first (in topology order), then the second ones, and so on:
    /// the order in which a thread sweep takes CPUs.
    pub fn cores_first(&self, cpus: &CpuSet) -> Vec<CpuId> {
        let mut order: Vec<(u32, usize, CpuId)> = Vec::new();
        for (position, core) in self.cores.iter().enumerate() {
            let members = core.cpus.iter().filter(|cpu| cpus.contains(**cpu));
            order.extend(members.enumerate().map(|(rank, cpu)| (rank as u32, position, *cpu)));
        }
        order.sort_unstable();
        order.into_iter().map(|(_, _, cpu)| cpu).collect()
    }
}

/// What a topology file or description is called in errors, and what may be written instead.
fn unreadable(what: &str, reason: impl std::fmt::Display, advice: &str) -> Error {
    Error::usage(format!("read the topology of {what}"), reason, advice)
}

/// The running system with the CPUs and nodes that this process may not use, and which ones hwloc counts as allowed.
pub(super) fn this_system() -> Result<(Topology, CpuSet)> {
    let refused = |reason: &dyn std::fmt::Display, advice: &str| {
        Error::refused("read the topology of this system", reason, advice.to_string())
    };
    // hwloc obeys these behind our back, and HWLOC_THISSYSTEM=1 even makes the result look local.
    const OVERRIDES: [&str; 3] = ["HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT"];
    if let Some(name) = OVERRIDES.iter().find(|name| std::env::var_os(name).is_some()) {
        return Err(refused(&format!("{name} names another topology"), "unset it, or plan with --topology"));
    }
    let builder = TopologyBuilder::new()
        .with_flags(BuildFlags::INCLUDE_DISALLOWED)
        .map_err(|error| refused(&error, "install hwloc 2.8 or later"))?;
    let built = if nodes_are_readable(Path::new("/")) {
        builder.build()
    } else {
        // Without that component hwloc asks the processor itself.
        with_environment("this system", &[("HWLOC_COMPONENTS", OsStr::new("-linux"))], || builder.build())?
    };
    let hwloc = built.map_err(|error| refused(&error, "check that /sys and /proc are mounted"))?;
    if !hwloc.is_this_system() {
        return Err(refused(&"hwloc describes another one", "unset the HWLOC_ variables of the environment"));
    }
    Ok((Topology::from_hwloc(&hwloc), ids(hwloc.allowed_cpuset().iter_set())))
}

/// An hwloc XML file.
pub(super) fn xml_file(path: &Path) -> Result<Topology> {
    const ADVICE: &str = "name an hwloc 2 XML file, as `lstopo out.xml` writes it";
    /// The largest file that is read, a guess: the 2,048 CPUs of a test topology take 2 MB.
    const SIZE_LIMIT: u64 = 256 << 20;
    let what = path.display().to_string();
    let wrong = |reason: &dyn std::fmt::Display| unreadable(&what, reason, ADVICE);

    let metadata = std::fs::metadata(path).map_err(|error| wrong(&error))?;
    if metadata.is_dir() {
        return Err(unreadable(&what, "it is a directory", "name an XML file, or write sysfs:DIR for a recorded tree"));
    }
    if !metadata.is_file() || metadata.len() > SIZE_LIMIT {
        return Err(wrong(&"it is no ordinary file of at most 256 MiB"));
    }
    let text = std::fs::read(path).map_err(|error| wrong(&error))?;
    let text = String::from_utf8(text).map_err(|_| wrong(&"it is not text"))?;
    if !text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
        return Err(wrong(&"it is not XML"));
    }
    // Up to hwloc 1.0 the outermost element was called root.
    let Some(start) = text.find("<topology").or_else(|| text.find("<root")) else {
        return Err(wrong(&"its XML is not hwloc's"));
    };
    let element = text[start..].split('>').next().unwrap_or_default();
    let version = element.split_once("version=\"").and_then(|(_, rest)| rest.split('"').next());
    if let Some(version) = version.filter(|version| !version.starts_with(['1', '2'])) {
        let reason = format!("it is in hwloc's format {version}, and formats 1 and 2 are understood");
        return Err(unreadable(&what, reason, "write it with `lstopo --export-xml-flags v2 out.xml`"));
    }
    let builder = TopologyBuilder::new().from_xml(&text).map_err(|_| wrong(&"hwloc finds no topology in its XML"))?;
    let hwloc = builder.build().map_err(|_| wrong(&"hwloc finds no complete topology in its XML"))?;
    Ok(Topology::from_hwloc(&hwloc))
}

/// An hwloc synthetic description such as `pack:2 numa:3 l3:1 core:8 pu:2`.
pub(super) fn synthetic(description: &str) -> Result<Topology> {
    const ADVICE: &str = "describe it as in synthetic:\"pack:2 numa:3 l3:1 core:8 pu:2\"";
    /// hwloc would build whatever is asked for; Linux allows 8,192 CPUs.
    const CPU_LIMIT: u64 = 1 << 13;
    let what = format!("synthetic:\"{description}\"");
    if description.is_empty() {
        return Err(unreadable(&what, "the description is empty", ADVICE));
    }
    if synthetic_cpus(description) > CPU_LIMIT {
        return Err(unreadable(&what, format!("it has more than {CPU_LIMIT} CPUs"), "describe a smaller machine"));
    }
    let builder = TopologyBuilder::new()
        .from_synthetic(description)
        .map_err(|_| unreadable(&what, "hwloc refuses it", ADVICE))?;
    let hwloc = builder.build().map_err(|error| unreadable(&what, error, ADVICE))?;
    Ok(Topology::from_hwloc(&hwloc))
}

/// The product of the counts of a synthetic description, attributes in brackets left out.
fn synthetic_cpus(description: &str) -> u64 {
    let mut depth = 0;
    let bare: String = description
        .chars()
        .filter(|c| {
            depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
            depth == 0 && !matches!(c, ')' | ']')
        })
        .collect();
    let counts = bare.split_whitespace().filter_map(|level| level.rsplit(':').next()?.parse::<u64>().ok());
    counts.fold(1, u64::saturating_mul)
}

/// A recorded tree that holds `sys/` and `proc/`.
pub(super) fn sysfs_tree(dir: &Path) -> Result<Topology> {
    let what = format!("sysfs:{}", dir.display());
    if !dir.join("sys/devices/system/cpu").is_dir() {
        let reason = "it has no directory sys/devices/system/cpu";
        return Err(unreadable(&what, reason, "name the directory that holds the recorded sys and proc"));
    }
    if !nodes_are_readable(dir) {
        let reason = "its directory sys/devices/system/node has no nodes";
        return Err(unreadable(&what, reason, "remove that directory, or record the tree again"));
    }
    let wanted = [("HWLOC_FSROOT", dir.as_os_str()), ("HWLOC_COMPONENTS", OsStr::new("linux,stop"))];
    let hwloc = with_environment(&what, &wanted, || TopologyBuilder::new().build())?
        .map_err(|error| unreadable(&what, error, "record the tree again with hwloc-gather-topology"))?;
    Ok(Topology::from_hwloc(&hwloc))
}

/// Runs `load` while the environment holds these variables, through which alone hwloc can be told some things. They are
/// left alone when they say so already.
fn with_environment<T>(what: &str, wanted: &[(&str, &OsStr)], load: impl FnOnce() -> T) -> Result<T> {
    if wanted.iter().all(|(name, value)| std::env::var_os(name).as_deref() == Some(*value)) {
        return Ok(load());
    }
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count).ok();
    if threads != Some(1) {
        let wanted: Vec<String> =
            wanted.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy())).collect();
        return Err(Error::refused(
            format!("read the topology of {what}"),
            "other threads run in this process, and hwloc takes this from the environment",
            format!("set {} before starting", wanted.join(" ")),
        ));
    }
    let before: Vec<_> = wanted.iter().map(|(name, _)| std::env::var_os(name)).collect();
    for (name, value) in wanted {
        // SAFETY: nobody else can read the environment meanwhile: /proc/self/task was just seen to hold one thread.
        unsafe { std::env::set_var(name, value) };
    }
    let loaded = load();
    for ((name, _), value) in wanted.iter().zip(before) {
        // SAFETY: as above; `load` only lets hwloc read files, which starts no thread.
        unsafe {
            match value {
                Some(value) => std::env::set_var(name, value),
                None => std::env::remove_var(name),
            }
        }
    }
    Ok(loaded)
}

/// Whether hwloc's Linux component can read the nodes below `root`: it aborts the process on a directory without any.
fn nodes_are_readable(root: &Path) -> bool {
    let Ok(mut entries) = std::fs::read_dir(root.join("sys/devices/system/node")) else { return true };
    entries.any(|entry| {
        let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// The numbers in one of hwloc's bitmaps, which may be infinite.
fn ids<T: Id>(members: impl Iterator<Item = BitmapIndex>) -> IdSet<T> {
    let numbers = members.map_while(|index| u32::try_from(usize::from(index)).ok());
    numbers.take_while(|number| *number < IdSet::<T>::NUMBER_LIMIT).map(T::from_number).collect()
}

fn cpus_of(object: &TopologyObject) -> CpuSet {
    object.cpuset().map(|set| ids(set.iter_set())).unwrap_or_default()
}

fn os_number(object: &TopologyObject) -> Option<u32> {
    object.os_index().and_then(|index| u32::try_from(index).ok()).filter(|number| *number < CpuSet::NUMBER_LIMIT)
}

impl Topology {
    fn from_hwloc(hwloc: &Hwloc) -> Topology {
        let caches = caches(hwloc);
        let nodes = nodes(hwloc);
        let packages = groups(hwloc, ObjectType::Package);
        let mut kinds: Vec<(u32, CpuSet)> = Vec::new();
        for kind in hwloc.cpu_kinds().into_iter().flatten() {
            let rank = kind.efficiency.and_then(|rank| u32::try_from(rank).ok());
            kinds.extend(rank.map(|rank| (rank, ids(kind.cpuset.iter_set()))));
        }

        let mut topology =
            Topology { packages, dies: groups(hwloc, ObjectType::Die), nodes, caches, ..Topology::default() };
        let package_of = members(topology.packages.iter().map(|package| (package.id, &package.cpus)));
        // Ascending level: the last one to name a CPU is its last-level cache.
        let cache_of = members(topology.caches.iter().zip(0..).map(|(cache, index)| (index, &cache.cpus)));
        let node_of = members(topology.nodes.iter().map(|node| (node.id, &node.cpus)));

        let mut core_index: BTreeMap<u64, usize> = BTreeMap::new();
        for object in hwloc.objects_with_type(ObjectType::PU) {
            let Some(id) = os_number(object).map(CpuId) else { continue };
            // Some guests report no cores: then each CPU is its own.
            let owner = object.first_ancestor_with_type(ObjectType::Core).unwrap_or(object);
            let core = *core_index.entry(owner.global_persistent_index()).or_insert(topology.cores.len());
            if core == topology.cores.len() {
                let kind = kinds.iter().find(|(_, cpus)| cpus.contains(id)).map(|(rank, _)| *rank);
                let first_level_bytes = first_level_bytes(object);
                topology.cores.push(Core { cpus: Vec::new(), kind, first_level_bytes });
            }
            let threads = &mut topology.cores[core].cpus;
            topology.pus.push(Pu {
                id,
                core: core as u32,
                smt: threads.len() as u32,
                last_level_cache: cache_of.get(&id).copied(),
                node: node_of.get(&id).copied(),
                package: package_of.get(&id).copied(),
            });
            threads.push(id);
        }
        topology.pus.sort_unstable_by_key(|pu| pu.id);
        if topology.cores.windows(2).all(|pair| pair[0].kind == pair[1].kind) {
            topology.cores.iter_mut().for_each(|core| core.kind = None);
        }
        topology.distances = distances(hwloc);
        topology
    }

    /// All logical CPUs.
    pub fn cpus(&self) -> CpuSet {
        self.pus.iter().map(|pu| pu.id).collect()
    }
}

/// For each CPU, the last of these sets that holds it.
fn members<'a, T: Copy>(sets: impl Iterator<Item = (T, &'a CpuSet)>) -> BTreeMap<CpuId, T> {
    sets.flat_map(|(value, cpus)| cpus.iter().map(move |cpu| (cpu, value))).collect()
}

fn groups(hwloc: &Hwloc, kind: ObjectType) -> Vec<Group> {
    let objects: Vec<(Option<u32>, CpuSet)> =
        hwloc.objects_with_type(kind).map(|object| (os_number(object), cpus_of(object))).collect();
    // Dies are numbered inside a package, and some firmware numbers nothing: then the position is the number.
    let numbers: std::collections::BTreeSet<u32> = objects.iter().filter_map(|(number, _)| *number).collect();
    let numbered = numbers.len() == objects.len();
    let number = |(position, (number, cpus)): (usize, (Option<u32>, CpuSet))| Group {
        id: number.filter(|_| numbered).unwrap_or(position as u32),
        cpus,
    };
    objects.into_iter().enumerate().map(number).collect()
}

fn caches(hwloc: &Hwloc) -> Vec<Cache> {
    // In hwloc these types are data and unified caches; instruction caches have types of their own.
    let types = [ObjectType::L2Cache, ObjectType::L3Cache, ObjectType::L4Cache, ObjectType::L5Cache];
    let cache = |object: &TopologyObject| {
        let Some(ObjectAttributes::Cache(cache)) = object.attributes() else { return None };
        Some(Cache {
            level: u8::try_from(cache.depth()).ok()?,
            bytes: cache.size().map(|bytes| Bytes(bytes.get())),
            line_bytes: cache.line_size().and_then(|bytes| u32::try_from(bytes.get()).ok()),
            cpus: cpus_of(object),
        })
    };
    let objects = types.into_iter().flat_map(|kind| hwloc.objects_with_type(kind));
    objects.filter_map(cache).filter(|cache| !cache.cpus.is_empty()).collect()
}

/// The data cache closest to a CPU.
fn first_level_bytes(cpu: &TopologyObject) -> Option<Bytes> {
    let object = cpu.first_ancestor_with_type(ObjectType::L1Cache)?;
    let Some(ObjectAttributes::Cache(cache)) = object.attributes() else { return None };
    cache.size().map(|bytes| Bytes(bytes.get()))
}

fn nodes(hwloc: &Hwloc) -> Vec<Node> {
    let mut far: Vec<bool> = Vec::new();
    let mut nodes: Vec<Node> = Vec::new();
    for object in hwloc.objects_with_type(ObjectType::NUMANode) {
        let Some(id) = os_number(object).map(NodeId) else { continue };
        let Some(ObjectAttributes::NUMANode(memory)) = object.attributes() else { continue };
        let memory_bytes = memory.local_memory().map(|bytes| Bytes(bytes.get()));
        far.push(object.subtype().is_some_and(|subtype| subtype != c"DRAM"));
        nodes.push(Node { id, cpus: CpuSet::default(), near_cpus: cpus_of(object), memory_bytes });
    }
    // hwloc does not tell which of several nodes at one place holds the CPUs. The closest one does, ordinary memory
    // before HBM and the like, and firmware numbers the memory-only ones last. (/sys, where there is one, knows better.)
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|&index| (nodes[index].near_cpus.len(), far[index], nodes[index].id));
    let mut taken = CpuSet::default();
    for index in order {
        let own = nodes[index].near_cpus.difference(&taken);
        own.iter().for_each(|cpu| taken.insert(cpu));
        nodes[index].cpus = own;
    }
    nodes.sort_by_key(|node| node.id);
    nodes
}

fn distances(hwloc: &Hwloc) -> Option<Distances> {
    let matrices = hwloc.distances_with_type(None, ObjectType::NUMANode).ok()?;
    // Version 1 of the format had no names. Others of this type are bandwidths.
    let matrix = matrices.iter().find(|matrix| matrix.name().is_none_or(|name| name == c"NUMALatency"))?;
    let nodes: Vec<NodeId> =
        matrix.objects().map(|object| object.and_then(os_number).map(NodeId)).collect::<Option<_>>()?;
    let rows = matrix.distances().chunks(nodes.len().max(1)).map(<[u64]>::to_vec).collect();
    Some(Distances { nodes, rows })
}
