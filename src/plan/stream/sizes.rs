//! How large arrays must be to be memory, and how large they can be.

use super::Options;
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::memory::{Line, Pages};
use crate::plan::cache_sum;
use crate::units::{Bytes, CpuId, CpuSet, NodeId, NodeSet};
use std::collections::BTreeMap;

/// Arrays are at least this many times the sum of the last-level caches: McCalpin's rule for STREAM.
pub const ARRAY_PER_CACHE: u64 = 4;
/// Arrays are whole multiples of this, so that every thread's part is whole pages also with 2 MiB pages and few threads.
const ARRAY_GRAIN: u64 = 2 << 20;
/// Below this, one pass is over before all threads have left the start line.
const ARRAY_LEAST: u64 = 32 << 20;
/// What is still worth measuring, labelled, where memory is too small for more.
const ARRAY_LABELLED: u64 = 2 << 20;

/// Where arrays will lie.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Place<'a> {
    /// The CPUs that stream them.
    pub(in crate::plan) cpus: &'a CpuSet,
    /// The nodes that may hold them.
    pub(in crate::plan) nodes: &'a NodeSet,
    /// The CPU of each thread where each touches its own part first, so that every node gets its threads' share.
    pub(in crate::plan) touched_by: Option<&'a [CpuId]>,
}

/// The size of the arrays and what it rests on.
pub(in crate::plan) struct Arrays {
    /// Bytes of each array.
    pub(in crate::plan) bytes: Bytes,
    /// The last-level caches that it has to exceed.
    pub(in crate::plan) cache: Bytes,
    /// What taints it.
    pub(in crate::plan) caveats: Vec<Caveat>,
}

/// The least array whose passes the caches of these CPUs cannot hold, those caches, and a caveat if they are a guess.
pub(in crate::plan) fn least(machine: &Machine, cpus: &CpuSet) -> (Bytes, Bytes, Option<Caveat>) {
    let (cache, unknown) = cache_sum(&machine.topology, cpus);
    let least = cache.0.saturating_mul(ARRAY_PER_CACHE).max(ARRAY_LEAST);
    (Bytes(least.checked_next_multiple_of(ARRAY_GRAIN).unwrap_or(least)), cache, unknown)
}

impl Place<'_> {
    /// Memory that arrays here may take in all. Where threads touch their own parts, no node gets more than it has.
    fn usable(&self, machine: &Machine) -> Option<Bytes> {
        let all = machine.usable_memory_on(self.nodes);
        let threads = self.touched_by.unwrap_or_default();
        let mut on_node: BTreeMap<NodeId, u64> = BTreeMap::new();
        for cpu in threads {
            if let Some(node) = machine.topology.pu(*cpu).and_then(|pu| pu.node) {
                *on_node.entry(node).or_default() += 1;
            }
        }
        let shares = on_node.into_iter().filter(|_| self.nodes.len() > 1).filter_map(|(node, count)| {
            let there = machine.usable_memory_on(&NodeSet::from_iter([node]))?.0;
            Some(
                Bytes((u128::from(there) * threads.len() as u128 / u128::from(count)).min(u128::from(u64::MAX)) as u64),
            )
        });
        shares.chain(all).min()
    }
}

/// The largest array of which `arrays` fit there; `None` when the memory's size is unknown.
pub(in crate::plan) fn most(machine: &Machine, place: Place<'_>, arrays: u64, pages: Option<Pages>) -> Option<Bytes> {
    let pool = machine.environment.free_2m_pages.map(|pages| pages << 21).filter(|_| pages == Some(Pages::Huge2M));
    let usable = place.usable(machine).map(|bytes| bytes.0);
    let bytes = pool.into_iter().chain(usable).min()?;
    Some(Bytes(bytes / arrays.max(1) / ARRAY_GRAIN * ARRAY_GRAIN))
}

/// The arrays for that place: as asked, else the least that measures memory, else (labelled)
/// what fits.
///
/// # Errors
/// When what was asked for, or anything at all, does not fit into memory.
pub(in crate::plan) fn arrays(
    machine: &Machine,
    name: &str,
    place: Place<'_>,
    arrays: u64,
    options: &Options,
) -> Result<Arrays> {
    let (least, cache, unknown) = least(machine, place.cpus);
    let mut caveats: Vec<Caveat> = unknown.into_iter().collect();
    let mut bytes = match options.size {
        Some(size) => Bytes(size.0.next_multiple_of(Line::BYTES).max(place.cpus.len() as u64 * Line::BYTES)),
        None => least,
    };
    let asked = Bytes(bytes.0.saturating_mul(arrays));
    let pool = machine.environment.free_2m_pages.map(|pages| Bytes(pages << 21));
    if let (Some(Pages::Huge2M), Some(pool)) = (options.pages, pool.filter(|pool| *pool < asked)) {
        let pages = arrays * bytes.0.div_ceil(2 << 20);
        return Err(Error::refused(
            format!("plan arrays for the {name}"),
            format!("{arrays} arrays of {bytes} in 2 MiB pages are {asked}, and the pool has {pool} free"),
            format!("reserve them with `sysctl vm.nr_hugepages={pages}`"),
        ));
    }
    if bytes < least {
        caveats.push(Caveat::CacheResident { reuse_bytes: bytes, cache_bytes: cache });
    }
    match place.usable(machine) {
        Some(usable) if asked > usable => {
            let fitting = most(machine, place, arrays, options.pages).unwrap_or_default();
            if options.size.is_some() || fitting.0 < ARRAY_LABELLED {
                return Err(Error::refused(
                    format!("plan arrays for the {name}"),
                    format!("{arrays} arrays of {bytes} are {asked} and {usable} of memory can be used"),
                    format!(
                        "the least that measures memory is {least} an array ({ARRAY_PER_CACHE} times the last-level \
                         caches of {cache}); give this process more memory, narrow --cpus, or take a smaller --size and \
                         measure caches"
                    ),
                ));
            }
            bytes = fitting;
            caveats.push(Caveat::CannotBeDram { array_bytes: bytes, least_bytes: least, usable_bytes: usable });
        }
        Some(_) => {}
        None => caveats.push(Caveat::MemorySizeUnknown),
    }
    Ok(Arrays { bytes, cache, caveats })
}
