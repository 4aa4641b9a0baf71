//! Loaded latency with tiny buffers, from plan to record: nothing depends on a timing.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::machine::{IsaSet, Machine, current_affinity};
use membar::plan::loaded::{Group, Plan, plan};
use membar::plan::{Preset, Scope};
use membar::record::{Line, LoadedLatencyStep};
use membar::run::clock::Clock;
use membar::run::{Context, Outcome, Stop, loaded};
use membar::stats;
use membar::units::{Bytes, CpuId, Nanos};
use std::sync::atomic::AtomicUsize;

/// Two threads on CPUs of this process.
fn tiny(cpus: Vec<CpuId>) -> Plan {
    let group = Group {
        scope: "machine".into(),
        builders: vec![cpus[0]],
        cpus,
        cache_bytes: Bytes(0),
        cpu_node: None,
        memory_node: None,
        chain_bytes: Bytes(1 << 20),
        array_bytes: Bytes(3 << 20),
        caveats: Vec::new(),
    };
    let paces = vec![1.0, 0.5, 0.0];
    Plan { groups: vec![group], paces, samples: 2, sample_least_ns: 100_000, seed: 1, left_out: Vec::new() }
}

fn measured(plan: &Plan, deadline: Option<Nanos>) -> (Vec<LoadedLatencyStep>, usize) {
    let (mut steps, mut left_out) = (Vec::new(), 0);
    let signal = AtomicUsize::new(0);
    let mut outcome = |outcome| {
        match outcome {
            Outcome::Measured(line) => match *line {
                Line::LoadedLatency(step) => steps.push(step),
                other => panic!("{other:?}"),
            },
            Outcome::LeftOut(_) => left_out += 1,
            Outcome::Failed(error) => panic!("{error}"),
            Outcome::Starting(_) => {}
        }
        Ok(())
    };
    let mut context = Context {
        clock: Clock::start(),
        stop: Stop { signal: &signal, deadline },
        outcome: &mut outcome,
        clock_step: Nanos(1),
        verify: false,
    };
    loaded::run(plan, &IsaSet::detect(), &mut context).unwrap();
    (steps, left_out)
}

#[test]
fn every_pace_leaves_a_point_with_what_was_read_meanwhile() {
    let cpus: Vec<CpuId> = current_affinity().iter().take(2).collect();
    if cpus.len() < 2 {
        println!("skipped: one CPU");
        return;
    }
    let (steps, _) = measured(&tiny(cpus.clone()), None);
    assert_eq!(steps.iter().map(|step| step.pace).collect::<Vec<_>>(), [1.0, 0.5, 0.0]);
    for step in &steps {
        assert_eq!((step.step.samples_ns.len(), step.background_bytes.len()), (2, 2));
        assert!(step.summary.median_ns.is_some_and(|ns| ns > 0.0));
        assert!(stats::agrees(&Line::LoadedLatency(step.clone())));
        let json = serde_json::to_string(&Line::LoadedLatency(step.clone())).unwrap();
        assert!(json.starts_with(r#"{"kind":"loaded_latency""#), "{json}");
    }
    assert_eq!(steps[2].background_bytes, [0, 0], "nobody reads at a pace of zero");
    let late = measured(&tiny(cpus), Some(Nanos(0)));
    assert!(late.0.is_empty() && late.1 == 1, "the time budget is over before it begins");
}

#[test]
fn each_node_has_a_curve_and_one_core_has_none() {
    let planned = |description: &str, preset| {
        let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        plan(&machine, &scope, None, 1, preset)
    };
    let two = planned("pack:2 [numa(memory=40GB)] l3:1(size=32MiB) core:4 pu:2", Preset::Default);
    let scopes: Vec<&str> = two.groups.iter().map(|group| group.scope.as_str()).collect();
    assert_eq!(scopes, ["machine", "node 0", "node 1"]);
    assert!(two.paces.len() >= 8 && two.paces[0] == 1.0 && two.paces.contains(&0.0));
    for group in &two.groups {
        assert!(group.array_bytes.0 >= 4 * group.cache_bytes.0 && group.chain_bytes.0 >= 256 << 20);
        assert_eq!((group.builders.len(), group.cpu_node), (4, group.memory_node));
    }
    let alone = planned("[numa(memory=40GB)] l3:1(size=32MiB) core:1 pu:2", Preset::Default);
    assert!(alone.groups.is_empty() && alone.left_out[0].reason.contains("there is one"));
}
