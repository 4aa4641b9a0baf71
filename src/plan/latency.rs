//! Core-to-core latency: which pairs, by which protocol, with the line at whose side, in which order.

use super::{Class, Domains, Needs, Preset, Scope};
use crate::caveat::LeftOut;
use crate::machine::{Machine, Pu};
use crate::units::{Bytes, CpuId, NodeId};
use serde::Serialize;
use std::collections::BTreeMap;

/// How two threads hand a line to each other. What one of them counts is always one way, of a line that the other core has
/// just modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Compare-and-swap by both on one line: half a round trip.
    Cas,
    /// Each stores a flag on its own line and polls the other's: half a round trip.
    Flags,
    /// The sender writes the time into a line, the receiver reads the clock when it sees it: receive less send.
    Message,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Cas, Protocol::Flags, Protocol::Message];

    /// Its name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Cas => "cas",
            Protocol::Flags => "flags",
            Protocol::Message => "message",
        }
    }

    /// What it does, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Protocol::Cas => "compare-and-swap by both threads on one line, half a round trip",
            Protocol::Flags => "each thread stores a flag on its own line and polls the other's, half a round trip",
            Protocol::Message => {
                "the sender writes the time into a line, the receiver polls it and reads the clock when it sees it: receive \
                 less send, mean of both directions"
            }
        }
    }

    /// What a unit of a sample is.
    pub fn path(self) -> &'static str {
        "one_way"
    }

    /// In which state the line is that a core asks for.
    pub fn line_state(self) -> &'static str {
        "modified"
    }

    /// Where it can be measured.
    pub fn needs(self) -> &'static str {
        match self {
            Protocol::Cas | Protocol::Flags => "two CPUs",
            Protocol::Message => "two CPUs whose clocks agree; each pair is checked, and left out with the reason",
        }
    }
}

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Protocols, each on every pair; empty means `cas` on every pair, and the others on as many as that leaves time for.
    pub protocols: Vec<Protocol>,
    /// The node that the shared line is bound to; `None` means the nodes of the two CPUs in turn.
    pub home: Option<NodeId>,
    /// Samples a pair.
    pub samples: Option<u32>,
    /// Seed of the order and of the choice of pairs.
    pub seed: u64,
    /// How thorough.
    pub preset: Preset,
    /// Seconds that latency may take; `None` means what the preset gives it.
    pub budget_s: Option<f64>,
}

/// Which pairs will be measured.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// Pairs in the order they are taken.
    pub pairs: Vec<Planned>,
    /// All protocols that some pair is measured by.
    pub protocols: Vec<Protocol>,
    /// Samples of each measurement.
    pub samples: u32,
    /// A sample is at least this long, and at least 100 steps of the clock.
    pub sample_least_ns: u64,
    /// What was not chosen.
    pub left_out: Vec<LeftOut>,
}

/// Two CPUs and what the reported topology says they share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The CPU that starts.
    pub a: CpuId,
    /// The other one.
    pub b: CpuId,
    /// The closest thing they share.
    pub class: Class,
}

/// A pair and how it is measured: by each protocol for each home of the line.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// The two CPUs.
    #[serde(flatten)]
    pub pair: Pair,
    /// Where the line lives, in turn.
    pub homes: Vec<Home>,
    /// Protocols, in turn.
    pub protocols: Vec<Protocol>,
}

/// How the shared line comes to live where it does, on a page that is fresh for each measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    /// The thread on `a` touches it first. Its node where that is known and has memory.
    FirstCpu(Option<NodeId>),
    /// The thread on `b` touches it first.
    SecondCpu(Option<NodeId>),
    /// It is bound to this node, whoever touches it.
    Bound(NodeId),
}

impl Home {
    /// The node on which it is expected.
    pub fn node(self) -> Option<NodeId> {
        match self {
            Home::FirstCpu(node) | Home::SecondCpu(node) => node,
            Home::Bound(node) => Some(node),
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The two CPUs.
    pub pair: Pair,
    /// Where the line lives.
    pub home: Home,
    /// How it is handed over.
    pub protocol: Protocol,
}

/// CPUs up to which every pair can be taken; beyond that, pairs of cores and the hardware threads of each core are chosen from.
const CPUS_MOST: usize = 512;
/// Pairs of as many CPUs.
const PAIRS_MOST: usize = CPUS_MOST * (CPUS_MOST - 1) / 2;
/// Cores of which every pair is looked at: a million pairs plan in a tenth of a second.
const CORES_MOST: usize = 1536;
/// Measurements up to which (as in `sampling`) everything is measured in every way: two CPUs, or a small machine.
const FEW: usize = 100;
/// Lines of pairs that a record holds in 20 MB, at 265 to 270 bytes each.
const LINES_MOST: usize = 73_600;
/// With more measurements than this, lines are kept as short as they can be.
pub const TERSE: usize = 20_000;
/// Where not all of a class are measured in every way, this many are.
const CHOICE: usize = 16;
/// Pinning two threads anew, finding how long a sample is, a fresh page and asking where it lies: 0.1 ms were seen where
/// CPUs are busy (`cargo bench -- latency`), idle ones have to wake up.
const PIN_S: f64 = 0.000_15;
/// A sample lasts this much longer than it must, with the threads' meeting before it: 1.5 was seen where two CPUs swap places.
const SLACK: f64 = 1.5;

/// Samples and their length for so many measurements: a short list affords long ones, a long one must end, and its record
/// must stay small.
fn sampling(measurements: usize) -> (u32, u64) {
    match measurements {
        0..=100 => (15, 500_000),
        101..=2_000 => (15, 100_000),
        2_001..=TERSE => (7, 100_000),
        _ => (5, 50_000),
    }
}

/// Time of one measurement.
fn step_s(protocol: Protocol, samples: u32, sample_least_ns: u64) -> f64 {
    // A message is held against as many exchanges of flags as make five samples more.
    let extra = if protocol == Protocol::Message { 5 } else { 0 };
    PIN_S + f64::from(samples + 1 + extra) * sample_least_ns as f64 * SLACK * 1e-9
}

/// Plans every pair of CPUs in scope. Where that takes longer than the budget, or there are more than 512 CPUs, a seeded
/// choice of pairs is taken that has every class in it.
pub fn plan(machine: &Machine, scope: &Scope, options: &Options) -> Plan {
    let budget_s = options.budget_s.or(match options.preset {
        Preset::Quick => Some(10.0),
        Preset::Default => Some(150.0),
        Preset::Full => None,
    });
    let mut left_out = Vec::new();
    let mut random = fastrand::Rng::with_seed(options.seed);
    let (by_class, total) = pairs_by_class(machine, scope, &mut random);
    let home = |planned: &Pair| homes(machine, planned, options.home);
    // What every pair is measured by, and what only a choice of them.
    let (always, sometimes): (&[Protocol], &[Protocol]) = match (&options.protocols[..], options.preset) {
        ([], Preset::Full) => (&Protocol::ALL, &[]),
        ([], _) if total * Protocol::ALL.len() <= FEW => (&Protocol::ALL, &[]),
        ([], _) => (&[Protocol::Cas], &[Protocol::Flags, Protocol::Message]),
        (named, _) => (named, &[]),
    };
    // Both sides of all pairs: where that leaves half of a record (1 MB for 64 CPUs, 20 MB for 384) to the other measurements.
    let lines_most = match (options.preset, scope.cpus.len()) {
        (Preset::Full, _) => usize::MAX,
        (_, 0..=64) => 1_700,
        (_, cpus) => (1_700.0 * (cpus as f64 / 64.0).powf(1.67)) as usize,
    };
    let seconds = |measurements: usize| {
        let (samples, sample_least_ns) = sampling(measurements);
        let one = |protocol| step_s(protocol, options.samples.unwrap_or(samples), sample_least_ns);
        let mean = always.iter().map(|protocol| one(*protocol)).sum::<f64>() / always.len().max(1) as f64;
        measurements as f64 * mean
    };
    let fits = |measurements: usize| budget_s.is_none_or(|budget_s| seconds(measurements) <= budget_s);

    // The most pairs that fit: time grows with their number, but for a step down where samples become fewer.
    let most = if fits(total * always.len()) && total <= PAIRS_MOST {
        total
    } else {
        let (mut low, mut high) = (0, if total <= PAIRS_MOST { total } else { LINES_MOST });
        while low < high {
            let middle = (low + high).div_ceil(2);
            if fits(middle * always.len()) { low = middle } else { high = middle - 1 }
        }
        low.max(by_class.len())
    };
    let mut chosen = choose(by_class, most, &mut random);
    random.shuffle(&mut chosen);
    if chosen.len() < total {
        let why = match budget_s {
            _ if scope.cpus.len() > CPUS_MOST => format!("beyond {CPUS_MOST} CPUs"),
            Some(budget_s) => format!("all would take longer than the {budget_s:.0} s that latency has"),
            None => "all would take too long".to_owned(),
        };
        left_out.push(LeftOut {
            what: format!("{} of {total} pairs of CPUs", total - chosen.len()),
            reason: format!("{why}: some of every class, and the others at random"),
        });
    }

    let both: usize = chosen.iter().map(|pair| home(pair).len()).sum::<usize>() * always.len();
    let both = both <= lines_most && fits(both);
    let mut per_nodes: BTreeMap<(Option<NodeId>, Option<NodeId>), usize> = BTreeMap::new();
    let mut per_class: BTreeMap<Class, usize> = BTreeMap::new();
    // Of few pairs, few: the budget is made for all of them on one side.
    let choice = CHOICE.min(chosen.len() / 8).max(1);
    let (mut one_side, mut one_protocol) = (0, 0);
    let mut pairs: Vec<Planned> = Vec::with_capacity(chosen.len());
    for pair in chosen {
        let mut homes = home(&pair);
        if let (false, [first, second]) = (both, &homes[..]) {
            let seen = per_nodes.entry((first.node(), second.node())).or_default();
            *seen += 1;
            if *seen > choice {
                one_side += 1;
                homes.truncate(1);
            }
        }
        let mut protocols = always.to_vec();
        let seen = per_class.entry(pair.class).or_default();
        *seen += 1;
        match *seen <= choice {
            true => protocols.extend(sometimes),
            false => one_protocol += sometimes.len().min(1),
        }
        pairs.push(Planned { pair, homes, protocols });
    }
    if one_side > 0 {
        left_out.push(LeftOut {
            what: format!("{one_side} of {} pairs with the line homed at the second CPU", pairs.len()),
            reason: "both sides of all would take too long, or fill the record: some of every two nodes".into(),
        });
    }
    if one_protocol > 0 {
        let names: Vec<&str> = sometimes.iter().map(|protocol| protocol.name()).collect();
        left_out.push(LeftOut {
            what: format!("{one_protocol} of {} pairs by {}", pairs.len(), names.join(" and ")),
            reason: "cas is measured on every pair; --protocol or --full takes the others there too".into(),
        });
    }
    if total == 0 {
        left_out.push(LeftOut {
            what: "latency between CPUs".into(),
            reason: format!("it takes two, and CPU {} is alone in scope", scope.set()),
        });
    }
    let measurements = pairs.iter().map(|planned| planned.homes.len() * planned.protocols.len()).sum();
    let (samples, sample_least_ns) = sampling(measurements);
    Plan {
        pairs,
        protocols: [always, sometimes].concat(),
        samples: options.samples.unwrap_or(samples),
        sample_least_ns,
        left_out,
    }
}

/// The pairs to choose from, by class and in random order, and how many pairs of CPUs there are.
fn pairs_by_class(machine: &Machine, scope: &Scope, random: &mut fastrand::Rng) -> (BTreeMap<Class, Vec<Pair>>, usize) {
    let topology = &machine.topology;
    let domains = Domains::of(topology);
    let mut by_class: BTreeMap<Class, Vec<Pair>> = BTreeMap::new();
    let mut add = |a: CpuId, b: CpuId| {
        let (a, b) = (a.min(b), a.max(b));
        let class = domains.shared(&[a, b]);
        by_class.entry(class).or_default().push(Pair { a, b, class });
    };
    let all = &scope.cpus;
    if all.len() <= CPUS_MOST {
        for (index, a) in all.iter().enumerate() {
            all[index + 1..].iter().for_each(|b| add(*a, *b));
        }
    } else {
        // Pairs grow with the square, and most hardware threads tell what their core has told.
        let mut cores = all[..scope.cores].to_vec();
        let pus = |cpus: &[CpuId]| -> Vec<&Pu> { cpus.iter().filter_map(|cpu| topology.pu(*cpu)).collect() };
        let first_of: BTreeMap<u32, CpuId> = pus(&cores).iter().map(|pu| (pu.core, pu.id)).collect();
        for second in pus(&all[scope.cores..]) {
            if let Some(first) = first_of.get(&second.core) {
                add(*first, second.id);
            }
        }
        random.shuffle(&mut cores);
        cores.truncate(CORES_MOST);
        for (index, a) in cores.iter().enumerate() {
            cores[index + 1..].iter().for_each(|b| add(*a, *b));
        }
    }
    by_class.values_mut().for_each(|pairs| random.shuffle(pairs));
    (by_class, all.len() * all.len().saturating_sub(1) / 2)
}

/// About `most` of these pairs: half of them in equal shares from every class, the rest at random.
fn choose(by_class: BTreeMap<Class, Vec<Pair>>, most: usize, random: &mut fastrand::Rng) -> Vec<Pair> {
    let share = (most / 2 / by_class.len().max(1)).max(1);
    let (mut chosen, mut rest) = (Vec::new(), Vec::new());
    for (_, mut pairs) in by_class {
        rest.extend(pairs.split_off(share.min(pairs.len())));
        chosen.extend(pairs);
    }
    random.shuffle(&mut rest);
    rest.truncate(most.saturating_sub(chosen.len()));
    chosen.extend(rest);
    chosen
}

/// Where the line of a pair lives in turn: on the side of each where their nodes differ.
fn homes(machine: &Machine, pair: &Pair, bound: Option<NodeId>) -> Vec<Home> {
    if let Some(node) = bound {
        return vec![Home::Bound(node)];
    }
    let topology = &machine.topology;
    let node = |cpu: CpuId| topology.pu(cpu).and_then(|pu| pu.node);
    // The pages of a node without memory, or of one that is not allowed, come from somewhere else.
    let expected = |node: Option<NodeId>| {
        let has_memory = |id: &NodeId| topology.node(*id)?.memory_bytes.map(|bytes| bytes.0 > 0);
        node.filter(|id| machine.allowed_nodes.contains(*id) && has_memory(id).unwrap_or(true))
    };
    let (a, b) = (node(pair.a), node(pair.b));
    let mut homes = vec![Home::FirstCpu(expected(a))];
    if a != b {
        homes.push(Home::SecondCpu(expected(b)));
    }
    homes
}

impl Plan {
    /// All measurements in order.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        self.pairs.iter().flat_map(|planned| {
            planned.homes.iter().flat_map(move |home| {
                let step =
                    move |protocol: &Protocol| Step { pair: planned.pair.clone(), home: *home, protocol: *protocol };
                planned.protocols.iter().map(step)
            })
        })
    }

    /// A page for each of some hundred measurements; time from the sample length and what pinning costs.
    pub fn needs(&self) -> Needs {
        let one = |step: Step| step_s(step.protocol, self.samples, self.sample_least_ns);
        Needs { memory_bytes: Bytes(1 << 20), estimated_s: self.steps().map(one).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Two sockets of three nodes each, 31 cores a node, two hardware threads a core: 372 CPUs.
    const LARGE: &str = "pack:2 numa:3(memory=134000000000) l3:1(size=500MB) core:31 pu:2";

    fn planned(description: &str, options: &Options) -> Plan {
        let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        plan(&machine, &scope, options)
    }

    fn by(protocols: &[Protocol]) -> Options {
        Options { protocols: protocols.to_vec(), seed: 1, ..Options::default() }
    }

    #[test]
    fn a_small_machine_is_measured_in_every_way_with_the_line_at_each_side() {
        let plan = planned("[numa(memory=1GB)] core:2 pu:1", &by(&[]));
        assert_eq!(plan.pairs.len(), 1);
        assert_eq!(plan.pairs[0].homes, [Home::FirstCpu(Some(NodeId(0)))]);
        assert_eq!(plan.pairs[0].protocols, Protocol::ALL);
        assert!(plan.left_out.is_empty() && plan.samples == 15);

        let plan = planned("numa:2(memory=1GB) core:2 pu:1", &by(&[Protocol::Cas]));
        assert_eq!(plan.pairs.len(), 6);
        for planned in &plan.pairs {
            let (a, b) = (NodeId(planned.pair.a.0 / 2), NodeId(planned.pair.b.0 / 2));
            let sides = [Home::FirstCpu(Some(a)), Home::SecondCpu(Some(b))];
            assert_eq!(planned.homes, sides[..if a == b { 1 } else { 2 }]);
        }
        assert_eq!(plan.steps().count(), 2 + 4 * 2);

        let bound = Options { home: Some(NodeId(1)), ..by(&[Protocol::Flags]) };
        let plan = planned("numa:2(memory=1GB) core:2 pu:1", &bound);
        assert!(plan.pairs.iter().all(|planned| planned.homes == [Home::Bound(NodeId(1))]));
    }

    #[test]
    fn all_pairs_of_372_cpus_by_one_protocol_fit_into_150_seconds() {
        for protocol in [Protocol::Cas, Protocol::Flags] {
            let plan = planned(LARGE, &by(&[protocol]));
            let different: BTreeSet<(CpuId, CpuId)> =
                plan.pairs.iter().map(|planned| (planned.pair.a, planned.pair.b)).collect();
            assert_eq!(different.len(), 69_006);
            assert!(different.iter().all(|(a, b)| a < b));
            assert!(plan.needs().estimated_s <= 150.0, "{:?}", plan.needs());
            // Both sides of every two nodes, though not of every pair: that is said.
            let nodes: BTreeSet<_> = plan.pairs.iter().filter(|planned| planned.homes.len() == 2).collect_nodes();
            assert_eq!(nodes.len(), 15);
            assert!(plan.left_out.iter().any(|left| left.what.contains("second CPU")), "{:?}", plan.left_out);
            assert!(plan.steps().count() < LINES_MOST + 15 * CHOICE);
        }
        // 15 samples of each nearly do.
        let plan = planned(LARGE, &Options { samples: Some(15), ..by(&[Protocol::Cas]) });
        assert!(plan.pairs.len() > 55_000 && plan.needs().estimated_s <= 155.0, "{:?}", plan.needs());
        // By default two more protocols are tried on some of every class.
        let plan = planned(LARGE, &by(&[]));
        assert_eq!(plan.pairs.len(), 69_006);
        assert!(plan.needs().estimated_s <= 160.0);
        let classes: BTreeSet<Class> = plan
            .pairs
            .iter()
            .filter(|planned| planned.protocols.contains(&Protocol::Message))
            .map(|planned| planned.pair.class)
            .collect();
        assert_eq!(classes.len(), 4, "{classes:?}");
        // In full, both sides of all pairs by all protocols.
        let plan = planned(LARGE, &Options { preset: Preset::Full, ..by(&[Protocol::Cas]) });
        assert_eq!(plan.steps().count(), 126_666);
    }

    /// Pairs of nodes among planned pairs.
    trait CollectNodes {
        fn collect_nodes(self) -> BTreeSet<(Option<NodeId>, Option<NodeId>)>;
    }

    impl<'a, I: Iterator<Item = &'a Planned>> CollectNodes for I {
        fn collect_nodes(self) -> BTreeSet<(Option<NodeId>, Option<NodeId>)> {
            self.map(|planned| (planned.homes[0].node(), planned.homes[1].node())).collect()
        }
    }

    #[test]
    fn beyond_the_budget_or_512_cpus_every_class_is_covered() {
        let classes = |plan: &Plan| plan.pairs.iter().map(|planned| planned.pair.class).collect::<BTreeSet<Class>>();
        let all: BTreeSet<Class> = [Class::Smt, Class::L3, Class::Node, Class::Machine].into();
        for budget_s in [0.001, 0.1, 2.0] {
            let options = Options { budget_s: Some(budget_s), ..by(&[Protocol::Cas]) };
            let plan = planned("pack:2 [numa] l3:4 core:8 pu:2", &options);
            assert!(plan.pairs.len() >= 4 && plan.pairs.len() < 128 * 127 / 2, "{}", plan.pairs.len());
            assert_eq!(classes(&plan), all);
            assert!(plan.left_out[0].what.ends_with("of 8128 pairs of CPUs"), "{:?}", plan.left_out);
            assert!(budget_s < 0.01 || plan.needs().estimated_s <= budget_s * 1.25, "{:?}", plan.needs());
        }
        let plan = planned("pack:4 [numa] l3:8 core:16 pu:2", &by(&[]));
        assert_eq!(classes(&plan), all);
        assert!(plan.left_out[0].reason.contains("512 CPUs"), "{:?}", plan.left_out);
        assert!(plan.pairs.len() <= LINES_MOST);
        let plan = planned("pack:2 [numa] l3:8 core:32 pu:1", &by(&[Protocol::Cas]));
        assert_eq!(plan.pairs.len(), PAIRS_MOST, "512 CPUs are not beyond 512");
    }

    #[test]
    fn the_order_is_random_and_the_seed_repeats_it() {
        let order = |seed| {
            let plan = planned("[numa] core:24 pu:1", &Options { seed, ..by(&[Protocol::Cas]) });
            plan.pairs.into_iter().map(|planned| planned.pair).collect::<Vec<_>>()
        };
        assert_eq!(order(3).len(), 24 * 23 / 2);
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
        let mut sorted = order(3);
        sorted.sort_by_key(|pair| (pair.a, pair.b));
        assert_ne!(sorted, order(3));
    }
}
