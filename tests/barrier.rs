//! What is made of barrier records: fits, granularity and choices from planted costs, and what the command line takes.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::attribute::barrier::{Half, Law, choices, fits, granularities};
use membar::caveat::Caveat;
use membar::record::{BarrierStep, Line, Record, Step};
use membar::units::{Bytes, CpuId};
use membar::{report, stats};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A record of some machine without its steps.
fn empty() -> Record {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/xeon-guest-2-cpus.jsonl");
    Record { lines: Vec::new(), ..Record::read(&path).unwrap() }
}

/// A step whose samples lie `spread` around `ns` an episode.
fn step(algorithm: &str, threads: u32, spread: &str, ns: f64) -> BarrierStep {
    let sample = |index: i32| ((ns + f64::from(index - 4) * ns * 0.005) * 1000.0).round() as u64;
    let facts = Step {
        threads,
        cpus: (0..threads).map(CpuId).collect(),
        samples_ns: (0..9).map(sample).collect(),
        units_per_sample: 1000,
        ..Step::default()
    };
    BarrierStep {
        summary: stats::barrier(&facts, &[], None),
        step: facts,
        algorithm: algorithm.to_owned(),
        wait: "pause".to_owned().try_into().unwrap(),
        spread: spread.to_owned(),
        late_ns: 0,
        work_ns: 0,
        work_bytes: Bytes(0),
        exchange_bytes: Bytes(0),
        without_ns: Vec::new(),
        trace: None,
    }
}

/// The record's text with its lines joined.
fn words(record: &Record) -> String {
    let text = report::document(record).to_text();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn record(steps: impl IntoIterator<Item = BarrierStep>) -> Record {
    Record { lines: steps.into_iter().map(Line::Barrier).collect(), ..empty() }
}

#[test]
fn planted_laws_come_back_with_their_constants() {
    let counts = [(2, "l3"), (4, "l3"), (8, "l3"), (16, "node"), (31, "node"), (62, "socket"), (124, "all")];
    let central = counts.map(|(n, spread)| step("central", n, spread, 40.0 + 12.5 * f64::from(n)));
    let tree = counts.map(|(n, spread)| step("dissemination", n, spread, 30.0 + 85.0 * f64::from(n).log2()));
    // None of these belongs to a fit: alone, oversubscribed, after work, too few.
    let alone = step("central", 1, "l3", 2.0);
    let mut crowded = step("central", 248, "all", 9e6);
    crowded.step.caveats.push(Caveat::Oversubscribed { threads: 248, cpus: 124 });
    let late = BarrierStep { late_ns: 1000, ..step("central", 8, "l3", 5000.0) };
    let scattered = [2, 4].map(|n| step("central", n, "scatter-node", 700.0));
    let others = [alone, crowded, late].into_iter().chain(scattered);
    let found = fits(&record(central.into_iter().chain(tree).chain(others)));
    assert_eq!(found.len(), 2, "{found:?}");
    for (fit, (name, law, base, slope)) in
        found.iter().zip([("central", Law::Linear, 40.0, 12.5), ("dissemination", Law::Logarithmic, 30.0, 85.0)])
    {
        assert_eq!((fit.algorithm.as_str(), fit.law, fit.points, fit.family.as_str()), (name, law, 7, "compact"));
        assert!((fit.base_ns - base).abs() < 0.1 && (fit.slope_ns - slope).abs() < 0.1, "{fit:?}");
        assert!(fit.error < 1e-3, "{fit:?}");
    }
}

#[test]
fn noise_shows_as_error_and_two_counts_are_no_law() {
    let noisy = [2, 4, 8, 16, 32].map(|n| {
        let noise = if n % 3 == 1 { 1.2 } else { 0.8 };
        step("central", n, "l3", (50.0 + 10.0 * f64::from(n)) * noise)
    });
    let found = fits(&record(noisy));
    assert!(found.len() == 1 && (0.05..0.3).contains(&found[0].error), "{found:?}");
    assert!(fits(&record([2, 4].map(|n| step("central", n, "l3", 100.0)))).is_empty());
}

/// Episodes of `threads` threads that each read `bytes` from memory of `roof` bytes a second, with `overhead` ns of barrier.
fn reading(threads: u32, bytes: u64, roof: f64, overhead: f64) -> BarrierStep {
    let alone = f64::from(threads) * bytes as f64 / roof * 1e9;
    let mut step = BarrierStep { work_bytes: Bytes(bytes), ..step("central", threads, "l3", alone + overhead) };
    step.without_ns = vec![(alone * 1000.0).round() as u64; 9];
    step.summary = stats::barrier(&step.step, &step.without_ns, None);
    step
}

#[test]
fn half_of_the_roof_is_where_reading_takes_as_long_as_the_barrier() {
    // 32 threads at 400 GB/s with 3 µs of barrier: half at 1.2 MB of all threads.
    let sizes: Vec<u64> = (12..=22).map(|power| 1 << power).collect();
    let record = record(sizes.iter().map(|bytes| reading(32, *bytes, 400e9, 3000.0)));
    let [found] = &granularities(&record)[..] else { panic!("one set") };
    assert!((found.roof.0 / 400e9 - 1.0).abs() < 0.01, "{found:?}");
    let Half::At(bytes) = found.half else { panic!("{found:?}") };
    assert!((bytes.0 as f64 / 1.2e6 - 1.0).abs() < 0.05, "{bytes}");
    assert!(found.shares.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{found:?}");
    let text = words(&record);
    assert!(text.contains("32 threads, l3, central (pause): read up to 400 GB/s without barriers; below"), "{text}");

    let small = |overhead| record_of([4096, 1 << 20], overhead);
    assert_eq!(granularities(&small(0.5))[0].half, Half::Below(Bytes(32 * 4096)));
    assert_eq!(granularities(&small(1e9))[0].half, Half::Above(Bytes(32 << 20)));
    assert!(granularities(&record_of([4096], 10.0)).is_empty(), "one size is no curve");
}

fn record_of<const N: usize>(sizes: [u64; N], overhead: f64) -> Record {
    record(sizes.map(|bytes| reading(32, bytes, 400e9, overhead)))
}

#[test]
fn the_fastest_is_recommended_and_those_like_it_are_named() {
    let record = record([
        step("central", 8, "l3", 150.0),
        step("dissemination", 8, "l3", 100.0),
        step("two-level", 8, "l3", 101.0),
        step("mcs-tree", 8, "l3", 120.0),
        step("central", 2, "l3", 60.0),
    ]);
    let [choice] = &choices(&record)[..] else { panic!("{:?}", choices(&record)) };
    assert_eq!((choice.threads, choice.best.0.as_str()), (8, "dissemination"));
    assert_eq!(choice.same, [("two-level".to_owned(), "pause".to_owned())]);
    assert!((choice.central_over_best.unwrap() - 1.5).abs() < 0.01);
    let text = words(&record);
    let said = "Take for 8 threads, l3: dissemination (pause), 100.0 ns; two-level (pause) is not told apart from it;";
    assert!(text.contains(said), "{text}");
    assert!(text.contains("central counter takes 1.50 times as long"), "{text}");
}

fn membar(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_membar-barrier"));
    command.args(arguments).output().unwrap()
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("membar-barrier-{}-{name}", std::process::id()))
}

#[test]
fn late_threads_work_and_traffic_are_measured_with_and_without_the_barrier() {
    let out = temporary("after.jsonl");
    let arguments = ["--quiet", "--algorithms", "central,dissemination", "--wait", "spin-100-yield", "--threads", "2"];
    let works = ["--late", "0,5us", "--after", "2us,64KiB,exchange-4KiB", "--samples", "3", "--out"];
    let output = membar(&[&arguments[..], &works, &[out.to_str().unwrap()]].concat());
    let two = membar::machine::current_affinity().len() > 1;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let record = Record::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    let steps: Vec<&BarrierStep> = record
        .lines
        .iter()
        .filter_map(|line| match line {
            Line::Barrier(step) => Some(step),
            _ => None,
        })
        .collect();
    // Of two threads on one CPU only episodes with nothing between them are taken.
    assert_eq!(steps.len(), if two { 10 } else { 2 });
    assert!(stats::disagreements(&record.lines).is_empty(), "{:?}", stats::disagreements(&record.lines));
    for step in &steps {
        assert_eq!(step.step.samples_ns.len(), 3);
        assert_eq!(step.without_ns.len(), if step.is_idle() { 0 } else { 3 });
        assert_eq!(step.summary.exposed_ns.is_some(), !step.is_idle());
        assert!(step.trace.is_none() || step.is_idle());
    }
    if two {
        let amounts = |of: fn(&BarrierStep) -> u64| steps.iter().map(|step| of(step)).max().unwrap();
        assert_eq!(amounts(|step| step.late_ns), 5000);
        assert_eq!(amounts(|step| step.work_ns), 2000);
        assert_eq!(amounts(|step| step.work_bytes.0), 64 << 10);
        assert_eq!(amounts(|step| step.exchange_bytes.0), 4 << 10);
        let text = words(&record);
        for said in ["one late by 5000 ns", "computing 2000 ns", "reading 64 KiB each", "exchanging 4 KiB"] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}

#[test]
fn impossible_barriers_are_refused_with_what_is_possible() {
    for (arguments, said) in [
        (&["--threads", "0"][..], "0"),
        (&["--algorithms", "hypercube"], "mcs-tree"),
        (&["--wait", "doze"], "spin-N-yield"),
        (&["--spread", "galaxy"], "scatter-socket"),
        (&["--late", "soon"], "as in 0,500ns,2us"),
        (&["--after", "64KB,some"], "exchange-16KiB"),
        (&["--after", "exchange-0"], "exchange-16KiB"),
        (&["--plugin", "/nowhere/lib.so"], "lib.so"),
    ] {
        let output = membar(&[arguments, &["--out", "none"]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
    // A spread that this machine lacks is listed with what it lacks where others are left.
    let output = membar(&["--plan", "--spread", "l3,scatter-socket", "--topology", "synthetic:l3:1 core:4 pu:1"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("spread scatter-socket"), "{text}");
}
