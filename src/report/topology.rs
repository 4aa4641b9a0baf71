//! What `membar topology` prints: the machine as a small tree, siblings of one shape on one line.

use crate::machine::{Cache, Environment, Machine, Source};
use crate::units::{Bytes, CpuSet, NodeSet};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The machine as text for a person: at most some 150 lines, whatever its size.
pub fn text(machine: &Machine) -> String {
    let mut out = String::new();
    header(machine, &mut out);
    out.push('\n');
    out.push_str(&drawn(&tree(machine)));
    memory_only_nodes(machine, &mut out);
    distances(machine, &mut out);
    permitted(machine, &mut out);
    if machine.is_this_system() {
        environment(machine, &mut out);
    }
    if !machine.caveats.is_empty() {
        out.push_str("\ncaveats\n");
        machine.caveats.iter().for_each(|caveat| line(&mut out, format_args!("  {caveat}")));
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

fn header(machine: &Machine, out: &mut String) {
    let topology = &machine.topology;
    match &machine.source {
        Source::ThisSystem => {
            let cpu = &machine.cpu;
            let guest = cpu.hypervisor.as_ref().map(|name| format!(", guest of {name}")).unwrap_or_default();
            let kernel = machine.environment.kernel.as_ref().map(|release| format!(", Linux {release}"));
            line(out, format_args!("{} ({}){guest}{}", cpu.model_name, cpu.vendor, kernel.unwrap_or_default()));
            let levels: Vec<&str> = cpu.isa.instruction_sets().map(|isa| isa.name()).collect();
            let cache_line = cpu.line_bytes.map_or("length unknown".to_string(), |bytes| format!("{bytes} bytes"));
            line(out, format_args!("kernels for {}; cache line {cache_line}", levels.join(", ")));
        }
        Source::Xml(path) => line(out, format_args!("from {}: not this system, for planning only", path.display())),
        Source::Synthetic(text) => line(out, format_args!("synthetic \"{text}\": not this system, for planning only")),
        Source::Sysfs(dir) => line(out, format_args!("from {}: not this system, for planning only", dir.display())),
        Source::Measured(record) => line(
            out,
            format_args!("from {}, last-level caches as its latencies show: for planning only", record.display()),
        ),
    }
    let last_level = topology.last_level_caches(&topology.cpus()).len();
    line(
        out,
        format_args!(
            "{}, {}, {}, {}, {}",
            count(topology.packages.len(), "package"),
            count(topology.nodes.len(), "node"),
            count(last_level, "last-level cache"),
            count(topology.cores.len(), "core"),
            count(topology.pus.len(), "CPU"),
        ),
    );
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn memory(bytes: Option<Bytes>) -> String {
    match bytes {
        None => "memory unknown".to_string(),
        Some(Bytes(0)) => "no memory".to_string(),
        Some(Bytes(bytes @ ..1_000_000_000)) => format!("{:.0} MB", bytes as f64 / 1e6),
        Some(Bytes(bytes)) => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// One line of the tree, or a member of a run of siblings that share a line.
struct Item {
    /// `package`, `node`, `L3 32 MiB`.
    noun: String,
    /// Its number, where it has one.
    number: Option<u32>,
    /// A node's memory. Nodes of one kind differ a little.
    memory: Option<Option<Bytes>>,
    /// What else is true of it: `8 cores × 2 threads`.
    shape: String,
    cpus: CpuSet,
    children: Vec<Item>,
}

impl Item {
    /// Whether one line can stand for both.
    fn alike(&self, other: &Item) -> bool {
        let similar = match (self.memory, other.memory) {
            (Some(Some(Bytes(a))), Some(Some(Bytes(b)))) => a.abs_diff(b) <= a.max(b) / 10,
            (a, b) => a == b,
        };
        similar
            && (&self.noun, &self.shape, self.cpus.len()) == (&other.noun, &other.shape, other.cpus.len())
            && self.children.len() == other.children.len()
            && self.children.iter().zip(&other.children).all(|(a, b)| a.alike(b))
    }
}

fn tree(machine: &Machine) -> Vec<Item> {
    let topology = &machine.topology;
    let package = |number: Option<u32>, cpus: &CpuSet| Item {
        noun: if number.is_some() { "package" } else { "machine" }.to_string(),
        number,
        memory: None,
        shape: String::new(),
        cpus: cpus.clone(),
        children: nodes(machine, cpus),
    };
    if topology.packages.is_empty() {
        return vec![package(None, &topology.cpus())];
    }
    let usable = topology.packages.iter().filter(|group| !group.cpus.is_empty());
    usable.map(|group| package(Some(group.id), &group.cpus)).collect()
}

fn nodes(machine: &Machine, within: &CpuSet) -> Vec<Item> {
    let mut rest = within.clone();
    let mut items = Vec::new();
    for node in &machine.topology.nodes {
        let cpus = node.cpus.intersection(within);
        if cpus.is_empty() {
            continue;
        }
        rest = rest.difference(&cpus);
        let children = caches(machine, &cpus);
        let shape = if cpus == node.cpus { "" } else { "reaches beyond this package" }.to_string();
        let (noun, number, memory) = ("node".to_string(), Some(node.id.0), Some(node.memory_bytes));
        items.push(Item { noun, number, memory, shape, cpus, children });
    }
    items.extend(caches(machine, &rest));
    items
}

fn caches(machine: &Machine, within: &CpuSet) -> Vec<Item> {
    let topology = &machine.topology;
    let mut groups: BTreeMap<Option<u32>, CpuSet> = BTreeMap::new();
    for pu in within.iter().filter_map(|cpu| topology.pu(cpu)) {
        groups.entry(pu.last_level_cache).or_default().insert(pu.id);
    }
    let item = |(index, cpus): (Option<u32>, CpuSet)| {
        let cache = index.and_then(|index| topology.caches.get(index as usize));
        let noun = match cache {
            Some(cache) => size(cache),
            None => "no last-level cache known".to_string(),
        };
        let mut shape = cores(machine, &cpus);
        let below: Vec<&Cache> = cache.map_or_else(Vec::new, |last| {
            let inside =
                |other: &&Cache| other.level < last.level && other.cpus.first().is_some_and(|cpu| cpus.contains(cpu));
            topology.caches.iter().filter(inside).collect()
        });
        let mut inner: Vec<(String, usize)> = Vec::new();
        for cache in below {
            let size = size(cache);
            match inner.iter_mut().find(|(known, _)| *known == size) {
                Some((_, times)) => *times += 1,
                None => inner.push((size, 1)),
            }
        }
        for (size, times) in inner {
            let times = if times > 1 { format!("{times} × ") } else { String::new() };
            let _ = write!(shape, ", {times}{size}");
        }
        if cache.is_some_and(|cache| cache.cpus.len() > cpus.len()) {
            shape.push_str(", shared with CPUs outside");
        }
        Item { noun, number: None, memory: None, shape, cpus, children: Vec::new() }
    };
    groups.into_iter().map(item).collect()
}

fn size(cache: &Cache) -> String {
    let size = cache.bytes.map_or("size unknown".to_string(), |bytes| bytes.to_string());
    format!("L{} {size}", cache.level)
}

/// `6 cores × 2 threads + 8 cores`: the cores of these CPUs by kind and by threads.
fn cores(machine: &Machine, cpus: &CpuSet) -> String {
    let topology = &machine.topology;
    let mut threads: BTreeMap<u32, usize> = BTreeMap::new();
    for pu in cpus.iter().filter_map(|cpu| topology.pu(cpu)) {
        *threads.entry(pu.core).or_default() += 1;
    }
    let mut kinds: BTreeMap<(Option<u32>, usize), usize> = BTreeMap::new();
    for (core, threads) in threads {
        let kind = topology.cores.get(core as usize).and_then(|core| core.kind);
        *kinds.entry((kind, threads)).or_default() += 1;
    }
    let describe = |((kind, threads), cores): ((Option<u32>, usize), usize)| {
        let threads = if threads == 1 { String::new() } else { format!(" × {threads} threads") };
        let kind = kind.map(|rank| format!(" of kind {rank}")).unwrap_or_default();
        format!("{}{kind}{threads}", count(cores, "core"))
    };
    kinds.into_iter().rev().map(describe).collect::<Vec<_>>().join(" + ")
}

/// Lists joined by ` | `, the middle left out of long ones.
fn members(sets: &[String]) -> String {
    const WIDTH: usize = 90;
    let all = sets.join(" | ");
    if all.chars().count() <= WIDTH {
        return all;
    }
    match sets {
        [first, second, .., last] if sets.len() > 3 => format!("{first} | {second} | … | {last}"),
        _ => all,
    }
}

/// The tree with as little folded as lets it stay short: caches always, then nodes, then packages.
fn drawn(items: &[Item]) -> String {
    const LINES: usize = 80;
    let mut text = String::new();
    for folded_from in [2, 1, 0] {
        text.clear();
        render(items, 0, folded_from, true, &mut text);
        if text.lines().count() <= LINES {
            break;
        }
    }
    text
}

/// Writes siblings, runs of like ones as one line each where they are leaves or at least `folded_from` deep. `named` is
/// false below such a run, where numbers would be those of one member only.
fn render(items: &[Item], depth: usize, folded_from: usize, named: bool, out: &mut String) {
    let mut rest = items;
    while let [first, ..] = rest {
        let fold = depth >= folded_from || first.children.is_empty();
        let run = if fold { rest.iter().take_while(|item| first.alike(item)).count() } else { 1 };
        let (group, after) = rest.split_at(run);
        rest = after;
        let mut text = format!("{:1$}", "", depth * 2);
        if run > 1 {
            let _ = write!(text, "{run} × ");
        }
        text.push_str(&first.noun);
        let numbers: NodeSet = group.iter().filter_map(|item| item.number).map(crate::units::NodeId).collect();
        if named && !numbers.is_empty() {
            let _ = write!(text, " {numbers}");
        }
        let mut facts = Vec::new();
        if let Some(smallest) = first.memory {
            let sizes = group.iter().filter_map(|item| item.memory.flatten());
            let low = sizes.clone().min().or(smallest);
            let (low, high) = (memory(low), memory(sizes.max().or(smallest)));
            facts.push(if low == high { low } else { format!("{low} to {high}") });
        }
        if !first.shape.is_empty() {
            facts.push(first.shape.clone());
        }
        if named {
            let sets: Vec<String> = group.iter().map(|item| item.cpus.to_string()).collect();
            let noun = if run == 1 && first.cpus.len() == 1 { "CPU" } else { "CPUs" };
            facts.push(format!("{noun} {}", members(&sets)));
        } else {
            facts.push(count(first.cpus.len(), "CPU"));
        }
        let each = if run > 1 { "each " } else { "" };
        line(out, format_args!("{text}: {each}{}", facts.join(", ")));
        render(&first.children, depth + 1, folded_from, named && run == 1, out);
    }
}

fn memory_only_nodes(machine: &Machine, out: &mut String) {
    let alone: Vec<_> = machine.topology.nodes.iter().filter(|node| node.cpus.is_empty()).collect();
    if alone.is_empty() {
        return;
    }
    /// More than any machine known today has.
    const SHOWN: usize = 32;
    out.push_str("\nnodes without CPUs\n");
    for node in alone.iter().take(SHOWN) {
        let near = if node.near_cpus.is_empty() { String::new() } else { format!(", near CPUs {}", node.near_cpus) };
        line(out, format_args!("  node {}: {}{near}", node.id, memory(node.memory_bytes)));
    }
    if alone.len() > SHOWN {
        line(out, format_args!("  and {} more", alone.len() - SHOWN));
    }
}

fn distances(machine: &Machine, out: &mut String) {
    /// Beyond that a matrix is no longer read by eye.
    const SHOWN: usize = 24;
    let Some(distances) = machine.topology.distances.as_ref().filter(|distances| distances.nodes.len() > 1) else {
        return;
    };
    out.push_str("\ndistances as the firmware states them (10 = local)\n");
    if distances.nodes.len() > SHOWN {
        let mut values: Vec<u64> = distances.rows.iter().flatten().copied().collect();
        values.sort_unstable();
        values.dedup();
        let values: Vec<String> = values.iter().take(SHOWN).map(u64::to_string).collect();
        line(out, format_args!("  {} nodes; values {}", distances.nodes.len(), values.join(", ")));
        return;
    }
    let cells = distances.rows.iter().flatten().map(|value| value.to_string().len());
    let width = cells.max().unwrap_or(0).max(4);
    let row = |name: String, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>width$}")).collect();
        format!("  {name:>8}{cells}")
    };
    line(
        out,
        format_args!("{}", row("from\\to".to_string(), distances.nodes.iter().map(|id| id.to_string()).collect())),
    );
    for (id, values) in distances.nodes.iter().zip(&distances.rows) {
        line(out, format_args!("{}", row(format!("node {id}"), values.iter().map(u64::to_string).collect())));
    }
}

fn permitted(machine: &Machine, out: &mut String) {
    let (cpus, nodes) =
        (machine.topology.cpus(), machine.topology.nodes.iter().map(|node| node.id).collect::<NodeSet>());
    line(out, format_args!("\nallowed: CPUs {}; memory nodes {}", machine.allowed_cpus, machine.allowed_nodes));
    let (cpus, nodes) = (cpus.difference(&machine.allowed_cpus), nodes.difference(&machine.allowed_nodes));
    if !cpus.is_empty() {
        line(out, format_args!("not permitted: CPUs {cpus}"));
    }
    if !nodes.is_empty() {
        line(out, format_args!("not permitted: memory nodes {nodes}"));
    }
    if let Some(bytes) = machine.usable_memory() {
        line(out, format_args!("memory that a run may take: {}", memory(Some(bytes))));
    }
}

fn environment(machine: &Machine, out: &mut String) {
    // Destructured so that a new field cannot be forgotten here. The kernel stands in the header.
    let Environment {
        kernel: _,
        cpu_quota,
        memory_limit_bytes,
        memory_used_bytes,
        memory_available_bytes,
        address_space_limit_bytes,
        transparent_huge_pages,
        free_2m_pages,
        numa_balancing,
        governor,
        clock_source,
        product,
        dimms,
        steal_counted,
        load_1m,
        openmp,
    } = &machine.environment;
    let gb = |bytes: &Option<Bytes>| bytes.map(|bytes| memory(Some(bytes)));
    let on = |flag: &Option<bool>| flag.map(|on| if on { "on" } else { "off" }.to_string());
    let dimms = dimms.as_ref().map(|dimms| {
        let mut text =
            format!("{} in {}", count(dimms.populated as usize, "module"), count(dimms.slots as usize, "slot"));
        if let Some(transfers) = dimms.transfers_per_s {
            let _ = write!(text, ", {} MT/s", transfers / 1_000_000);
        }
        if let Some(peak) = dimms.peak_bytes_per_s {
            let _ = write!(text, ", at most {:.0} GB/s", peak / 1e9);
        }
        text
    });
    let runtimes: Vec<String> = openmp.iter().map(|(name, file)| format!("{name} ({file})")).collect();
    let facts = [
        ("product", product.clone()),
        ("CPU quota", cpu_quota.map(|cpus| format!("{cpus:.2} CPUs"))),
        ("cgroup memory limit", gb(memory_limit_bytes)),
        ("cgroup memory used", gb(memory_used_bytes)),
        ("memory available", gb(memory_available_bytes)),
        ("address space limit", gb(address_space_limit_bytes)),
        ("memory modules", dimms),
        ("transparent huge pages", transparent_huge_pages.clone()),
        ("free 2 MiB pages", free_2m_pages.map(|pages| pages.to_string())),
        ("NUMA balancing", on(numa_balancing)),
        ("frequency governor", governor.clone()),
        ("clock source", clock_source.clone()),
        ("stolen time", steal_counted.map(|counted| if counted { "counted" } else { "not counted" }.to_string())),
        ("load over one minute", load_1m.map(|load| format!("{load:.2}"))),
        ("OpenMP", Some(runtimes.join(", ")).filter(|runtimes| !runtimes.is_empty())),
    ];
    out.push_str("\nenvironment\n");
    let (known, unknown): (Vec<_>, Vec<_>) = facts.into_iter().partition(|(_, value)| value.is_some());
    for (name, value) in &known {
        line(out, format_args!("  {name}: {}", value.as_deref().unwrap_or_default()));
    }
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|(name, _)| *name).collect();
        line(out, format_args!("  unlimited or unknown: {}", names.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(description: &str) -> String {
        text(&Machine::from_source(&format!("synthetic:{description}")).unwrap())
    }

    #[test]
    fn like_siblings_share_a_line() {
        let text = printed("pack:2 [numa(memory=1000000000)] l3:2(size=33554432) core:4 pu:2");
        assert!(text.contains("2 packages, 2 nodes, 4 last-level caches, 16 cores, 32 CPUs"), "{text}");
        assert!(text.contains("package 1: CPUs 16-31\n  node 1: 1.0 GB, CPUs 16-31\n"), "{text}");
        assert!(text.contains("    2 × L3 32 MiB: each 4 cores × 2 threads, CPUs 16-23 | 24-31\n"), "{text}");
    }

    #[test]
    fn packages_of_a_large_machine_share_a_line() {
        let text = printed("pack:64 [numa(memory=1000000000)] l3:2(size=33554432) core:4 pu:2");
        assert!(
            text.contains("64 × package 0-63: each CPUs 0-15 | 16-31 | … | 1008-1023\n  node: 1.0 GB, 16 CPUs\n"),
            "{text}"
        );
    }

    #[test]
    fn unknown_things_are_called_unknown() {
        let text = printed("core:4 pu:1");
        assert!(text.contains("no last-level cache known: 4 cores, CPUs 0-3"), "{text}");
        let mut machine = Machine::from_source("synthetic:pack:1 l3:1(size=1048576) pu:2").unwrap();
        machine.topology.caches[0].bytes = None;
        machine.topology.nodes[0].memory_bytes = None;
        let text = super::text(&machine);
        assert!(text.contains("L3 size unknown") && text.contains("memory unknown"), "{text}");
    }

    #[test]
    fn memory_only_nodes_and_forbidden_cpus_are_listed() {
        let mut machine = Machine::from_source("synthetic:pack:2 [numa][numa] core:4 pu:1").unwrap();
        machine.allowed_cpus = "2-3,6".parse().unwrap();
        let text = text(&machine);
        assert!(text.contains("nodes without CPUs"), "{text}");
        assert!(text.contains("allowed: CPUs 2-3,6;") && text.contains("not permitted: CPUs 0-1,4-5,7"), "{text}");
    }

    #[test]
    fn large_machines_stay_readable() {
        let text = printed("pack:16 [numa] group:2 [numa] l3:8(size=33554432) core:4 pu:2");
        assert!(text.lines().count() < 150, "{text}");
    }
}
