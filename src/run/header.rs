//! The first line of a record: what is about to run where.

use super::clock::Precision;
use crate::caveat::Caveat;
use crate::machine::{IsaSet, Machine, RunLock, host_name};
use crate::record::{ClockFacts, CpuFacts, RunHeader, SCHEMA};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Load at the start above which somebody else is computing. It lags by a minute, so an earlier run counts too.
const BUSY: f64 = 1.0;

/// The header of a run that starts now on `machine`, with instructions up to those of `isa`. It has no labels yet.
pub fn header(machine: &Machine, isa: &IsaSet, precision: &Precision, seed: u64, lock: Option<&RunLock>) -> RunHeader {
    let mut caveats = machine.caveats.clone();
    // Later the load is also our own.
    caveats.extend(machine.environment.load_1m.filter(|load| *load > BUSY).map(|load_1m| Caveat::Busy { load_1m }));
    caveats.extend(lock.and_then(RunLock::not_locked).map(|reason| Caveat::NotLocked { reason: reason.to_owned() }));
    RunHeader {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("MEMBAR_COMMIT").filter(|commit| !commit.is_empty()).map(str::to_owned),
        command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        started_utc: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        seed,
        host: host_name(),
        cpu: CpuFacts {
            model_name: machine.cpu.model_name.clone(),
            vendor: machine.cpu.vendor.clone(),
            isa: isa.instruction_sets().map(|isa| isa.name().to_owned()).collect(),
            hypervisor: machine.cpu.hypervisor.clone(),
        },
        topology: machine.topology.clone(),
        clock: ClockFacts { source: "CLOCK_MONOTONIC".to_owned(), step_ns: precision.step.0 },
        allowed_cpus: machine.allowed_cpus.clone(),
        allowed_nodes: machine.allowed_nodes.clone(),
        environment: machine.environment.clone(),
        peak_bytes_per_s: None,
        labels: BTreeMap::new(),
        caveats,
    }
}
