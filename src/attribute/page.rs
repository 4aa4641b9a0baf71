//! Whether pages of a buffer lie on memory nodes that are not reported: modes among their latencies, and whether the pages that
//! are slow from one CPU are fast from another one.

use crate::caveat::Caveat;
use crate::record::{Line, PageLatencyStep, Record};
use crate::stats;
use crate::units::CpuId;

/// Two modes: each with at least this share of the pages, since one of six nodes has a sixth of them.
const LEAST_SHARE: f64 = 0.1;
/// Their medians are at least this many times apart: memory of the next node takes 1.3 to 2.5 times as long on machines of
/// 2017 to 2026.
const APART: f64 = 1.25;
/// In the middle third between them, by the logarithm, lies at most this share of the pages: one broad mode, however it is cut,
/// has three times as much there.
const VALLEY_MOST: f64 = 0.05;
/// A rank correlation of n pages counts from this many of its standard errors on, each 1/√(n − 1): 0.15 with 512 pages. It need
/// not be large: where each of two CPUs is near to another sixth of the pages it is −0.2.
const STANDARD_ERRORS: f64 = 3.5;

/// Two latencies among pages, ns a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// Median of the faster pages.
    pub low_ns: f64,
    /// Median of the slower pages.
    pub high_ns: f64,
    /// Share of the slower pages, 0 to 1.
    pub high_share: f64,
}

/// What one CPU saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The CPU.
    pub cpu: CpuId,
    /// Median over pages, ns a load.
    pub median_ns: f64,
    /// Two modes, if there are.
    pub modes: Option<Modes>,
}

/// What pages say of the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// Pages that are slow from one CPU are fast from the other one.
    Hidden,
    /// The same pages are slow from both CPUs.
    SlowPages,
    /// Two latencies, and whether they belong to nodes cannot be told: from one CPU only, or without an order of their own.
    Unclear,
    /// One latency from each CPU, but far apart.
    FarCpu {
        /// The slower over the faster.
        ratio: f64,
    },
    /// One latency.
    None,
    /// Caches may have served pages, pages lie elsewhere than asked, or somebody else ran there.
    Untold,
}

/// What page latencies say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Pages {
    /// By CPU, in the order measured.
    pub cpus: Vec<Seen>,
    /// Rank correlation between the same pages from both CPUs.
    pub correlation: Option<f64>,
    /// What that means.
    pub finding: Finding,
}

/// The page steps of a record, in order.
pub fn steps(record: &Record) -> impl Iterator<Item = &PageLatencyStep> {
    record.lines.iter().filter_map(|line| match line {
        Line::PageLatency(step) => Some(step),
        _ => None,
    })
}

impl Pages {
    /// Those of a record; `None` when it has no such steps.
    pub fn of(record: &Record) -> Option<Pages> {
        let measured: Vec<&PageLatencyStep> = steps(record).collect();
        let cpu = |step: &&PageLatencyStep| {
            let loads = step.loads_per_page.max(1) as f64;
            let median_ns = stats::median(&values(&step.histogram))? / loads;
            Some(Seen { cpu: step.step.cpus.first().copied()?, median_ns, modes: modes(&step.histogram, loads) })
        };
        let cpus: Vec<Seen> = measured.iter().filter_map(cpu).collect();
        let (compared, correlation) = match (&measured[..], &cpus[..]) {
            ([one, other, ..], [of_one, of_other, ..]) => {
                let visits = |step: &PageLatencyStep| (step.compared_ns.clone(), step.loads_per_page);
                (one.compared_ns.len(), correlate(visits(one), of_one.modes, visits(other), of_other.modes))
            }
            _ => (0, None),
        };
        let tainted = |caveat: &Caveat| {
            caveat.is_cached() || caveat.is_disturbance() || matches!(caveat, Caveat::PagesElsewhere { .. })
        };
        let untold = measured.iter().any(|step| step.step.caveats.iter().any(tainted));
        let finding = if untold { Finding::Untold } else { find(&cpus, correlation, compared) };
        (!cpus.is_empty()).then_some(Pages { cpus, correlation, finding })
    }

    /// The finding in words.
    pub fn sentence(&self) -> String {
        let correlation = self.correlation.map_or(String::new(), |r| format!(" (rank correlation {r:.2})"));
        let modes = self.cpus.iter().find_map(|Seen { cpu, modes, .. }| {
            let Modes { low_ns, high_ns, high_share } = (*modes)?;
            Some(format!("{low_ns:.0} and {high_ns:.0} ns from CPU {cpu} ({:.0} % slow)", high_share * 100.0))
        });
        let modes = modes.unwrap_or_default();
        match self.finding {
            Finding::Hidden => format!(
                "Pages take {modes}, and those that are slow from one CPU are fast from the other{correlation}: pages lie on two \
                 nodes that are not reported."
            ),
            Finding::SlowPages => format!(
                "Pages take {modes}, and the same ones are slow from both CPUs{correlation}: there are two kinds of pages. That may \
                 be far memory that none of these CPUs is next to, or the page tables that lead to them; which of them, latencies \
                 do not tell."
            ),
            Finding::Unclear => format!(
                "Pages take {modes}, but whether they lie on nodes that are not reported cannot be told: {}.",
                if self.cpus.len() < 2 {
                    "one CPU cannot tell far pages from slow ones".to_owned()
                } else {
                    format!("from the other CPU they are in no matching order{correlation}")
                }
            ),
            Finding::FarCpu { ratio } => format!(
                "From each CPU all pages take about the same, but {ratio:.2} times as long from one CPU as from the other. They were \
                 watched one after the other, so the machine may have moved; if it stays so (`--only pages`), one CPU is slower, \
                 or they are of two nodes that are not reported and all pages lie on one."
            ),
            Finding::None => "All pages take about the same: no hidden node is seen.".to_owned(),
            Finding::Untold => {
                "Caches may have served some of these pages, they lie elsewhere than asked, or somebody else ran on these CPUs: \
                 nothing is said about nodes."
                    .to_owned()
            }
        }
    }
}

/// The rank correlation of the same pages seen twice, each as visits (ns) and how many loads these are. Where both have two
/// modes it is that of slow and fast: the order inside a mode is noise, and would only make it smaller.
fn correlate(
    (a, a_loads): (Vec<u64>, u64),
    a_modes: Option<Modes>,
    (b, b_loads): (Vec<u64>, u64),
    b_modes: Option<Modes>,
) -> Option<f64> {
    let (Some(a_modes), Some(b_modes)) = (a_modes, b_modes) else { return stats::rank_correlation(&a, &b) };
    let slow = |visits: &[u64], loads: u64, modes: Modes| -> Vec<u64> {
        let cut = (modes.low_ns * modes.high_ns).sqrt() * loads as f64;
        visits.iter().map(|ns| u64::from(*ns as f64 > cut)).collect()
    };
    stats::rank_correlation(&slow(&a, a_loads, a_modes), &slow(&b, b_loads, b_modes))
}

/// Rules over modes and correlation of `compared` pages.
fn find(cpus: &[Seen], correlation: Option<f64>, compared: usize) -> Finding {
    let least = STANDARD_ERRORS / (compared.saturating_sub(1).max(1) as f64).sqrt();
    let with_modes = cpus.iter().filter(|seen| seen.modes.is_some()).count();
    match (with_modes, correlation) {
        (0, _) => match cpus.iter().map(|seen| seen.median_ns).collect::<Vec<_>>()[..] {
            [one, other, ..] if one.max(other) >= APART * one.min(other) => {
                Finding::FarCpu { ratio: one.max(other) / one.min(other) }
            }
            _ => Finding::None,
        },
        (_, Some(correlation)) if correlation <= -least => Finding::Hidden,
        (2.., Some(correlation)) if correlation >= least => Finding::SlowPages,
        _ => Finding::Unclear,
    }
}

/// The latency of each page in a histogram, ns a visit: the geometric middle of its bin.
fn values(histogram: &[(u64, u64)]) -> Vec<f64> {
    /// Beyond what any plan visits: an edited record must not take all memory.
    const PAGES_MOST: usize = 1 << 20;
    let bin = |(largest, count): &(u64, u64)| {
        let middle = *largest as f64 / stats::BIN.sqrt();
        std::iter::repeat_n(middle, usize::try_from(*count).unwrap_or(usize::MAX).min(PAGES_MOST))
    };
    histogram.iter().flat_map(bin).filter(|ns| *ns > 0.0).take(PAGES_MOST).collect()
}

/// Two modes of a histogram, if there are: the cut with the largest variance of log latency between both sides (Otsu 1979) that
/// leaves [`LEAST_SHARE`] on each, if the medians of the sides are [`APART`] and there is a valley between them.
fn modes(histogram: &[(u64, u64)], loads: f64) -> Option<Modes> {
    let mut logs: Vec<f64> = values(histogram).into_iter().map(f64::ln).collect();
    logs.sort_unstable_by(f64::total_cmp);
    let n = logs.len();
    let least = ((n as f64 * LEAST_SHARE).ceil() as usize).max(5);
    let total: f64 = logs.iter().sum();
    let (mut below, mut best) = (0.0, (0.0, 0));
    for split in 1..n {
        below += logs[split - 1];
        let (low, high) = (split as f64, (n - split) as f64);
        let distance = (total - below) / high - below / low;
        let between = low * high * distance * distance;
        if split >= least && n - split >= least && between > best.0 {
            best = (between, split);
        }
    }
    let (low, high) = logs.split_at(best.1);
    let (low_middle, high_middle) = (stats::median(low)?, stats::median(high)?);
    let third = (high_middle - low_middle) / 3.0;
    let middle = low_middle + third..high_middle - third;
    let valley = logs.iter().filter(|log| middle.contains(log)).count();
    let apart = high_middle - low_middle >= APART.ln() && valley as f64 <= VALLEY_MOST * n as f64;
    apart.then(|| Modes {
        low_ns: low_middle.exp() / loads,
        high_ns: high_middle.exp() / loads,
        high_share: high.len() as f64 / n as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies of 2048 pages from two CPUs: `of(page)` says how long a load takes from each; all are noisy by some 8 %, some
    /// are far out.
    fn seen(seed: u64, of: impl Fn(usize) -> (f64, f64)) -> (Vec<Seen>, Option<f64>) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut visit = |ns: f64| {
            let noise = (0..4).map(|_| random.f64() - 0.5).sum::<f64>() * 0.14;
            let far = if random.u32(..100) == 0 { 3.0 } else { 1.0 };
            (64.0 * ns * far * (1.0 + noise)) as u64
        };
        let pages: Vec<(u64, u64)> = (0..2048).map(of).map(|(a, b)| (visit(a), visit(b))).collect();
        let (a, b): (Vec<u64>, Vec<u64>) = pages.into_iter().unzip();
        let cpu = |cpu: u32, ns: &[u64]| {
            let histogram = stats::log_histogram(ns);
            let median_ns = stats::median(&values(&histogram)).unwrap() / 64.0;
            Seen { cpu: CpuId(cpu), median_ns, modes: modes(&histogram, 64.0) }
        };
        let every = |ns: &[u64]| ns.iter().copied().step_by(4).collect::<Vec<_>>();
        let cpus = vec![cpu(0, &a), cpu(7, &b)];
        let correlation = correlate((every(&a), 64), cpus[0].modes, (every(&b), 64), cpus[1].modes);
        (cpus, correlation)
    }

    fn found(seed: u64, of: impl Fn(usize) -> (f64, f64)) -> Finding {
        let (cpus, correlation) = seen(seed, of);
        find(&cpus, correlation, 512)
    }

    #[test]
    fn nodes_are_seen_by_pages_that_are_near_to_one_cpu_and_far_from_the_other() {
        let mut hidden = 0;
        for seed in 0..10 {
            // Half of the pages; then one of six nodes near to each CPU, the others far.
            let half = |page: usize| if (page / 5).is_multiple_of(2) { (100.0, 160.0) } else { (160.0, 100.0) };
            assert_eq!(found(seed, half), Finding::Hidden);
            let sixths = |page: usize| match page / 5 % 6 {
                0 => (100.0, 160.0),
                1 => (160.0, 100.0),
                _ => (160.0, 160.0),
            };
            let (cpus, correlation) = seen(seed, sixths);
            let modes = cpus[0].modes.unwrap();
            assert!((modes.low_ns / 100.0 - 1.0).abs() < 0.05 && (modes.high_ns / 160.0 - 1.0).abs() < 0.05);
            assert!((modes.high_share - 5.0 / 6.0).abs() < 0.03, "{modes:?}");
            // Few pages tell: now and then it may remain unclear, and nothing else.
            hidden += usize::from(find(&cpus, correlation, 512) == Finding::Hidden);
            assert!(matches!(find(&cpus, correlation, 512), Finding::Hidden | Finding::Unclear), "{correlation:?}");
        }
        assert!(hidden >= 9, "{hidden} of 10");
    }

    #[test]
    fn one_latency_is_no_node_however_noisy_and_slow_pages_are_no_proof() {
        for seed in 0..10 {
            assert_eq!(found(seed, |_| (100.0, 105.0)), Finding::None);
            // A quarter of them slower by a fifth is no second mode.
            assert_eq!(
                found(seed, |page| if page.is_multiple_of(4) { (120.0, 100.0) } else { (100.0, 120.0) }),
                Finding::None
            );
            // Spread evenly over a factor of 1.8.
            let spread = |page: usize| (100.0 + 80.0 * page as f64 / 2048.0, 100.0);
            assert_eq!(found(seed, spread), Finding::FarCpu { ratio: found_ratio(seed, spread) });
            let slow = |page: usize| if page.is_multiple_of(3) { (180.0, 200.0) } else { (100.0, 110.0) };
            assert_eq!(found(seed, slow), Finding::SlowPages);
            // Two latencies from one CPU alone.
            let one = |page: usize| (if page.is_multiple_of(3) { 180.0 } else { 100.0 }, 140.0);
            assert_eq!(found(seed, one), Finding::Unclear);
            assert!(
                matches!(found(seed, |_| (100.0, 150.0)), Finding::FarCpu { ratio } if (1.45..1.55).contains(&ratio))
            );
        }
        assert_eq!(modes(&[], 64.0), None);
        assert_eq!(modes(&[(100, 1), (200, 1)], 64.0), None);
        assert_eq!(find(&[Seen { cpu: CpuId(0), median_ns: 100.0, modes: None }], None, 0), Finding::None);
    }

    fn found_ratio(seed: u64, of: impl Fn(usize) -> (f64, f64)) -> f64 {
        let (cpus, _) = seen(seed, of);
        let (a, b) = (cpus[0].median_ns, cpus[1].median_ns);
        a.max(b) / a.min(b)
    }
}
