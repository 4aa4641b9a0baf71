//! Samples recorded on a machine with two plateaus: what is judged from them.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::attribute::{Movement, References};
use membar::caveat::Caveat;
use membar::record::{Line, Record, ReferenceStep, Repeated, Step};
use membar::report;
use membar::stats;
use membar::units::Bytes;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    steps: Vec<RecordedStep>,
    plateaus: [Plateau; 2],
}

/// What the machine is on one of them.
#[derive(Clone, Copy, Deserialize)]
struct Plateau {
    pair_latency_ns: f64,
    read_bytes_per_s: f64,
}

/// Values of one step, and the two levels that they sit on, if they do.
#[derive(Deserialize)]
struct RecordedStep {
    commit: String,
    step: String,
    levels_ns: Option<(f64, f64)>,
    values_ns: Vec<f64>,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("data/plateaus.json")).unwrap()
}

#[test]
fn recorded_levels_are_found_and_steady_steps_are_not_split() {
    let steps = recorded().steps;
    assert!(steps.iter().any(|step| step.levels_ns.is_some()) && steps.iter().any(|step| step.levels_ns.is_none()));
    for step in steps {
        let name = format!("{} of {}", step.step, step.commit);
        match (stats::two_levels(&step.values_ns), step.levels_ns) {
            (None, None) => {}
            (Some((low, high)), Some((low_seen, high_seen))) => {
                assert!(stats::same_level(low, low_seen, 0.01), "{name}: {low}");
                assert!(stats::same_level(high, high_seen, 0.01), "{name}: {high}");
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}

const HEADER: &str = r#"{"kind":"run","schema":1,"version":"0","commit":null,"command":[],"started_utc":"","seed":1,"host":"h","cpu":{"model_name":"c","vendor":"v","isa":[],"hypervisor":null},"topology":{"packages":[],"dies":[],"nodes":[],"caches":[],"cores":[],"pus":[],"distances":null},"clock":{"source":"s","step_ns":1},"allowed_cpus":"0-1","allowed_nodes":"","environment":{"kernel":null},"labels":{},"caveats":[]}"#;
const ARRAY: Bytes = Bytes(1 << 31);

/// A line whose samples are these times of a unit.
fn line(what: Repeated, at_s: f64, times_ns: &[f64], caveats: Vec<Caveat>) -> Line {
    let counted_bytes = (what == Repeated::Read).then_some(ARRAY);
    let samples_ns = times_ns.iter().map(|ns| (ns * 1000.0).round() as u64).collect();
    let step = Step { threads: 2, caveats, samples_ns, units_per_sample: 1000, ..Step::default() };
    Line::Reference(ReferenceStep {
        summary: stats::reference(&step, counted_bytes),
        step,
        what,
        at_ns: (at_s * 1e9) as u64,
        kernel: None,
        array_bytes: counted_bytes,
        counted_bytes,
        protocol: None,
        path: None,
    })
}

/// A record with a reference every five seconds on these plateaus, within 1 %. It has been written and read again.
fn record(plateaus: &[Plateau]) -> Record {
    let mut lines = Vec::new();
    for (index, plateau) in plateaus.iter().enumerate() {
        let at_s = 1.0 + 5.0 * index as f64;
        let near = |value: f64, samples: usize| -> Vec<f64> {
            (0..samples)
                .map(|sample| value * (1.0 + 0.01 * (((7 * index + 3 * sample) % 5) as f64 / 2.0 - 1.0)))
                .collect()
        };
        lines.push(line(Repeated::Read, at_s, &near(ARRAY.0 as f64 * 1e9 / plateau.read_bytes_per_s, 3), vec![]));
        lines.push(line(Repeated::PairLatency, at_s + 0.2, &near(plateau.pair_latency_ns, 5), vec![]));
    }
    read_back(&lines)
}

fn read_back(lines: &[Line]) -> Record {
    let lines: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
    let record = Record::parse(&format!("{HEADER}\n{}\n", lines.join("\n")), "r").unwrap();
    assert_eq!(record.lines.len(), lines.len());
    assert!(record.lines.iter().all(stats::agrees));
    record
}

#[test]
fn a_machine_that_moves_between_its_plateaus_is_told() {
    let [slow, fast] = recorded().plateaus;
    let once: Vec<Plateau> = [vec![slow; 9], vec![fast; 3]].concat();
    let record = record(&once);
    let drift = References::of(&record).unwrap().drift().unwrap();
    assert_eq!(drift.movement, Movement::Levels);
    assert_eq!(
        drift.sentence,
        "The machine moved between two levels while this ran: reading by 2 threads at 43.0 GB/s (pair latency 60 ns) and \
         at 77.0 GB/s (275 ns); the first until 41 s."
    );
    assert_eq!(drift.on_other_level[8..10], [(41.0, false), (46.0, true)]);
    let text = report::document(&record).to_text();
    assert!(text.contains("Note: The machine moved between two levels"), "{text}");
    assert_eq!(report::csv(&record).unwrap().lines().filter(|row| row.starts_with("reference,read")).count(), 12);
}

#[test]
fn to_and_fro_a_single_visit_and_a_slow_drift_are_told_apart() {
    let [slow, fast] = recorded().plateaus;
    let drift = |plateaus: &[Plateau]| References::of(&record(plateaus)).unwrap().drift().unwrap();
    let to_and_fro = drift(&[slow, fast, slow, fast, slow]);
    assert!(to_and_fro.sentence.ends_with("; the first at 3 of 5 reference steps."), "{}", to_and_fro.sentence);
    let visit = drift(&[vec![slow; 6], vec![fast], vec![slow; 6]].concat());
    assert_eq!(
        visit.sentence,
        "The machine wandered while this ran: reading by 2 threads between 42.8 GB/s and 77.0 GB/s (pair latency between 60 \
         and 275 ns)."
    );
    let ramp: Vec<Plateau> =
        (0..12).map(|step| Plateau { read_bytes_per_s: 43e9 - 1e9 * f64::from(step), ..slow }).collect();
    let ramp = drift(&ramp);
    assert_eq!(ramp.movement, Movement::Drifted);
    assert!(ramp.sentence.contains("from 43.2 GB/s to 32.0 GB/s (pair latency 60 ns)"), "{}", ramp.sentence);
}

#[test]
fn a_steady_machine_gets_one_line_and_disturbed_references_do_not_count() {
    let [slow, fast] = recorded().plateaus;
    let references = References::of(&record(&[slow; 12])).unwrap();
    assert_eq!(references.drift(), None);
    assert_eq!(references.sentence(), "Reference steps: read 42.8 to 43.2 GB/s, pair latency 60 ns over 55 s: steady.");
    let wide: Vec<Line> = [[60.0, 70.0, 80.0], [60.0, 90.0, 95.0]]
        .iter()
        .map(|times| line(Repeated::PairLatency, 1.0, times, vec![]))
        .collect();
    assert_eq!(
        References::of(&read_back(&wide)).unwrap().sentence(),
        "Reference steps: pair latency 70 to 90 ns over 0 s: no more apart than the samples of each."
    );
    let mut lines = record(&[slow; 12]).lines;
    let preempted = vec![Caveat::Preempted { switches: 9, share: 0.4 }];
    lines.push(line(Repeated::Read, 60.0, &[ARRAY.0 as f64 * 1e9 / fast.read_bytes_per_s; 3], preempted));
    lines.push(line(Repeated::PairLatency, 60.2, &[fast.pair_latency_ns; 5], vec![]));
    let said = References::of(&read_back(&lines)).unwrap().sentence();
    assert!(said.ends_with("steady. One more was disturbed by other work and does not count."), "{said}");
    let one = References::of(&record(&[slow])).unwrap().sentence();
    assert!(one.contains("too few"), "{one}");
    assert_eq!(References::of(&record(&[])), None);
}

/// A step that moved while it was measured, cut into references of five samples: they see it move.
#[test]
fn recorded_samples_move_as_references_would() {
    let step = &recorded().steps[0];
    assert!(step.step.contains("sense-reversing") && step.levels_ns.is_some());
    let references = step.values_ns.chunks(5).zip(0..);
    let lines: Vec<Line> =
        references.map(|(times, at_s)| line(Repeated::PairLatency, f64::from(at_s), times, vec![])).collect();
    let drift = References::of(&read_back(&lines)).unwrap().drift().unwrap();
    assert_eq!(drift.movement, Movement::Levels);
    assert_eq!(
        drift.on_other_level.iter().map(|(_, other)| *other).collect::<Vec<_>>()[6..],
        [false, true, true, true]
    );
    assert!(drift.sentence.ends_with("pair latency at 274 and at 95 ns; the first until 6 s."), "{}", drift.sentence);
}
