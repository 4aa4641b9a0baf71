//! Records with planted costs: what was planted must come back.

use super::*;
use crate::memory::Policy;
use crate::record::{ClockFacts, CpuFacts, DecodeTrace, RunHeader, SCHEMA, Step};
use crate::units::{CpuSet, NodeSet};

/// Costs of one token, ns.
#[derive(Clone, Copy)]
struct Planted {
    bandwidth: f64,
    reach: f64,
    compute: f64,
    barrier: f64,
    waiting: f64,
    exchange: f64,
}

const BANDWIDTH_BOUND: Planted =
    Planted { bandwidth: 53e6, reach: 0.9e6, compute: 0.0, barrier: 0.0, waiting: 2.5e6, exchange: 1.4e6 };

/// A record under construction.
struct Generator {
    random: fastrand::Rng,
    rounds: u32,
    /// Relative noise that the arms of a round share, and that each has of its own.
    mood: f64,
    noise: f64,
    model: &'static str,
    quantization: &'static str,
    lines: Vec<Line>,
}

impl Generator {
    fn new(rounds: u32) -> Generator {
        Generator {
            random: fastrand::Rng::with_seed(9),
            rounds,
            mood: 0.03,
            noise: 0.0005,
            model: "Qwen3-30B-A3B",
            quantization: "MXFP4",
            lines: Vec::new(),
        }
    }

    fn wobble(&mut self, size: f64) -> f64 {
        1.0 + size * (2.0 * self.random.f64() - 1.0)
    }

    fn line(&mut self, arm: Arm, ns: f64, round: u32, threads: u32, barrier: &str, baseline: bool) {
        let step = Step {
            threads,
            cpus: (0..threads).map(CpuId).collect(),
            samples_ns: vec![(2.0 * ns).round() as u64],
            units_per_sample: 2,
            ..Step::default()
        };
        let summary = stats::decode(&step);
        self.lines.push(Line::Decode(DecodeStep {
            step,
            model: self.model.into(),
            quantization: self.quantization.into(),
            engine: "llama.cpp".into(),
            slicing: "static".into(),
            barrier: barrier.into(),
            wait: Wait::HINT,
            placement: Policy::FirstTouch,
            arm,
            round,
            configuration: if baseline { 0 } else { threads },
            baseline,
            bytes_per_token: Bytes(2_306_975_872),
            barriers_per_token: 2070,
            resident_bytes: Bytes(1 << 30),
            trace: None,
            summary,
        }));
    }

    /// A baseline of two threads, one thread at `one` times its time, another barrier at `other` times.
    fn rounds(mut self, planted: Planted, one: f64, other: f64) -> Generator {
        let Planted { bandwidth, reach, compute, barrier, waiting, exchange } = planted;
        for round in 0..self.rounds {
            let mood = self.wobble(self.mood);
            let sync = bandwidth + reach + compute + barrier + waiting;
            let full = sync + exchange;
            let arms = [
                (Arm::Roof, bandwidth, 2, "central", true),
                (Arm::Read, bandwidth + reach, 2, "central", true),
                (Arm::Sync, sync, 2, "central", true),
                (Arm::Full, full, 2, "central", true),
                (Arm::Barrier, 2070.0 * 66.0, 2, "central", true),
                (Arm::Full, full * one, 1, "central", false),
                (Arm::Full, full * other, 2, "dissemination", false),
            ];
            for (arm, ns, threads, barrier, baseline) in arms {
                let own = self.wobble(self.noise);
                self.line(arm, ns * mood * own, round, threads, barrier, baseline);
            }
            if compute != 0.0 || barrier != 0.0 {
                self.line(Arm::Dot, (bandwidth + reach + compute) * mood, round, 2, "central", true);
                // Stamps cost time, which only the traced arm takes.
                self.line(Arm::Traced, full * 1.02 * mood, round, 2, "central", true);
                if let Some(Line::Decode(step)) = self.lines.last_mut() {
                    let barrier_ns = (2.0 * barrier * mood).round() as u64;
                    step.trace = Some(DecodeTrace { barrier_ns, ..DecodeTrace::default() });
                }
            }
        }
        self
    }

    fn with(mut self, taint: impl Fn(&mut DecodeStep)) -> Generator {
        for line in &mut self.lines {
            if let Line::Decode(step) = line {
                taint(step);
                step.summary = stats::decode(&step.step);
            }
        }
        self
    }

    fn record(self) -> Record {
        let header = RunHeader {
            schema: SCHEMA,
            version: "0".into(),
            commit: None,
            command: Vec::new(),
            started_utc: "2026-01-01T00:00:00Z".into(),
            seed: 1,
            host: "test".into(),
            cpu: CpuFacts { model_name: "test".into(), vendor: "test".into(), isa: Vec::new(), hypervisor: None },
            topology: Default::default(),
            clock: ClockFacts { source: "test".into(), step_ns: 20 },
            allowed_cpus: CpuSet::default(),
            allowed_nodes: NodeSet::default(),
            environment: Default::default(),
            peak_bytes_per_s: None,
            labels: BTreeMap::new(),
            caveats: Vec::new(),
        };
        Record { header, lines: self.lines, complete: true, remarks: Vec::new() }
    }
}

fn verdict(generator: Generator) -> Verdict {
    overall(&generator.record()).unwrap().verdict
}

#[test]
fn planted_parts_come_back() {
    let planted = [
        (BANDWIDTH_BOUND, Limit::Bandwidth, Limit::Skew),
        (
            Planted { bandwidth: 10e6, reach: 30e6, compute: 0.0, barrier: 0.0, waiting: 20e6, exchange: 3e6 },
            Limit::Reach,
            Limit::Skew,
        ),
        (
            Planted { bandwidth: 10e6, reach: 4e6, compute: 0.0, barrier: 0.0, waiting: 40e6, exchange: 20e6 },
            Limit::Skew,
            Limit::Exchange,
        ),
        (
            Planted { bandwidth: 10e6, reach: 4e6, compute: 0.0, barrier: 0.0, waiting: 20e6, exchange: 40e6 },
            Limit::Exchange,
            Limit::Skew,
        ),
    ];
    for (planted, limit, second) in planted {
        let attribution = overall(&Generator::new(25).rounds(planted, 1.5, 1.0).record()).unwrap();
        let parts = attribution.parts;
        let pairs = [
            (parts.bandwidth, planted.bandwidth),
            (parts.reach, planted.reach),
            (parts.skew, planted.waiting),
            (parts.exchange, planted.exchange),
        ];
        for (part, planted) in pairs {
            let part = part.unwrap();
            assert!((part.ns as f64 / planted - 1.0).abs() < 0.02, "{} instead of {planted}", part.ns);
            assert!(part.interval.unwrap().contains(part.ns as f64));
        }
        assert_eq!(parts.barrier, None);
        assert_eq!(attribution.full_ns, parts.iter().map(|(_, part)| part.ns).sum::<i64>());
        assert!((attribution.tokens_per_s.unwrap() * attribution.full_ns as f64 / 1e9 - 1.0).abs() < 1e-9);
        assert!((attribution.idle_barrier_ns.unwrap() - 66.0).abs() < 2.0);
        let verdict = attribution.verdict;
        assert_eq!((verdict.limit, verdict.second), (limit, Some(second)), "{}", verdict.sentence);
        assert!(verdict.confidence >= Confidence::Medium);
    }
}

#[test]
fn arithmetic_and_barriers_are_told_from_reading_and_waiting() {
    let base = Planted { bandwidth: 10e6, reach: 1e6, compute: 2e6, barrier: 3e6, waiting: 5e6, exchange: 4e6 };
    let cases = [
        (Planted { compute: 30e6, ..base }, Limit::Compute),
        (Planted { barrier: 30e6, ..base }, Limit::Barrier),
        (Planted { waiting: 30e6, ..base }, Limit::Skew),
    ];
    for (planted, limit) in cases {
        let attribution = overall(&Generator::new(25).rounds(planted, 1.5, 1.0).record()).unwrap();
        let parts = attribution.parts;
        let Planted { bandwidth, reach, compute, barrier, waiting, exchange } = planted;
        let pairs = [
            (parts.bandwidth, bandwidth),
            (parts.reach, reach),
            (parts.compute, compute),
            (parts.barrier, barrier),
            (parts.skew, waiting),
            (parts.exchange, exchange),
        ];
        for (part, planted) in pairs {
            assert!((part.unwrap().ns as f64 / planted - 1.0).abs() < 0.03, "{part:?} instead of {planted}");
        }
        assert_eq!(attribution.full_ns, parts.iter().map(|(_, part)| part.ns).sum::<i64>());
        assert_eq!(attribution.verdict.limit, limit, "{}", attribution.verdict.sentence);
        assert!(!attribution.verdict.sentence.contains("Arithmetic"), "{}", attribution.verdict.sentence);
    }
}

#[test]
fn clocks_that_disagree_in_one_round_leave_waiting_whole() {
    let planted = Planted { bandwidth: 10e6, reach: 1e6, compute: 2e6, barrier: 3e6, waiting: 5e6, exchange: 4e6 };
    let blind = |step: &mut DecodeStep| {
        if step.round == 3 {
            step.trace = None;
        }
    };
    let attribution = overall(&Generator::new(25).rounds(planted, 1.5, 1.0).with(blind).record()).unwrap();
    assert_eq!(attribution.parts.barrier, None);
    assert!((attribution.parts.skew.unwrap().ns as f64 / 8e6 - 1.0).abs() < 0.03);
}

#[test]
fn a_few_disturbed_rounds_change_nothing_and_the_token_is_the_one_measured() {
    let detour = |step: &mut DecodeStep| {
        // One arm in every sixth round, another one each time, takes four times as long.
        let arms = [Arm::Roof, Arm::Read, Arm::Sync, Arm::Full];
        if step.round % 6 == 2 && step.arm == arms[(step.round / 6) as usize % 4] {
            step.step.samples_ns[0] *= 4;
        }
    };
    let generator = || Generator { mood: 0.1, noise: 0.01, ..Generator::new(40) };
    let attribution = overall(&generator().rounds(BANDWIDTH_BOUND, 1.5, 1.0).with(detour).record()).unwrap();
    // The seven slow rounds fill most of the upper quarter that is left out, so the rest is of a slightly worse mood.
    assert!((attribution.full_ns as f64 / 57.8e6 - 1.0).abs() < 0.04, "{}", attribution.full_ns);
    // Shares are not moved by it.
    let parts = attribution.parts;
    let share = |part: Option<Part>| part.unwrap().ns as f64 / attribution.full_ns as f64;
    for (part, planted) in [(parts.bandwidth, 53.0), (parts.reach, 0.9), (parts.skew, 2.5), (parts.exchange, 1.4)] {
        assert!((share(part) - planted / 57.8).abs() < 0.01, "{part:?}");
    }
    assert_eq!(attribution.verdict.limit, Limit::Bandwidth);
}

#[test]
fn negative_parts_stay_negative_and_the_sum_stays_exact() {
    let planted =
        Planted { bandwidth: 50e6, reach: -0.5e6, compute: 0.0, barrier: 0.0, waiting: 1e6, exchange: -0.2e6 };
    let attribution = overall(&Generator::new(25).rounds(planted, 1.5, 1.0).record()).unwrap();
    assert!(attribution.parts.reach.unwrap().ns < 0 && attribution.parts.exchange.unwrap().ns < 0);
    assert!((attribution.full_ns as f64 / 50.3e6 - 1.0).abs() < 0.02);
    assert_eq!(attribution.verdict.limit, Limit::Bandwidth);
}

#[test]
fn the_sentence_has_the_numbers() {
    let verdict = verdict(Generator { mood: 0.0, noise: 0.0, ..Generator::new(9) }.rounds(BANDWIDTH_BOUND, 1.5, 1.0));
    assert_eq!(
        verdict.sentence,
        "Qwen3-30B-A3B MXFP4 with 2 threads is limited by memory bandwidth: of 57.8 ms a token, 53.0 ms (92 %) go to \
         reading 2.31 GB at the roof of 43.5 GB/s; 2.50 ms (4 %) to waiting at 2,070 barriers; 1.40 ms (2 %) to moving \
         activations and single-thread phases; 0.90 ms (2 %) to reading slower than the roof. Arithmetic is not in it."
    );
    // High only once arithmetic is replayed.
    assert_eq!(verdict.confidence, Confidence::Medium);
}

/// Every second round on a machine that is 1.8 times slower.
fn plateau(step: &mut DecodeStep) {
    if step.round % 2 == 1 {
        step.step.samples_ns[0] = step.step.samples_ns[0] * 9 / 5;
    }
}

#[test]
fn two_levels_that_agree_make_a_verdict_that_names_them() {
    let verdict =
        verdict(Generator { mood: 0.01, ..Generator::new(24) }.rounds(BANDWIDTH_BOUND, 1.5, 1.0).with(plateau));
    assert_eq!((verdict.limit, verdict.confidence), (Limit::Bandwidth, Confidence::Medium), "{}", verdict.sentence);
    assert!(verdict.sentence.contains("moved between two levels, the roof at 53"), "{}", verdict.sentence);
}

#[test]
fn doubtful_records_are_inconclusive() {
    let because = |generator: Generator, reason: &str| {
        let verdict = verdict(generator);
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Inconclusive, Confidence::Low), "{}", verdict.sentence);
        assert!(verdict.sentence.contains(reason), "{}", verdict.sentence);
    };
    because(Generator::new(4).rounds(BANDWIDTH_BOUND, 1.5, 1.0), "only 4 of at least 5 rounds");
    let even = Planted { bandwidth: 20e6, reach: 1e6, compute: 0.0, barrier: 0.0, waiting: 20e6, exchange: 1e6 };
    because(Generator { noise: 0.02, ..Generator::new(9) }.rounds(even, 1.5, 1.0), "overlap");
    let ramp =
        |step: &mut DecodeStep| step.step.samples_ns[0] = step.step.samples_ns[0] * (4 + u64::from(step.round)) / 16;
    because(Generator::new(25).rounds(BANDWIDTH_BOUND, 1.5, 1.0).with(ramp), "spread by");
    let exchange_at_times = |step: &mut DecodeStep| {
        if step.round % 2 == 1 && step.arm == Arm::Full {
            step.step.samples_ns[0] += 2 * 200_000_000;
        }
    };
    because(
        Generator::new(24).rounds(BANDWIDTH_BOUND, 1.5, 1.0).with(exchange_at_times),
        "is limited by memory bandwidth on the faster and activations moving between threads on the slower",
    );
    because(
        Generator { mood: 0.01, ..Generator::new(9) }.rounds(BANDWIDTH_BOUND, 1.5, 1.0).with(plateau),
        "one of them has too few rounds",
    );
    let crowded = |step: &mut DecodeStep| step.step.caveats.push(Caveat::Oversubscribed { threads: 2, cpus: 1 });
    because(Generator::new(9).rounds(BANDWIDTH_BOUND, 1.5, 1.0).with(crowded), "oversubscribed");
    for caveat in [
        Caveat::Throttled { throttled_ns: 1_000_000_000 },
        Caveat::Stolen { share: 0.2 },
        Caveat::Preempted { switches: 9, share: 0.2 },
    ] {
        let taint = |step: &mut DecodeStep| {
            if step.round < 4 {
                step.step.caveats.push(caveat.clone());
            }
        };
        because(Generator::new(9).rounds(BANDWIDTH_BOUND, 1.5, 1.0).with(taint), "taken away for");
    }
}

#[test]
fn one_disturbed_run_does_not_spoil_a_verdict() {
    let taint = |step: &mut DecodeStep| {
        if step.round == 3 && step.arm == Arm::Sync {
            step.step.caveats.push(Caveat::Preempted { switches: 9, share: 0.1 });
        }
    };
    let attribution = overall(&Generator::new(9).rounds(BANDWIDTH_BOUND, 1.5, 1.0).with(taint).record()).unwrap();
    assert_eq!(attribution.verdict.limit, Limit::Bandwidth);
    assert_eq!(attribution.caveats, [Tainted { runs: 1, worst: Caveat::Preempted { switches: 9, share: 0.1 } }]);
}

#[test]
fn measured_advice_comes_first_and_only_when_it_helps() {
    let advice = verdict(Generator::new(25).rounds(BANDWIDTH_BOUND, 0.8, 0.95)).advice;
    assert!(advice[0].measured && (advice[0].gain - 0.25).abs() < 0.01, "{advice:?}");
    assert_eq!(advice[0].change, "1 thread instead of 2");
    assert!(advice[1].measured && (advice[1].gain - 1.0 / 0.95 + 1.0).abs() < 0.01);
    assert!(advice[1].change.contains("the barrier dissemination instead of central"));
    // The catalogue's one smaller quantisation: (57.8 − 53.9 · (1 − 1.92 / 2.31)) ms.
    assert!(!advice[2].measured && advice[2].change.contains("Q4_K_M"), "{advice:?}");
    assert!((advice[2].gain - 0.186).abs() < 0.01 && advice[2].interval.is_none(), "{}", advice[2].gain);

    let advice = verdict(Generator::new(25).rounds(BANDWIDTH_BOUND, 1.5, 1.0001)).advice;
    assert!(advice[0].measured && advice[0].gain == 0.0 && advice[0].change.contains("none of the 2 changes"));
    assert!(advice[0].change.contains("dissemination") && !advice[1].measured, "{advice:?}");
}

#[test]
fn the_order_of_lines_does_not_matter_and_nothing_else_is_random() {
    let record = Generator::new(9).rounds(BANDWIDTH_BOUND, 0.9, 1.0).record();
    let mut shuffled = record.clone();
    fastrand::Rng::with_seed(4).shuffle(&mut shuffled.lines);
    assert_eq!(attributions(&record), attributions(&shuffled));
    assert_eq!(attributions(&record), attributions(&record));
    serde_json::to_string(&attributions(&record)).unwrap();
}

#[test]
fn the_model_with_experts_speaks_for_the_record() {
    let mut dense = Generator { model: "Llama-2-7B", quantization: "Q4_K_M", ..Generator::new(9) }
        .rounds(BANDWIDTH_BOUND, 1.5, 1.0)
        .record();
    assert_eq!(overall(&dense).unwrap().model, "Llama-2-7B");
    dense.lines.extend(Generator::new(9).rounds(BANDWIDTH_BOUND, 1.5, 1.0).record().lines);
    assert_eq!(overall(&dense).unwrap().model, "Qwen3-30B-A3B");
    assert_eq!(attributions(&dense).len(), 2);
    dense.lines.clear();
    assert_eq!(overall(&dense), None);
}

#[test]
fn limits_are_the_contracts_tokens() {
    for limit in [Limit::Bandwidth, Limit::Skew, Limit::Inconclusive] {
        assert_eq!(serde_json::to_value(limit).unwrap(), limit.name());
    }
    assert_eq!(serde_json::to_value(Confidence::High).unwrap(), "high");
}
