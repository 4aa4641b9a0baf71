//! `membar inspect`: a model file → its numbers.

use super::measure::rate;
use super::output::{self, Format};
use crate::error::Result;
use crate::report;
use crate::units::BytesPerSecond;
use crate::workload;
use crate::workload::gguf::Inspection;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `membar inspect`.
#[derive(clap::Args, Debug)]
pub struct InspectArgs {
    /// A model in GGUF (of a split one any of its files, the others beside it), or described in TOML (FILE.toml)
    file: PathBuf,
    /// Also print the most tokens/s that this bandwidth allows, GB/s (10⁹)
    #[arg(long, value_name = "GB/S")]
    bandwidth: Option<String>,
    /// table, md or json
    #[arg(long, default_value = "table")]
    format: String,
}

/// Prints what a token of the file reads, and where it waits.
///
/// # Errors
/// Usage errors for what is no model, and for flags that cannot be read.
pub fn run(arguments: &InspectArgs) -> Result<ExitCode> {
    let format = Format::parse(&arguments.format)?;
    let bandwidth = arguments.bandwidth.as_deref().map(|text| rate("--bandwidth", text)).transpose()?;
    let model = workload::open(&arguments.file)?;
    let inspection = Inspection::new(&model, bandwidth.map(BytesPerSecond));
    output::document(&report::inspection(&inspection), format, &inspection)
}
