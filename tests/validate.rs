//! `membar validate` with programs that only print: shell scripts in a directory of their own. Nothing here depends on a
//! timing.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "fixture/process.rs"]
mod fixture;

use fixture::wait_for_end;
use membar::record::{Line, Record};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};

/// A STREAM of one thread with arrays of 1 MiB.
const TABLE: &str = "\
STREAM version $Revision: 5.10 $
This system uses 8 bytes per array element.
Array size = 131072 (elements), Offset = 0 (elements)
Each kernel will be executed 3 times.
Number of Threads requested = 1
Number of Threads counted = 1
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:            2097.2     0.001100     0.001000     0.001200
Scale:           2097.2     0.001100     0.001000     0.001200
Add:             3145.7     0.001100     0.001000     0.001200
Triad:           3145.7     0.001100     0.001000     0.001200
Solution Validates: avg error less than 1.000000e-13 on all three arrays
";

/// A directory with a program, gone at the end. Runs lock each other out, and a script that another thread's child still
/// holds open cannot be run: so tests take turns.
struct Fixture {
    dir: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Fixture {
    fn new(name: &str, script: &str) -> Fixture {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
        let dir = std::env::temp_dir().join(format!("membar-validate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fixture = Fixture { dir, _turn: turn };
        std::fs::write(fixture.file("stream"), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(fixture.file("stream"), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(fixture.file("table"), TABLE).unwrap();
        fixture
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_membar"));
        command.args(["validate", "--stream", "./stream", "--threads", "1", "--out", "r.jsonl"]).args(more);
        command.current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// Somebody else may be measuring on this machine: then it waits, for up to two minutes.
    fn validate(&self, more: &[&str]) -> Output {
        for _ in 0..120 {
            let output = self.command(more).output().unwrap();
            if !text(&output.stderr).contains("another membar is measuring") {
                return output;
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        panic!("another membar measured for two minutes");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn rounds_of_both_are_recorded_and_compared() {
    let fixture = Fixture::new("rounds", "env | grep OMP_ | sort >environment; cat table");
    let output = fixture.validate(&["--samples", "5", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let environment = std::fs::read_to_string(fixture.file("environment")).unwrap();
    assert!(environment.contains("OMP_NUM_THREADS=1\nOMP_PLACES={"), "{environment}");
    assert!(environment.contains("OMP_PROC_BIND=true"), "{environment}");

    let said = text(&output.stdout);
    assert!(said.contains("Beside ./stream: GB/s of counted bytes, median over 5 rounds"), "{said}");
    assert!(said.contains("the copy of ./stream") && said.contains("may be served from cache"), "{said}");
    let record = Record::read(&fixture.file("r.jsonl")).unwrap();
    let count = |wanted: &dyn Fn(&Line) -> bool| record.lines.iter().filter(|line| wanted(line)).count();
    assert_eq!(count(&|line| matches!(line, Line::Peer(_))), 20, "four functions in five rounds");
    let steps: Vec<_> = record
        .lines
        .iter()
        .filter_map(|line| match line {
            Line::Stream(step) => Some(step),
            _ => None,
        })
        .collect();
    assert!(steps.iter().all(|step| step.scope == "validate" && step.array_bytes.0 == 1 << 20));
    assert!(steps.iter().all(|step| step.step.samples_ns.len() == 3 && step.step.units_per_sample == 1));
    assert_eq!(membar::stats::disagreements(&record.lines), Vec::<String>::new());

    for (format, holds) in [
        ("table", "95 % interval"),
        ("md", "| copy |"),
        ("csv", "peer,copy,./stream round 4"),
        ("json", "\"kind\": \"peer\""),
    ] {
        let mut again = Command::new(env!("CARGO_BIN_EXE_membar"));
        let again = again.args(["report", "--format", format]).arg(fixture.file("r.jsonl")).output().unwrap();
        assert!(text(&again.stdout).contains(holds), "{format}: {}", text(&again.stdout));
        assert!(format != "table" || text(&again.stdout) == said);
    }
}

#[test]
fn what_is_no_stream_is_refused_before_a_record_is_begun() {
    let cases = [
        ("cat table; exit 3", "it ended with exit status: 3", 1),
        ("echo hello", "could not read what ./stream printed: it printed no line 'Array size = N", 2),
        ("cat table; echo 'Failed Validation on array a[]'", "its own check failed", 2),
        ("sed s/counted.*/'counted = 2'/ table | sed 's/^This.*//'", "it counted 2 threads", 2),
        ("sed s/counted.*/'counted = 7'/ table", "it counted 7 threads", 2),
        ("sed s/MiB// table | grep -v :", "no row of 'Copy:'", 2),
    ];
    for (script, hint, status) in cases {
        let fixture = Fixture::new("refused", script);
        let output = fixture.validate(&["--samples", "1", "--quiet"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{script}: {said}");
        assert!(said.contains(hint), "{script}: {said}");
        assert!(!fixture.file("r.jsonl").exists(), "{script}: nothing was begun");
    }
    let fixture = Fixture::new("serial", "grep -v counted table");
    let output = fixture.validate(&["--samples", "1", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "one thread needs no OpenMP: {}", text(&output.stderr));
    drop(fixture);

    let fixture = Fixture::new("missing", "cat table");
    std::fs::set_permissions(fixture.file("stream"), PermissionsExt::from_mode(0o644)).unwrap();
    for (arguments, hint) in [
        (&["--quiet"][..], "could not start the program ./stream"),
        (&["--threads", "1,2"], "cannot be used multiple times"),
        (&["--plan"], "cannot be used with"),
        (&["--format", "stream"], "membar stream"),
        (&["--samples", "0"], "1 to"),
    ] {
        let output = fixture.validate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(hint), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_program_that_fails_later_ends_the_rounds() {
    let fixture = Fixture::new("later", "echo x >>runs; [ $(wc -l <runs) -lt 3 ] || exit 9; cat table");
    let output = fixture.validate(&["--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("it ended with exit status: 9"), "{}", text(&output.stderr));
    let record = Record::read(&fixture.file("r.jsonl")).unwrap();
    assert!(record.lines.iter().any(|line| matches!(line, Line::Peer(step) if step.round == 0)));
    assert!(!record.lines.iter().any(|line| matches!(line, Line::Peer(step) if step.round > 0)));
    assert!(text(&output.stdout).contains("takes 5 rounds to say"), "{}", text(&output.stdout));
}

#[test]
fn a_program_that_never_ends_is_stopped_with_all_that_it_started() {
    let at_once = "sleep 1000 & echo $! >pid; cat table; wait";
    let beside_our_rows = "if [ -e first ]; then echo $$ >pid; exec sleep 1000; fi; echo >first; cat table";
    for script in [at_once, beside_our_rows] {
        let fixture = Fixture::new("endless", script);
        // A slow machine may not come to the second run within a short one.
        let mut budgets = ["2s", "20s", "200s"].into_iter();
        loop {
            let _ = ["first", "r.jsonl"].map(|name| std::fs::remove_file(fixture.file(name)));
            let budget = budgets.next().expect("one of them is long enough");
            let output = fixture.validate(&["--time-budget", budget, "--quiet"]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            if said.contains("time budget: it was still running, and was stopped") {
                break;
            }
        }
        wait_for_end(&std::fs::read_to_string(fixture.file("pid")).unwrap());
    }
}

#[test]
fn an_interruption_ends_both() {
    let fixture = Fixture::new("interrupted", "sleep 1000 & echo $! >pid.new; mv pid.new pid; wait");
    for _ in 0..120 {
        let _ = std::fs::remove_file(fixture.file("pid"));
        let mut child = fixture.command(&["--quiet"]).stderr(Stdio::piped()).spawn().unwrap();
        while !fixture.file("pid").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let Ok(pid) = std::fs::read_to_string(fixture.file("pid")) else {
            // Somebody else is measuring.
            std::thread::sleep(std::time::Duration::from_secs(1));
            continue;
        };
        assert!(Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        wait_for_end(&pid);
        return;
    }
    panic!("another membar measured for two minutes");
}
