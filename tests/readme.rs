//! What README.md and reports/ show is what the program prints.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::fs;
use std::path::Path;
use std::process::Command;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn every_record_renders_to_the_text_beside_it() {
    let mut records = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("reports")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let output = Command::new(env!("CARGO_BIN_EXE_membar")).arg("report").arg(&path).output().unwrap();
            let text = fs::read_to_string(path.with_extension("txt")).unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text, "{}", path.display());
            let header = membar::record::Record::read(&path).unwrap().header;
            let command = header.command.join(" ");
            assert!(
                read("reports/README.md").contains(&format!("`{command}`")),
                "{command} is not what the table says"
            );
            assert!(header.commit.is_some_and(|commit| !commit.ends_with("dirty")), "{}", path.display());
            records += 1;
        }
    }
    assert!(records > 0);
}

#[test]
fn the_example_in_the_readme_is_the_report() {
    let readme = read("README.md");
    let example = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(example.trim_end(), read("reports/epyc-guest-2-cpus.txt").trim_end());
}

#[test]
fn the_readme_names_commands_and_crates_that_exist() {
    let readme = read("README.md");
    let help = Command::new(env!("CARGO_BIN_EXE_membar")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    for line in commands.take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().unwrap();
        assert!(command == "help" || readme.contains(&format!("`membar {command}")), "{command} is not in the README");
    }
    let manifest = read("Cargo.toml");
    let sections = manifest.split("\n[").filter(|section| section.contains("dependencies]"));
    for line in sections.flat_map(|section| section.lines().skip(1)).filter(|line| line.contains('=')) {
        let name = line.split([' ', '=']).next().unwrap();
        assert!(readme.contains(name), "{name} is not in the README's table of dependencies");
    }
}
