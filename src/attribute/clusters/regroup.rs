//! A topology whose last-level caches are what latencies show.

use super::{Clusters, Comparison};
use crate::machine::Topology;
use crate::units::{Bytes, CpuSet};

impl Clusters {
    /// The reported topology with measured groups in place of its last-level caches, and a remark on CPUs that have none
    /// then. Where the two agree it is the reported one. Latencies do not tell how much a cache holds: a size stays where
    /// the group is a reported cache, and is unknown otherwise (halves of a made-up size would be made up as well).
    ///
    /// # Errors
    /// Says why there are no groups to put there.
    pub fn regrouped(
        &self,
        topology: &Topology,
        comparison: &Comparison,
    ) -> Result<(Topology, Option<String>), &'static str> {
        if comparison.agrees == Some(true) {
            return Ok((topology.clone(), None));
        }
        if comparison.agrees.is_none() && comparison.last_level + 1 >= self.classes.len() {
            return Err(if self.unexplained.is_some() {
                "its latencies lie on two levels that no groups of CPUs explain"
            } else {
                "its latencies show no groups of CPUs"
            });
        }
        let caches = topology.last_level_caches(&topology.cpus());
        // Hardware threads that were not measured, or not placed, go with their core.
        let with_cores = |group: &CpuSet| -> CpuSet {
            let mut whole = group.clone();
            for core in topology.cores.iter().filter(|core| core.cpus.iter().any(|cpu| group.contains(*cpu))) {
                let class = &self.classes[comparison.last_level];
                let placed = |cpu| class.groups.iter().any(|other| other.contains(cpu));
                core.cpus.iter().filter(|cpu| !placed(**cpu)).for_each(|cpu| whole.insert(*cpu));
            }
            whole
        };
        let mut groups: Vec<(CpuSet, Option<Bytes>)> = Vec::new();
        let mut rest = topology.cpus();
        for group in &self.classes[comparison.last_level].groups {
            // A core whose threads are in two groups leaves a third one to the first of them.
            let cpus = with_cores(group).intersection(&rest);
            rest = rest.difference(&cpus);
            let bytes = caches.iter().find(|cache| cache.cpus == cpus).and_then(|cache| cache.bytes);
            groups.push((cpus, bytes));
        }
        let mut regrouped = topology.clone();
        regrouped.replace_last_level(&groups);
        let remark = (!rest.is_empty())
            .then(|| format!("latencies do not tell with which others CPUs {rest} share their last-level cache"));
        Ok((regrouped, remark))
    }
}
