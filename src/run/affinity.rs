//! Pinning a thread to one CPU, and reading back what came of it.

use crate::caveat::Caveat;
use crate::units::{CpuId, CpuSet};

/// core_affinity's mask is the C library's `cpu_set_t`: larger numbers need one that we allocate ourselves.
const CPU_SET_BITS: u32 = libc::CPU_SETSIZE as u32;

/// Pins the calling thread to `cpu`. Returns a caveat when the system did not do as asked.
pub fn pin(cpu: CpuId) -> Option<Caveat> {
    if cpu.0 < CPU_SET_BITS {
        core_affinity::set_for_current(core_affinity::CoreId { id: cpu.0 as usize });
    } else {
        confine(&[cpu]);
    }
    // The request may be refused, or honoured and softened: only what is read back counts.
    let got = crate::machine::current_affinity();
    (got.len() != 1 || !got.contains(cpu)).then_some(Caveat::PinNotHonoured { asked: cpu, got })
}

/// Lets the calling thread, and those that it will start, run on these CPUs alone. Failure shows in what is read back.
pub fn confine(cpus: &[CpuId]) {
    let largest = cpus.iter().map(|cpu| cpu.0 as usize).max().unwrap_or(0);
    let mut mask = vec![0u64; largest / 64 + 1];
    for cpu in cpus {
        mask[cpu.0 as usize / 64] |= 1 << (cpu.0 % 64);
    }
    // SAFETY: the pointer and the length in bytes describe `mask`, which outlives the call; pid 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, mask.len() * 8, mask.as_ptr().cast()) };
}

/// Where the calling thread runs at this moment, as a set of one.
pub fn observed() -> CpuSet {
    // SAFETY: takes no arguments and only returns a number.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).into_iter().map(CpuId).collect()
}
