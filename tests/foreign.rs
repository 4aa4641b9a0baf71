//! Barriers that are not membar's own, through the binaries: OpenMP runtimes, real ones where there are any and made-up ones
//! that misbehave, and plugins. Nothing here depends on a timing.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "fixture/process.rs"]
mod fixture;

use fixture::wait_for_end;
use membar::machine::OpenMp;
use membar::record::{BarrierStep, Line, Record};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};

const MEMBAR: &str = env!("CARGO_BIN_EXE_membar");
const BARRIER: &str = env!("CARGO_BIN_EXE_membar-barrier");

/// A directory of its own, gone at the end. Runs lock each other out, so tests take turns.
struct Fixture {
    dir: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Fixture {
    fn new(name: &str) -> Fixture {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
        let dir = std::env::temp_dir().join(format!("membar-foreign-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Fixture { dir, _turn: turn }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Compiles a shared library; false, and said why, without a compiler.
    fn library(&self, name: &str, source: &str, more: &[&str]) -> bool {
        std::fs::write(self.file("source.c"), source).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-pthread", "-o", name, "source.c"]).args(more);
        match compiler.current_dir(&self.dir).output() {
            Err(reason) => {
                println!("skipped: no C compiler here ({reason})");
                false
            }
            Ok(output) => {
                assert!(output.status.success(), "{}", text(&output.stderr));
                true
            }
        }
    }

    /// With made-up runtimes of this directory before those of the system, and an environment that must not reach them.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.dir).stdin(Stdio::null());
        command.env("LD_LIBRARY_PATH", &self.dir).env("OMP_NUM_THREADS", "7").env("GOMP_SPINCOUNT", "5");
        command.env("KMP_AFFINITY", "compact");
        command
    }

    /// Somebody else may be measuring on this machine: then it waits, for up to two minutes.
    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        for _ in 0..120 {
            let output = self.command(program, arguments).output().unwrap();
            if !text(&output.stderr).contains("another membar is measuring") {
                return output;
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        panic!("another membar measured for two minutes");
    }

    /// The barrier steps of the record of this name.
    fn steps(&self, name: &str) -> Vec<BarrierStep> {
        let record = Record::read(&self.file(name)).unwrap();
        assert_eq!(membar::stats::disagreements(&record.lines), Vec::<String>::new());
        let steps = record.lines.into_iter().filter_map(|line| match line {
            Line::Barrier(step) => Some(step),
            _ => None,
        });
        steps.collect()
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

/// The parts of a runtime with threads and a barrier of the C library's. It writes down the environment that it sees.
const RUNTIME: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
extern char **environ;
static pthread_barrier_t barrier;
static __thread int number;
static int count = 1;
struct start { void (*body)(void *); void *data; int number; };
static void *enter(void *start_) {
    struct start *start = start_;
    number = start->number;
    start->body(start->data);
    return NULL;
}
static void team(void (*body)(void *), void *data, unsigned threads) {
    pthread_t thread[64];
    struct start start[64];
    count = threads;
    pthread_barrier_init(&barrier, NULL, threads);
    for (unsigned i = 1; i < threads; i++) {
        start[i] = (struct start){ body, data, i };
        pthread_create(&thread[i], NULL, enter, &start[i]);
    }
    body(data);
    for (unsigned i = 1; i < threads; i++) pthread_join(thread[i], NULL);
    FILE *out = fopen("environment", "w");
    for (char **each = environ; *each; each++) fprintf(out, "%s\n", *each);
    fclose(out);
}
int omp_get_thread_num(void) { return number; }
int omp_get_num_threads(void) { return count; }
"#;

const WHOLE: &str =
    "void GOMP_parallel(void (*body)(void *), void *data, unsigned n, unsigned f) { team(body, data, n); }";
/// Thread 0 goes through twenty episodes, which is what the check has, while thread 1 is in its first.
const EARLY: &str = "
#include <sched.h>
#include <stdatomic.h>
static atomic_int passed;
static void early(int thread) {
    if (thread == 0) atomic_fetch_add(&passed, 1);
    else while (atomic_load(&passed) < 20) sched_yield();
}
";
const WAITS: &str = "void GOMP_barrier(void) { pthread_barrier_wait(&barrier); }";

#[test]
fn a_runtime_is_measured_on_its_own_threads_in_the_environment_that_was_asked() {
    let fixture = Fixture::new("environment");
    if !fixture.library("libgomp.so.1", &format!("{RUNTIME}{WHOLE}{WAITS}"), &[]) {
        return;
    }
    let common = ["--quick", "--samples", "2", "--late", "0", "--algorithms", "libgomp", "--quiet"];
    for (program, wait, variable) in
        [(BARRIER, "sleep", "OMP_WAIT_POLICY=passive"), (BARRIER, "spin-77-futex", "GOMP_SPINCOUNT=77")]
    {
        let out = format!("{wait}.jsonl");
        let arguments = [&common[..], &["--wait", wait, "--threads", "1,2", "--out", &out]].concat();
        let output = fixture.run(program, &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let steps = fixture.steps(&out);
        assert_eq!(steps.iter().map(|step| step.step.threads).collect::<Vec<_>>(), [1, 2]);
        for step in &steps {
            let crowded = step.step.cpus.len() > membar::machine::current_affinity().len();
            assert!(step.algorithm == "libgomp" && (crowded || step.wait.to_string() == wait), "{step:?}");
            assert_eq!((step.step.samples_ns.len(), step.step.per_thread.len()), (2, step.step.cpus.len()));
            assert_eq!(step.step.disturbance.detours.len(), step.step.cpus.len(), "watched as any team is");
            let caveats = format!("{:?}", step.step.caveats);
            assert!(!caveats.contains("PinNotHonoured"), "{caveats}");
        }
        let environment = std::fs::read_to_string(fixture.file("environment")).unwrap();
        let of_openmp =
            environment.lines().filter(|line| ["OMP_", "GOMP_", "KMP_"].iter().any(|p| line.starts_with(p)));
        let mut of_openmp: Vec<&str> = of_openmp.collect();
        of_openmp.sort_unstable();
        let mut expected = vec!["OMP_DYNAMIC=false", "OMP_PROC_BIND=false", variable];
        expected.sort_unstable();
        assert_eq!(of_openmp, expected);
    }
    // More threads than CPUs: libgomp then waits otherwise than it was asked to.
    let cpu = membar::machine::current_affinity().iter().next().unwrap().to_string();
    let crowded = ["--wait", "pause", "--cpus", &cpu, "--threads", "2", "--out", "crowded.jsonl"];
    let output = fixture.run(MEMBAR, &[&["barrier"], &common[..], &crowded].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fixture.steps("crowded.jsonl")[0].wait.to_string(), "spin-1000-futex");

    let output = fixture.run(MEMBAR, &["barrier", "--verify", "--algorithms", "libgomp", "--threads", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("1 steps checked, all well"), "{}", text(&output.stderr));
}

#[test]
fn a_runtime_that_misbehaves_is_an_error_and_costs_the_others_nothing() {
    let fixture = Fixture::new("misbehaves");
    let fewer = "void GOMP_parallel(void (*body)(void *), void *d, unsigned n, unsigned f) { team(body, d, n - 1); }";
    let dies = r#"void GOMP_parallel(void (*body)(void *), void *d, unsigned n, unsigned f)
        { fprintf(stderr, "libgomp: Thread creation failed\n"); exit(1); }"#;
    let cases = [
        (format!("{RUNTIME}{fewer}{WAITS}"), "its team has 1; raise the limit"),
        (format!("{RUNTIME}{dies}{WAITS}"), "exit status: 1: libgomp: Thread creation failed"),
        (format!("{RUNTIME}{WHOLE}"), "it has no GOMP_barrier"),
        (format!("{RUNTIME}{WHOLE}{EARLY}void GOMP_barrier(void) {{ early(number); }}"), "before all had come"),
    ];
    for (index, (source, hint)) in cases.iter().enumerate() {
        if !fixture.library("libgomp.so.1", source, &[]) {
            return;
        }
        let out = format!("{index}.jsonl");
        let arguments = [
            "--samples",
            "1",
            "--late",
            "0",
            "--threads",
            "2",
            "--algorithms",
            "libgomp,std",
            "--quiet",
            "--out",
            &out,
        ];
        let output = fixture.run(BARRIER, &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{hint}: {said}");
        assert!(said.starts_with("membar: could not ") && said.contains(hint), "{hint}: {said}");
        let measured: Vec<String> = fixture.steps(&out).into_iter().map(|step| step.algorithm).collect();
        assert_eq!(measured, ["std"], "{hint}");
    }
}

#[test]
fn a_runtime_that_never_ends_is_stopped_with_the_run() {
    let fixture = Fixture::new("endless");
    let endless = r#"void GOMP_parallel(void (*body)(void *), void *d, unsigned n, unsigned f) {
        FILE *out = fopen("pid.new", "w");
        fprintf(out, "%d", getpid());
        fclose(out);
        rename("pid.new", "pid");
        for (;;) pause();
    }"#;
    if !fixture.library("libgomp.so.1", &format!("{RUNTIME}{endless}{WAITS}"), &[]) {
        return;
    }
    // Whoever interrupts it stops both; who kills it leaves nothing behind either.
    for (signal, status) in [("INT", Some(130)), ("KILL", None)] {
        let mut begun = None;
        for _ in 0..120 {
            let _ = std::fs::remove_file(fixture.file("pid"));
            let arguments = ["--algorithms", "libgomp", "--threads", "2", "--out", "none"];
            let mut child = fixture.command(BARRIER, &arguments).stderr(Stdio::piped()).spawn().unwrap();
            while !fixture.file("pid").exists() && child.try_wait().unwrap().is_none() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            if fixture.file("pid").exists() {
                begun = Some(child);
                break;
            }
            // Somebody else is measuring.
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        let mut child = begun.expect("another membar measured for two minutes");
        assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success());
        let said: Vec<String> = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), status, "{said:?}");
        let left_out = said.iter().any(|line| line.contains("not measured (interrupted): barrier libgomp"));
        assert_eq!(left_out, signal == "INT", "{said:?}");
        wait_for_end(&std::fs::read_to_string(fixture.file("pid")).unwrap());
    }
}

#[test]
fn a_runtime_that_is_not_there_is_named_with_its_package() {
    let fixture = Fixture::new("absent");
    // Found before the system's own, if there is one, and no runtime.
    if !fixture.library("libomp.so.5", "int nothing;", &[]) {
        return;
    }
    let reason = "libomp.so.5 is not installed (Debian package libomp5)";
    let list = text(&fixture.run(BARRIER, &["--list"]).stdout);
    assert!(list.contains(&format!("not run: {reason}")), "{list}");
    let plan = text(&fixture.run(BARRIER, &["--plan"]).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plan.contains(&format!("Left out ({reason}): libomp")), "{plan}");
    let output = fixture.run(BARRIER, &["--algorithms", "libomp", "--out", "r.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    assert!(!fixture.file("r.jsonl").exists(), "nothing was begun");
}

/// The example, compiled as its comment says.
fn example(fixture: &Fixture) -> bool {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let source = std::fs::read_to_string(format!("{examples}/plugin_barrier.c")).unwrap();
    fixture.library("libmine.so", &source, &["-I", examples, "-std=c11", "-Wall", "-Wextra", "-Werror"])
}

#[test]
fn a_plugin_is_measured_as_any_barrier() {
    let fixture = Fixture::new("plugin");
    if !example(&fixture) {
        return;
    }
    let common = ["--threads", "1,2", "--quick", "--samples", "2", "--quiet", "--plugin", "libmine.so"];
    let output =
        fixture.run(BARRIER, &[&common[..], &["--algorithms", "std", "--late", "0", "--out", "r.jsonl"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let steps = fixture.steps("r.jsonl");
    let measured: Vec<_> = steps.iter().map(|step| (step.algorithm.as_str(), step.step.threads)).collect();
    assert_eq!(measured, [("std", 1), ("plugin:libmine", 1), ("std", 2), ("plugin:libmine", 2)]);
    for step in steps.iter().filter(|step| step.algorithm == "plugin:libmine") {
        assert_eq!((step.wait.to_string().as_str(), step.step.samples_ns.len()), ("unknown", 2));
    }
    let again = fixture.run(MEMBAR, &["report", "r.jsonl"]);
    assert!(text(&again.stdout).contains("plugin:libmine  unknown"), "{}", text(&again.stdout));
    assert_eq!(text(&again.stdout), text(&output.stdout));

    // Alone, and however others wait; beside all others.
    let alone = ["--algorithms", "plugin:libmine", "--wait", "pause", "--out", "alone.jsonl"];
    let output = fixture.run(BARRIER, &[&common[..], &alone].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(fixture.steps("alone.jsonl").iter().all(|step| step.algorithm == "plugin:libmine"));
    let output = fixture.run(BARRIER, &[&common[..], &["--plan", "--format", "json"]].concat());
    for name in ["\"central\"", "\"plugin:libmine\""] {
        assert!(text(&output.stdout).contains(name), "{}", text(&output.stdout));
    }
}

#[test]
fn a_plugin_that_is_none_or_fails_is_named_with_what_is_missing() {
    let fixture = Fixture::new("no-plugin");
    let create = "void *membar_barrier_create(unsigned threads) { static int b; return threads == 2 ? NULL : &b; }";
    let wait = "void membar_barrier_wait(void *b, unsigned thread) { (void)b; (void)thread; }";
    let destroy = "void membar_barrier_destroy(void *b) { (void)b; }";
    let open = format!("{EARLY}void membar_barrier_wait(void *b, unsigned thread) {{ (void)b; early(thread); }}");
    let any = create.replace("threads == 2", "threads == 0");
    let include = "#include <stdatomic.h>\n#include <stddef.h>\n#include <stdlib.h>\n";
    // Waits for what is usual and no longer.
    let hasty = "static atomic_uint came, passed;
        void membar_barrier_wait(void *b, unsigned thread) {
            (void)b; (void)thread;
            unsigned before = atomic_load(&passed);
            if (atomic_fetch_add(&came, 1) % 2) { atomic_fetch_add(&passed, 1); return; }
            for (int i = 0; i < 500 && atomic_load(&passed) == before; i++) {}
        }";
    let ends = wait.replace("{ (void)b;", "{ exit(0); (void)b;");
    let cases = [
        (format!("{include}{create}{destroy}"), 2, "it has no membar_barrier_wait; export the three functions"),
        (format!("{include}{wait}{destroy}"), 2, "it has no membar_barrier_create"),
        (format!("{include}{create}{wait}"), 2, "it has no membar_barrier_destroy"),
        (format!("{include}{create}{wait}{destroy}"), 1, "for 2 threads: membar_barrier_create returned NULL"),
        (format!("{include}{any}{open}{destroy}"), 1, "trust the barrier plugin:p: threads left it"),
        (format!("{include}{any}{hasty}{destroy}"), 1, "trust the barrier plugin:p: threads left it"),
        (format!("{include}{any}{ends}{destroy}"), 1, "the plugin ended the process"),
    ];
    let arguments = ["--plugin", "./p.so", "--algorithms", "plugin:p", "--threads", "2", "--samples", "2", "--quiet"];
    for (source, status, hint) in &cases {
        if !fixture.library("p.so", source, &[]) {
            return;
        }
        let output = fixture.run(BARRIER, &[&arguments[..], &["--out", "none"]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*status), "{hint}: {said}");
        assert!(said.starts_with("membar: could not ") && said.contains(hint), "{hint}: {said}");
    }
    std::fs::write(fixture.file("p.so"), "no library").unwrap();
    for arguments in [["--plugin", "./p.so"], ["--plugin", "./missing.so"]] {
        let output = fixture.run(BARRIER, &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("could not use the plugin {}: ", arguments[1])), "{said}");
    }
    assert_eq!(fixture.run(BARRIER, &["--plugin", "./p.so", "--list"]).status.code(), Some(2));
}

#[test]
fn the_example_sweeps_its_own_barrier_over_this_machine() {
    // Where cargo puts it: beside the binaries, in examples.
    let example = PathBuf::from(MEMBAR).with_file_name("examples").join("own_barrier");
    if !example.exists() {
        println!("skipped: `cargo test` builds the examples, `cargo test --test foreign` does not");
        return;
    }
    let fixture = Fixture::new("own");
    let output = fixture.run(example.to_str().unwrap(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("Barriers: ns an episode") && said.contains("tally"), "{said}");
    assert_eq!(std::fs::read_dir(&fixture.dir).unwrap().count(), 0, "no record is written");
    let lines = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/own_barrier.rs")).unwrap();
    assert!(lines.lines().count() < 40, "the README says so");
}

#[test]
fn real_runtimes_are_measured_where_they_are_and_named_where_they_are_not() {
    let fixture = Fixture::new("real");
    let list = text(&fixture.run(BARRIER, &["--list"]).stdout);
    let installed = OpenMp::installed();
    for runtime in OpenMp::ALL {
        let name = runtime.name();
        let row = list.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        let Some(file) = installed.get(name) else {
            println!("skipped: {}", runtime.missing());
            assert!(row.contains(&runtime.missing()), "{row}");
            continue;
        };
        assert!(row.ends_with("usable"), "{row}");
        for wait in ["pause", "sleep"] {
            let out = format!("{name}-{wait}.jsonl");
            let arguments =
                ["--quick", "--samples", "2", "--late", "0", "--algorithms", name, "--wait", wait, "--threads", "1,2"];
            let output = fixture.run(BARRIER, &[&arguments[..], &["--quiet", "--out", &out]].concat());
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            assert!(text(&output.stdout).contains(name), "{}", text(&output.stdout));
            assert_eq!(fixture.steps(&out).len(), 2);
            let record = Record::read(&fixture.file(&out)).unwrap();
            assert_eq!(record.header.environment.openmp.get(name), Some(file));
        }
    }
}
