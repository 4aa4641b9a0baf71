//! Latency records as a person reads them: made-up samples on a machine with two nodes.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::machine::Machine;
use membar::record::{CoreLatencyStep, Line, Record};
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
    // What a record without the field means.
    assert_eq!((old.line_state.as_str(), old.backward_ns.len(), old.home_asked), ("modified", 0, None));

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
