//! Detours: which CPUs are watched, and for how long.

use super::{Needs, Preset, Scope};
use crate::units::{Bytes, CpuId};
use serde::Serialize;

/// Where and how long gaps between clock reads are looked for.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// All of them at the same time.
    pub cpus: Vec<CpuId>,
    /// In so many windows.
    pub windows: u32,
    /// Of this length each.
    pub window_ns: u64,
}

/// Plans one watch of all CPUs in scope.
pub fn plan(scope: &Scope, preset: Preset) -> Plan {
    let windows = match preset {
        Preset::Quick => 200,
        Preset::Default => 500,
        Preset::Full => 5_000,
    };
    Plan { cpus: scope.cpus.clone(), windows, window_ns: 1_000_000 }
}

impl Plan {
    /// No memory to speak of; the time that is watched.
    pub fn needs(&self) -> Needs {
        let watched_s = f64::from(self.windows) * self.window_ns as f64 * 1e-9;
        Needs { memory_bytes: Bytes(0), estimated_s: watched_s + 0.000_5 * self.cpus.len() as f64 }
    }
}
