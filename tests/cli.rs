//! The binaries as a user meets them: exit status, one sentence on stderr, data on stdout, the record on disk.
//! Nothing here depends on a timing.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::record::{Line, Record};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};

const MEMBAR: &str = env!("CARGO_BIN_EXE_membar");
const STREAM: &str = env!("CARGO_BIN_EXE_membar-stream");
const LATENCY: &str = env!("CARGO_BIN_EXE_membar-latency");
const BARRIER: &str = env!("CARGO_BIN_EXE_membar-barrier");
const EXPERTS: &str = env!("CARGO_BIN_EXE_membar-experts");

/// Runs lock each other out, so tests that measure take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// A directory of its own, gone at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("membar-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program. Somebody else may be measuring on this machine: then it waits, for up to two minutes.
fn run(program: &str, arguments: &[&str]) -> Output {
    for _ in 0..120 {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
        if !stderr(&output).contains("another membar is measuring") {
            return output;
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    panic!("another membar measured for two minutes");
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A quick bandwidth measurement of caches: enough to see everything but numbers.
fn small_stream(out: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["--size", "1MiB", "--samples", "2", "--threads", "1", "--out", out.to_str().unwrap()];
    arguments.extend(more);
    run(STREAM, &arguments)
}

#[test]
fn bad_input_is_named_with_what_to_do() {
    let _turn = turn();
    let not_xml = Scratch::new("bad");
    let file = not_xml.file("notes.txt");
    std::fs::write(&file, "no topology").unwrap();
    let file = file.to_str().unwrap();
    let unwritable = "/proc/no-such-place/record.jsonl";
    let cases: &[(&str, &[&str], &str)] = &[
        (STREAM, &["--kernels", "copi"], "read, copy, scale, add, triad, fill"),
        (STREAM, &["--store", "sideways"], "ordinary, non_temporal"),
        (STREAM, &["--isa", "mmx"], "rust, sse2, avx2, avx512, libc"),
        (STREAM, &["--isa-max", "mmx"], "rust, sse2, avx2, avx512"),
        (STREAM, &["--isa-max", "libc"], "rust, sse2, avx2, avx512"),
        (STREAM, &["--kernels", "copy_libc", "--store", "ordinary"], "--store"),
        (STREAM, &["--size", "0"], "KiB"),
        (STREAM, &["--size", "lots"], "KiB"),
        (STREAM, &["--pages", "1g"], "4k, thp, 2m"),
        (STREAM, &["--placement", "nearby"], "first-touch, bind, interleave"),
        (STREAM, &["--cpus", "999999999"], "0-3,8-11"),
        (STREAM, &["--cpus", "8000"], "does not exist"),
        (STREAM, &["--cpus", ""], "name some of"),
        (STREAM, &["--nodes", "63"], "does not exist"),
        (STREAM, &["--threads", "0"], "1-64*2"),
        (STREAM, &["--threads", "60000"], "allowed"),
        (STREAM, &["--samples", "0"], "1 to"),
        (STREAM, &["--seed=-1"], "0 to"),
        (STREAM, &["--time-budget", "soon"], "60s"),
        (STREAM, &["--format", "xml"], "table, json, jsonl, csv, md"),
        (STREAM, &["--format", "stream", "--kernels", "read"], "copy, scale, add, triad"),
        (LATENCY, &["--format", "stream"], "membar stream"),
        (BARRIER, &["--format", "stream"], "membar stream"),
        (EXPERTS, &["--format", "stream"], "membar stream"),
        (MEMBAR, &["run", "--format", "stream"], "membar stream"),
        (STREAM, &["--plan", "--format", "stream"], "table, md or json"),
        (STREAM, &["--label", "novalue"], "NAME=VALUE"),
        (STREAM, &["--topology", file, "--plan"], "lstopo"),
        (STREAM, &["--topology", "/no/such/file.xml", "--plan"], "lstopo"),
        (STREAM, &["--topology", "measured:x", "--plan"], "name a file that membar wrote"),
        (STREAM, &["--topology", "synthetic:core:4 pu:1"], "--plan"),
        (STREAM, &["--out", unwritable], "directory"),
        (STREAM, &["--quick", "--full"], "cannot be used with"),
        (LATENCY, &["--protocol", "carrier-pigeon"], "cas, flags, message"),
        (LATENCY, &["--cpus", "0,0", "--only", "core"], "two different ones"),
        (LATENCY, &["--cpus", "0,8000"], "does not exist"),
        (LATENCY, &["--home", "63"], "name one of"),
        (LATENCY, &["--home", "near"], "name one of"),
        (LATENCY, &["--threads", "2"], "--cpus"),
        (LATENCY, &["--only", "disk"], "core, siblings, memory, pages, loaded, atomic, detours"),
        (LATENCY, &["--footprint", "tiny"], "KiB"),
        (LATENCY, &["--only", "core", "--footprint", "1MiB"], "--only"),
        (STREAM, &["--verify", "--out", "x"], "cannot be used with"),
        (BARRIER, &["--algorithms", "hypercube"], "tournament, dissemination, futex, std"),
        (BARRIER, &["--wait", "doze"], "spin-N-yield, spin-N-futex, sleep"),
        (BARRIER, &["--wait", if cfg!(target_arch = "aarch64") { "pause" } else { "isb" }], "name one of spin, "),
        (BARRIER, &["--algorithms", "std", "--wait", "spin"], "--list"),
        (BARRIER, &["--spread", "wide"], "scatter-socket"),
        (BARRIER, &["--threads", "0"], "1-64*2"),
        (BARRIER, &["--threads", "65536"], "allowed"),
        (EXPERTS, &["--model", "gpt-9"], "Qwen3-30B-A3B"),
        (EXPERTS, &["--model", "Llama-2-7B", "--quantization", "Q1"], "Q4_K_M"),
        (EXPERTS, &["--quantization", "F16"], "--model"),
        (EXPERTS, &["--barrier", "hypercube"], "central"),
        (EXPERTS, &["--threads", "5000"], "allowed"),
        (MEMBAR, &["report", "/no/such/record.jsonl"], "membar wrote"),
        (MEMBAR, &["report", file], "membar wrote"),
        (MEMBAR, &["topology", "--topology", file], "lstopo"),
        (MEMBAR, &["fly"], "Usage"),
    ];
    for (program, arguments, hint) in cases {
        let output = run(program, arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(hint), "{arguments:?} does not say '{hint}': {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn arrays_that_do_not_fit_say_how_much_would() {
    let output = run(STREAM, &["--size", "9000GiB", "--out", "none"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["arrays of 9000 GiB", "can be used", "the least that measures memory is"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_measurement_leaves_a_record_that_reads_back() {
    let _turn = turn();
    let scratch = Scratch::new("record");
    let out = scratch.file("r.jsonl");
    let output = small_stream(&out, &["--label", "rack=7", "--vm-size", "F80as_v7", "--region", "here", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "--quiet");

    let record = Record::read(&out).unwrap();
    assert!(record.complete && record.remarks.is_empty(), "{:?}", record.remarks);
    assert_eq!(record.header.labels["rack"], "7");
    assert_eq!(record.header.labels["vm_size"], "F80as_v7");
    assert_eq!(record.header.labels["region"], "here");
    let steps: Vec<_> = record.lines.iter().filter_map(Line::step).collect();
    assert!(steps.len() > 6);
    for step in steps.iter().filter(|step| !step.cpus.is_empty()) {
        assert_eq!(step.threads as usize, step.cpus.len());
        assert!(step.samples_ns.iter().all(|ns| *ns > 0));
    }
    let caches = record.lines.iter().filter_map(|line| match line {
        Line::Stream(step) => Some(step),
        _ => None,
    });
    for step in caches {
        assert_eq!(step.step.samples_ns.len(), 3, "two that count and one that is dropped");
        let said = format!("{:?}", step.step.caveats);
        assert!(said.contains("CacheResident"), "1 MiB is no memory: {said}");
    }

    // A reference is taken before the first step, over an array of the size that was asked for.
    let first = record.lines.iter().find(|line| !matches!(line, Line::Overhead(_)));
    let Some(Line::Reference(reference)) = first else { panic!("{first:?}") };
    assert_eq!((reference.step.samples_ns.len(), reference.array_bytes), (4, Some(membar::units::Bytes(1 << 20))));
    assert!(reference.step.units_per_sample >= 16 && reference.summary.bytes_per_s.is_some());

    // The same record gives the same text, and never the column: its arrays fit the caches.
    let again = run(MEMBAR, &["report", out.to_str().unwrap()]);
    assert_eq!(stdout(&again), stdout(&output));
    assert!(!stdout(&again).contains("Bandwidth column"));
    // Records are never overwritten.
    let refused = small_stream(&out, &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("never overwritten"));
}

#[test]
fn every_format_is_what_it_says() {
    let _turn = turn();
    let scratch = Scratch::new("formats");
    let out = scratch.file("r.jsonl");
    let output = small_stream(&out, &["--format", "jsonl", "--quiet"]);
    assert_eq!(stdout(&output), std::fs::read_to_string(&out).unwrap(), "jsonl is the record's own lines");

    let report = |format| stdout(&run(MEMBAR, &["report", out.to_str().unwrap(), "--format", format]));
    let object: serde_json::Value = serde_json::from_str(&report("json")).unwrap();
    assert_eq!(object["schema"], 1);
    let steps = object["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["kind"] == "stream" && step["operation"] == "copy"));
    let csv = report("csv");
    let mut rows = csv::Reader::from_reader(csv.as_bytes());
    let columns = rows.headers().unwrap().len();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), steps.len());
    assert!(rows.iter().all(|row| row.len() == columns));
    assert!(report("md").contains("|---|---:|"));
    assert!(report("stream").contains("\nTriad:     "));
}

#[test]
fn the_layout_of_stream_measures_what_stream_does() {
    let _turn = turn();
    let scratch = Scratch::new("stream-format");
    let out = scratch.file("r.jsonl");
    let output = small_stream(&out, &["--format", "stream", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for label in ["Copy:", "Scale:", "Add:", "Triad:"] {
        let row = text.lines().find(|line| line.starts_with(label)).unwrap();
        let figures: Vec<f64> = row.split_whitespace().skip(1).map(|figure| figure.parse().unwrap()).collect();
        assert_eq!(figures.len(), 4, "{row}");
    }
    assert!(text.contains("Array size = 131072 (elements)") && text.contains("Solution Validates"), "{text}");
    let record = Record::read(&out).unwrap();
    let mut streams = record.lines.iter().filter_map(|line| match line {
        Line::Stream(step) => Some(step.operation.as_str()),
        _ => None,
    });
    assert!(streams.all(|operation| ["copy", "scale", "add", "triad"].contains(&operation)));
}

#[test]
fn a_record_that_was_cut_off_is_read_up_to_there() {
    let _turn = turn();
    let scratch = Scratch::new("cut");
    let out = scratch.file("r.jsonl");
    small_stream(&out, &["--quiet"]);
    let text = std::fs::read_to_string(&out).unwrap();
    let cut = scratch.file("cut.jsonl");
    std::fs::write(&cut, &text[..text.len() * 2 / 3]).unwrap();
    let output = run(MEMBAR, &["report", cut.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("incomplete"), "{}", stdout(&output));

    let edited = scratch.file("edited.jsonl");
    std::fs::write(&edited, text.replacen("\"samples_ns\":[", "\"samples_ns\":[1,", 4)).unwrap();
    let output = run(MEMBAR, &["report", edited.to_str().unwrap()]);
    assert!(stdout(&output).contains("is not what its samples give"), "{}", stdout(&output));

    let newer = scratch.file("newer.jsonl");
    std::fs::write(&newer, text.replacen("\"schema\":1", "\"schema\":9", 1)).unwrap();
    let output = run(MEMBAR, &["report", newer.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("schema is 9 and this membar reads 1"), "{}", stderr(&output));
}

/// Starts a run that would last for minutes and waits until it measures. Somebody else may be measuring: it tries again.
fn start_long_run(out: &str) -> (Child, BufReader<ChildStderr>) {
    for _ in 0..120 {
        let mut child = Command::new(BARRIER)
            .args(["--samples", "10000", "--threads", "1", "--out", out])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut talk = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while talk.read_line(&mut line).unwrap() > 0 {
            if line.contains("barrier central") {
                return (child, talk);
            }
            line.clear();
        }
        child.wait().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    panic!("another membar measured for two minutes");
}

#[test]
fn an_interrupted_run_keeps_what_it_measured() {
    let _turn = turn();
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let scratch = Scratch::new(&format!("signal-{signal}"));
        let out = scratch.file("r.jsonl");
        // The first step has begun, so it is in the record, or cut short by the signal.
        let (mut child, mut talk) = start_long_run(out.to_str().unwrap());
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let mut rest = String::new();
        talk.read_to_string(&mut rest).unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.code(), Some(status), "{signal}: signal {:?}: {rest}", ended.signal());
        let record = Record::read(&out).unwrap();
        let Some(Line::End(end)) = record.lines.last() else { panic!("the record has its end") };
        assert_eq!(end.outcome, "interrupted");
        assert!(record.lines.iter().any(|line| matches!(line, Line::Barrier(_))), "something was measured");
    }
}

#[test]
fn a_time_budget_is_kept_and_what_was_left_out_is_said() {
    let _turn = turn();
    let scratch = Scratch::new("budget");
    let out = scratch.file("r.jsonl");
    let output = run(BARRIER, &["--time-budget", "1ms", "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "nothing was measured: {}", stderr(&output));
    assert!(stderr(&output).contains("not measured (time budget): barrier central"), "{}", stderr(&output));
    let record = Record::read(&out).unwrap();
    let Some(Line::End(end)) = record.lines.last() else { panic!("the record has its end") };
    assert_eq!(end.outcome, "time budget");
    assert!(!end.left_out.is_empty());
}

#[test]
fn two_runs_lock_each_other_out() {
    let _turn = turn();
    let scratch = Scratch::new("lock");
    let (mut first, _talk) = start_long_run("none");
    let second = Command::new(STREAM).args(["--out", scratch.file("r.jsonl").to_str().unwrap()]).output().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("another membar is measuring"), "{}", stderr(&second));
    assert!(!scratch.file("r.jsonl").exists(), "nothing was begun");
}

#[test]
fn a_closed_pipe_is_no_error() {
    for arguments in [&["stream", "--list"][..], &["--help"], &["topology"]] {
        let mut child =
            Command::new(MEMBAR).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn one_file_acts_by_its_name() {
    let scratch = Scratch::new("name");
    let link = scratch.file("membar-barrier");
    std::os::unix::fs::symlink(MEMBAR, &link).unwrap();
    let output = run(link.to_str().unwrap(), &["--list"]);
    assert_eq!(stdout(&output), stdout(&run(MEMBAR, &["barrier", "--list"])));
    assert!(stdout(&output).contains("dissemination"));
}

#[test]
fn lists_show_also_what_cannot_run_here() {
    let rows = stdout(&run(STREAM, &["--list", "--isa-max", "rust"]));
    assert!(rows.contains("copy_rust") && rows.contains("usable"), "{rows}");
    if cfg!(target_arch = "x86_64") {
        assert!(rows.contains("not run: needs avx2"), "{rows}");
    }
    let text = stdout(&run(EXPERTS, &["--list"]));
    let llama = text.lines().find(|line| line.contains("Llama-2-7B")).unwrap();
    assert!(text.contains("barriers in llama.cpp  barriers in ik_llama.cpp"), "{text}");
    assert_eq!(llama.split_whitespace().rev().take(2).collect::<Vec<_>>(), ["581", "806"], "{llama}");
    let models: serde_json::Value =
        serde_json::from_str(&stdout(&run(EXPERTS, &["--list", "--format", "json"]))).unwrap();
    let models = models["models"].as_array().unwrap();
    assert_eq!(models.len(), 8);
    let flash = models.iter().find(|model| model["name"] == "DeepSeek-V4-Flash").unwrap();
    assert_eq!(flash["barriers_per_token"]["llama.cpp"], 5786);
    assert_eq!(flash["barriers_per_token"]["ik_llama.cpp"], 3096);
    assert!(flash["quantizations"].as_array().unwrap().iter().any(|q| q["read_bytes_per_token"] == 10_882_170_532u64));
}

#[test]
fn plans_print_for_a_machine_that_nobody_here_has() {
    let source = "synthetic:\"pack:2 numa:3(memory=134000000000) l3:1(size=500MB) core:31 pu:2\"";
    for program in [STREAM, LATENCY, BARRIER, EXPERTS] {
        let text = run(program, &["--plan", "--topology", source]);
        assert_eq!(text.status.code(), Some(0), "{}", stderr(&text));
        assert!(stdout(&text).contains("never measured"), "{}", stdout(&text));
        let json = stdout(&run(program, &["--plan", "--topology", source, "--format", "json"]));
        let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(plan["cpus"].as_array().unwrap().len(), 372);
    }
}

#[test]
fn the_mixes_are_measured_when_named_or_in_full_and_the_c_library_with_every_copy() {
    let kernels = |more: &[&str]| {
        let output = run(STREAM, &[&["--plan", "--size", "1MiB", "--format", "json"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let plan: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        // The first group of the sweep has every row.
        let names = plan["stream"]["groups"][0]["kernels"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mixes = |kernels: &[String]| kernels.iter().filter(|name| name.starts_with("mix_")).count();
    let libc = |kernels: &[String]| kernels.iter().any(|name| name == "copy_libc");
    let default = kernels(&[]);
    assert!(mixes(&default) == 0 && libc(&default), "{default:?}");
    assert_eq!(mixes(&kernels(&["--full"])), 3);
    assert_eq!(kernels(&["--kernels", "mix_2_1", "--isa", "rust"]), ["mix_2_1_rust"]);
    assert_eq!(kernels(&["--isa", "libc"]), ["copy_libc"]);
    assert!(!libc(&kernels(&["--isa-max", "rust"])) && !libc(&kernels(&["--store", "ordinary"])));
}

#[test]
fn latency_says_what_each_value_is_and_where_the_line_lived() {
    let list = stdout(&run(LATENCY, &["--list"]));
    let help = stdout(&run(LATENCY, &["--help"]));
    for protocol in ["cas", "flags", "message"] {
        assert!(list.lines().any(|line| line.contains(protocol) && line.contains("one way")), "{list}");
        assert!(help.contains(&format!("{protocol}: ")), "{help}");
    }
    let _turn = turn();
    let scratch = Scratch::new("latency");
    let out = scratch.file("r.jsonl");
    if membar::machine::current_affinity().len() < 2 {
        println!("skipped: it takes two CPUs");
        return;
    }
    let arguments = ["--samples", "2", "--cpus", &membar::machine::current_affinity().to_string()];
    let node = membar::machine::Machine::this_system().unwrap().topology.memory_nodes().iter().next();
    let node = node.map_or("0".to_owned(), |node| node.to_string());
    let arguments = [&arguments[..], &["--quiet", "--home", &node, "--quick", "--out", out.to_str().unwrap()]].concat();
    let output = run(LATENCY, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let record = Record::read(&out).unwrap();
    let mut seen = 0;
    for line in &record.lines {
        let Line::CoreLatency(line) = line else { continue };
        seen += 1;
        assert_eq!((line.path.as_str(), line.line_state.as_deref()), ("one_way", Some("modified")));
        assert_eq!(line.home_asked.map(|node| node.to_string()), Some(node.clone()));
        assert_eq!(line.step.samples_ns.len(), 2);
        assert!(line.summary.median_ns.is_some_and(|ns| ns > 0.0));
    }
    assert!(seen >= 2, "cas and flags at least");
    let again = run(MEMBAR, &["report", out.to_str().unwrap()]);
    assert_eq!(stdout(&again), stdout(&output));
    assert!(!stdout(&again).contains("is not what its samples give"));
}

#[test]
fn every_pair_of_372_cpus_is_planned() {
    let source = "synthetic:\"pack:2 numa:3(memory=134000000000) l3:1(size=500MB) core:31 pu:2\"";
    let text = stdout(&run(LATENCY, &["--plan", "--protocol", "cas", "--topology", source]));
    assert!(text.contains("Latency: 69006 pairs, "), "{text}");
    let text = stdout(&run(LATENCY, &["--plan", "--time-budget", "5s", "--topology", source]));
    assert!(text.contains("of 69006 pairs of CPUs"), "{text}");
}

#[test]
fn more_threads_than_cpus_is_for_barriers_only_and_labelled() {
    let _turn = turn();
    let scratch = Scratch::new("over");
    let out = scratch.file("r.jsonl");
    let arguments = ["--cpus", "0", "--threads", "3", "--algorithms", "central", "--wait", "spin-100-yield"];
    let mut arguments = arguments.to_vec();
    arguments.extend(["--samples", "2", "--out", out.to_str().unwrap()]);
    if !membar::machine::current_affinity().contains(membar::units::CpuId(0)) {
        println!("skipped: CPU 0 is not allowed here");
        return;
    }
    let output = run(BARRIER, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("oversubscribed: 3 threads on 1 CPUs"), "{}", stdout(&output));
}

/// The lines of a latency measurement of one part.
fn latency_lines(name: &str, part: &str, more: &[&str]) -> (Vec<Line>, String) {
    let scratch = Scratch::new(name);
    let out = scratch.file("r.jsonl");
    let arguments = [&["--only", part, "--quick", "--samples", "2", "--out", out.to_str().unwrap()], more].concat();
    let output = run(LATENCY, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let record = Record::read(&out).unwrap();
    assert!(record.complete && record.remarks.is_empty(), "{:?}", record.remarks);
    assert!(membar::stats::disagreements(&record.lines).is_empty());
    let csv = stdout(&run(MEMBAR, &["report", out.to_str().unwrap(), "--format", "csv"]));
    assert_eq!(csv.lines().count(), 1 + record.lines.iter().filter_map(Line::step).count());
    (record.lines, stdout(&output))
}

#[test]
fn memory_latency_of_a_footprint_that_a_cache_holds_is_labelled() {
    let _turn = turn();
    let (lines, text) = latency_lines("memory", "memory", &["--footprint", "100000"]);
    let steps: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            Line::MemoryLatency(step) => Some(step),
            _ => None,
        })
        .collect();
    assert!(steps.len() >= 2, "both page sizes");
    for step in &steps {
        assert_eq!((step.footprint_bytes, step.scope.as_str()), (membar::units::Bytes(102_400), "memory"));
        assert!(step.step.samples_ns.len() == 2 && step.summary.median_ns.is_some_and(|ns| ns > 0.0));
        assert!(format!("{:?}", step.step.caveats).contains("CacheResident"));
        assert!(step.page_bytes.0 >= 4096);
    }
    assert!(text.contains("Memory latency") && text.contains("may be served from cache"), "{text}");
}

#[test]
fn siblings_and_pages_are_parts_of_latency() {
    let _turn = turn();
    let scratch = Scratch::new("hidden");
    let out = scratch.file("r.jsonl");
    let arguments = ["--only", "siblings,pages", "--quick", "--samples", "2", "--quiet", "--format", "json"];
    let output = run(LATENCY, &[&arguments[..], &["--out", out.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let steps = json["steps"].as_array().unwrap();
    let of = |kind: &str| steps.iter().filter(|step| step["kind"] == kind).collect::<Vec<_>>();
    let cpus = membar::machine::current_affinity().len();
    if (2..=8).contains(&cpus) {
        assert_eq!(of("sibling").len(), cpus * (cpus - 1) / 2);
    }
    for step in of("sibling") {
        assert!(step["summary"]["slowdown"].as_f64().is_some_and(|slowdown| slowdown > 0.0), "{step}");
        assert_eq!(step["alone_a_ns"].as_array().unwrap().len(), 2);
    }
    let nodes = membar::machine::Machine::this_system().unwrap().topology.memory_nodes().len();
    assert_eq!(of("page_latency").is_empty(), nodes > 1);
    let record = Record::read(&out).unwrap();
    assert!(membar::stats::disagreements(&record.lines).is_empty());
    let csv = stdout(&run(MEMBAR, &["report", out.to_str().unwrap(), "--format", "csv"]));
    assert_eq!(csv.lines().count(), 1 + record.lines.iter().filter_map(Line::step).count());
}

#[test]
fn contended_atomics_say_how_many_and_how_fair() {
    let _turn = turn();
    let (lines, text) = latency_lines("atomic", "atomic", &[]);
    let mut operations = Vec::new();
    for line in &lines {
        let Line::Atomic(step) = line else { continue };
        assert_eq!(step.operations_by_thread.len() as u32, step.step.threads);
        let taken: u64 = step.operations_by_thread.iter().sum();
        assert_eq!(taken, step.step.units_per_sample * 2, "two samples, each number taken once");
        assert!(step.summary.fairness.is_some_and(|share| (0.0..=1.0).contains(&share)));
        operations.push((step.operation.clone(), step.step.threads));
    }
    assert!(operations.contains(&("fetch_add".into(), 1)) && operations.contains(&("compare_and_swap".into(), 1)));
    assert!(text.contains("Contended atomics"), "{text}");
}

#[test]
fn detours_are_watched_on_every_cpu_in_scope() {
    let _turn = turn();
    let (lines, text) = latency_lines("detour", "detours", &[]);
    let mut cpus = membar::units::CpuSet::default();
    for line in &lines {
        let Line::Detour(step) = line else { continue };
        assert_eq!(step.window_longest_ns.len(), 200);
        assert!(step.step.samples_ns[0] >= 200_000_000 && step.total_ns <= step.step.samples_ns[0]);
        assert!(step.window_longest_ns.iter().all(|ns| *ns == 0 || *ns > step.threshold_ns));
        cpus.insert(step.step.cpus[0]);
    }
    assert_eq!(cpus, membar::machine::current_affinity());
    assert!(text.contains("longest expected"), "{text}");
}

#[test]
fn verifying_checks_and_writes_nothing() {
    let _turn = turn();
    let scratch = Scratch::new("verify");
    for (program, more) in [(STREAM, &["--size", "1MiB"][..]), (LATENCY, &[]), (BARRIER, &[])] {
        let mut command = Command::new(program);
        let output = command.args(["--verify"]).args(more).current_dir(&scratch.0).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
        assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
    }
}
