//! Bandwidth: which kernels, on which threads, over arrays of which size.

use super::{Needs, Preset, Scope, ThreadList, cache_sum, standing_caveats};
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Operation, Row, Store};
use crate::machine::{Isa, IsaSet, Machine};
use crate::memory::{Line, Pages, Policy};
use crate::units::{Bytes, CpuId, NodeId, NodeSet};
use serde::{Serialize, Serializer};

/// Arrays are at least this many times the sum of the last-level caches: McCalpin's rule for STREAM.
pub const ARRAY_PER_CACHE: u64 = 4;
/// Arrays are whole multiples of this, so that every thread's part is whole pages also with 2 MiB pages and few threads.
const ARRAY_GRAIN: u64 = 2 << 20;
/// Below this, one pass is over before all threads have left the start line.
const ARRAY_LEAST: u64 = 32 << 20;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Operations; empty means those of STREAM and its company, or all with the full preset, unless rows are named.
    pub operations: Vec<Operation>,
    /// Single rows.
    pub rows: Vec<&'static Row>,
    /// Only this way of storing.
    pub store: Option<Store>,
    /// Only this instruction-set level; otherwise the best usable one.
    pub isa: Option<Isa>,
    /// Bytes of one array.
    pub size: Option<Bytes>,
    /// Page size to ask for.
    pub pages: Option<Pages>,
    /// Where pages go; the default is first touch by the thread that uses them.
    pub placement: Option<PlacementRule>,
    /// Thread counts.
    pub threads: Option<ThreadList>,
    /// Samples that count.
    pub samples: Option<u32>,
    /// How thorough.
    pub preset: Preset,
}

/// `--placement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementRule {
    /// By the thread that uses a page.
    FirstTouch,
    /// On the nodes in scope.
    Bind,
    /// Page by page round the nodes in scope.
    Interleave,
}

/// What will be streamed.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// Rows to measure, in table order.
    #[serde(serialize_with = "row_names")]
    pub kernels: Vec<&'static Row>,
    /// Thread sets, each with arrays of its own.
    pub groups: Vec<Group>,
    /// Samples that count; one more comes first and is dropped.
    pub samples: u32,
    /// A sample repeats its pass until it lasts this long.
    pub sample_least_ns: u64,
    /// Page size to ask for.
    pub pages: Pages,
    /// Rows that cannot run here.
    pub left_out: Vec<LeftOut>,
}

/// One set of threads over one set of arrays.
#[derive(Debug, Serialize)]
pub struct Group {
    /// `machine` or `node N`.
    pub scope: String,
    /// One CPU a thread.
    pub cpus: Vec<CpuId>,
    /// Nodes of these CPUs.
    pub cpu_nodes: NodeSet,
    /// Where pages are asked to lie.
    pub placement: Policy,
    /// Nodes that may hold pages.
    pub memory_nodes: NodeSet,
    /// Where each thread's pages should be found; `None` where several nodes are right or none is known.
    pub expected_nodes: Vec<Option<NodeId>>,
    /// Bytes of one array, all threads together.
    pub array_bytes: Bytes,
    /// The last-level caches that the arrays have to exceed.
    pub cache_bytes: Bytes,
    /// What is known to taint the numbers beforehand.
    pub caveats: Vec<Caveat>,
}

fn row_names<S: Serializer>(rows: &[&'static Row], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(rows.iter().map(|row| row.name))
}

/// Plans the bandwidth measurement.
///
/// # Errors
/// When nothing can run, the thread counts do not fit, or the arrays do not fit into memory.
pub fn plan(machine: &Machine, scope: &Scope, isa: &IsaSet, options: &Options) -> Result<Plan> {
    let (kernels, mut left_out) = choose_kernels(isa, options)?;
    let arrays = kernels.iter().map(|row| row.operation.sources() + row.operation.arrays_written()).max().unwrap_or(1);
    let counts = match &options.threads {
        Some(list) => list.resolve(scope.cpus.len() as u32, scope.cpus.len() as u32)?,
        None => scope.natural_threads(&machine.topology, options.preset == Preset::Quick),
    };

    let mut groups = Vec::new();
    let whole = size_arrays(machine, "machine", scope, arrays, options)?;
    for threads in counts {
        groups.push(group(machine, scope, "machine".into(), scope.compact(threads), &whole, options));
    }
    // Each node by itself, with its own cores and its own memory.
    let nodes: Vec<NodeId> = scope.nodes.iter().collect();
    if nodes.len() > 1 && options.threads.is_none() {
        for node in nodes {
            let name = format!("node {node}");
            // A node without CPUs (HBM, CXL) is read from those next to it.
            let near = machine.topology.node(node).map(|node| {
                let cpus = if node.cpus.is_empty() { &node.near_cpus } else { &node.cpus };
                cpus.intersection(&scope.set())
            });
            let Some(cpus) = near.filter(|cpus| !cpus.is_empty()) else {
                left_out.push(LeftOut { what: name, reason: "no CPU in scope is in it or next to it".into() });
                continue;
            };
            let local = Scope::new(machine, Some(&cpus), Some(&NodeSet::from_iter([node])))?;
            match size_arrays(machine, &name, &local, arrays, options) {
                Ok(arrays) => {
                    groups.push(group(machine, &local, name, local.compact(local.cores as u32), &arrays, options));
                }
                Err(error) => left_out.push(LeftOut { what: name, reason: error.to_string() }),
            }
        }
    }
    Ok(Plan {
        kernels,
        groups,
        samples: options.samples.unwrap_or(if options.preset == Preset::Full { 20 } else { 10 }),
        sample_least_ns: 1_000_000,
        pages: options.pages.unwrap_or(Pages::Default),
        left_out,
    })
}

/// The rows that were asked for: all stores, the best usable level of each, unless narrowed.
fn choose_kernels(isa: &IsaSet, options: &Options) -> Result<(Vec<&'static Row>, Vec<LeftOut>)> {
    let every_operation = options.operations.is_empty() && options.rows.is_empty();
    let wanted = |row: &&Row| {
        (every_operation && (row.operation.in_stream() || options.preset == Preset::Full)
            || options.operations.contains(&row.operation))
            && options.store.is_none_or(|store| row.stores_only(store))
            && options.isa.is_none_or(|isa| row.isa == isa)
    };
    let mut chosen: Vec<&'static Row> = Vec::new();
    let mut left_out = Vec::new();
    for row in Kernel::table().iter().filter(wanted) {
        match Kernel::new(row, isa) {
            Err(reason) => left_out.push(LeftOut { what: row.name.to_owned(), reason }),
            Ok(_) => match chosen.iter_mut().find(|other| (other.operation, other.store) == (row.operation, row.store))
            {
                Some(other) if other.isa < row.isa => *other = row,
                Some(_) => {}
                None => chosen.push(row),
            },
        }
    }
    for row in &options.rows {
        let other_store = options.store.is_some_and(|store| !row.stores_only(store));
        if other_store || options.isa.is_some_and(|isa| isa != row.isa) {
            return Err(Error::usage(
                format!("measure {}", row.name),
                "--store or --isa says something else than the name",
                "name the row alone, or an operation with --store and --isa",
            ));
        }
        match Kernel::new(row, isa) {
            Err(reason) => left_out.push(LeftOut { what: row.name.to_owned(), reason }),
            Ok(_) if chosen.iter().any(|other| other.name == row.name) => {}
            Ok(_) => chosen.push(row),
        }
    }
    if chosen.is_empty() {
        let reasons: Vec<String> = left_out.iter().map(|left| format!("{} {}", left.what, left.reason)).collect();
        return Err(Error::usage(
            "measure any of these kernels",
            if reasons.is_empty() { "no row of the table matches".into() } else { reasons.join(", ") },
            "see --list for the rows and what they need",
        ));
    }
    Ok((chosen, left_out))
}

/// The size of the arrays and what it rests on.
struct Arrays {
    bytes: Bytes,
    cache: Bytes,
    caveats: Vec<Caveat>,
}

fn size_arrays(machine: &Machine, name: &str, scope: &Scope, arrays: u64, options: &Options) -> Result<Arrays> {
    let cpus = scope.set();
    let (cache, unknown) = cache_sum(&machine.topology, &cpus);
    let mut caveats: Vec<Caveat> = unknown.into_iter().collect();
    let least = cache.0.saturating_mul(ARRAY_PER_CACHE).max(ARRAY_LEAST);
    let least = Bytes(least.checked_next_multiple_of(ARRAY_GRAIN).unwrap_or(least));
    let bytes = match options.size {
        Some(size) => Bytes(size.0.next_multiple_of(Line::BYTES).max(cpus.len() as u64 * Line::BYTES)),
        None => least,
    };
    if bytes < least {
        caveats.push(Caveat::CacheResident { reuse_bytes: bytes, cache_bytes: cache });
    }
    let asked = bytes.0.saturating_mul(arrays);
    let pool = machine.environment.free_2m_pages.map(|pages| Bytes(pages << 21));
    if let (Some(Pages::Huge2M), Some(pool)) = (options.pages, pool.filter(|pool| pool.0 < asked)) {
        let pages = arrays * bytes.0.div_ceil(2 << 20);
        return Err(Error::refused(
            format!("plan arrays for the {name}"),
            format!("{arrays} arrays of {bytes} in 2 MiB pages are {}, and the pool has {pool} free", Bytes(asked)),
            format!("reserve them with `sysctl vm.nr_hugepages={pages}`"),
        ));
    }
    match machine.usable_memory_on(&scope.nodes) {
        Some(usable) if asked > usable.0 => {
            return Err(Error::refused(
                format!("plan arrays for the {name}"),
                format!("{arrays} arrays of {bytes} are {} and {usable} of memory can be used", Bytes(asked)),
                format!(
                    "the least that measures memory is {least} an array ({ARRAY_PER_CACHE} times the last-level caches of \
                     {cache}); give this process more memory, narrow --cpus, or take a smaller --size and measure caches"
                ),
            ));
        }
        Some(_) => {}
        None => caveats.push(Caveat::MemorySizeUnknown),
    }
    Ok(Arrays { bytes, cache, caveats })
}

fn group(
    machine: &Machine,
    scope: &Scope,
    name: String,
    cpus: Vec<CpuId>,
    arrays: &Arrays,
    options: &Options,
) -> Group {
    let topology = &machine.topology;
    let node_of = |cpu: &CpuId| topology.pu(*cpu).and_then(|pu| pu.node);
    let cpu_nodes: NodeSet = cpus.iter().filter_map(node_of).collect();
    // `--nodes` without `--placement` means: there. First touch would put pages wherever the threads are.
    let local = cpu_nodes.iter().all(|node| scope.nodes.contains(node));
    let rule = options.placement.unwrap_or(if local { PlacementRule::FirstTouch } else { PlacementRule::Bind });
    let (placement, memory_nodes) = match rule {
        PlacementRule::FirstTouch => (Policy::FirstTouch, cpu_nodes.clone()),
        PlacementRule::Bind => (Policy::Bind(scope.nodes.clone()), scope.nodes.clone()),
        PlacementRule::Interleave => (Policy::Interleave(scope.nodes.clone()), scope.nodes.clone()),
    };
    let only = memory_nodes.first().filter(|_| memory_nodes.len() == 1);
    let expected_nodes = match rule {
        PlacementRule::FirstTouch => cpus.iter().map(node_of).collect(),
        PlacementRule::Bind | PlacementRule::Interleave => vec![only; cpus.len()],
    };
    let mut caveats = arrays.caveats.clone();
    caveats.extend(standing_caveats(machine, &cpus));
    Group {
        scope: name,
        cpus,
        cpu_nodes,
        placement,
        memory_nodes,
        expected_nodes,
        array_bytes: arrays.bytes,
        cache_bytes: arrays.cache,
        caveats,
    }
}

impl Plan {
    /// How many arrays a group holds: as many as its hungriest kernel uses.
    pub fn arrays(&self) -> u64 {
        self.kernels.iter().map(|row| row.operation.sources() + row.operation.arrays_written()).max().unwrap_or(0)
    }

    /// Memory of the largest group, and time.
    pub fn needs(&self) -> Needs {
        /// Assumed rates: first touch in a small guest (0.4 to 0.7 GB/s seen), streaming by one thread.
        const TOUCH: f64 = 0.5e9;
        const STREAM: f64 = 10e9;
        let mut needs = Needs::default();
        for group in &self.groups {
            let held = group.array_bytes.0 * self.arrays();
            needs.memory_bytes = needs.memory_bytes.max(Bytes(held));
            let threads = group.cpus.len().min(16) as f64;
            let pass: u64 = self.kernels.iter().map(|row| row.operation.counted_bytes(group.array_bytes).0).sum();
            // Each sample follows an untimed pass.
            let passes = f64::from(2 * (self.samples + 1) + 3);
            needs.estimated_s += held as f64 / TOUCH / threads + pass as f64 * passes / STREAM / threads;
        }
        needs
    }
}
