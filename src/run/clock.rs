//! The ruler, and what it can and cannot measure.

use crate::units::Nanos;
use std::time::Instant;

/// Nanoseconds since a common origin, by the kernel's monotonic clock (`CLOCK_MONOTONIC` through the vDSO).
///
/// One clock for all threads: the kernel keeps it consistent across CPUs, which a bare time-stamp counter is only when
/// the hypervisor plays along.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

/// CPU time that the calling thread has used so far; `None` where the kernel does not count it.
pub fn thread_cpu_time() -> Option<Nanos> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, and `time` is one.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    (status == 0).then_some(Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
}

/// Times that the calling thread was made to give up its CPU; `None` where the kernel does not count them.
pub fn involuntary_switches() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage, and `usage` has room for one.
    let status = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: a rusage is plain numbers, for which zero bytes are valid, whatever the kernel wrote over them.
    let usage = unsafe { usage.assume_init() };
    (status == 0).then_some(usage.ru_nivcsw as u64)
}

/// What reading the clock costs and the smallest step it was seen to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Smallest difference above zero between consecutive reads.
    pub step: Nanos,
    /// Reads in the batch of [`Precision::batches`].
    pub reads_per_batch: u64,
    /// Time of each batch of reads.
    pub batches: [Nanos; Precision::BATCHES],
}

impl Precision {
    const BATCHES: usize = 9;
}

impl Clock {
    /// A clock whose zero is now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// Time since the origin. u64 nanoseconds last 584 years.
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// Measures the clock with itself. Takes about 1 ms.
    pub fn precision(&self) -> Precision {
        const READS: u64 = 2000;
        let mut step = u64::MAX;
        let mut batches = [Nanos(0); Precision::BATCHES];
        for batch in &mut batches {
            let start = self.now();
            let mut last = start;
            for _ in 0..READS {
                let now = self.now();
                if now > last {
                    step = step.min(now.0 - last.0);
                }
                last = now;
            }
            *batch = Nanos(last.0 - start.0);
        }
        Precision { step: Nanos(step), reads_per_batch: READS, batches }
    }
}
