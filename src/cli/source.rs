//! `--topology`: which machine is meant. Records are read here, since `machine` comes before them.

use crate::attribute::clusters::Clusters;
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::machine::{Machine, host_name};
use crate::record::{Record, RunHeader};
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
    let remark = remark.map(|detail| Caveat::TopologyIncomplete { detail });
    // The groups of this machine are for measuring as well: all that is asked of the topology is which CPUs lie together.
    if let Some(mut here) = Machine::this_system().ok().filter(|here| is_same(here, &header)) {
        here.topology = topology;
        let detail = format!("last-level caches are what the latencies in {path} show");
        here.caveats.extend(remark.into_iter().chain([Caveat::TopologyIncomplete { detail }]));
        return Ok(here);
    }
    let caveats = remark.into_iter().collect();
    Ok(Machine::measured(path.into(), topology, header.allowed_cpus, header.allowed_nodes, caveats))
}

/// Whether a record is of this machine, with the CPUs that this process may use.
fn is_same(here: &Machine, header: &RunHeader) -> bool {
    here.topology == header.topology
        && here.allowed_cpus == header.allowed_cpus
        && here.cpu.model_name == header.cpu.model_name
        && host_name() == header.host
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
