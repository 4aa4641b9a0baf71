//! Bandwidth from plan to report on machines that nobody here has: the plan is real, the samples are made up by a formula,
//! and what the report says of them must be what the formula put in.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "fixture/header.rs"]
mod fixture;

use fixture::header;
use membar::attribute::bandwidth::{Doubling, column, halves, matrices};
use membar::caveat::Caveat;
use membar::kernel::{Operation, Row, Store};
use membar::machine::{IsaSet, Machine};
use membar::plan::stream::{self, COLUMN, Group, MACHINE, Options, PlacementRule, Plan};
use membar::plan::{Preset, Scope, cache_sum};
use membar::record::{Line, Record, Step, StreamStep};
use membar::units::{Bytes, CpuSet, NodeId, NodeSet};
use membar::{report, stats};
use std::path::{Path, PathBuf};

fn topologies() -> Vec<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let collection =
        std::env::var_os("MEMBAR_TOPOLOGIES").map_or_else(|| package.join("../shared/topologies"), PathBuf::from);
    let dirs = [package.join("tests/topologies"), collection.join("own"), collection.join("real")];
    let files = dirs.iter().flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten());
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "xml"));
    files.sort();
    assert!(files.len() >= 3);
    files
}

fn machine(name: &str) -> Machine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/topologies").join(name);
    Machine::from_source(path.to_str().unwrap()).unwrap()
}

fn plan(machine: &Machine, options: &Options) -> Plan {
    let scope = Scope::new(machine, None, None).unwrap();
    stream::plan(machine, &scope, &IsaSet::detect(), options).unwrap_or_else(|error| panic!("{error}"))
}

/// The step that a group's row would leave if each sample ran at `rate`.
fn step(group: &Group, row: &Row, array_bytes: Bytes, rate: f64) -> StreamStep {
    let counted_bytes = row.operation.counted_bytes(array_bytes);
    let (bus_bytes_min, bus_bytes_max) = row.operation.bus_bytes(array_bytes, row.store);
    let sample = (counted_bytes.0 as f64 / rate * 1e9) as u64;
    let step = Step {
        threads: group.cpus.len() as u32,
        cpus: group.cpus.clone(),
        caveats: group.caveats.clone(),
        samples_ns: vec![sample; group.samples as usize],
        units_per_sample: 1,
        ..Step::default()
    };
    let summary = stats::stream(&step, counted_bytes);
    StreamStep {
        step,
        kernel: row.name.to_owned(),
        operation: row.operation.name().to_owned(),
        isa: row.isa.name().to_owned(),
        store: row.store.map(|store| store.name().to_owned()),
        array_bytes,
        cache_bytes: group.cache_bytes,
        scope: group.scope.clone(),
        cpu_nodes: group.cpu_nodes.clone(),
        memory_nodes: group.memory_nodes.clone(),
        counted_bytes,
        bus_bytes_min,
        bus_bytes_max,
        placement: group.placement.clone(),
        pages_on_node: Vec::new(),
        page_kind: "default".to_owned(),
        huge_page_share: None,
        summary,
    }
}

/// The report of a record in one line: where it is wrapped does not matter.
fn said(record: &Record) -> String {
    report::document(record).to_text().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The record of a plan on a machine where a row's rate is `rate(group, row)`.
fn record(machine: &Machine, plan: &Plan, rate: impl Fn(&Group, &Row) -> f64) -> Record {
    let steps = plan.groups.iter().flat_map(|group| {
        group
            .kernels
            .iter()
            .map(|row| Line::Stream(step(group, row, group.array_bytes, rate(group, row))))
            .collect::<Vec<_>>()
    });
    Record { header: header(machine), lines: steps.collect(), complete: true, remarks: Vec::new() }
}

#[test]
fn arrays_exceed_the_caches_of_the_cpus_that_stream_them_on_every_machine() {
    for path in topologies() {
        let machine = Machine::from_source(path.to_str().unwrap()).unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let isa = IsaSet::detect();
        let Ok(plan) = stream::plan(&machine, &scope, &isa, &Options::default()) else {
            assert!(machine.usable_memory().unwrap().0 < 64 << 20, "{}", path.display());
            continue;
        };
        for group in &plan.groups {
            let cpus: CpuSet = group.cpus.iter().copied().collect();
            let (caches, _) = cache_sum(&machine.topology, &cpus);
            assert_eq!(group.cache_bytes, caches, "{} {}", path.display(), group.scope);
            let memory = group.array_bytes.0 >= 4 * caches.0 && group.array_bytes.0 >= 32 << 20;
            let said = group.caveats.iter().any(|caveat| matches!(caveat, Caveat::CannotBeDram { .. }));
            assert_ne!(memory, said, "{} {}: {:?}", path.display(), group.scope, group.caveats);
            let needed = group.array_bytes.0 * stream::arrays(&group.kernels);
            let there = machine.usable_memory_on(&group.memory_nodes);
            assert!(there.is_none_or(|there| needed <= there.0), "{} {}", path.display(), group.scope);
        }
        let labelled = plan.groups.iter().any(|group| {
            group.scope == MACHINE && group.caveats.iter().any(|caveat| matches!(caveat, Caveat::CannotBeDram { .. }))
        });
        assert_eq!(plan.column.is_none(), labelled, "{}", path.display());
        assert!(plan.needs().estimated_s < 600.0, "{}: {:?}", path.display(), plan.needs());
    }
}

#[test]
fn a_guest_that_hides_its_caches_is_found_out_by_doubling() {
    // Four L3 of 96 MiB are reported. The real machine has 24 of them: arrays of 4 × 384 MiB fit into the real ones.
    let machine = machine("hbv4_176_flat_l3_old.xml");
    let plan = plan(&machine, &Options { column_only: true, operations: vec![Operation::Copy], ..Options::default() });
    let sizes = |threads: usize| {
        let group = plan.groups.iter().find(|group| group.cpus.len() == threads).unwrap();
        (group.array_bytes, group.cache_bytes)
    };
    assert_eq!(sizes(176), (Bytes(1536 << 20), Bytes(384 << 20)));
    assert_eq!(sizes(1), (Bytes(384 << 20), Bytes(96 << 20)));

    let top = plan.groups.iter().find(|group| group.cpus.len() == 176).unwrap();
    let row = top.kernels.iter().find(|row| row.store == Some(Store::Ordinary)).unwrap();
    // A copy moves twice the array; what the real caches (2,304 MiB) hold of it comes back at 3,000 GB/s.
    let caches = (2304u64 << 20) as f64;
    let rate = |array: u64| {
        let cached = (1.0 - 2.0 * array as f64 / caches).max(0.0) + caches / (16.0 * array as f64);
        1.0 / (cached.min(1.0) / 3000e9 + (1.0 - cached.min(1.0)) / 600e9)
    };
    let mut record = record(&machine, &plan, |group, _| rate(group.array_bytes.0));
    let own = Group { scope: COLUMN.into(), ..top.clone() };
    let mut size = top.array_bytes.0;
    let mut asked = 0;
    let found = loop {
        for bytes in [size, 2 * size] {
            record.lines.push(Line::Stream(step(&own, row, Bytes(bytes), rate(bytes))));
        }
        let now = column(&record).unwrap();
        asked += 1;
        match now.doubling {
            Doubling::Confirmed(_) => break now,
            Doubling::Differs(change) => assert!(change < -0.03 && now.bytes_per_s().is_none()),
            Doubling::NotMeasured => panic!(),
        }
        size *= 2;
    };
    assert!(asked > 1 && found.array_bytes.0 > top.array_bytes.0, "{found:?}");
    let text = said(&record);
    assert!(text.contains("Bandwidth column: ") && text.contains("a variant of STREAM copy"), "{text}");
}

#[test]
fn without_a_doubled_size_the_column_says_so_and_with_a_different_one_there_is_none() {
    let machine = machine("hbv4_176_flat_l3_old.xml");
    let plan = plan(&machine, &Options { operations: vec![Operation::Copy], ..Options::default() });
    let mut record = record(&machine, &plan, |group, _| 4e9 * group.cpus.len() as f64);
    assert_eq!(column(&record).unwrap().doubling, Doubling::NotMeasured);
    assert!(
        said(&record).contains("Bandwidth column: none.") && said(&record).contains("not repeated over doubled arrays")
    );
    assert_eq!(column(&record).unwrap().bytes_per_s(), None);
    let top = plan.groups.iter().find(|group| group.cpus.len() == 176).unwrap();
    let own = Group { scope: COLUMN.into(), ..top.clone() };
    for (bytes, rate) in [(1u64 << 31, 700e9), (1 << 32, 650e9)] {
        record.lines.push(Line::Stream(step(&own, top.kernels[0], Bytes(bytes), rate)));
    }
    let column = column(&record).unwrap();
    assert_eq!(column.bytes_per_s(), None);
    assert!(said(&record).contains("Bandwidth column: none."), "{}", said(&record));
    let summary = serde_json::to_value(report::summary(&record, None)).unwrap();
    assert!(summary["stream"]["column_bytes_per_s"].is_null());
    assert!(summary["stream"]["column_doubling"].as_f64().unwrap() < -0.03);
}

#[test]
fn halves_of_the_cores_tell_whether_bandwidths_add() {
    let of = |description: &str| Machine::from_source(&format!("synthetic:{description}")).unwrap();
    let machine = of("[numa(memory=400GB)] pack:1 l3:2(size=32MiB) core:4 pu:2");
    let whole = plan(&machine, &Options::default());
    let cpus = |scope: &str| -> Vec<Vec<u32>> {
        let groups = whole.groups.iter().filter(|group| group.scope == scope);
        groups.map(|group| group.cpus.iter().map(|cpu| cpu.0).collect()).collect()
    };
    assert_eq!((cpus("half 0"), cpus("half 1")), (vec![vec![0, 2, 4, 6]], vec![vec![8, 10, 12, 14]]));
    let half = whole.groups.iter().find(|group| group.scope == "half 0").unwrap();
    assert!(half.kernels.len() == 1 && half.kernels[0].operation == Operation::Read);

    for (together, ratio, words) in
        [(106e9, 0.53, "they share one memory"), (190e9, 0.95, "bandwidths add"), (160e9, 0.8, "a part of")]
    {
        let rate = |group: &Group, _: &Row| match (&*group.scope, group.cpus.len()) {
            ("half 0", _) => 110e9,
            ("half 1", _) => 90e9,
            (_, 8) => together,
            // Other thread counts, hardware threads among them, are no halves together.
            _ => 300e9,
        };
        let record = record(&machine, &whole, rate);
        assert!((halves(&record).unwrap().ratio() - ratio).abs() < 1e-6);
        let said = said(&record);
        assert!(said.contains(&format!("alone, {:.0} together: {ratio:.2} of the sum: ", together / 1e9)), "{said}");
        assert!(said.contains(words), "{said}");
    }

    let has_halves = |machine: &Machine, options: &Options| {
        plan(machine, options).groups.iter().any(|group| group.scope.starts_with("half"))
    };
    assert!(!has_halves(&machine, &Options { preset: Preset::Quick, ..Options::default() }));
    assert!(!has_halves(&machine, &Options { operations: vec![Operation::Copy], ..Options::default() }));
    assert!(!has_halves(&of("[numa(memory=40GB)] l3:1(size=32MiB) core:1 pu:2"), &Options::default()));
    assert!(!has_halves(&of("pack:2 [numa(memory=40GB)] l3:1(size=32MiB) core:2 pu:1"), &Options::default()));
    let copies = record(
        &machine,
        &plan(&machine, &Options { operations: vec![Operation::Copy], ..Options::default() }),
        |_, _| 1e9,
    );
    assert_eq!(halves(&copies), None);
}

#[test]
fn six_nodes_give_six_rows_a_full_matrix_and_both_sockets() {
    let machine = machine("e372is_v7_snc3_guess.xml");
    let plan = plan(&machine, &Options::default());
    let scopes: Vec<&str> = plan.groups.iter().map(|group| group.scope.as_str()).collect();
    for scope in ["machine", "machine interleaved", "socket 0", "socket 1", "node 0", "node 5", "node 5 to node 0"] {
        assert!(scopes.contains(&scope), "{scope} is not in {scopes:?}");
    }
    // Local 60, the same socket 40, the other one 25; a rate that names its pair in the last digits.
    let rate = |from: u32, to: u32| {
        let base = if from == to {
            60.0
        } else if from / 3 == to / 3 {
            40.0
        } else {
            25.0
        };
        (base + 0.1 * f64::from(from) + 0.01 * f64::from(to)) * 1e9
    };
    let record = record(&machine, &plan, |group, row| {
        let one = |nodes: &NodeSet| nodes.first().filter(|_| nodes.len() == 1);
        match (one(&group.cpu_nodes), one(&group.memory_nodes)) {
            (Some(from), Some(to)) if group.scope != MACHINE => rate(from.0, to.0),
            _ => {
                let threads = group.cpus.len() as f64;
                let full = if row.operation == Operation::Read { 600e9 } else { 500e9 };
                // Half of the peak at 31 threads; beyond 186 it falls.
                full * threads / (threads + 31.0) * if threads > 186.0 { 0.9 } else { 1.0 }
            }
        }
    });
    let matrices = matrices(&record);
    let names: Vec<&str> = matrices.iter().map(|matrix| matrix.kernel.split('_').next().unwrap()).collect();
    assert_eq!(names, ["read", "copy", "triad"]);
    for matrix in &matrices {
        assert_eq!(matrix.cells.len(), 36);
        for (pair, seen) in &matrix.cells {
            assert!((seen / rate(pair.0.0, pair.1.0) - 1.0).abs() < 1e-6, "{pair:?}");
        }
    }
    let text = said(&record);
    // In a guest the nodes are the hypervisor's.
    for part in [
        "guest node 3 25.3 25.3 25.3 60.3",
        "socket 1",
        "machine interleaved",
        "is reached with 184 threads; 372 threads are 3 % below it",
        "cores of \\ memory of guest node 0 guest node 1",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn memory_without_cpus_is_a_target_and_cpus_without_memory_have_no_row_of_their_own() {
    let source = "synthetic:\"pack:2 [numa(memory=64GB)] l3:1(size=32MB) core:8 pu:1\"";
    let mut machine = Machine::from_source(source).unwrap();
    let extra = machine.topology.nodes[1].clone();
    machine.topology.nodes.push(membar::machine::Node {
        id: NodeId(2),
        cpus: CpuSet::default(),
        near_cpus: extra.cpus.clone(),
        memory_bytes: Some(Bytes(64_000_000_000)),
    });
    machine.topology.nodes.push(membar::machine::Node { id: NodeId(3), memory_bytes: Some(Bytes(0)), ..extra });
    machine.allowed_nodes = "0-3".parse().unwrap();
    let plan = plan(&machine, &Options::default());
    let group = plan.groups.iter().find(|group| group.scope == "node 2").unwrap();
    assert_eq!(group.cpu_nodes.to_string(), "1");
    assert_eq!(group.expected_nodes, vec![Some(NodeId(2)); 8]);
    assert!(plan.groups.iter().any(|group| group.scope == "node 0 to node 2"));
    assert!(plan.groups.iter().all(|group| group.scope != "node 3" && !group.scope.ends_with("to node 3")));
    let record = record(&machine, &plan, |_, _| 50e9);
    let text = said(&record);
    assert!(text.contains("guest node 2 has no CPUs: read from CPUs 8-15 of guest node 1"), "{text}");
    assert!(text.contains("No local row for guest node 3: without memory."), "{text}");
}

#[test]
fn a_small_memory_limit_labels_every_row_and_leaves_the_column_out() {
    let machine = Machine::from_source("synthetic:\"numa:1(memory=256MB) l3:1(size=32MB) core:2 pu:1\"").unwrap();
    let plan = plan(&machine, &Options::default());
    assert!(plan.column.is_none());
    assert!(plan.groups.iter().all(|group| group.caveats[0].to_string().starts_with("cannot be DRAM: ")));
    let reason = &plan.left_out.iter().find(|left| left.what == "bandwidth column").unwrap().reason;
    assert!(reason.starts_with("cannot be DRAM: ") && reason.ends_with("takes 124 MiB"), "{reason}");
    let scope = Scope::new(&machine, None, None).unwrap();
    let alone = Options { column_only: true, operations: vec![Operation::Copy], size: None, ..Options::default() };
    // Two arrays of 124 MiB do not fit either.
    let error = stream::plan(&machine, &scope, &IsaSet::detect(), &alone).unwrap_err().to_string();
    assert!(error.contains("could not measure the bandwidth column: cannot be DRAM"), "{error}");
    let alone = Options { size: Some(Bytes(4 << 20)), ..alone };
    let error = stream::plan(&machine, &scope, &IsaSet::detect(), &alone).unwrap_err();
    assert_eq!(error.kind(), membar::error::Kind::Usage);
    assert!(error.to_string().contains("at least --size 130023424"), "{error}");
}

#[test]
fn presets_and_placements_narrow_and_widen_the_plan() {
    let machine = machine("e372is_v7_snc3_guess.xml");
    let groups = |options: Options| plan(&machine, &options).groups;
    let quick = groups(Options { preset: Preset::Quick, ..Options::default() });
    assert!(quick.iter().all(|group| !group.scope.contains(" to ")));
    assert!(quick.iter().any(|group| group.scope == "node 5"));
    let threads = groups(Options { threads: Some("4".parse().unwrap()), ..Options::default() });
    assert_eq!(threads.len(), 1, "asked for one thread count");
    let interleaved = groups(Options { placement: Some(PlacementRule::Interleave), ..Options::default() });
    assert!(
        interleaved
            .iter()
            .filter(|group| group.scope == MACHINE)
            .all(|group| { group.placement == membar::memory::Policy::Interleave("0-5".parse().unwrap()) })
    );
    let full = groups(Options { preset: Preset::Full, ..Options::default() });
    assert!(full.iter().filter(|group| group.scope == MACHINE).all(|group| group.samples == 20));
}
