//! What a hypervisor hides: siblings and pages from plan to record on this machine, and reports of made-up records. Nothing
//! depends on a timing.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "fixture/header.rs"]
mod fixture;

use fixture::header;
use membar::attribute::page::{Finding, Pages};
use membar::attribute::sibling::Siblings;
use membar::caveat::Caveat;
use membar::machine::{Machine, current_affinity};
use membar::plan::memory_latency::Chase;
use membar::plan::{Preset, Scope, page, sibling};
use membar::record::{Line, PageLatencyStep, Record, SiblingStep, Step};
use membar::run::clock::Clock;
use membar::run::{self, Context, Outcome, Stop};
use membar::units::{Bytes, CpuId, Nanos};
use membar::{report, stats};
use std::sync::atomic::AtomicUsize;

/// What a runner hands over: lines of the record, and how much was left out.
fn measured(
    deadline: Option<Nanos>,
    verify: bool,
    work: impl FnOnce(&mut Context<'_>) -> membar::error::Result<()>,
) -> (Vec<Line>, Vec<String>) {
    let (mut lines, mut left_out) = (Vec::new(), Vec::new());
    let signal = AtomicUsize::new(0);
    let mut outcome = |outcome| {
        match outcome {
            Outcome::Measured(line) => lines.push(*line),
            Outcome::LeftOut(left) => left_out.push(left.what),
            Outcome::Failed(error) => panic!("{error}"),
            Outcome::Starting(_) => {}
        }
        Ok(())
    };
    let stop = Stop { signal: &signal, deadline };
    let clock = Clock::start();
    let mut context = Context { clock, stop, outcome: &mut outcome, clock_step: Nanos(1), verify };
    work(&mut context).unwrap();
    (lines, left_out)
}

/// A tiny plan for as many CPUs of this process; the same ones over and over where it has fewer.
fn sibling_plan(cpus: usize) -> sibling::Plan {
    let machine = Machine::from_source(&format!("synthetic:core:{cpus} pu:1")).unwrap();
    let scope = Scope::new(&machine, None, None).unwrap();
    let mut plan = sibling::plan(&machine, &scope, &sibling::Options { samples: Some(2), ..Default::default() });
    let own: Vec<CpuId> = current_affinity().iter().collect();
    let real = |cpu: &mut CpuId| *cpu = own[cpu.0 as usize % own.len()];
    plan.pairs.iter_mut().for_each(|planned| {
        real(&mut planned.pair.a);
        real(&mut planned.pair.b);
    });
    plan.tested.iter_mut().for_each(real);
    plan.sample_least_ns = 50_000;
    plan
}

#[test]
fn a_pair_leaves_times_alone_and_together() {
    let plan = sibling_plan(2);
    let (lines, left_out) = measured(None, false, |context| run::sibling::run(&plan, context));
    assert!(left_out.is_empty(), "{left_out:?}");
    let [line @ Line::Sibling(step)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((step.step.threads, step.step.samples_ns.len()), (2, 2));
    assert_eq!((step.alone_a_ns.len(), step.alone_b_ns.len(), step.chosen.as_str()), (2, 2, "all"));
    assert!(step.summary.slowdown.is_some_and(|slowdown| slowdown > 0.0) && stats::agrees(line));
    let json = serde_json::to_string(line).unwrap();
    assert!(json.starts_with(r#"{"kind":"sibling""#), "{json}");
    // Digits beyond the fifteenth may differ.
    let again: Line = serde_json::from_str(&json).unwrap();
    assert!(
        stats::agrees(&again) && again.step().map(|step| &step.samples_ns) == line.step().map(|step| &step.samples_ns)
    );
    let mut edited = step.clone();
    edited.summary.slowdown = Some(1000.0);
    assert!(!stats::agrees(&Line::Sibling(edited)));

    assert_eq!(measured(None, true, |context| run::sibling::run(&plan, context)), (Vec::new(), Vec::new()));
    let late = measured(Some(Nanos(0)), false, |context| run::sibling::run(&plan, context));
    assert!(late.0.is_empty() && late.1 == ["1 of 1 pairs that may be siblings"], "{late:?}");
}

#[test]
fn many_cpus_are_tested_in_groups_and_the_planned_pairs_measured() {
    let plan = sibling_plan(10);
    let (lines, _) = measured(None, false, |context| run::sibling::run(&plan, context));
    let chosen =
        |name: &str| lines.iter().filter(|line| matches!(line, Line::Sibling(step) if step.chosen == name)).count();
    assert!(chosen("control") > 0 && chosen("control") == plan.pairs.len());
    assert_eq!(chosen("control") + chosen("candidate"), lines.len());
    let (lines, left_out) = measured(Some(Nanos(0)), false, |context| run::sibling::run(&plan, context));
    assert!(lines.is_empty() && left_out[0].contains("group test of 10 CPUs"), "{left_out:?}");
}

#[test]
fn pages_are_visited_from_two_cpus() {
    let cpus: Vec<CpuId> = current_affinity().iter().collect();
    let chase = |cpu| Chase { cpu, cpu_node: None, cache_bytes: Bytes(0) };
    let buffer = page::Buffer {
        chases: vec![chase(cpus[0]), chase(cpus[cpus.len() - 1])],
        builders: vec![cpus[0]],
        memory_node: None,
        footprint_bytes: Bytes(12 << 20),
        caveats: Vec::new(),
    };
    let plan = page::Plan { buffer: Some(buffer), pages: 600, passes: 3, seed: 1, left_out: Vec::new() };
    let (lines, left_out) = measured(None, false, |context| run::page::run(&plan, context));
    assert!(left_out.is_empty() && lines.len() == 2, "{left_out:?}");
    for line in &lines {
        let Line::PageLatency(step) = line else { panic!("{line:?}") };
        assert_eq!((step.step.samples_ns.len(), step.step.units_per_sample), (3, 600 * 64));
        assert_eq!((step.pages, step.loads_per_page, step.compared_ns.len()), (600, 64, 512));
        assert_eq!(step.histogram.iter().map(|(_, count)| count).sum::<u64>(), 600);
        assert!(step.compared_ns.iter().all(|ns| *ns > 0) && step.histogram.is_sorted());
        assert!(step.summary.median_ns.is_some_and(|ns| ns > 0.0) && stats::agrees(line));
        let json = serde_json::to_string(line).unwrap();
        assert!(json.starts_with(r#"{"kind":"page_latency""#), "{json}");
        let again: Line = serde_json::from_str(&json).unwrap();
        let samples = |line: &Line| line.step().map(|step| step.samples_ns.clone());
        assert!(stats::agrees(&again) && samples(&again) == samples(line));
    }
    assert_eq!(measured(None, true, |context| run::page::run(&plan, context)), (Vec::new(), Vec::new()));
    let late = measured(Some(Nanos(0)), false, |context| run::page::run(&plan, context));
    assert!(late.0.is_empty() && late.1.len() == 1);
}

/// The report in one line: where it is wrapped does not matter.
fn said(record: &Record) -> String {
    report::document(record).to_text().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The steps of a plan for a machine of two threads a core, where `core` says who really shares one.
fn sibling_record(description: &str, core: impl Fn(u32) -> u32, caveat: Option<Caveat>) -> Record {
    let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
    let scope = Scope::new(&machine, None, None).unwrap();
    let plan = sibling::plan(&machine, &scope, &sibling::Options { seed: 1, ..Default::default() });
    let partners = |b: usize| (0..b).filter(move |a| *a != b);
    let cpus = plan.tested.len();
    let real: Vec<(usize, usize)> = (0..cpus)
        .flat_map(|b| partners(b).map(move |a| (a, b)))
        .filter(|(a, b)| core(plan.tested[*a].0) == core(plan.tested[*b].0))
        .collect();
    let candidates = plan.candidates(&sibling::Decoded { pairs: real, unclear: Vec::new() });
    let step = |planned: &sibling::Planned| {
        let (a, b) = (planned.pair.a, planned.pair.b);
        let together = if core(a.0) == core(b.0) { 1_980_000 } else { 1_010_000 };
        let step = Step {
            threads: 2,
            cpus: vec![a, b],
            caveats: caveat.iter().cloned().collect(),
            samples_ns: vec![together; 9],
            units_per_sample: 1000,
            ..Step::default()
        };
        let alone = vec![1_000_000; 9];
        let summary = stats::sibling(&step, &alone, &alone);
        Line::Sibling(SiblingStep {
            step,
            cpu_a: a,
            cpu_b: b,
            alone_a_ns: alone.clone(),
            alone_b_ns: alone,
            chosen: planned.chosen.name().into(),
            reported_class: planned.pair.class.name().into(),
            summary,
        })
    };
    record(&machine, plan.pairs.iter().chain(&candidates).map(step).collect())
}

fn record(machine: &Machine, lines: Vec<Line>) -> Record {
    Record { header: header(machine), lines, complete: true, remarks: Vec::new() }
}

#[test]
fn cores_are_compared_with_what_is_reported_in_both_directions() {
    // Eight CPUs are reported as eight cores and are four; then as four and are eight; then as they are.
    let hidden = sibling_record("core:8 pu:1", |cpu| cpu % 4, None);
    let found = Siblings::of(&hidden).unwrap();
    assert_eq!((found.pairs, found.shared.len(), found.hidden.len(), found.absent.len()), (28, 4, 4, 0));
    let text = said(&hidden);
    let sentence =
        "CPUs 0 and 4 slow each other 1.98-fold, as hardware threads of one core do; the topology reports two cores";
    assert!(text.contains(sentence) && text.contains("Cores are not as reported"), "{text}");
    let summary = serde_json::to_value(report::summary(&hidden, None)).unwrap();
    assert_eq!(summary["siblings"]["agrees_with_reported"], false);
    assert_eq!(summary["siblings"]["shared"][0], serde_json::json!([0, 4]));

    let absent = sibling_record("core:4 pu:2", |cpu| cpu, None);
    let found = Siblings::of(&absent).unwrap();
    assert_eq!((found.shared.len(), found.hidden.len(), found.absent.len()), (0, 0, 4));
    assert!(
        said(&absent).contains("CPUs 0 and 1 are reported as hardware threads of one core but do not slow each other")
    );

    let same = sibling_record("core:4 pu:2", |cpu| cpu / 2, None);
    assert_eq!(Siblings::of(&same).unwrap().agrees(), Some(true));
    assert!(said(&same).contains("4 of 28 pairs are threads of one core, as reported"));

    // Of many CPUs a table by the way they were chosen, and not every pair by name.
    let many = sibling_record("core:80 pu:1", |cpu| cpu % 40, None);
    let found = Siblings::of(&many).unwrap();
    assert_eq!((found.shared.len(), found.hidden.len()), (40, 40));
    let text = said(&many);
    for part in
        ["found by the group test 40 1.98 1.98 1.98", "at random", "CPUs 0 and 40 slow", "And 12 more like these"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_took_cpus_away_is_no_core() {
    for caveat in [
        Caveat::Throttled { throttled_ns: 5 },
        Caveat::QuotaBelowThreads { quota: 1.0, threads: 2 },
        Caveat::Preempted { switches: 9, share: 0.4 },
    ] {
        let record = sibling_record("core:2 pu:1", |_| 0, Some(caveat));
        let found = Siblings::of(&record).unwrap();
        assert!(found.hidden.is_empty() && found.untold == 1 && found.agrees().is_none(), "{found:?}");
        assert!(said(&record).contains("cannot be told"));
    }
    let little = sibling_record("core:2 pu:1", |_| 0, Some(Caveat::Preempted { switches: 9, share: 0.04 }));
    assert_eq!(Siblings::of(&little).unwrap().hidden.len(), 1);
}

#[test]
fn pages_of_two_nodes_are_said_to_be_so_and_cached_ones_say_nothing() {
    let machine = Machine::from_source("synthetic:core:4 pu:1").unwrap();
    // Pages of 64 loads at 100 or 160 ns; from the other CPU the other way round, or the same.
    let step = |cpu: u32, slow: &dyn Fn(usize) -> bool, caveats: Vec<Caveat>| {
        let visits: Vec<u64> =
            (0..512).map(|page| if slow(page) { 10_240 } else { 6_400 } + page as u64 % 100).collect();
        let step = Step {
            threads: 1,
            cpus: vec![CpuId(cpu)],
            caveats,
            samples_ns: vec![visits.iter().sum()],
            units_per_sample: 512 * 64,
            ..Step::default()
        };
        let summary = stats::latency(&step);
        Line::PageLatency(PageLatencyStep {
            step,
            cpu_node: None,
            memory_node: None,
            footprint_bytes: Bytes(128 << 20),
            cache_bytes: Bytes(32 << 20),
            page_kind: "4k".into(),
            pages_on_node: Vec::new(),
            pages: 512,
            loads_per_page: 64,
            histogram: stats::log_histogram(&visits),
            compared_ns: visits,
            summary,
        })
    };
    let odd = |page: usize| page / 7 % 2 == 1;
    let even = |page: usize| !odd(page);
    let found = |lines: Vec<Line>| {
        let record = record(&machine, lines);
        (Pages::of(&record).unwrap().finding, said(&record))
    };
    let (finding, text) = found(vec![step(0, &odd, vec![]), step(3, &even, vec![])]);
    assert_eq!(finding, Finding::Hidden);
    assert!(text.contains("pages lie on two nodes that are not reported"), "{text}");
    let (finding, text) = found(vec![step(0, &odd, vec![]), step(3, &odd, vec![])]);
    assert!(finding == Finding::SlowPages && text.contains("two kinds of pages"), "{text}");
    let (finding, text) = found(vec![step(0, &odd, vec![])]);
    assert!(finding == Finding::Unclear && text.contains("cannot be told: one CPU cannot tell"), "{text}");
    let (finding, text) = found(vec![step(0, &|_| false, vec![]), step(3, &|_| false, vec![])]);
    assert!(finding == Finding::None && text.contains("no hidden node is seen"), "{text}");
    let cached = Caveat::CacheResident { reuse_bytes: Bytes(1), cache_bytes: Bytes(2) };
    let (finding, text) = found(vec![step(0, &odd, vec![]), step(3, &even, vec![cached])]);
    assert!(finding == Finding::Untold && text.contains("nothing is said about nodes"), "{text}");
    assert_eq!(Pages::of(&record(&machine, Vec::new())), None);
}

#[test]
fn plans_say_what_would_be_measured() {
    let machine = Machine::from_source("synthetic:[numa(memory=40GB)] pack:1 l3:1(size=32MiB) core:8 pu:2").unwrap();
    let scope = Scope::new(&machine, None, None).unwrap();
    let suite = membar::plan::Suite {
        cpus: scope.cpus.clone(),
        sibling: Some(sibling::plan(&machine, &scope, &sibling::Options::default())),
        page: Some(page::plan(&machine, &scope, &page::Options { preset: Preset::Quick, ..Default::default() })),
        ..Default::default()
    };
    let text = report::plan_document(&suite, &machine).to_text();
    assert!(text.contains("a group test of 16 CPUs") && text.contains("from CPU 0 and from CPU 14"), "{text}");
    assert!(suite.needs().memory_bytes.0 >= 128 << 20 && suite.needs().estimated_s < 10.0);
}
