//! # membar
//!
//! Tells, on any Linux machine, whether LLM token generation on its CPUs is limited by memory bandwidth or by
//! threads waiting for each other.
//!
//! ```text
//! machine ──► plan ──► run ──► record ──► attribute ──► report
//! (facts)    (pure)   (hot)   (JSONL)     (pure)        (pure)
//! ```
//!
//! Each arrow is a function from the left type to the right type. Nothing looks back. The invariants:
//!
//! 1. Only [`machine`] probes the computer ([`memory`] asks where its own pages are). Only [`run`] starts threads and
//!    processes, pins, places memory or measures time. Only [`record`] touches result files.
//! 2. Between clock start and clock stop: no allocation, no lock, no print, no first touch, no dispatch beyond one
//!    indirect call a slice.
//! 3. What is recorded is raw: every sample in nanoseconds. Overheads are measurements of their own. Rates and medians
//!    stand apart in `summary`, filled by the pure functions of [`stats`], and can be recomputed.
//! 4. Every request that the system may soften (pin, node, page size) is read back; asked and observed are recorded.
//! 5. A kernel or barrier has one name everywhere: file, symbol, table row, command line, JSON.
//! 6. No number is written for a kernel whose result check failed in this process.
//! 7. [`attribute`] and [`report`] are functions of records alone: same records, same bytes out.

pub mod units;
pub mod error;
pub mod caveat;

pub mod machine;
pub mod memory;
pub mod kernel;
pub mod barrier;
pub mod workload;
pub mod plan;
pub mod record;
pub mod stats;
pub mod run;
pub mod attribute;
pub mod report;
pub mod cli;
