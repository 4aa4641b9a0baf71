//! Recorded topologies of real and made-up machines: each one loads, and what was read hangs together.

// The functions between the tests are tests as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::machine::{IsaSet, Machine, Topology};
use membar::plan::{self, Preset, Scope, Suite};
use membar::report;
use membar::units::{CpuId, CpuSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The three that are always here.
fn local() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/topologies")
}

/// The project's collection, where it is mounted beside the package. MEMBAR_TOPOLOGIES names another place.
fn collection() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/topologies");
    let dir = std::env::var_os("MEMBAR_TOPOLOGIES").map_or_else(beside, PathBuf::from);
    if !dir.is_dir() {
        println!("skipped: no topologies in {}", dir.display());
        return None;
    }
    Some(dir)
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

fn load(path: &Path) -> Machine {
    let machine = Machine::from_source(path.to_str().unwrap()).unwrap_or_else(|error| panic!("{error}"));
    assert!(!machine.is_this_system());
    check(&machine);
    machine
}

/// What holds for every topology.
fn check(machine: &Machine) {
    let topology: &Topology = &machine.topology;
    let cpus = topology.cpus();
    assert!(!topology.pus.is_empty());
    assert!(topology.pus.windows(2).all(|pair| pair[0].id < pair[1].id), "sorted, no CPU twice");
    for pu in &topology.pus {
        assert_eq!(topology.cores[pu.core as usize].cpus[pu.smt as usize], pu.id);
        assert!(pu.last_level_cache.is_none_or(|index| topology.caches[index as usize].cpus.contains(pu.id)));
        assert!(pu.node.is_none_or(|id| topology.node(id).unwrap().cpus.contains(pu.id)));
        assert!(pu.package.is_none_or(|id| topology.packages.iter().any(|package| package.id == id)));
    }
    let in_cores: CpuSet = topology.cores.iter().flat_map(|core| core.cpus.iter().copied()).collect();
    assert_eq!(in_cores, cpus);
    assert!(topology.nodes.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert!(topology.nodes.iter().all(|node| node.cpus.difference(&cpus).is_empty()));
    assert!(topology.caches.iter().all(|cache| cache.level >= 2 && cache.bytes.is_none_or(|bytes| bytes.0 > 0)));
    if let Some(distances) = &topology.distances {
        assert_eq!(distances.rows.len(), distances.nodes.len());
        assert!(distances.rows.iter().all(|row| row.len() == distances.nodes.len()));
    }
    assert_eq!(machine.allowed_cpus, cpus);
    assert_eq!(topology.cores_first(&cpus).len(), cpus.len());
    let text = report::topology::text(machine);
    assert!(text.lines().count() < 150, "{} lines", text.lines().count());
    all_four_plan(machine);
}

/// Every measurement can be planned, for every preset; only memory that is really too small may be in the way.
fn all_four_plan(machine: &Machine) {
    let too_small = machine.usable_memory().is_some_and(|bytes| bytes.0 < 2 << 30);
    let isa = IsaSet::detect();
    let scope = Scope::new(machine, None, None).unwrap();
    for preset in [Preset::Quick, Preset::Default, Preset::Full] {
        let options = plan::stream::Options { preset, ..Default::default() };
        let stream = plan::stream::plan(machine, &scope, &isa, &options);
        let latency = plan::latency::plan(machine, &scope, &plan::latency::Options { preset, ..Default::default() });
        let options = plan::memory_latency::Options { preset, ..Default::default() };
        let memory_latency = plan::memory_latency::plan(machine, &scope, &options).unwrap();
        let in_scope = scope.nodes.len() * 2;
        assert!(too_small || preset == Preset::Quick || memory_latency.groups.len() == in_scope.clamp(2, 32));
        for group in &memory_latency.groups {
            assert!(group.memory_node.is_none_or(|node| machine.topology.memory_nodes().contains(node)));
            assert!(!group.chases.is_empty() && !group.builders.is_empty());
        }
        let options = plan::sibling::Options { preset, ..Default::default() };
        let sibling = plan::sibling::plan(machine, &scope, &options);
        assert_eq!(sibling.pairs.is_empty() && sibling.tested.is_empty(), scope.cpus.len() < 2);
        let options = plan::page::Options { preset, ..Default::default() };
        let page = plan::page::plan(machine, &scope, &options);
        assert_eq!(page.buffer.is_none(), !page.left_out.is_empty());
        let options = plan::barrier::Options { preset, ..Default::default() };
        let barrier = plan::barrier::plan(machine, &scope, &options).unwrap_or_else(|error| panic!("{error}"));
        let options = plan::experts::Options { preset, ..plan::experts::Options::new(scope.cpus.clone()) };
        let experts = plan::experts::Plan::new(machine, &options);
        for refused in [stream.as_ref().err(), experts.as_ref().err()].into_iter().flatten() {
            assert!(too_small && refused.to_string().contains("least"), "{refused}");
        }
        let mut suite = Suite {
            seed: 1,
            cpus: scope.cpus.clone(),
            left_out: Vec::new(),
            stream: stream.ok(),
            latency: Some(latency),
            sibling: Some(sibling),
            memory_latency: Some(memory_latency),
            page: Some(page),
            loaded: Some(plan::loaded::plan(machine, &scope, None, 1, preset)),
            detour: Some(plan::detour::plan(&scope, preset)),
            atomic: Some(plan::atomic::plan(machine, &scope, &plan::atomic::Options { preset, ..Default::default() })),
            barrier: Some(barrier),
            experts: experts.ok(),
            ..Suite::default()
        };
        if suite.stream.is_some() {
            suite.add_reference(machine, &scope, None);
        }
        assert!(suite.needs().estimated_s > 0.0);
        let usable = machine.usable_memory();
        let process = 64 << 20;
        assert!(usable.is_none_or(|usable| suite.needs().memory_bytes.0 <= usable.0 + process), "{usable:?}");
        assert!(report::plan_document(&suite, machine).to_text().lines().count() > 5);
        serde_json::to_value(&suite).unwrap();
    }
}

#[test]
fn the_files_beside_this_test_load() {
    for file in files(&local(), "xml") {
        load(&file);
    }
    let smt = load(&local().join("smt8.xml")).topology;
    assert_eq!((smt.pus.len(), smt.cores.len(), smt.cores[0].cpus.len()), (160, 20, 8));
    let flat = load(&local().join("hbv4_176_flat_l3_old.xml")).topology;
    assert_eq!(flat.pus.len(), 176);
    let clusters = load(&local().join("e372is_v7_snc3_guess.xml")).topology;
    assert_eq!((clusters.packages.len(), clusters.nodes.len(), clusters.pus.len()), (2, 6, 372));
    let bare = load(&local().join("novm_nocache.xml")).topology;
    assert!(bare.caches.is_empty() && bare.last_level_bytes(&bare.cpus()).is_none());
}

#[test]
fn the_collection_loads() {
    let Some(collection) = collection() else { return };
    let mut loaded = 0;
    for file in files(&collection.join("own"), "xml").iter().chain(&files(&collection.join("real"), "xml")) {
        load(file);
        loaded += 1;
    }
    for file in files(&collection.join("own"), "synthetic") {
        let description = std::fs::read_to_string(file).unwrap();
        check(&Machine::from_source(&format!("synthetic:\"{}\"", description.trim())).unwrap());
    }
    assert!(loaded > 0);
}

#[test]
fn counts_are_those_of_the_manifest() {
    let Some(collection) = collection() else { return };
    let manifest = std::fs::read_to_string(collection.join("real/MANIFEST.tsv")).unwrap();
    let mut lines = manifest.lines();
    let columns: Vec<&str> = lines.next().unwrap().split('\t').collect();
    for line in lines {
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = |name: &str| cells[columns.iter().position(|column| *column == name).unwrap()];
        let number = |name: &str| cell(name).trim().parse::<usize>().unwrap_or(0);
        let topology = load(&collection.join("real").join(cell("file"))).topology;
        let l3 = topology.caches.iter().filter(|cache| cache.level == 3).count();
        let counts = [topology.packages.len(), topology.nodes.len(), l3, topology.cores.len(), topology.pus.len()];
        assert_eq!(counts, ["packages", "numa", "l3", "cores", "pus_usable"].map(number), "{}", cell("file"));
    }
}

#[test]
fn nodes_without_cpus_are_told_from_the_others() {
    let Some(collection) = collection() else { return };
    for (file, without) in [("psmgmt-knl05_v2_4.xml", "4-7"), ("psmgmt-dp-intelmax01-flat.xml", "8-15")] {
        let topology = load(&collection.join("real").join(file)).topology;
        let memory_only: membar::units::NodeSet =
            topology.nodes.iter().filter(|node| node.cpus.is_empty()).map(|node| node.id).collect();
        assert_eq!(memory_only.to_string(), without, "{file}");
        assert!(topology.pus.iter().all(|pu| pu.node.is_some()), "{file}");
    }
}

#[test]
fn wrong_input_is_a_usage_error_that_says_what_to_do() {
    let dir = std::env::temp_dir().join(format!("membar-wrong-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let write = |name: &str, text: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let whole = std::fs::read(local().join("smt8.xml")).unwrap();
    let inputs = [
        "/nonexistent/x.xml".to_string(),
        dir.to_str().unwrap().to_string(),
        "/dev/zero".to_string(),
        write("text.xml", b"not xml at all"),
        write("empty.xml", b""),
        write("bytes.xml", &[0xff, 0xfe, 0, 1]),
        write("other.xml", b"<?xml version=\"1.0\"?><html><body/></html>"),
        write("three.xml", b"<?xml version=\"1.0\"?><topology version=\"3.0\"><object type=\"Machine\"/></topology>"),
        write("hollow.xml", b"<?xml version=\"1.0\"?><topology version=\"2.0\"></topology>"),
        write("cut.xml", &whole[..whole.len() / 2]),
        "synthetic:".to_string(),
        "synthetic:\"\"".to_string(),
        "synthetic:nonsense:0".to_string(),
        "synthetic:pack:4000000000 pu:4000000000".to_string(),
        format!("sysfs:{}", dir.display()),
        "sysfs:".to_string(),
        "measured:run.jsonl".to_string(),
        String::new(),
    ];
    for input in &inputs {
        let error = Machine::from_source(input).expect_err(input);
        assert_eq!(error.kind(), membar::error::Kind::Usage, "{error}");
        let text = error.to_string();
        assert!(text.starts_with("could not read the topology ") && text.contains("; "), "{text}");
        println!("{text}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// hwloc takes the directory of a tree from the environment, which no test may change while others run: so each tree
/// is read by this test in a process of its own.
#[test]
#[ignore = "run by recorded_trees_load"]
fn one_recorded_tree() {
    let dir = std::env::var("HWLOC_FSROOT").unwrap();
    let machine = Machine::from_source(&format!("sysfs:{dir}")).unwrap_or_else(|error| panic!("{error}"));
    check(&machine);
    println!("{}", report::topology::text(&machine));
    let topology = &machine.topology;
    let counts = (topology.nodes.len(), topology.cores.len(), topology.pus.len());
    match Path::new(&dir).file_name().and_then(|name| name.to_str()).unwrap() {
        "offline-cpu0-node0" => {
            assert!(topology.pu(CpuId(0)).is_none() && topology.pus[0].id == CpuId(4));
            assert!(topology.nodes.iter().any(|node| node.id.0 == 1));
        }
        "fakememinitiators-1np2c+1npp+gi" => {
            assert_eq!(counts.0, 11);
            assert_eq!(topology.memory_nodes().to_string(), "5-10");
            assert_eq!(topology.distances.as_ref().unwrap().nodes.len(), 11);
        }
        "128arm-2pa2n8cluster4co" => assert_eq!(counts, (4, 128, 128)),
        "20em64t-hybrid-1p6c2t+2ca4co1t" => {
            assert_eq!(counts, (1, 14, 20));
            let kinds: std::collections::BTreeSet<_> = topology.cores.iter().map(|core| core.kind).collect();
            assert_eq!(kinds.len(), 2);
        }
        "2arm-2c" => assert_eq!(counts.2, 2),
        _ => {}
    }
}

#[test]
fn recorded_trees_load() {
    let Some(collection) = collection() else { return };
    let dir = std::env::temp_dir().join(format!("membar-trees-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for archive in files(&collection.join("real/sysfs"), "bz2") {
        let unpacked = Command::new("tar").arg("-xjf").arg(&archive).arg("-C").arg(&dir).status();
        if !unpacked.is_ok_and(|status| status.success()) {
            println!("skipped: tar cannot unpack {}", archive.display());
        }
    }
    for tree in std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "one_recorded_tree"])
            .env("HWLOC_FSROOT", &tree)
            .env("HWLOC_COMPONENTS", "linux,stop")
            .output()
            .unwrap();
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}\n{text}\n{errors}", tree.display());
        println!("{text}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
