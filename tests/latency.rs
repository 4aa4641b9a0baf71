//! Latency records as a person reads them: made-up samples on a machine with two nodes.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::machine::Machine;
use membar::plan::{self, Scope};
use membar::record::{self, CoreLatencyStep, Line, Record};
use membar::units::NodeId;
use membar::{report, stats};
use std::path::Path;

#[test]
fn a_line_homed_at_either_side_is_told_apart() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/kvm-guest-2-cpus.jsonl");
    let mut record = Record::read(&path).unwrap();
    let old = record.lines.iter().find_map(|line| match line {
        Line::CoreLatency(line) if line.protocol == "cas" => Some(line.clone()),
        _ => None,
    });
    let old = old.unwrap();
    assert_eq!((old.line_state.as_deref(), old.backward_ns.len(), old.home_asked), (None, 0, None));

    let homed = |node: u32, ns: u64| {
        let mut line = CoreLatencyStep { home_node: Some(NodeId(node)), ..old.clone() };
        line.step.units_per_sample = 100;
        line.step.samples_ns = vec![ns * 100; 5];
        line.step.caveats.clear();
        line.summary = stats::core_latency(&line.step);
        line.reported_class = "machine".to_owned();
        Line::CoreLatency(line)
    };
    record.header.topology = Machine::from_source("synthetic:numa:2(memory=1GB) core:1 pu:1").unwrap().topology;
    record.lines = vec![homed(0, 110), homed(1, 140)];
    let text = report::document(&record).to_text();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        "cas machine first CPU 1 110.0 110.0 110.0",
        "cas machine second CPU 1 140.0 140.0 140.0",
        // A row of the matrix is the CPU at whose side the line was.
        "CPU 0 110.0",
        "CPU 1 140.0",
    ] {
        assert!(rows.iter().any(|cells| cells.join(" ") == row), "{row} is not in\n{text}");
    }
    // One side alone needs no column.
    record.lines.truncate(1);
    assert!(!report::document(&record).to_text().contains("homed"));
}

/// Bytes of the lines that a plan for all pairs will write, with times of the length that is usual.
fn record_bytes(description: &str) -> usize {
    let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
    let scope = Scope::new(&machine, None, None).unwrap();
    let plan = plan::latency::plan(&machine, &scope, &plan::latency::Options::default());
    let steps: Vec<_> = plan.steps().collect();
    let mut random = fastrand::Rng::with_seed(1);
    let line = |step: &plan::latency::Step| {
        let mut sample = || plan.sample_least_ns + random.u64(..plan.sample_least_ns / 4);
        let samples_ns = (0..plan.samples).map(|_| sample()).collect();
        let cpus = vec![step.pair.a, step.pair.b];
        let step_facts = record::Step { threads: 2, cpus, samples_ns, units_per_sample: 530, ..Default::default() };
        let long = steps.len() > plan::latency::TERSE;
        let line = Line::CoreLatency(CoreLatencyStep {
            cpu_a: step.pair.a,
            cpu_b: step.pair.b,
            protocol: step.protocol.name().to_owned(),
            path: step.protocol.path().to_owned(),
            line_state: (!long).then(|| "modified".to_owned()),
            home_node: step.home.node(),
            home_asked: None,
            backward_ns: Vec::new(),
            flags_round_trip_ns: None,
            reported_class: step.pair.class.name().to_owned(),
            summary: stats::core_latency(&step_facts),
            step: step_facts,
        });
        serde_json::to_string(&line).unwrap().len() + 1
    };
    steps.iter().map(line).sum()
}

#[test]
fn a_record_of_all_pairs_stays_small() {
    let half = record_bytes("pack:1 numa:2(memory=1GB) l3:4 core:8 pu:1");
    assert!((300_000..750_000).contains(&half), "{half} bytes for 64 CPUs, 1 MB for all measurements");
    let large = record_bytes("pack:2 numa:3(memory=1GB) l3:2 core:32 pu:1");
    assert!((15_000_000..20_000_000).contains(&large), "{large} bytes for 384 CPUs");
}
