//! The picture in `src/lib.rs`, held against the code: a module may use those before it in reading order and no other.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Rust files below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Each module's files, below src, with their text.
type Modules = BTreeMap<String, Vec<(PathBuf, String)>>;

/// The files of each module of the library, without lines that are comments.
fn modules() -> (Vec<String>, Modules) {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let library = fs::read_to_string(src.join("lib.rs")).unwrap();
    let order: Vec<String> =
        library.lines().filter_map(|line| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned())).collect();
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut by_module = Modules::new();
    for file in files {
        let below = file.strip_prefix(&src).unwrap();
        let first = below.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs").to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        by_module.entry(module).or_default().push((below.to_owned(), code));
    }
    (order, by_module)
}

#[test]
fn nothing_looks_back() {
    let (order, by_module) = modules();
    assert!(order.len() > 10, "lib.rs lists its modules one a line");
    let mut arrows = 0;
    for (position, module) in order.iter().enumerate() {
        for (file, code) in by_module.get(module).unwrap_or_else(|| panic!("no files of {module}")) {
            // Tests may use anything.
            if file.ends_with("tests.rs") {
                continue;
            }
            let code = code.split("#[cfg(test)]").next().unwrap();
            for used in code.split("crate::").skip(1) {
                let name: String = used.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                if let Some(other) = order.iter().position(|module| *module == name) {
                    arrows += 1;
                    assert!(other <= position, "{}: {module} uses {name}, which comes after it", file.display());
                }
            }
        }
    }
    assert!(arrows > 50, "the search finds imports");
}

#[test]
fn unsafe_code_and_clocks_stay_where_they_belong() {
    const UNSAFE: [&str; 5] = ["kernel", "memory", "run", "machine", "barrier"];
    const CLOCKS: [&str; 1] = ["run"];
    const THREADS: [&str; 1] = ["run"];
    const PROCESSES: [&str; 1] = ["run"];
    // workload: model files that the user names, read and never written.
    const FILES: [&str; 4] = ["machine", "memory", "record", "workload"];
    let (_, by_module) = modules();
    for (module, files) in &by_module {
        for (file, code) in files {
            let code = code.split("#[cfg(test)]").next().unwrap();
            let allowed = |modules: &[&str]| modules.contains(&module.as_str()) || file.ends_with("tests.rs");
            let words = || code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let says = |word: &str| words().any(|other| other == word);
            assert!(allowed(&UNSAFE) || !says("unsafe"), "unsafe in {}", file.display());
            assert!(allowed(&CLOCKS) || !says("Instant"), "a clock in {}", file.display());
            let starts = ["thread::spawn", "thread::scope", "thread::Builder"].iter().any(|start| code.contains(start));
            assert!(allowed(&PROCESSES) || !code.contains("Command::new"), "a process in {}", file.display());
            let opens = ["std::fs", "fs::read", "File::"].iter().any(|open| code.contains(open));
            assert!(allowed(&FILES) || !opens, "files in {}", file.display());
            assert!(allowed(&THREADS) || !starts, "threads in {}", file.display());
        }
    }
}
