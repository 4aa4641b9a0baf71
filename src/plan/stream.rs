//! Bandwidth: which kernels, on which threads, over arrays of which size.

pub(super) mod sizes;

pub use sizes::ARRAY_PER_CACHE;

use super::{Needs, Preset, Scope, ThreadList, standing_caveats};
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Operation, Row, Store};
use crate::machine::{Isa, IsaSet, Machine};
use crate::memory::{Pages, Policy};
use crate::units::{Bytes, CpuId, CpuSet, NodeId, NodeSet};
use serde::{Serialize, Serializer};
use sizes::{Arrays, Place};

/// Scope of the thread sweep: the CPUs in scope, pages next to the threads that use them.
pub const MACHINE: &str = "machine";
/// Scopes of the first and the second half of the cores alone. Both together are the sweep at all cores.
pub const HALVES: [&str; 2] = ["half 0", "half 1"];
/// Scope of the column's own steps.
pub const COLUMN: &str = "column";

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
    /// Nothing but the bandwidth column, and what it needs: a sweep of the copies.
    pub column_only: bool,
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
    /// Thread sets, each with arrays of its own.
    pub groups: Vec<Group>,
    /// How the column is taken once the sweep has shown the best copy.
    pub column: Option<Column>,
    /// A sample repeats its pass until it lasts this long.
    pub sample_least_ns: u64,
    /// Page size to ask for.
    pub pages: Pages,
    /// What cannot be measured here.
    pub left_out: Vec<LeftOut>,
}

/// One set of threads over one set of arrays.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// What part of the machine this is: [`MACHINE`], one of [`HALVES`], `machine interleaved`, `socket N`, `node N`, `node N to node M` (CPUs of
    /// the first, memory of the second).
    pub scope: String,
    /// Rows to measure, in table order.
    #[serde(serialize_with = "row_names")]
    pub kernels: Vec<&'static Row>,
    /// Samples that count; one more comes first and is dropped.
    pub samples: u32,
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
    /// The largest array of which two fit into the memory of this group's nodes: what the column may grow to. `None` when the
    /// memory's size is unknown.
    pub most_bytes: Option<Bytes>,
    /// What is known to taint the numbers beforehand.
    pub caveats: Vec<Caveat>,
}

impl Group {
    /// Whether its arrays are known to be too small to be memory.
    pub fn is_cached(&self) -> bool {
        self.caveats.iter().any(Caveat::is_cached)
    }
}

/// How the bandwidth column is taken: the sweep's best copy again, over arrays as they are and twice as large in turn. While
/// the two differ, larger arrays are tried, since then some cache is larger than reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Samples of each size in a batch.
    pub samples: u32,
    /// Batches after which two sizes count as different.
    pub batches: u32,
    /// Relative difference between the best of both sizes from which on they are different.
    pub tolerance: f64,
}

impl Column {
    /// METHOD's rule: the column counts only if doubling the arrays changes it by less than this.
    pub const TOLERANCE: f64 = 0.03;
}

fn row_names<S: Serializer>(rows: &[&'static Row], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(rows.iter().map(|row| row.name))
}

/// Plans the bandwidth measurement: the thread sweep, then (with several) sockets, nodes, interleaved pages and every node's
/// memory from every node's CPUs.
///
/// # Errors
/// When nothing can run, the thread counts do not fit, the arrays do not fit into memory, or the column is asked for and
/// cannot be taken.
pub fn plan(machine: &Machine, scope: &Scope, isa: &IsaSet, options: &Options) -> Result<Plan> {
    let (kernels, left_out) = choose_kernels(isa, options)?;
    let mut planner = Planner { machine, options, kernels, groups: Vec::new(), left_out };
    planner.sweep(scope)?;
    if options.threads.is_none() && !options.column_only {
        planner.parts(scope)?;
    }
    let column = planner.column()?;
    Ok(Plan {
        groups: planner.groups,
        column,
        sample_least_ns: 1_000_000,
        pages: options.pages.unwrap_or(Pages::Default),
        left_out: planner.left_out,
    })
}

/// A plan in the making.
struct Planner<'a> {
    machine: &'a Machine,
    options: &'a Options,
    kernels: Vec<&'static Row>,
    groups: Vec<Group>,
    left_out: Vec<LeftOut>,
}

impl Planner<'_> {
    /// Whether the user said which rows to measure: then they are measured everywhere.
    fn named(&self) -> bool {
        !(self.options.operations.is_empty() && self.options.rows.is_empty()) || self.options.column_only
    }

    fn samples(&self, default: u32) -> u32 {
        let twice = if self.options.preset == Preset::Full { 2 } else { 1 };
        self.options.samples.unwrap_or(default * twice)
    }

    /// The chosen rows of these operations; all that were named, if some were.
    fn rows(&self, operations: &[Operation]) -> Vec<&'static Row> {
        let wanted = |row: &&&Row| self.named() || operations.contains(&row.operation);
        self.kernels.iter().filter(wanted).copied().collect()
    }

    /// All CPUs in scope by thread count. STREAM's number comes from the count that is best, which is rarely known
    /// beforehand; the rows that only make sense at the top are measured at all cores alone.
    fn sweep(&mut self, scope: &Scope) -> Result<()> {
        let (machine, options) = (self.machine, self.options);
        let cpus = scope.cpus.len() as u32;
        let counts = match &options.threads {
            Some(list) => list.resolve(cpus, cpus)?,
            None => scope.natural_threads(&machine.topology, options.preset == Preset::Quick),
        };
        let everywhere = options.threads.is_some() || options.preset != Preset::Default;
        // From the top: many threads touch arrays faster, and fewer take them over where they lie right.
        for threads in counts.into_iter().rev() {
            let all = everywhere || threads as usize == scope.cores;
            let rows = if all {
                self.kernels.clone()
            } else {
                self.rows(&[Operation::Read, Operation::Copy, Operation::Triad])
            };
            // The column measures its own thread count again.
            let samples = self.samples(if all { 10 } else { 5 });
            let set = scope.compact(threads);
            self.add(MACHINE.into(), scope, set, rows, samples, options.placement)?;
        }
        Ok(())
    }

    /// Sockets, nodes and pairs of nodes. What does not fit is left out.
    fn parts(&mut self, scope: &Scope) -> Result<()> {
        let topology = &self.machine.topology;
        let options = self.options;
        let quick = options.preset == Preset::Quick;
        let short = [Operation::Read, Operation::Copy];

        let packages: Vec<(u32, CpuSet)> =
            topology.packages.iter().map(|package| (package.id, package.cpus.intersection(&scope.set()))).collect();
        if packages.len() > 1 && !quick {
            for (id, cpus) in packages.into_iter().filter(|(_, cpus)| !cpus.is_empty()) {
                let of = Scope::new(self.machine, Some(&cpus), None)?;
                let of = Scope { nodes: self.nodes_of(&of.cpus).intersection(&scope.nodes), ..of };
                let set = of.compact(of.cores as u32);
                let rows = self.rows(&short);
                self.try_add(format!("socket {id}"), &of, set, rows, self.samples(5), None);
            }
        }
        let nodes: Vec<NodeId> = scope.nodes.iter().collect();
        if nodes.len() < 2 {
            if !quick {
                self.halves(scope);
            }
            return Ok(());
        }
        if !quick && options.placement.is_none() {
            let set = scope.compact(scope.cores as u32);
            let of = Scope { nodes: self.nodes_of(&set).intersection(&scope.nodes), ..scope.clone() };
            let rows = self.rows(&short);
            if of.nodes.len() > 1 {
                let rule = Some(PlacementRule::Interleave);
                self.try_add("machine interleaved".into(), &of, set, rows, self.samples(5), rule);
            }
        }
        /// Beyond this many, nodes by themselves take longer than all else: a guess that only oddly made guests exceed.
        const NODES_MOST: usize = 64;
        if nodes.len() > NODES_MOST {
            let what = format!("{} of {} nodes by themselves", nodes.len() - NODES_MOST, nodes.len());
            self.left_out.push(LeftOut { what, reason: format!("the first {NODES_MOST} are taken") });
        }
        // Each node by itself: its own cores on its own memory, those next to it where it has none (HBM, CXL).
        for memory in nodes.iter().take(NODES_MOST) {
            let name = format!("node {memory}");
            let Some(cpus) = self.near(*memory, scope) else {
                self.left_out.push(LeftOut { what: name, reason: "no CPU in scope is in it or next to it".into() });
                continue;
            };
            let of = Scope::new(self.machine, Some(&cpus), Some(&NodeSet::from_iter([*memory])))?;
            let rows = if quick { self.rows(&short) } else { self.kernels.clone() };
            let set = of.compact(of.cores as u32);
            self.try_add(name, &of, set, rows, self.samples(5), None);
        }
        if quick {
            return Ok(());
        }
        self.pairs(&nodes, scope)
    }

    /// Each half of the cores by the best row that reads: where no nodes tell, whether their bandwidths add. Only beside a
    /// sweep of memory at all cores.
    fn halves(&mut self, scope: &Scope) {
        let reads = self.kernels.iter().copied().filter(|row| row.operation == Operation::Read);
        let Some(row) = reads.max_by_key(|row| row.isa).filter(|_| scope.cores > 1) else { return };
        let together = |group: &Group| group.scope == MACHINE && group.cpus.len() == scope.cores && !group.is_cached();
        if !self.groups.iter().any(together) {
            return;
        }
        let (first, second) = scope.cpus[..scope.cores].split_at(scope.cores / 2);
        for (name, cpus) in HALVES.into_iter().zip([first, second]) {
            self.try_add(name.into(), scope, cpus.to_vec(), vec![row], self.samples(5), None);
        }
    }

    /// Every node's memory from every other node's cores, read, copy and triad with ordinary stores.
    fn pairs(&mut self, memory_nodes: &[NodeId], scope: &Scope) -> Result<()> {
        /// Beyond this many pairs, those with the most and the least memory nodes in common tell no more: a guess that keeps
        /// the largest guests of 2026 (six nodes) complete and a plan for sixteen nodes within minutes.
        const PAIRS_MOST: usize = 64;
        let with_cpus: Vec<(NodeId, CpuSet)> = self
            .machine
            .topology
            .nodes
            .iter()
            .map(|node| (node.id, node.cpus.intersection(&scope.set())))
            .filter(|(_, cpus)| !cpus.is_empty())
            .collect();
        let near: Vec<Option<CpuSet>> = memory_nodes.iter().map(|node| self.near(*node, scope)).collect();
        let pairs: Vec<(NodeId, &CpuSet, NodeId)> = with_cpus
            .iter()
            .flat_map(|(from, cpus)| memory_nodes.iter().zip(&near).map(move |(to, near)| (*from, cpus, *to, near)))
            // What was measured as `node N`.
            .filter(|(_, cpus, _, near)| near.as_ref() != Some(*cpus))
            .map(|(from, cpus, to, _)| (from, cpus, to))
            .collect();
        let operations = [Operation::Read, Operation::Copy, Operation::Triad];
        let store = self.options.store.unwrap_or(Store::Ordinary);
        let rows: Vec<&'static Row> = self
            .rows(&operations)
            .into_iter()
            .filter(|row| self.named() || row.operation == Operation::Read || row.store == Some(store))
            .collect();
        let most = if self.options.preset == Preset::Full { usize::MAX } else { PAIRS_MOST };
        let skipped = pairs.len().saturating_sub(most);
        if skipped > 0 {
            self.left_out.push(LeftOut {
                what: format!("{skipped} of {} pairs of CPU node and memory node", pairs.len()),
                reason: format!("the preset takes {most}, evenly spread; --full takes all"),
            });
        }
        let taken = pairs.len().min(most);
        for index in 0..taken {
            let (from, cpus, to) = pairs[index * pairs.len() / taken];
            let of = Scope::new(self.machine, Some(cpus), Some(&NodeSet::from_iter([to])))?;
            let set = of.compact(of.cores as u32);
            let name = format!("node {from} to node {to}");
            self.try_add(name, &of, set, rows.clone(), self.samples(3), Some(PlacementRule::Bind));
        }
        Ok(())
    }

    /// The CPUs in scope that read a node's memory when it is measured alone: its own, or those next to it.
    fn near(&self, node: NodeId, scope: &Scope) -> Option<CpuSet> {
        let node = self.machine.topology.node(node)?;
        let cpus = if node.cpus.is_empty() { &node.near_cpus } else { &node.cpus };
        Some(cpus.intersection(&scope.set())).filter(|cpus| !cpus.is_empty())
    }

    fn nodes_of(&self, cpus: &[CpuId]) -> NodeSet {
        cpus.iter().filter_map(|cpu| self.machine.topology.pu(*cpu)?.node).collect()
    }

    fn try_add(
        &mut self,
        name: String,
        scope: &Scope,
        cpus: Vec<CpuId>,
        rows: Vec<&'static Row>,
        samples: u32,
        rule: Option<PlacementRule>,
    ) {
        if let Err(error) = self.add(name.clone(), scope, cpus, rows, samples, rule.or(self.options.placement)) {
            self.left_out.push(LeftOut { what: name, reason: error.to_string() });
        }
    }

    fn add(
        &mut self,
        name: String,
        scope: &Scope,
        cpus: Vec<CpuId>,
        kernels: Vec<&'static Row>,
        samples: u32,
        rule: Option<PlacementRule>,
    ) -> Result<()> {
        if kernels.is_empty() {
            return Ok(());
        }
        let (machine, options) = (self.machine, self.options);
        let cpu_nodes = self.nodes_of(&cpus);
        // `--nodes` without `--placement` means: there. First touch would put pages wherever the threads are.
        let local = cpu_nodes.iter().all(|node| scope.nodes.contains(node));
        let rule = rule.unwrap_or(if local { PlacementRule::FirstTouch } else { PlacementRule::Bind });
        let (placement, memory_nodes) = match rule {
            PlacementRule::FirstTouch => (Policy::FirstTouch, cpu_nodes.clone()),
            PlacementRule::Bind => (Policy::Bind(scope.nodes.clone()), scope.nodes.clone()),
            PlacementRule::Interleave => (Policy::Interleave(scope.nodes.clone()), scope.nodes.clone()),
        };
        // Only the caches of these CPUs can hold what they stream.
        let set = cpus.iter().copied().collect();
        let touched = (rule == PlacementRule::FirstTouch).then_some(&cpus[..]);
        let place = Place { cpus: &set, nodes: &memory_nodes, touched_by: touched };
        let Arrays { bytes, cache, caveats } = sizes::arrays(machine, &name, place, arrays(&kernels), options)?;
        let only = memory_nodes.first().filter(|_| memory_nodes.len() == 1);
        let expected_nodes = match rule {
            PlacementRule::FirstTouch => {
                cpus.iter().map(|cpu| machine.topology.pu(*cpu).and_then(|pu| pu.node)).collect()
            }
            PlacementRule::Bind | PlacementRule::Interleave => vec![only; cpus.len()],
        };
        let most_bytes = sizes::most(machine, place, 2, options.pages);
        let caveats = caveats.into_iter().chain(standing_caveats(machine, &cpus)).collect();
        self.groups.push(Group {
            scope: name,
            kernels,
            samples,
            cpus,
            cpu_nodes,
            placement,
            memory_nodes,
            expected_nodes,
            most_bytes,
            array_bytes: bytes,
            cache_bytes: cache,
            caveats,
        });
        Ok(())
    }

    /// The column's rule, if the sweep has copies over arrays that are memory.
    fn column(&mut self) -> Result<Option<Column>> {
        let copies =
            |group: &&Group| group.scope == MACHINE && group.kernels.iter().any(|row| row.operation == Operation::Copy);
        let sweep: Vec<&Group> = self.groups.iter().filter(copies).collect();
        let Some(first) = sweep.first() else { return Ok(None) };
        if sweep.iter().any(|group| !group.is_cached()) {
            let samples = self.options.samples.unwrap_or(0).max(10);
            return Ok(Some(Column { samples, batches: 3, tolerance: Column::TOLERANCE }));
        }
        let least = |group: &&Group| sizes::least(self.machine, &group.cpus.iter().copied().collect()).0;
        let least = sweep.iter().map(least).max().unwrap_or_default();
        let why = first.caveats.iter().find(|caveat| matches!(caveat, Caveat::CannotBeDram { .. }));
        let reason = match why {
            Some(caveat) => caveat.to_string(),
            None => format!(
                "arrays of {} may be served from caches of {}; it takes {least}",
                first.array_bytes, first.cache_bytes
            ),
        };
        if self.options.column_only {
            let what = "measure the bandwidth column";
            return Err(match self.options.size {
                Some(_) => Error::usage(what, reason, format!("leave out --size, or give at least --size {}", least.0)),
                None => Error::refused(what, reason, "give this process more memory, or narrow --cpus"),
            });
        }
        self.left_out.push(LeftOut { what: "bandwidth column".into(), reason });
        Ok(None)
    }
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

/// How many arrays these rows need: as many as the hungriest one.
pub fn arrays(kernels: &[&'static Row]) -> u64 {
    kernels.iter().map(|row| row.operation.sources() + row.operation.arrays_written()).max().unwrap_or(0)
}

/// Assumed rates, guesses: first touch (0.5 to 3 GB/s a thread seen in small guests), streaming by one thread and by all of
/// them (16 GB/s and 32 GB/s for two were seen in the same; large machines reach ten times that).
pub(super) const TOUCH: f64 = 1.5e9;
pub(super) const STREAM: f64 = 14e9;
pub(super) const STREAM_MOST: f64 = 250e9;

impl Plan {
    /// Memory of the largest group, and time.
    pub fn needs(&self) -> Needs {
        /// Starting a team, and calibrating what is short.
        const START_S: f64 = 0.05;
        let mut needs = Needs::default();
        let mut before = None;
        for group in &self.groups {
            let held = group.array_bytes.0 * arrays(&group.kernels);
            needs.memory_bytes = needs.memory_bytes.max(Bytes(held));
            let threads = group.cpus.iter().copied().collect::<CpuSet>().len() as f64;
            let pass: u64 = group.kernels.iter().map(|row| row.operation.counted_bytes(group.array_bytes).0).sum();
            // One pass is the check; before each sample the caches are filled with the row's own lines.
            let refill = 2 * group.cache_bytes.0 * group.kernels.len() as u64;
            let samples = f64::from(group.samples + 1);
            let bytes = pass as f64 * (samples + 1.0) + refill.min(pass) as f64 * samples;
            let rate = (STREAM * threads).min(STREAM_MOST);
            // The arrays of the group before are taken over where they lie on the same node.
            let taken_over = before.is_some_and(|before: &Group| {
                before.array_bytes == group.array_bytes
                    && before.memory_nodes == group.memory_nodes
                    && group.memory_nodes.len() <= 1
                    && arrays(&before.kernels) >= arrays(&group.kernels)
            });
            let touched = if taken_over { 0.0 } else { held as f64 };
            before = Some(group);
            needs.estimated_s += START_S + touched / TOUCH / threads.min(64.0) + bytes / rate;
        }
        if let (Some(column), Some(group)) = (&self.column, self.groups.iter().find(|group| group.scope == MACHINE)) {
            // Two arrays, doubled where memory allows.
            let doubled = Bytes(group.array_bytes.0.saturating_mul(2));
            let held = 2 * group.most_bytes.map_or(doubled, |most| most.min(doubled)).0.min(u64::MAX / 2);
            let threads = group.cpus.len() as f64;
            let bytes = f64::from(column.samples + 2) * 1.5 * 2.0 * held as f64;
            needs.memory_bytes = needs.memory_bytes.max(Bytes(held));
            needs.estimated_s += held as f64 / TOUCH / threads.min(64.0) + bytes / (STREAM * threads).min(STREAM_MOST);
        }
        needs
    }
}
