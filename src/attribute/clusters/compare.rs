//! Measured groups beside the reported ones.

use super::{Class, Clusters};
use crate::machine::Topology;
use crate::stats;
use crate::units::{CpuId, CpuSet};
use std::collections::{BTreeMap, BTreeSet};

/// Two ways to group CPUs are the same when of the measured pairs that either puts together, both do with this share: the
/// share of fast pairs that a level's groups must explain. Single pairs may be far out.
const SAME: f64 = 0.75;

/// A CPU is elsewhere than reported when it was measured to be with so many CPUs that are reported elsewhere. One pair may be
/// far out.
const ELSEWHERE: usize = 3;

/// Pairs inside something and across it differ when their medians do by this much. Of reported things that share a cache
/// or a core, less is none. A guess.
const SHOWS: f64 = 1.10;

/// Pairs of each CPU that must have been measured, on average, before silence counts as agreement (fewer where there are less than
/// four times as many CPUs). A guess; choices of pairs on
/// large machines take 70 and more.
const PARTNERS_LEAST: usize = 8;

/// How measured and reported groups relate.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// For each class of [`Clusters::classes`] what it is reported as.
    pub reported_as: Vec<Option<&'static str>>,
    /// What latencies contradict, in words.
    pub disagreements: Vec<String>,
    /// What they neither show nor contradict, in words.
    pub notes: Vec<String>,
    /// Whether all is as reported; `None` where it cannot be told.
    pub agrees: Option<bool>,
    /// The measured groups that share a last-level cache, as far as latencies tell: an index of [`Clusters::classes`].
    pub last_level: usize,
}

/// One kind of domain of the reported topology.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// `core`, `inner cache`, `last-level cache`, `node`, `package`.
    pub name: &'static str,
    /// The number of its domain for each CPU in order; absent where a CPU has none.
    labels: Option<Vec<usize>>,
}

const CORE: &str = "core";
const INNER: &str = "inner cache";
const CACHE: &str = "last-level cache";
const NODE: &str = "node";
const PACKAGE: &str = "package";

impl Comparison {
    /// Compares with a reported topology. `who` reports it: the guest, the system.
    pub fn of(clusters: &Clusters, topology: &Topology, who: &str) -> Comparison {
        let reported = reported(&clusters.order, topology);
        let levels = &clusters.labels;
        let is = |level: &Vec<usize>, domain: &Reported| domain.is(clusters, level);
        let mut reported_as: Vec<Option<&str>> = levels
            .iter()
            .map(|level| reported.iter().find(|domain| is(level, domain)).map(|domain| domain.name))
            .collect();
        let find = |name: &str| reported.iter().find(|domain| domain.name == name);
        let caches = find(CACHE);

        // The innermost level that is no core and nothing inside one; pairs of CPUs (hidden hardware threads) only where
        // there is nothing larger.
        let names = reported_as.clone();
        let outer = |level: &usize| !matches!(names[*level], Some(CORE | INNER));
        let matched = levels.iter().position(|level| caches.is_some_and(|caches| is(level, caches)));
        // Caches that are reported to reach as far as nodes or packages do: with unreported groups inside, those are seen.
        let twin = reported.iter().find(|domain| {
            matches!(domain.name, NODE | PACKAGE) && caches.is_some_and(|caches| caches.labels == domain.labels)
        });
        let unreported_inside = matched.is_some_and(|index| reported_as[..index].iter().any(Option::is_none));
        let of_cache = matched.filter(|_| twin.is_none() || !unreported_inside);
        let innermost = || {
            let mut candidates = (0..levels.len()).filter(outer);
            let first = candidates.next()?;
            let twos = clusters.classes[first].groups.iter().all(|group| group.len() <= 2);
            Some(candidates.next().filter(|_| twos).unwrap_or(first))
        };
        let last_level = of_cache.or_else(innermost).unwrap_or(levels.len());

        if let (Some(index), None, Some(twin)) = (matched, of_cache, twin) {
            reported_as[index] = Some(twin.name);
        }

        let shown = |name: &str| reported_as.iter().position(|known| *known == Some(name));
        let mut disagreements = Vec::new();
        let mut notes = Vec::new();
        for (index, level) in levels.iter().enumerate().filter(|(index, _)| reported_as[*index].is_none()) {
            let class = &clusters.classes[index];
            let coarser = caches.is_some_and(|caches| !caches.cuts(level) && of_cache.is_some());
            let found = counted(&class.groups, "group", "groups");
            match caches.and_then(Reported::sets_over(clusters)) {
                _ if coarser => notes
                    .push(format!("the latencies also show {found} ({}) that are reported as nothing", inside(class))),
                Some(sets) => {
                    let sets = counted(&sets, "last-level cache", "last-level caches");
                    disagreements
                        .push(format!("the {who} reports {sets}; the latencies show {found} ({})", inside(class)));
                }
                None => disagreements.push(format!(
                    "the {who} reports no last-level cache of these CPUs; the latencies show {found} ({})",
                    inside(class)
                )),
            }
        }
        for (index, level) in levels.iter().enumerate() {
            let Some(domain) = reported.iter().find(|domain| reported_as[index] == Some(domain.name)) else { continue };
            let moved = domain.elsewhere(clusters, level);
            if !moved.is_empty() {
                disagreements
                    .push(format!("the {who} reports CPUs {moved} in another {} than the latencies show", domain.name));
            }
        }
        for domain in reported.iter().filter(|domain| shown(domain.name).is_none() && domain.divides(clusters)) {
            let Some((within, across)) = domain.medians(clusters, &reported) else { continue };
            // Two of the same extent are one.
            let same = reported.iter().any(|other| shown(other.name).is_some() && other.labels == domain.labels);
            if same || (within / across).max(across / within) >= SHOWS {
                continue;
            }
            let sets = Reported::sets_over(clusters)(domain).unwrap_or_default();
            let (one, many) = match domain.name {
                CORE => ("core", "cores"),
                INNER => continue,
                CACHE => ("last-level cache", "last-level caches"),
                NODE => ("node", "nodes"),
                _ => ("package", "packages"),
            };
            let text = format!(
                "the {who} reports {}; the latencies do not show them (median {within:.1} ns inside, {across:.1} ns across)",
                counted(&sets, one, many)
            );
            match domain.name {
                // Cores and caches are shared for speed. Memory and sockets may be there and not show between cores.
                CORE | CACHE if disagreements.is_empty() => disagreements.push(text),
                CORE | CACHE => {}
                _ => notes.push(text),
            }
        }
        let certain = caches.is_some_and(|caches| {
            let all_one = !caches.divides(clusters) && caches.joins(clusters);
            let whole = |index: usize| !outer(&index) || !caches.cuts(&levels[index]);
            of_cache.is_some() || (all_one && (0..levels.len()).all(whole))
        });
        let cpus = clusters.order.len();
        let enough = 2 * clusters.pairs() >= cpus * PARTNERS_LEAST.min(cpus / 4);
        let agrees = match (disagreements.is_empty(), clusters.unexplained.is_none() && certain && enough) {
            (false, _) => Some(false),
            (true, true) => Some(true),
            (true, false) => None,
        };
        reported_as.push(None);
        Comparison { reported_as, disagreements, notes, agrees, last_level }
    }
}

/// `24 groups of 6 to 8 CPUs`.
fn counted(sets: &[CpuSet], one: &str, many: &str) -> String {
    let sizes = || sets.iter().map(CpuSet::len);
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let noun = if sets.len() == 1 { one } else { many };
    let cpus = if most == 1 { "CPU" } else { "CPUs" };
    let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
    format!("{} {noun} of {range} {cpus}", sets.len())
}

fn inside(class: &Class) -> String {
    let median = class.median_ns.map_or("no pair inside".into(), |ns| format!("median {ns:.1} ns"));
    match class.unplaced.len() {
        0 => median,
        unplaced => format!("{median}; {unplaced} more in none, for lack of pairs"),
    }
}

/// For each kind of domain that all these CPUs have one of, the number of each CPU's.
pub(super) fn labels(order: &[CpuId], topology: &Topology) -> Vec<Vec<usize>> {
    reported(order, topology).into_iter().filter_map(|domain| domain.labels).collect()
}

fn reported(order: &[CpuId], topology: &Topology) -> Vec<Reported> {
    let of = |name, label: &dyn Fn(&crate::machine::Pu) -> Option<u32>| Reported {
        name,
        labels: {
            let own: Option<Vec<u32>> = order.iter().map(|cpu| label(topology.pu(*cpu)?)).collect();
            // Numbered in order of appearance, so that equal partitions are equal.
            let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
            own.map(|own| {
                own.into_iter()
                    .map(|label| {
                        let next = numbers.len();
                        *numbers.entry(label).or_insert(next)
                    })
                    .collect()
            })
        },
    };
    let last = |pu: &crate::machine::Pu| topology.caches.get(pu.last_level_cache? as usize);
    // The largest cache below the last level, as modules of a few cores share it.
    let inner = |pu: &crate::machine::Pu| {
        let level = last(pu)?.level;
        let caches = topology.caches.iter().enumerate();
        let below = caches.filter(|(_, cache)| cache.level < level && cache.cpus.contains(pu.id));
        below.max_by_key(|(_, cache)| cache.level).and_then(|(index, _)| u32::try_from(index).ok())
    };
    vec![
        of(CORE, &|pu| Some(pu.core)),
        of(INNER, &inner),
        of(CACHE, &|pu| pu.last_level_cache),
        of(NODE, &|pu| pu.node.map(|node| node.0)),
        of(PACKAGE, &|pu| pu.package),
    ]
}

impl Reported {
    fn together(&self, a: usize, b: usize) -> bool {
        self.labels.as_ref().is_some_and(|labels| labels[a] == labels[b])
    }

    /// Whether these are the groups of a level, as far as pairs were measured.
    fn is(&self, clusters: &Clusters, level: &[usize]) -> bool {
        let (mut both, mut either) = (0usize, 0usize);
        for pair in &clusters.pairs {
            let (measured, reported) = (level[pair.a] == level[pair.b], self.together(pair.a, pair.b));
            both += usize::from(measured && reported);
            either += usize::from(measured || reported);
        }
        either > 0 && both as f64 >= SAME * either as f64
    }

    /// CPUs that were measured to be with [`ELSEWHERE`] others or more that are reported elsewhere, and with fewer that are
    /// reported beside them.
    fn elsewhere(&self, clusters: &Clusters, level: &[usize]) -> CpuSet {
        let mut counts = vec![(0usize, 0usize); clusters.order.len()];
        for pair in clusters.pairs.iter().filter(|pair| level[pair.a] == level[pair.b]) {
            for index in [pair.a, pair.b] {
                if self.together(pair.a, pair.b) {
                    counts[index].0 += 1;
                } else {
                    counts[index].1 += 1;
                }
            }
        }
        let members = clusters.order.iter().zip(counts);
        members.filter(|(_, (beside, other))| *other >= ELSEWHERE && other > beside).map(|(cpu, _)| *cpu).collect()
    }

    /// Whether some measured pair is inside a domain.
    fn joins(&self, clusters: &Clusters) -> bool {
        clusters.pairs.iter().any(|pair| self.together(pair.a, pair.b))
    }

    /// Whether measured pairs are both inside and across.
    fn divides(&self, clusters: &Clusters) -> bool {
        self.labels.is_some()
            && self.joins(clusters)
            && clusters.pairs.iter().any(|pair| !self.together(pair.a, pair.b))
    }

    /// Whether a level's groups cut through a domain.
    fn cuts(&self, level: &[usize]) -> bool {
        let mut group_of: BTreeMap<usize, usize> = BTreeMap::new();
        let labels = self.labels.iter().flatten();
        labels.zip(level).any(|(label, group)| *group_of.entry(*label).or_insert(*group) != *group)
    }

    /// The domains as sets of measured CPUs.
    fn sets_over(clusters: &Clusters) -> impl Fn(&Reported) -> Option<Vec<CpuSet>> + '_ {
        |domain| {
            let mut sets: BTreeMap<usize, CpuSet> = BTreeMap::new();
            for (cpu, label) in clusters.order.iter().zip(domain.labels.as_ref()?) {
                sets.entry(*label).or_default().insert(*cpu);
            }
            Some(sets.into_values().collect())
        }
    }

    /// Medians of pairs inside these domains but no smaller ones, and of pairs across them inside the next larger ones;
    /// `None` below 10 pairs of either.
    fn medians(&self, clusters: &Clusters, all: &[Reported]) -> Option<(f64, f64)> {
        const LEAST: usize = 10;
        let inside: BTreeSet<(usize, usize)> =
            clusters.pairs.iter().filter(|pair| self.together(pair.a, pair.b)).map(|pair| (pair.a, pair.b)).collect();
        let is_inside = |pair: &super::Pair| inside.contains(&(pair.a, pair.b));
        let sizes: Vec<usize> = all
            .iter()
            .map(|domain| clusters.pairs.iter().filter(|pair| domain.together(pair.a, pair.b)).count())
            .collect();
        let any = |pair: &super::Pair, test: &dyn Fn(usize) -> bool| {
            all.iter().zip(&sizes).any(|(domain, size)| test(*size) && domain.together(pair.a, pair.b))
        };
        let here = inside.len();
        let larger = sizes.iter().copied().filter(|size| *size > here).min();
        let times = |keep: &dyn Fn(&super::Pair) -> bool| -> Vec<f64> {
            clusters.pairs.iter().filter(|pair| keep(pair)).map(|pair| pair.ns).collect()
        };
        let within = times(&|pair| is_inside(pair) && !any(pair, &|size| size < here));
        let mut across = times(&|pair| !is_inside(pair) && any(pair, &|size| Some(size) == larger));
        if across.len() < LEAST {
            across = times(&|pair| !is_inside(pair));
        }
        (within.len() >= LEAST && across.len() >= LEAST)
            .then(|| Some((stats::median(&within)?, stats::median(&across)?)))?
    }
}
