//! `--topology`: which machine is meant. Records are read here, since `machine` comes before them.

use crate::attribute::clusters::Clusters;
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::record::Record;
use crate::report;
use std::path::Path;

/// The machine that a source names; without one, this system.
///
/// # Errors
/// Usage errors for what cannot be read.
pub(super) fn machine(source: Option<&str>) -> Result<Machine> {
    let Some(source) = source else { return Machine::this_system() };
    let Some(path) = source.strip_prefix("measured:") else { return Machine::from_source(source) };
    let (record, clusters) = measured(path)?;
    let header = record.header;
    let regrouped = clusters.regrouped(&header.topology, &clusters.against(&header));
    let (topology, remark) = regrouped.map_err(|reason| unusable(path, reason))?;
    let caveats = remark.map(|detail| Caveat::TopologyIncomplete { detail }).into_iter().collect();
    Ok(Machine::measured(path.into(), topology, header.allowed_cpus, header.allowed_nodes, caveats))
}

/// The groups of a measured source as CPU lists and masks; empty for any other source.
///
/// # Errors
/// As [`machine`].
pub(super) fn groups(source: Option<&str>) -> Result<String> {
    let Some(path) = source.and_then(|source| source.strip_prefix("measured:")) else { return Ok(String::new()) };
    let (record, clusters) = measured(path)?;
    Ok(report::paste(&clusters, &clusters.against(&record.header)))
}

fn measured(path: &str) -> Result<(Record, Clusters)> {
    let record = Record::read(Path::new(path))?;
    match Clusters::of(&record) {
        None => Err(unusable(path, "it has no core-to-core latencies")),
        Some(Err(unclear)) => Err(unusable(path, unclear)),
        Some(Ok(clusters)) => Ok((record, clusters)),
    }
}

fn unusable(path: &str, reason: impl std::fmt::Display) -> Error {
    Error::usage(
        format!("read the topology measured:{path}"),
        reason,
        "name a record of `membar latency` that has most pairs of the CPUs in question (--full takes the most)",
    )
}
