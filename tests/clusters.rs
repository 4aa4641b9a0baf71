//! From a record of made-up latencies to what a user sees: report, summary, topology, plans, errors.

// The functions between the tests are tests as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::machine::{Machine, Topology};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MEMBAR: &str = env!("CARGO_BIN_EXE_membar");

/// A directory of its own, gone at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("membar-clusters-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn topology(name: &str) -> Topology {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/topologies/{name}.xml"));
    Machine::from_source(path.to_str().unwrap()).unwrap().topology
}

fn synthetic(description: &str) -> Topology {
    Machine::from_source(&format!("synthetic:{description}")).unwrap().topology
}

/// A record of a guest that reports one topology and has another; one pair in `every` was measured.
fn record(reported: &Topology, truth: &Topology, every: u32) -> String {
    let mut random = fastrand::Rng::with_seed(11);
    let cpus = reported.cpus();
    let mut text = format!(
        r#"{{"kind":"run","schema":1,"version":"9.9","commit":null,"command":["membar","latency"],"started_utc":"","seed":1,"host":"h","cpu":{{"model_name":"c","vendor":"v","isa":[],"hypervisor":"KVM"}},"topology":{},"clock":{{"source":"s","step_ns":20}},"allowed_cpus":"{cpus}","allowed_nodes":"0-3","environment":{{"kernel":null}},"labels":{{}},"caveats":[]}}"#,
        serde_json::to_string(reported).unwrap()
    );
    text.push('\n');
    let mut pairs = Vec::new();
    for (index, a) in truth.pus.iter().enumerate() {
        pairs.extend(truth.pus[index + 1..].iter().map(|b| (a, b)));
    }
    random.shuffle(&mut pairs);
    for (a, b) in pairs.into_iter().filter(|_| random.u32(..every) == 0).collect::<Vec<_>>() {
        let ns = match () {
            () if a.last_level_cache == b.last_level_cache => 27.0,
            () if a.package == b.package => 110.0,
            () => 210.0,
        };
        let sample = (ns * 1000.0 * (0.95 + 0.1 * random.f64())) as u64;
        let median = sample as f64 / 1000.0;
        writeln!(
            text,
            r#"{{"kind":"core_latency","threads":2,"cpus":[{a},{b}],"caveats":[],"samples_ns":[{sample}],"units_per_sample":1000,"cpu_a":{a},"cpu_b":{b},"protocol":"cas","path":"one_way","home_node":0,"reported_class":"machine","summary":{{"median_ns":{median},"p5_ns":{median},"p95_ns":{median}}}}}"#,
            a = a.id,
            b = b.id
        )
        .unwrap();
    }
    text + "{\"kind\":\"end\",\"finished_utc\":\"\",\"elapsed_ns\":1,\"outcome\":\"complete\",\"left_out\":[],\"failures\":[]}\n"
}

fn run(arguments: &[&str]) -> Output {
    Command::new(MEMBAR).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The text without its line breaks.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_guest_that_hides_its_caches_is_caught() {
    let scratch = Scratch::new("hidden");
    let (reported, truth) = (topology("hbv4_176_flat_l3_old"), topology("hbv4_176_ccx_8886_6"));
    let path = scratch.write("hidden.jsonl", &record(&reported, &truth, 1));

    let report = flowing(&stdout(&["report", &path]));
    let said = "the guest reports 4 last-level caches of 44 CPUs; the latencies show 24 groups of 6 to 8 CPUs";
    assert!(report.contains(said), "{report}");
    assert!(report.contains("0-7 | 8-15 | 16-23 | 24-31 | 32-37 | 38-43 | 44-51"), "{report}");

    let source = format!("measured:{path}");
    let printed = stdout(&["topology", "--topology", &source]);
    assert!(printed.contains("4 nodes, 24 last-level caches, 176 cores, 176 CPUs"), "{printed}");
    assert!(printed.contains("L3 size unknown") && printed.contains(said), "{printed}");
    let line = |list: &str| printed.lines().any(|line| line.split_whitespace().eq(list.split(' ')));
    assert!(line("0-7 0xff") && line("38-43 0xfc000000000"), "{printed}");

    for command in ["stream", "latency", "barrier", "experts"] {
        let plan = stdout(&[command, "--plan", "--topology", &source]);
        assert!(plan.lines().count() > 3, "{plan}");
    }
    let barriers = stdout(&["barrier", "--plan", "--topology", &source, "--spread", "l3", "--format", "json"]);
    assert!(barriers.contains("\"l3\""), "{barriers}");
    let refused = run(&["latency", "--topology", &source]);
    assert_eq!(refused.status.code(), Some(2));

    let read = membar::record::Record::read(Path::new(&path)).unwrap();
    let summary = serde_json::to_value(membar::report::summary(&read, None)).unwrap();
    let latency = &summary["core_latency"];
    assert_eq!(latency["agrees_with_reported"], serde_json::json!(false));
    assert_eq!(latency["classes"][0]["groups"].as_array().unwrap().len(), 24);
    assert_eq!(latency["classes"][0]["groups"][0], "0-7");
    assert_eq!(latency["protocol"], "cas");
}

#[test]
fn an_honest_guest_keeps_its_caches() {
    let scratch = Scratch::new("honest");
    let truth = topology("hbv4_176_ccx_8886_6");
    let path = scratch.write("honest.jsonl", &record(&truth, &truth, 1));
    let report = flowing(&stdout(&["report", &path]));
    assert!(report.contains("last-level caches are as reported") && !report.contains("Note: the guest"), "{report}");
    let printed = stdout(&["topology", "--topology", &format!("measured:{path}")]);
    assert!(printed.contains("24 last-level caches") && printed.contains("L3 96 MiB"), "{printed}");
}

#[test]
fn what_cannot_be_told_is_not_said() {
    let scratch = Scratch::new("unknown");
    let (reported, truth) = (topology("hbv4_176_flat_l3_old"), topology("hbv4_176_ccx_8886_6"));
    let refused = |name: &str, text: &str, reason: &str| {
        let path = scratch.write(name, text);
        let output = run(&["topology", "--topology", &format!("measured:{path}")]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("membar: could not ") && error.contains(reason) && error.contains("; "), "{error}");
        path
    };
    let thin = refused("thin.jsonl", &record(&reported, &truth, 200), "too few to tell groups");
    assert!(stdout(&["report", &thin]).contains("too few to tell groups"));
    let header = record(&reported, &truth, 1).lines().next().unwrap().to_owned() + "\n";
    refused("none.jsonl", &header, "it has no core-to-core latencies");
    refused("text.jsonl", "nonsense\n", "line 1");
    refused("empty.jsonl", "", "the file is empty");

    let pair = synthetic("pack:1 l3:1 core:2 pu:1");
    let path = refused("pair.jsonl", &record(&pair, &pair, 1), "groups show among 4 or more");
    let report = stdout(&["report", &path]);
    assert!(report.contains("2 CPUs were measured") && !report.contains("Groups of CPUs"), "{report}");
    let missing = run(&["latency", "--plan", "--topology", "measured:/nonexistent/x.jsonl"]);
    assert_eq!(missing.status.code(), Some(2));
    assert_eq!(run(&["latency", "--plan", "--topology", "measured:"]).status.code(), Some(2));
}
