//! Which CPUs are close to each other, from core-to-core latencies alone, and whether the reported topology says the same.
//!
//! ```text
//! lines ──► pairs ──► levels of latency ──► groups at each level ──► beside the reported ones
//! ```
//!
//! * **Pairs.** One protocol, `cas` where there is any. A pair's value is the smallest median over its lines (directions,
//!   homes). A slow drift over the order of lines is taken out first (`levels::steady`).
//! * **Levels** are modes of the density of log latency: Gaussian kernel estimate, modes counted as in Silverman, "Using
//!   kernel density estimates to investigate multimodality" (1981), with a fixed rule for what counts as a valley
//!   (`levels::breaks`).
//! * **Groups**: at each valley, from the fastest level up, average-linkage clustering (UPGMA, Sokal and Michener 1958; by
//!   the nearest-neighbour chain of Murtagh 1983) of the groups below, cut at the valley, and then each member goes where
//!   most of its pairs say it belongs (`groups::join`).
//! * **A level counts** only if its groups explain the pairs (`judge`). What has no groups is no level: silence is better
//!   than groups that are not there.

mod compare;
mod groups;
mod levels;
mod regroup;

pub use compare::{Comparison, Reported};

use crate::machine::Topology;
use crate::record::{Line, Record, RunHeader};
use crate::stats;
use crate::units::{CpuId, CpuSet};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Below that many CPUs there is nothing to group.
pub const LEAST_CPUS: usize = 4;

/// What latencies say of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// The protocol that was looked at.
    pub protocol: String,
    /// CPUs that some pair has.
    pub cpus: CpuSet,
    /// Classes of pairs, fastest first. The last one has one group: everything.
    pub classes: Vec<Class>,
    /// The smallest share, over the levels that count, of pairs that are where their latency says.
    pub fit: f64,
    /// Two levels of latency that no groups explain, ns: a machine that moved while it was measured, or too few pairs.
    pub unexplained: Option<(f64, f64)>,
    /// The pairs behind it.
    pairs: Vec<Pair>,
    /// The CPUs that numbers in `pairs` stand for.
    order: Vec<CpuId>,
    /// For each level that counts, the group of each CPU.
    labels: Vec<Vec<usize>>,
}

/// Pairs whose CPUs share the same level and nothing below it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Median over the pairs, as measured.
    pub median_ns: Option<f64>,
    /// How many pairs were measured.
    pub pairs: usize,
    /// The CPUs that share this level, ordered by their first CPU. A group of one has nobody close.
    pub groups: Vec<CpuSet>,
    /// CPUs in no group: hardly compared with some group that could have them, or torn between two answers.
    pub unplaced: CpuSet,
}

/// Why latencies say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// Fewer than [`LEAST_CPUS`].
    FewCpus {
        /// How many.
        cpus: usize,
    },
    /// A sample of pairs in which groups would not show.
    FewPairs {
        /// How many were measured.
        pairs: usize,
        /// Among how many CPUs.
        cpus: usize,
    },
}

impl std::fmt::Display for Unclear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unclear::FewCpus { cpus } => {
                write!(f, "latencies of {cpus} CPUs were measured, and groups show among {LEAST_CPUS} or more")
            }
            Unclear::FewPairs { pairs, cpus } => {
                write!(f, "{pairs} pairs of {cpus} CPUs are too few to tell groups")
            }
        }
    }
}

/// One pair: CPUs by their place in the order, and its latency.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    a: usize,
    b: usize,
    /// As measured.
    ns: f64,
    /// Logarithm of the latency, less the drift.
    ln: f64,
}

impl Clusters {
    /// Those of a record; `None` when it has no latencies.
    pub fn of(record: &Record) -> Option<Result<Clusters, Unclear>> {
        let lines = || {
            record.lines.iter().filter_map(|line| match line {
                Line::CoreLatency(step) => Some(step),
                _ => None,
            })
        };
        let protocols: BTreeSet<&str> = lines().map(|step| step.protocol.as_str()).collect();
        let protocol = *protocols.get("cas").or(protocols.first())?;
        let times = lines().filter(|step| step.protocol == protocol && step.cpu_a != step.cpu_b).filter_map(|step| {
            let ns = step.summary.median_ns.filter(|ns| ns.is_finite() && *ns > 0.0)?;
            Some((step.cpu_a.min(step.cpu_b), step.cpu_a.max(step.cpu_b), ns))
        });
        Some(Clusters::from_times(protocol, &times.collect::<Vec<_>>(), Some(&record.header.topology)))
    }

    /// From pairs, the lower CPU first, with their times in the order taken. A pair may come several times. What `topology`
    /// reports is easier to confirm than to find.
    fn from_times(
        protocol: &str,
        times: &[(CpuId, CpuId, f64)],
        topology: Option<&Topology>,
    ) -> Result<Clusters, Unclear> {
        let cpus: CpuSet = times.iter().flat_map(|(a, b, _)| [*a, *b]).collect();
        if cpus.len() < LEAST_CPUS {
            return Err(Unclear::FewCpus { cpus: cpus.len() });
        }
        let order: Vec<CpuId> = cpus.iter().collect();
        let place: BTreeMap<CpuId, usize> = order.iter().enumerate().map(|(index, cpu)| (*cpu, index)).collect();
        let mut logs: Vec<f64> = times.iter().map(|(_, _, ns)| ns.ln()).collect();
        levels::steady(&mut logs, order.len());
        let mut fastest: BTreeMap<(usize, usize), (f64, f64)> = BTreeMap::new();
        for ((a, b, ns), ln) in times.iter().zip(logs) {
            let best = fastest.entry((place[a], place[b])).or_insert((*ns, ln));
            *best = (best.0.min(*ns), best.1.min(ln));
        }
        let pairs: Vec<Pair> = fastest.into_iter().map(|((a, b), (ns, ln))| Pair { a, b, ns, ln }).collect();
        // Fewer than would tie each CPU to two others: groups of three would not show.
        if pairs.len() < order.len() {
            return Err(Unclear::FewPairs { pairs: pairs.len(), cpus: order.len() });
        }
        let reported = topology.map(|topology| compare::labels(&order, topology)).unwrap_or_default();
        Ok(Clusters::found(protocol, cpus, order, pairs, &reported))
    }

    fn found(protocol: &str, cpus: CpuSet, order: Vec<CpuId>, pairs: Vec<Pair>, reported: &[Vec<usize>]) -> Clusters {
        let mut sorted: Vec<f64> = pairs.iter().map(|pair| pair.ln).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let mut breaks = levels::breaks(&sorted, order.len());
        let mut labels: Vec<Vec<usize>> = Vec::new();
        let mut doubtful: Vec<BTreeSet<usize>> = Vec::new();
        let mut fit: f64 = 1.0;
        let mut unexplained = None;
        let mut below: Vec<usize> = (0..order.len()).collect();
        let mut index = 0;
        while index < breaks.len() {
            let valley = levels::Valley::at(index, &breaks, &sorted);
            let groups = groups::join(&below, &pairs, &valley);
            match judge(&below, &groups, &pairs, &valley, reported) {
                Some(share) => {
                    fit = fit.min(share);
                    let (groups, mut apart) = dissolved(groups);
                    apart.extend(torn(&groups, &pairs, &valley));
                    below.clone_from(&groups);
                    labels.push(groups);
                    doubtful.push(apart);
                    index += 1;
                }
                None => {
                    if unexplained.is_none() && valley.is_plain() {
                        unexplained = Some((valley.low.exp(), valley.high.exp()));
                    }
                    // The levels on both sides are one.
                    breaks.remove(index);
                }
            }
        }
        let classes =
            (0..=labels.len()).map(|level| class(level, &labels, doubtful.get(level), &order, &pairs)).collect();
        Clusters { protocol: protocol.to_owned(), cpus, classes, fit, unexplained, pairs, order, labels }
    }

    /// Beside the topology that the record reports.
    pub fn against(&self, header: &RunHeader) -> Comparison {
        let who = if header.cpu.hypervisor.is_some() { "guest" } else { "system" };
        Comparison::of(self, &header.topology, who)
    }

    /// Pairs that were measured.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }
}

/// CPUs that are alone although a quarter of their pairs with some group are fast: few pairs, some of them far out.
fn torn(groups: &[usize], pairs: &[Pair], valley: &levels::Valley) -> BTreeSet<usize> {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    groups.iter().for_each(|group| *sizes.entry(*group).or_default() += 1);
    let mut tallies: BTreeMap<(usize, usize), (usize, usize)> = BTreeMap::new();
    for pair in pairs {
        for (alone, other) in [(pair.a, pair.b), (pair.b, pair.a)] {
            if sizes[&groups[alone]] == 1 {
                let (fast, all) = tallies.entry((alone, groups[other])).or_default();
                *fast += usize::from(pair.ln < valley.at);
                *all += 1;
            }
        }
    }
    tallies.into_iter().filter(|(_, (fast, all))| *fast > 0 && 4 * fast >= *all).map(|((alone, _), _)| alone).collect()
}

/// Groups that are pairs of CPUs but for a few larger ones, which one pair far out has tied together: those come apart
/// again. Says which CPUs that are.
fn dissolved(mut groups: Vec<usize>) -> (Vec<usize>, BTreeSet<usize>) {
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    groups.iter().enumerate().for_each(|(index, group)| members.entry(*group).or_default().push(index));
    let sizes = || members.values().map(Vec::len).filter(|size| *size > 1);
    let mut apart = BTreeSet::new();
    if is_all_two(sizes().filter(|size| *size == 2).count(), sizes().count()) {
        apart.extend(members.values().filter(|members| members.len() > 2).flatten().copied());
    }
    for (alone, index) in (members.len()..).zip(&apart) {
        groups[*index] = alone;
    }
    groups::number(&mut groups);
    (groups, apart)
}

fn class(
    level: usize,
    labels: &[Vec<usize>],
    doubtful: Option<&BTreeSet<usize>>,
    order: &[CpuId],
    pairs: &[Pair],
) -> Class {
    let shares = |level: usize, pair: &Pair| labels.get(level).is_none_or(|groups| groups[pair.a] == groups[pair.b]);
    let members = pairs.iter().filter(|pair| shares(level, pair) && (level == 0 || !shares(level - 1, pair)));
    let times: Vec<f64> = members.map(|pair| pair.ns).collect();
    let group_of = |index: usize| labels.get(level).map_or(0, |groups| groups[index]);
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    (0..order.len()).for_each(|index| groups.entry(group_of(index)).or_default().push(index));
    let compared = compared(pairs, group_of);
    let sizes = || groups.values().map(Vec::len).filter(|size| *size > 1);
    let all_two = is_all_two(sizes().filter(|size| *size == 2).count(), sizes().count());
    let is_told = |(name, members): &(&usize, &Vec<usize>)| {
        // One pair of a CPU that is alone may be far out.
        let least = if members.len() == 1 { 2 } else { 1 };
        // Of two groups that may be one, the smaller is in doubt; of hardware threads only those that are alone.
        let rival = |(other, others): (&usize, &Vec<usize>)| {
            other != *name
                && others.len() >= members.len()
                && compared.get(&ordered(**name, *other)).copied().unwrap_or(0) < least.min(others.len())
        };
        let doubtful = doubtful.is_some_and(|doubtful| doubtful.contains(&members[0]));
        !doubtful && ((all_two && members.len() > 1) || !groups.iter().any(rival))
    };
    let set = |members: &Vec<usize>| members.iter().map(|index| order[*index]).collect::<CpuSet>();
    let (told, untold): (Vec<_>, Vec<_>) = groups.iter().partition(is_told);
    let mut groups: Vec<CpuSet> = told.into_iter().map(|(_, members)| set(members)).collect();
    groups.sort_by_key(CpuSet::first);
    let unplaced = untold.into_iter().flat_map(|(_, members)| members).map(|index| order[*index]).collect();
    Class { median_ns: stats::median(&times), pairs: times.len(), groups, unplaced }
}

/// Whether groups are pairs of CPUs, but for a twentieth.
fn is_all_two(two: usize, shared: usize) -> bool {
    20 * two >= 19 * shared
}

fn ordered(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

/// How many pairs are between two groups.
fn compared(pairs: &[Pair], group_of: impl Fn(usize) -> usize) -> BTreeMap<(usize, usize), usize> {
    let mut counts = BTreeMap::new();
    for pair in pairs {
        let groups = ordered(group_of(pair.a), group_of(pair.b));
        if groups.0 != groups.1 {
            *counts.entry(groups).or_default() += 1;
        }
    }
    counts
}

/// Whether groups explain a valley, and how well: the smaller of the two shares that are asked for. They do when
///
/// * more than half of the CPUs are in a group that this level joined, and at least two groups hold two CPUs (one CPU that is
///   slow with everybody is disturbed, no group);
/// * at least 85 % of the pairs inside groups are faster than the valley, and at least 75 % of all faster pairs are inside
///   groups (random fast pairs fail here: a graph of them has no cliques that hold most of its edges);
/// * every two groups of two or more (99 % of them) were compared by at least one pair, since two parts of one group look
///   like two groups when no pair between them was taken (hardware threads have no parts);
/// * the levels are 15 % apart; where fewer than 30 pairs are inside, or all groups are pairs of CPUs as hardware threads
///   are, by 35 % and by three times the quartile distance inside each;
/// * as many fast pairs strewn at random would hardly fit any groups of these sizes (`ways` times `chance` below 10⁻⁵, of
///   pairs of CPUs below 10⁻³). Groups that are reported are a guess made before measuring: then only the chance counts,
///   and 10⁻² is enough. Up to 8 CPUs have too few pairs for that: there all CPUs
///   must be in groups, all pairs measured and where they belong, and the gap between the levels plain.
///
/// The numbers are judgement, held against made-up matrices in the tests.
fn judge(
    below: &[usize],
    groups: &[usize],
    pairs: &[Pair],
    valley: &levels::Valley,
    reported: &[Vec<usize>],
) -> Option<f64> {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    let mut parts: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (group, part) in groups.iter().zip(below) {
        *sizes.entry(*group).or_default() += 1;
        parts.entry(*group).or_default().insert(*part);
    }
    let joined: usize = sizes.iter().filter(|(group, _)| parts[group].len() > 1).map(|(_, size)| size).sum();
    let shared = sizes.values().filter(|size| **size > 1).count();
    if shared < 2 || 2 * joined <= groups.len() {
        return None;
    }
    let (mut inside, mut inside_fast, mut fast, mut slow) = (0usize, 0usize, 0usize, 0usize);
    // Pairs inside a part are explained already.
    for pair in pairs.iter().filter(|pair| below[pair.a] != below[pair.b]) {
        let (is_inside, is_fast) = (groups[pair.a] == groups[pair.b], pair.ln < valley.at);
        fast += usize::from(is_fast);
        slow += usize::from(!is_fast);
        inside += usize::from(is_inside);
        inside_fast += usize::from(is_inside && is_fast);
    }
    let (purity, recall) = (inside_fast as f64 / inside.max(1) as f64, inside_fast as f64 / fast.max(1) as f64);
    let two = sizes.values().filter(|size| **size == 2).count();
    let all_two = is_all_two(two, shared);
    let between = compared(pairs, |index| groups[index]);
    let compared = between.keys().filter(|(a, b)| sizes[a] > 1 && sizes[b] > 1).count();
    let told = all_two || 100 * compared >= 99 * (shared * (shared - 1) / 2);
    let few = all_two || inside < 30;
    let apart = if few { valley.is_wide() } else { valley.high - valley.low >= 1.15f64.ln() };
    let is_reported = reported.iter().any(|labels| {
        pairs.iter().all(|pair| (labels[pair.a] == labels[pair.b]) == (groups[pair.a] == groups[pair.b]))
    });
    let ways = if is_reported { 0.0 } else { ways(&parts) };
    let least: f64 = if is_reported {
        1e-2
    } else if all_two {
        1e-3
    } else {
        1e-5
    };
    let unlikely = ways + chance((fast + slow) as u64, inside as u64, fast as u64, inside_fast as u64) < least.ln();
    let cpus = groups.len();
    let all_there = pairs.len() == cpus * (cpus - 1) / 2 && sizes.values().all(|size| *size > 1);
    let small = cpus <= 8 && all_there && inside_fast == inside && fast == inside && valley.is_empty();
    (purity >= 0.85 && recall >= 0.75 && told && apart && (unlikely || small)).then_some(purity.min(recall))
}

/// Logarithm of the number of ways to part units into groups of these sizes: n! / (Π size! · Π repeats!).
fn ways(parts: &BTreeMap<usize, BTreeSet<usize>>) -> f64 {
    let mut repeats: BTreeMap<usize, u64> = BTreeMap::new();
    parts.values().for_each(|units| *repeats.entry(units.len()).or_default() += 1);
    let units: usize = parts.values().map(BTreeSet::len).sum();
    let inner: f64 =
        repeats.iter().map(|(size, count)| *count as f64 * factorial(*size as u64) + factorial(*count)).sum();
    factorial(units as u64) - inner
}

/// Logarithm of the chance that of `fast` pairs, drawn from all at random, `inside_fast` are among the `inside` ones of given
/// groups: hypergeometric.
fn chance(all: u64, inside: u64, fast: u64, inside_fast: u64) -> f64 {
    let choose = |n: u64, k: u64| factorial(n) - factorial(k) - factorial(n.saturating_sub(k));
    choose(inside, inside_fast) + choose(all - inside, fast - inside_fast) - choose(all, fast)
}

/// ln n!, by Stirling's series from 16 on.
fn factorial(n: u64) -> f64 {
    if n < 16 {
        return (1..=n).map(|k| (k as f64).ln()).sum();
    }
    let n = n as f64;
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + 1.0 / (12.0 * n)
}

#[cfg(test)]
mod tests;
