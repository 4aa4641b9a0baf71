//! Hidden hardware threads: which pairs of CPUs compute alone and together, and how partners are found among many CPUs.
//!
//! Of more than a few CPUs not every pair is measured. A group test (Dorfman 1943) names candidates first: in one round all
//! CPUs compute at the same time, and for each bit of a CPU's position in scope and each value of it there is a round of
//! the CPUs that have this value there. A CPU that is slowed in the round of its own value has its partner on the same
//! side, one that is not has it on the other one, so 2·⌈log₂ n⌉ rounds spell the position of every CPU's partner. The round of
//! all tells a CPU whose partner is on the other side each time from one that has none.

use super::latency::Pair;
use super::memory_latency::spread;
use super::{Class, Domains, Needs, Preset, Scope, standing_caveats};
use crate::caveat::{Caveat, LeftOut};
use crate::machine::Machine;
use crate::units::{Bytes, CpuId};
use serde::Serialize;

/// Two CPUs that slow each other at least this much share a core: two threads of one core that both keep its multiplier
/// busy should take twice as long, two cores as long as alone. A guess: the geometric middle.
pub const SHARED: f64 = 1.4;
/// A CPU that takes at least this many times as long when all compute as when it is alone has more than one sibling: with
/// one it is twice as long, and clocks may fall by a third; with three, four times. A guess.
pub const CROWDED: f64 = 3.0;
/// CPUs up to which every pair is measured.
const ALL_PAIRS: usize = 8;
/// More pairs than that are no longer taken: half a minute.
pub const PAIRS_MOST: usize = 512;
/// Random pairs beside the candidates, which should not slow each other.
const CONTROLS: usize = 8;

/// Why a pair was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Chosen {
    /// Every pair is.
    All,
    /// The topology reports one core.
    Reported,
    /// Found by the group test.
    Candidate,
    /// At random, for comparison.
    Control,
}

impl Chosen {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Chosen::All => "all",
            Chosen::Reported => "reported",
            Chosen::Candidate => "candidate",
            Chosen::Control => "control",
        }
    }
}

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Samples of each pair.
    pub samples: Option<u32>,
    /// Seed of the choice of pairs for comparison.
    pub seed: u64,
    /// How thorough.
    pub preset: Preset,
}

/// Which pairs will be measured.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// Pairs that are known beforehand.
    pub pairs: Vec<Planned>,
    /// CPUs among which a group test names more pairs, in the order that gives them their positions. Empty where every pair
    /// is in `pairs`.
    pub tested: Vec<CpuId>,
    /// Samples of each pair.
    pub samples: u32,
    /// Samples of each round of the group test.
    pub round_samples: u32,
    /// A CPU computes alone at least this long in a sample.
    pub sample_least_ns: u64,
    /// What cannot be measured here.
    pub left_out: Vec<LeftOut>,
    /// What is known to taint the numbers beforehand.
    pub caveats: Vec<Caveat>,
    /// What the topology reports of any two CPUs.
    #[serde(skip)]
    pub domains: Domains,
}

/// One pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// The two CPUs.
    #[serde(flatten)]
    pub pair: Pair,
    /// Why these.
    pub chosen: Chosen,
}

/// Plans all pairs of up to 8 CPUs; beyond that a group test, the reported pairs and some for comparison.
pub fn plan(machine: &Machine, scope: &Scope, options: &Options) -> Plan {
    let quick = options.preset == Preset::Quick;
    let domains = Domains::of(&machine.topology);
    let cpus = &scope.cpus;
    let mut left_out = Vec::new();
    let mut pairs: Vec<Planned> = Vec::new();
    let mut tested = Vec::new();
    let planned = |a: CpuId, b: CpuId, chosen| Planned { pair: pair(&domains, a, b), chosen };
    if cpus.len() < 2 {
        let (what, reason) = ("siblings".to_owned(), format!("it takes two CPUs, and CPU {} is alone", scope.set()));
        left_out.push(LeftOut { what, reason });
    } else if cpus.len() <= ALL_PAIRS {
        for (index, a) in cpus.iter().enumerate() {
            pairs.extend(cpus[index + 1..].iter().map(|b| planned(*a, *b, Chosen::All)));
        }
    } else {
        tested.clone_from(cpus);
        let set = scope.set();
        for core in &machine.topology.cores {
            let threads: Vec<CpuId> = core.cpus.iter().copied().filter(|cpu| set.contains(*cpu)).collect();
            pairs.extend(threads.windows(2).map(|two| planned(two[0], two[1], Chosen::Reported)));
        }
        pairs = spread(&pairs, PAIRS_MOST, "pairs of reported siblings", &mut left_out);
        let mut random = fastrand::Rng::with_seed(options.seed);
        for _ in 0..CONTROLS {
            let (a, b) = (random.usize(..cpus.len()), random.usize(..cpus.len()));
            let control = planned(cpus[a], cpus[b], Chosen::Control);
            let known = pairs.iter().any(|other| other.pair == control.pair);
            if a != b && !known && control.pair.class != Class::Smt {
                pairs.push(control);
            }
        }
    }
    Plan {
        pairs,
        tested,
        samples: options.samples.unwrap_or(if quick { 5 } else { 9 }),
        round_samples: 5,
        sample_least_ns: if quick { 500_000 } else { 1_000_000 },
        left_out,
        caveats: standing_caveats(machine, cpus.get(..2).unwrap_or_default()),
        domains,
    }
}

fn pair(domains: &Domains, a: CpuId, b: CpuId) -> Pair {
    let (a, b) = (a.min(b), a.max(b));
    Pair { a, b, class: domains.shared(&[a, b]) }
}

/// The rounds of a group test as positions: all of `cpus`, then for each bit those that have 0 there and those that have 1.
pub fn rounds(cpus: usize) -> Vec<Vec<usize>> {
    let mut rounds = vec![(0..cpus).collect()];
    for bit in 0..bits(cpus) {
        rounds
            .extend([0, 1].map(|value| (0..cpus).filter(|position| position >> bit & 1 == value).collect::<Vec<_>>()));
    }
    rounds
}

/// Bits of the largest position.
fn bits(cpus: usize) -> u32 {
    usize::BITS - cpus.saturating_sub(1).leading_zeros()
}

/// For each CPU whether it was slowed in the round of all, and for each bit in the round of its own value: whether it took
/// [`SHARED`] times as long as in its fastest round. Two CPUs differ in some bit, so in some round each was without the
/// other, beside as many others as in any round of one side. `times[round]` are those of `rounds(cpus)[round]`.
pub fn slowed(cpus: usize, times: &[Vec<f64>]) -> Vec<Vec<bool>> {
    let mut own: Vec<Vec<f64>> = vec![Vec::new(); cpus];
    for (members, times) in rounds(cpus).iter().zip(times) {
        members.iter().zip(times).for_each(|(position, time)| own[*position].push(*time));
    }
    own.into_iter()
        .map(|times| {
            let alone = times.iter().copied().fold(f64::INFINITY, f64::min);
            times.into_iter().map(|time| time >= SHARED * alone).collect()
        })
        .collect()
}

/// What a group test says, in positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// CPUs that name each other.
    pub pairs: Vec<(usize, usize)>,
    /// CPUs that somebody slows, who does not name them: more than two threads a core, or a round that was disturbed.
    pub unclear: Vec<usize>,
}

/// Spells partners from what [`slowed`] says of every CPU. Of more than two threads a core some are paired at most: then
/// [`CROWDED`] tells.
pub fn decode(slowed: &[Vec<bool>]) -> Decoded {
    let partner = |position: usize| {
        let (together, sides) = slowed[position].split_first()?;
        let is_slowed = *together || sides.contains(&true);
        let other = |position: usize, bit: usize| if sides[bit] { position } else { position ^ 1 << bit };
        is_slowed.then(|| (0..sides.len()).fold(position, other))
    };
    let mut decoded = Decoded::default();
    for position in 0..slowed.len() {
        match partner(position) {
            None => {}
            Some(other) if other != position && other < slowed.len() && partner(other) == Some(position) => {
                decoded.pairs.extend((position < other).then_some((position, other)));
            }
            Some(_) => decoded.unclear.push(position),
        }
    }
    decoded
}

impl Plan {
    /// The pairs that a group test found and the plan does not have yet; not more than it takes.
    pub fn candidates(&self, decoded: &Decoded) -> Vec<Planned> {
        let found = decoded.pairs.iter().map(|(a, b)| pair(&self.domains, self.tested[*a], self.tested[*b]));
        let new = found.filter(|pair| self.pairs.iter().all(|known| known.pair != *pair));
        new.take(PAIRS_MOST).map(|pair| Planned { pair, chosen: Chosen::Candidate }).collect()
    }

    /// No memory to speak of; time with as many hidden pairs as there can be.
    pub fn needs(&self) -> Needs {
        /// Guess: start, pin and watch one thread.
        const START_S: f64 = 0.000_5;
        let sample_s = self.sample_least_ns as f64 * 1.5e-9;
        let tested = self.tested.len();
        let hidden = (tested / 2).saturating_sub(self.pairs.len()).min(PAIRS_MOST);
        let pair_s = 0.002 + f64::from(self.samples + 2) * 3.0 * sample_s;
        // A sample takes twice as long where all are slowed.
        let round_s =
            |members: &Vec<usize>| START_S * members.len() as f64 + f64::from(self.round_samples) * 2.0 * sample_s;
        let test_s: f64 = if tested == 0 { 0.0 } else { rounds(tested).iter().map(round_s).sum() };
        Needs { memory_bytes: Bytes(0), estimated_s: test_s + (self.pairs.len() + hidden) as f64 * pair_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of the rounds on a machine where `core[position]` is each CPU's core: as long as threads of one core compute at
    /// once, slower when all do, and noisy by some 10 %; `far` of a thousand are disturbed.
    fn measured(core: &[usize], noise: f64, far: u32, seed: u64) -> Vec<Vec<bool>> {
        let mut random = fastrand::Rng::with_seed(seed);
        let times: Vec<Vec<f64>> = rounds(core.len())
            .iter()
            .map(|members| {
                let clock = 1.0 + 0.2 * members.len() as f64 / core.len() as f64;
                let mut one = |position: &usize| {
                    let threads = members.iter().filter(|other| core[**other] == core[*position]).count();
                    let hit = if random.u32(..1000) < far { 3.0 } else { 1.0 };
                    threads as f64 * clock * hit * (1.0 + noise * (random.f64() - 0.5))
                };
                members.iter().map(&mut one).collect()
            })
            .collect();
        slowed(core.len(), &times)
    }

    /// All pairs of one core, ascending.
    fn truth(core: &[usize]) -> Vec<(usize, usize)> {
        let all = (0..core.len()).flat_map(|a| (a + 1..core.len()).map(move |b| (a, b)));
        all.filter(|(a, b)| core[*a] == core[*b]).collect()
    }

    #[test]
    fn partners_are_spelled_however_threads_are_numbered() {
        for cpus in [9usize, 10, 16, 23, 64, 186, 372] {
            let half = cpus.div_ceil(2);
            let neighbours: Vec<usize> = (0..cpus).map(|position| position / 2).collect();
            let interleaved: Vec<usize> = (0..cpus).map(|position| position % half).collect();
            // The partner of each is on the other side in every round.
            let opposite: Vec<usize> = (0..cpus).map(|position| position.min(cpus - 1 - position)).collect();
            let mut shuffled = neighbours.clone();
            fastrand::Rng::with_seed(cpus as u64).shuffle(&mut shuffled);
            for core in [neighbours, interleaved, opposite, shuffled] {
                let decoded = decode(&measured(&core, 0.1, 0, 7));
                assert_eq!(decoded.pairs, truth(&core), "{cpus} CPUs");
                assert!(decoded.unclear.is_empty(), "{cpus} CPUs: {:?}", decoded.unclear);
            }
            let none: Vec<usize> = (0..cpus).collect();
            assert_eq!(decode(&measured(&none, 0.1, 0, 7)), Decoded::default());
        }
    }

    #[test]
    fn disturbed_rounds_lose_partners_and_make_none_up() {
        let core: Vec<usize> = (0..128).map(|position| position % 64).collect();
        let (mut found, mut named) = (0, 0);
        for seed in 0..20 {
            let decoded = decode(&measured(&core, 0.1, 10, seed));
            let right = decoded.pairs.iter().filter(|(a, b)| core[*a] == core[*b]).count();
            assert!(decoded.pairs.len() - right <= 1, "{decoded:?}");
            assert!(right * 2 + decoded.unclear.len() >= 128 - 4, "who is lost is named: {decoded:?}");
            found += right;
            named += decoded.unclear.len();
        }
        assert!(found > 20 * 64 * 3 / 4 && named > 0, "{found}, {named}");
    }

    #[test]
    fn of_more_than_two_threads_a_core_some_are_paired_and_the_others_named() {
        let neighbours: Vec<usize> = (0..64).map(|position| position / 4).collect();
        let interleaved: Vec<usize> = (0..64).map(|position| position % 16).collect();
        let mut shuffled = neighbours.clone();
        fastrand::Rng::with_seed(5).shuffle(&mut shuffled);
        for core in [neighbours, interleaved, shuffled] {
            let decoded = decode(&measured(&core, 0.1, 0, 3));
            assert!(decoded.pairs.iter().all(|(a, b)| core[*a] == core[*b]), "{decoded:?}");
            assert!(2 * decoded.pairs.len() + decoded.unclear.len() >= 56, "{decoded:?}");
        }
    }

    fn planned(description: &str) -> Plan {
        let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
        plan(&machine, &Scope::new(&machine, None, None).unwrap(), &Options { seed: 1, ..Options::default() })
    }

    #[test]
    fn few_cpus_are_all_paired_and_many_are_tested() {
        let few = planned("pack:1 core:4 pu:2");
        assert_eq!((few.pairs.len(), few.tested.len()), (28, 0));
        assert_eq!(few.pairs.iter().filter(|planned| planned.pair.class == Class::Smt).count(), 4);

        let many = planned("pack:1 core:8 pu:2");
        let count = |chosen| many.pairs.iter().filter(|planned| planned.chosen == chosen).count();
        assert_eq!((count(Chosen::Reported), many.tested.len()), (8, 16));
        assert!((1..=8).contains(&count(Chosen::Control)) && count(Chosen::All) == 0);
        assert_eq!(rounds(16).len(), 1 + 2 * 4);
        // The positions are those of the scope: first threads first.
        let decoded = Decoded { pairs: vec![(0, 8), (0, 1)], unclear: Vec::new() };
        let new = many.candidates(&decoded);
        assert!(new.len() <= 1, "what is reported is planned already: {new:?}");

        let alone = planned("core:1 pu:1");
        assert!(alone.pairs.is_empty() && alone.left_out[0].reason.contains("is alone"));
        assert_eq!(alone.needs().estimated_s, 0.0);
    }

    #[test]
    fn the_plan_ends_on_any_machine() {
        assert!(planned("pack:2 core:93 pu:2").needs().estimated_s < 30.0);
        let huge = planned("pack:8 core:128 pu:2");
        let reported = huge.pairs.iter().filter(|planned| planned.chosen == Chosen::Reported).count();
        assert!(reported == PAIRS_MOST && huge.left_out.len() == 1 && huge.needs().estimated_s < 120.0);
    }
}
