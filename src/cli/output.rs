//! What goes to stdout, in every form.

use crate::error::{Error, Result};
use crate::record::{Line, Record, SCHEMA};
use crate::report::{self, Document};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned tables.
    Table,
    /// One object.
    Json,
    /// The record's own lines.
    Jsonl,
    /// One row a step.
    Csv,
    /// Markdown tables.
    Markdown,
    /// Bandwidth in the layout of STREAM.
    Stream,
}

/// Which object `--format json` prints.
#[derive(Clone, Debug)]
pub enum Json {
    /// All steps.
    Steps,
    /// The summary of a run, with the record's path.
    Summary(Option<String>),
}

impl Format {
    /// Reads a format's name.
    ///
    /// # Errors
    /// A usage error that lists the names.
    pub fn parse(name: &str) -> Result<Format> {
        match name {
            "table" => Ok(Format::Table),
            "json" => Ok(Format::Json),
            "jsonl" => Ok(Format::Jsonl),
            "csv" => Ok(Format::Csv),
            "md" => Ok(Format::Markdown),
            "stream" => Ok(Format::Stream),
            _ => Err(Error::usage(
                format!("print in the format '{name}'"),
                "there is no such format",
                "name one of table, json, jsonl, csv, md, stream",
            )),
        }
    }
}

/// Says something on stderr. Talk that nobody can hear is dropped: it must not end a measurement.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Writes to stdout. A reader that has gone away has what it wanted.
pub fn print(text: &str) -> Result<ExitCode> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::refused("write to standard output", error, "free some space there, or write to another place"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints an object as JSON, indented.
pub fn json(object: &impl Serialize) -> Result<ExitCode> {
    let mut text = serde_json::to_string_pretty(object)
        .map_err(|error| Error::refused("write JSON", error, "report this as a bug"))?;
    text.push('\n');
    print(&text)
}

/// Prints a document as text or Markdown, or what stands for it as JSON.
pub fn document(document: &Document, format: Format, object: &impl Serialize) -> Result<ExitCode> {
    match format {
        Format::Table => print(&document.to_text()),
        Format::Markdown => print(&document.to_markdown()),
        Format::Json => json(object),
        Format::Jsonl | Format::Csv | Format::Stream => Err(Error::usage(
            "print a list or a plan in this format",
            "only measured steps have lines and rows",
            "take --format table, md or json",
        )),
    }
}

#[derive(Serialize)]
struct Steps<'a> {
    schema: u32,
    run: &'a crate::record::RunHeader,
    steps: Vec<&'a Line>,
    remarks: &'a [String],
}

/// Prints a record.
pub fn record(record: &Record, format: Format, which: Json) -> Result<ExitCode> {
    match format {
        Format::Table => print(&report::document(record).to_text()),
        Format::Markdown => print(&report::document(record).to_markdown()),
        Format::Csv => print(&report::csv(record)?),
        Format::Stream => print(&report::stream(record)?),
        Format::Jsonl => {
            let header = Line::Run(Box::new(record.header.clone()));
            let mut text = String::new();
            for line in std::iter::once(&header).chain(&record.lines) {
                let line = serde_json::to_string(line)
                    .map_err(|error| Error::refused("write JSON", error, "report this as a bug"))?;
                text.push_str(&line);
                text.push('\n');
            }
            print(&text)
        }
        Format::Json => match which {
            Json::Summary(path) => json(&report::summary(record, path)),
            Json::Steps => json(&Steps {
                schema: SCHEMA,
                run: &record.header,
                steps: record.lines.iter().filter(|line| line.step().is_some()).collect(),
                remarks: &record.remarks,
            }),
        },
    }
}
