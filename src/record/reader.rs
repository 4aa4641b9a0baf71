//! Reads a record back: also one that was cut off, or written by a newer membar.

use super::{Line, RunHeader, SCHEMA};
use crate::error::{Error, Result};
use std::path::Path;

/// A record in memory.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was run where.
    pub header: RunHeader,
    /// The steps in the order they were taken.
    pub lines: Vec<Line>,
    /// Whether the run came to its end line.
    pub complete: bool,
    /// What the reader noticed, such as a last line that was cut off.
    pub remarks: Vec<String>,
}

impl Record {
    /// Reads a record file.
    ///
    /// # Errors
    /// A usage error when it cannot be read, is no record, or has another schema.
    pub fn read(path: &Path) -> Result<Record> {
        let text = std::fs::read(path).map_err(|reason| {
            Error::usage(format!("read the record {}", path.display()), reason, "name a file that membar wrote")
        })?;
        Record::parse(&String::from_utf8_lossy(&text), &path.display().to_string())
    }

    /// Reads a record from text; `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`Record::read`].
    pub fn parse(text: &str, name: &str) -> Result<Record> {
        let wrong = |number: usize, reason: String| {
            Error::usage(
                format!("read line {number} of the record {name}"),
                reason,
                "name a file that membar wrote and nobody edited",
            )
        };
        let mut header: Option<RunHeader> = None;
        let mut record = Vec::new();
        let mut complete = false;
        let mut remarks = Vec::new();
        let ends_in_newline = text.ends_with('\n');
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
        while let Some((index, line)) = lines.next() {
            let number = index + 1;
            let value: serde_json::Value = match serde_json::from_str(line) {
                Ok(value) => value,
                Err(_) if lines.peek().is_none() && !ends_in_newline && header.is_some() => {
                    remarks.push(format!("line {number} is cut off and was left out"));
                    break;
                }
                Err(reason) => return Err(wrong(number, reason.to_string())),
            };
            let kind = value.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
            if header.is_none() {
                let schema = value.get("schema").and_then(serde_json::Value::as_u64);
                if kind != "run" {
                    return Err(wrong(number, "it is not a \"run\" line, with which every record starts".into()));
                }
                if schema != Some(u64::from(SCHEMA)) {
                    let found = schema.map_or("none".to_owned(), |schema| schema.to_string());
                    let reason = format!("its schema is {found} and this membar reads {SCHEMA}");
                    return Err(Error::usage(
                        format!("read the record {name}"),
                        reason,
                        "use the membar that wrote it",
                    ));
                }
            }
            // Kinds that this version does not know are another version's business.
            const KNOWN: [&str; 16] = [
                "run",
                "stream",
                "core_latency",
                "sibling",
                "memory_latency",
                "page_latency",
                "atomic",
                "detour",
                "loaded_latency",
                "barrier",
                "dispatch",
                "decode",
                "reference",
                "overhead",
                "peer",
                "end",
            ];
            if !KNOWN.contains(&kind.as_str()) {
                continue;
            }
            let line = match serde_json::from_value(value) {
                Ok(line) => line,
                // A newer membar has more caveats, arms and ways of waiting: what it says of them is left out.
                Err(reason) if header.is_some() && is_newer(&reason) => {
                    remarks.push(format!("line {number} was left out: {reason}"));
                    continue;
                }
                Err(reason) => return Err(wrong(number, reason.to_string())),
            };
            match line {
                Line::Run(_) if header.is_some() => {
                    return Err(wrong(number, "a second \"run\" line: two records in one file".into()));
                }
                Line::Run(first) => header = Some(*first),
                Line::End(end) => {
                    complete = true;
                    record.push(Line::End(end));
                }
                step => record.push(step),
            }
        }
        let header = header.ok_or_else(|| wrong(1, "the file is empty".into()))?;
        if !complete {
            remarks.push("incomplete: the run did not come to its end".into());
        }
        Ok(Record { header, lines: record, complete, remarks })
    }
}

/// Whether a line is well formed and only names something that this version does not know.
fn is_newer(reason: &serde_json::Error) -> bool {
    let reason = reason.to_string();
    reason.contains("unknown variant") || reason.contains(crate::barrier::UNKNOWN_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_record_is_read_as_far_as_it_is_understood() {
        let header = r#"{"kind":"run","schema":1,"version":"9","commit":null,"command":[],"started_utc":"","seed":1,"host":"h","cpu":{"model_name":"c","vendor":"v","isa":[],"hypervisor":null},"topology":{"packages":[],"dies":[],"nodes":[],"caches":[],"cores":[],"pus":[],"distances":null},"clock":{"source":"s","step_ns":1},"allowed_cpus":"0","allowed_nodes":"","environment":{"kernel":null},"labels":{},"caveats":[],"news":1}"#;
        let step = |caveat: &str, wait: &str| {
            format!(
                r#"{{"kind":"barrier","threads":1,"cpus":[0],"caveats":[{caveat}],"samples_ns":[5],"units_per_sample":1,"algorithm":"central","wait":"{wait}","spread":"l3","late_ns":0,"work_ns":0,"work_bytes":0,"summary":{{"median_ns":5.0}}}}"#
            )
        };
        let known = step("", "pause");
        let newer = [
            step(r#"{"caveat":"moonlit"}"#, "pause"),
            step("", "monitorless-nap"),
            r#"{"kind":"tide","height":1}"#.into(),
        ];
        for line in newer {
            let text = format!("{header}\n{line}\n{known}\n");
            let record = Record::parse(&text, "r").unwrap();
            assert_eq!(record.lines.len(), 1, "{:?}", record.remarks);
        }
        let edited = known.replace("[5]", "\"five\"");
        let error = Record::parse(&format!("{header}\n{edited}\n"), "r").unwrap_err().to_string();
        assert!(error.contains("line 2 of the record r"), "{error}");
    }
}
