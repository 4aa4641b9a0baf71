use super::*;
use crate::machine::{Machine, Topology};

/// What latencies are made of: the true place of each CPU, and what is done to the numbers.
struct Made<'a> {
    truth: &'a Topology,
    /// ns inside a core, last-level cache, node, package, machine.
    ns: [f64; 5],
    /// Standard deviation of each value.
    noise: f64,
    /// Share of pairs that are missing.
    missing: f64,
    /// Share of pairs that are far out, mostly above.
    outliers: f64,
    /// Relative change from the first to the last line.
    drift: f64,
    /// Relative difference between the two directions; both are measured when it is not 0.
    asymmetry: f64,
    /// Hardware threads beyond the first are measured with their core only.
    plan_like: bool,
}

impl<'a> Made<'a> {
    fn of(truth: &'a Topology) -> Made<'a> {
        Made {
            truth,
            ns: [11.0, 27.0, 105.0, 125.0, 210.0],
            noise: 0.08,
            missing: 0.0,
            outliers: 0.0,
            drift: 0.0,
            asymmetry: 0.0,
            plan_like: false,
        }
    }

    fn times(&self, seed: u64) -> Vec<(CpuId, CpuId, f64)> {
        let mut random = fastrand::Rng::with_seed(seed);
        let topology = self.truth;
        let mut times = Vec::new();
        for (index, a) in topology.pus.iter().enumerate() {
            for b in &topology.pus[index + 1..] {
                let same_core = a.core == b.core;
                if (self.plan_like && !same_core && (a.smt > 0 || b.smt > 0)) || random.f64() < self.missing {
                    continue;
                }
                let class = [
                    same_core,
                    a.last_level_cache.is_some() && a.last_level_cache == b.last_level_cache,
                    a.node == b.node,
                    a.package == b.package,
                ];
                let class = class.iter().position(|same| *same).unwrap_or(4);
                let out = match random.f64() < self.outliers {
                    true if random.f64() < 0.9 => 1.5 + 8.0 * random.f64(),
                    true => 0.3 + 0.4 * random.f64(),
                    false => 1.0,
                };
                let directions = if self.asymmetry > 0.0 { 2 } else { 1 };
                for direction in 0..directions {
                    let away = 1.0 + self.asymmetry * f64::from(direction);
                    let value = self.ns[class] * away * out * (1.0 + self.noise * normal(&mut random));
                    times.push((a.id, b.id, value.max(self.ns[class] / 10.0)));
                }
            }
        }
        random.shuffle(&mut times);
        let last = times.len().max(2) as f64 - 1.0;
        times.iter_mut().enumerate().for_each(|(index, time)| time.2 *= 1.0 + self.drift * index as f64 / last);
        times
    }

    fn found(&self, seed: u64) -> Clusters {
        Clusters::from_times("cas", &self.times(seed), None).unwrap()
    }
}

fn normal(random: &mut fastrand::Rng) -> f64 {
    (-2.0 * random.f64().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

fn machine(name: &str) -> Machine {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/topologies");
    Machine::from_source(&format!("{dir}/{name}.xml")).unwrap()
}

fn synthetic(description: &str) -> Topology {
    Machine::from_source(&format!("synthetic:{description}")).unwrap().topology
}

fn caches(topology: &Topology) -> Vec<CpuSet> {
    let mut sets: Vec<CpuSet> =
        topology.last_level_caches(&topology.cpus()).into_iter().map(|cache| cache.cpus.clone()).collect();
    sets.sort_by_key(CpuSet::first);
    sets
}

/// Whether some class has these groups, but for CPUs that it does not place.
fn has(clusters: &Clusters, groups: &[CpuSet]) -> bool {
    clusters.classes.iter().any(|class| {
        let placed = |group: &CpuSet| group.intersection(&clusters.cpus).difference(&class.unplaced);
        6 * class.unplaced.len() <= clusters.cpus.len()
            && class.groups == groups.iter().map(placed).filter(|group| !group.is_empty()).collect::<Vec<_>>()
    })
}

fn shown(clusters: &Clusters) -> String {
    let classes = clusters.classes.iter().map(|class| {
        let groups: Vec<String> = class.groups.iter().map(CpuSet::to_string).collect();
        format!("{:?} ns, {} pairs: {}; not {}", class.median_ns, class.pairs, groups.join(" | "), class.unplaced)
    });
    format!("{}\nunexplained: {:?}", classes.collect::<Vec<_>>().join("\n"), clusters.unexplained)
}

fn seeds(fast: u64, release: u64) -> std::ops::Range<u64> {
    0..if cfg!(debug_assertions) { fast } else { release }
}

#[test]
fn hidden_caches_are_found_and_said() {
    let (truth, told) = (machine("hbv4_176_ccx_8886_6").topology, machine("hbv4_176_flat_l3_old").topology);
    let groups = caches(&truth);
    assert_eq!((groups.len(), caches(&told).len()), (24, 4));
    let made = Made::of(&truth);
    let hard = [
        Made { noise: 0.05, ..Made::of(&truth) },
        Made { noise: 0.1, ..Made::of(&truth) },
        Made { asymmetry: 0.15, ..Made::of(&truth) },
        Made { drift: 0.4, ..Made::of(&truth) },
        Made { outliers: 0.005, ..Made::of(&truth) },
        Made { missing: 0.1, ..Made::of(&truth) },
        Made { missing: 0.3, ..Made::of(&truth) },
        Made { noise: 0.1, asymmetry: 0.1, drift: 0.25, outliers: 0.005, missing: 0.3, ..made },
    ];
    for (number, made) in hard.iter().enumerate() {
        for seed in seeds(3, 40) {
            let clusters = made.found(seed);
            assert!(has(&clusters, &groups), "case {number}, seed {seed}: {:?}", shown(&clusters));
            let comparison = Comparison::of(&clusters, &told, "guest");
            assert_eq!(comparison.agrees, Some(false));
            let said = "the guest reports 4 last-level caches of 44 CPUs; the latencies show 24 groups of 6 to 8 CPUs";
            let said = if made.missing > 0.0 { said.strip_suffix("6 to 8 CPUs").unwrap() } else { said };
            assert!(comparison.disagreements.iter().any(|text| text.starts_with(said)), "{comparison:?}");
            assert_eq!(comparison.disagreements.len(), 1, "{comparison:?}");
            let used = &clusters.classes[comparison.last_level].groups;
            assert!(made.missing > 0.0 || *used == groups, "case {number}, seed {seed}: {}", shown(&clusters));
            let honest = Comparison::of(&clusters, &truth, "guest");
            assert_eq!((honest.agrees, honest.disagreements.len()), (Some(true), 0), "{honest:?}");
            assert_eq!(honest.reported_as[0], Some("last-level cache"));
            assert_eq!(clusters.classes.iter().map(|class| class.pairs).sum::<usize>(), clusters.pairs());
        }
    }
}

#[test]
fn noise_alone_makes_no_groups() {
    for cpus in [4, 5, 6, 8, 12, 16, 24, 48, 96] {
        let truth = synthetic(&format!("pack:1 l3:1 core:{cpus} pu:1"));
        for (number, noise) in [0.0, 0.02, 0.05, 0.1, 0.2].into_iter().enumerate() {
            for seed in seeds(if cpus > 16 { 5 } else { 60 }, if cpus > 16 { 50 } else { 2000 }) {
                let (outliers, missing) = ([0.0, 0.01, 0.05][seed as usize % 3], [0.0, 0.2][seed as usize % 2]);
                let drift = [0.0, 0.3][seed as usize / 2 % 2];
                let made = Made { noise, outliers, missing, drift, ..Made::of(&truth) };
                let Ok(clusters) = Clusters::from_times("cas", &made.times(seed + 1000 * number as u64), None) else {
                    continue;
                };
                assert_eq!(
                    clusters.classes.len(),
                    1,
                    "{cpus} CPUs, noise {noise}, seed {seed}: {:?}",
                    shown(&clusters)
                );
                let comparison = Comparison::of(&clusters, &truth, "guest");
                assert!(comparison.disagreements.is_empty() && comparison.agrees != Some(false), "{comparison:?}");
            }
        }
    }
}

#[test]
fn a_machine_that_moves_between_plateaus_makes_no_groups() {
    let truth = synthetic("pack:1 l3:1 core:16 pu:1");
    for seed in seeds(100, 2000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut times = Made { noise: 0.05, ..Made::of(&truth) }.times(seed);
        // It stays for a while, or changes with every pair.
        let stay = [1, 10, 40][seed as usize % 3];
        let share = [0.05, 0.2, 0.5, 0.8][seed as usize / 3 % 4];
        let mut slow = false;
        for (index, time) in times.iter_mut().enumerate() {
            if index % stay == 0 {
                slow = random.f64() > share;
            }
            time.2 *= if slow { 4.5 } else { 1.0 };
        }
        let clusters = Clusters::from_times("cas", &times, None).unwrap();
        assert_eq!(clusters.classes.len(), 1, "seed {seed}: {:?}", shown(&clusters));
        assert_ne!(Comparison::of(&clusters, &truth, "guest").agrees, Some(false));
    }
}

#[test]
fn a_sample_of_pairs_is_enough_or_says_nothing() {
    let (truth, told) = (machine("hbv4_176_ccx_8886_6").topology, machine("hbv4_176_flat_l3_old").topology);
    let groups = caches(&truth);
    for (number, missing) in [0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96].into_iter().enumerate() {
        for seed in seeds(4, 60) {
            let made = Made { missing, ..Made::of(&truth) };
            let clusters = made.found(seed + 100 * number as u64);
            let comparison = Comparison::of(&clusters, &told, "guest");
            if missing <= 0.4 {
                assert!(has(&clusters, &groups), "{missing}, seed {seed}: {:?}", shown(&clusters));
            }
            if comparison.agrees == Some(false) {
                let found = &clusters.classes[0].groups;
                let within = |group: &&CpuSet| groups.iter().position(|all| group.difference(all).is_empty());
                let homes: BTreeSet<_> = found.iter().filter_map(|group| within(&group)).collect();
                assert!(homes.len() == found.len(), "{missing}, seed {seed}: {:?}", shown(&clusters));
            }
            assert_ne!(comparison.agrees, Some(true), "{missing}, seed {seed}: {comparison:?}");
        }
    }
}

#[test]
fn clusters_of_nodes_and_hardware_threads_are_found() {
    let machine = machine("e372is_v7_snc3_guess").topology;
    let nodes: Vec<CpuSet> = machine.nodes.iter().map(|node| node.cpus.clone()).collect();
    let cores: Vec<CpuSet> = machine.cores.iter().map(|core| core.cpus.iter().copied().collect()).collect();
    let threads = cores.iter().any(|core: &CpuSet| core.len() > 1);
    for seed in seeds(1, 10) {
        // A cache over the three nodes of a socket: pairs across them are slower all the same.
        let made = Made {
            ns: [18.0, 80.0, 55.0, 80.0, 160.0],
            noise: 0.06,
            missing: 0.1,
            outliers: 0.002,
            plan_like: true,
            ..Made::of(&machine)
        };
        // `class` takes the cache first, which is the whole socket here; so nodes are put in by hand.
        let mut times = made.times(seed);
        for time in &mut times {
            let (a, b) = (machine.pu(time.0).unwrap(), machine.pu(time.1).unwrap());
            if a.core != b.core && a.node == b.node {
                time.2 *= 55.0 / 80.0;
            }
        }
        let clusters = Clusters::from_times("cas", &times, None).unwrap();
        assert!(has(&clusters, &nodes), "seed {seed}: {:?}", shown(&clusters));
        let comparison = Comparison::of(&clusters, &machine, "guest");
        assert_eq!(comparison.agrees, Some(true), "{comparison:?}");
        if threads {
            assert_eq!(comparison.reported_as[0], Some("core"));
        }
    }
}

#[test]
fn hardware_threads_that_are_not_reported_are_found() {
    let (truth, told) = (synthetic("pack:1 l3:1 core:12 pu:2"), synthetic("pack:1 l3:1 core:24 pu:1"));
    let lied = synthetic("pack:1 l3:1 core:12 pu:2");
    let flat = synthetic("pack:1 l3:1 core:24 pu:1");
    for seed in seeds(30, 500) {
        let clusters = Made::of(&truth).found(seed);
        let comparison = Comparison::of(&clusters, &told, "guest");
        assert_eq!(comparison.agrees, Some(false), "seed {seed}: {:?}", shown(&clusters));
        assert_eq!(Comparison::of(&clusters, &truth, "guest").agrees, Some(true), "{}", shown(&clusters));
        // And the other way round: threads of one core that are not.
        let clusters = Made::of(&flat).found(seed);
        let comparison = Comparison::of(&clusters, &lied, "guest");
        assert_eq!(comparison.agrees, Some(false), "seed {seed}: {comparison:?}");
        assert!(comparison.disagreements[0].contains("12 cores of 2 CPUs"), "{comparison:?}");
    }
}

#[test]
fn small_machines_are_grouped_when_it_is_plain() {
    let two = synthetic("pack:1 [numa] l3:2 core:2 pu:1");
    let eight = synthetic("pack:2 [numa] l3:2 core:4 pu:2");
    for seed in seeds(100, 2000) {
        let clusters = Made::of(&two).found(seed);
        assert!(has(&clusters, &caches(&two)), "seed {seed}: {:?}", shown(&clusters));
        let clusters = Made { outliers: 0.01, ..Made::of(&eight) }.found(seed);
        assert!(has(&clusters, &caches(&eight)), "seed {seed}: {:?}", shown(&clusters));
        let comparison = Comparison::of(&clusters, &eight, "guest");
        assert_eq!(comparison.agrees, Some(true), "seed {seed}: {comparison:?} {}", shown(&clusters));
    }
    // Second hardware threads that were measured with their core only: enough to confirm, not to find.
    let threads = synthetic("pack:1 l3:1 core:4 pu:2");
    for seed in seeds(100, 2000) {
        let times = Made { plan_like: true, ..Made::of(&threads) }.times(seed);
        let clusters = Clusters::from_times("cas", &times, Some(&threads)).unwrap();
        assert_eq!(Comparison::of(&clusters, &threads, "guest").agrees, Some(true), "{}", shown(&clusters));
        assert_eq!(Clusters::from_times("cas", &times, None).unwrap().classes.len(), 1);
    }
    let pair = synthetic("core:2 pu:1");
    assert_eq!(Clusters::from_times("cas", &Made::of(&pair).times(1), None), Err(Unclear::FewCpus { cpus: 2 }));
    let few: Vec<_> = Made::of(&eight).times(1).into_iter().take(12).collect();
    assert!(matches!(Clusters::from_times("cas", &few, None), Err(Unclear::FewPairs { pairs: 12, .. })));
    assert!(matches!(Clusters::from_times("cas", &[], None), Err(Unclear::FewCpus { cpus: 0 })));
}

#[test]
fn five_hundred_cpus_take_a_second_or_two() {
    let truth = synthetic("pack:2 [numa] l3:16 core:16 pu:1");
    let clusters = Made { noise: 0.1, missing: 0.1, outliers: 0.005, ..Made::of(&truth) }.found(1);
    assert!(has(&clusters, &caches(&truth)));
}
