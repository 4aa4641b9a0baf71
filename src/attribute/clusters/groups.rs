//! Groups at one valley: average linkage, and then every member where most of its pairs say.

use super::Pair;
use super::levels::Valley;

/// Votes between units (CPUs, or groups of a level below): a square matrix of sums over measured pairs.
struct Votes {
    units: usize,
    /// Sum of [`Valley::vote`].
    sums: Vec<f32>,
    /// How many pairs are in the sum.
    counts: Vec<u32>,
}

impl Votes {
    fn of(units: usize, unit_of: &[usize], pairs: &[Pair], valley: &Valley) -> Votes {
        let mut votes = Votes { units, sums: vec![0.0; units * units], counts: vec![0; units * units] };
        for pair in pairs {
            let (a, b) = (unit_of[pair.a], unit_of[pair.b]);
            if a != b {
                let vote = valley.vote(pair.ln) as f32;
                for cell in [a * units + b, b * units + a] {
                    votes.sums[cell] += vote;
                    votes.counts[cell] += 1;
                }
            }
        }
        votes
    }

    /// The mean vote; nothing where no pair was measured.
    fn mean(&self, a: usize, b: usize) -> Option<f32> {
        let cell = a * self.units + b;
        (self.counts[cell] > 0).then(|| self.sums[cell] / self.counts[cell] as f32)
    }

    /// The same between groups of units, numbered from 0.
    fn merged(&self, groups: usize, group_of: &[usize]) -> Votes {
        let mut merged = Votes { units: groups, sums: vec![0.0; groups * groups], counts: vec![0; groups * groups] };
        for a in 0..self.units {
            for b in 0..self.units {
                if group_of[a] != group_of[b] {
                    let (from, to) = (a * self.units + b, group_of[a] * groups + group_of[b]);
                    merged.sums[to] += self.sums[from];
                    merged.counts[to] += self.counts[from];
                }
            }
        }
        merged
    }
}

/// Joins the groups `below` (a label for each CPU, from 0 without holes) where the pairs between them are faster than the
/// valley. Votes end at the levels' medians, so that a value far out counts as one pair on the wrong side and no more.
pub(super) fn join(below: &[usize], pairs: &[Pair], valley: &Valley) -> Vec<usize> {
    /// Settled after one or two; a bound, not a choice.
    const TIMES: usize = 8;
    let units = below.iter().max().map_or(0, |last| last + 1);
    let votes = Votes::of(units, below, pairs, valley);
    let mut group_of = linked(&votes);
    for _ in 0..TIMES {
        let moved = settle(&votes, &mut group_of);
        let groups = number(&mut group_of);
        let joined = linked(&votes.merged(groups, &group_of));
        group_of.iter_mut().for_each(|group| *group = joined[*group]);
        if number(&mut group_of) == groups && !moved {
            break;
        }
    }
    below.iter().map(|unit| group_of[*unit]).collect()
}

/// Renumbers labels from 0 in order of appearance, and says how many there are.
pub(super) fn number(labels: &mut [usize]) -> usize {
    let mut names: Vec<Option<usize>> = vec![None; labels.iter().max().map_or(0, |last| last + 1)];
    let mut next = 0;
    for label in labels {
        *label = *names[*label].get_or_insert_with(|| {
            next += 1;
            next - 1
        });
    }
    next
}

/// Average linkage (UPGMA) cut where the mean vote is 0: clusters are joined as long as the pairs between them are, on
/// average, on the fast side. By the nearest-neighbour chain; the mean over measured pairs lies between the means of the
/// parts, which is all that the chain needs. A cluster whose nearest one is on the slow side stays so for good.
fn linked(votes: &Votes) -> Vec<usize> {
    let units = votes.units;
    let mut work = Votes { units, sums: votes.sums.clone(), counts: votes.counts.clone() };
    let mut active = vec![true; units];
    let mut label: Vec<usize> = (0..units).collect();
    let mut chain: Vec<usize> = Vec::new();
    let mut next = 0;
    loop {
        if chain.is_empty() {
            while next < units && !active[next] {
                next += 1;
            }
            if next == units {
                break;
            }
            chain.push(next);
        }
        let top = chain[chain.len() - 1];
        let before = chain.len().checked_sub(2).map(|index| chain[index]);
        // Of equal ones the one before in the chain, or the chain would turn in circles.
        let mut nearest = before.and_then(|before| Some((before, work.mean(top, before)?)));
        for other in (0..units).filter(|other| active[*other] && *other != top) {
            if let Some(mean) = work.mean(top, other).filter(|mean| nearest.is_none_or(|(_, best)| *mean > best)) {
                nearest = Some((other, mean));
            }
        }
        match nearest.filter(|(_, mean)| *mean > 0.0) {
            None => {
                active[top] = false;
                chain.pop();
            }
            Some((other, _)) if Some(other) == before => {
                chain.truncate(chain.len() - 2);
                active[other] = false;
                label.iter_mut().filter(|label| **label == other).for_each(|label| *label = top);
                for third in (0..units).filter(|third| *third != top && *third != other) {
                    let (from, to) = (other * units + third, top * units + third);
                    work.sums[to] += work.sums[from];
                    work.counts[to] += work.counts[from];
                    work.sums[third * units + top] = work.sums[to];
                    work.counts[third * units + top] = work.counts[to];
                }
                // The chain starts again from the lowest active one.
                next = 0;
            }
            Some((other, _)) => chain.push(other),
        }
    }
    number(&mut label);
    label
}

/// Moves units, one after another, to the group that has most votes for them, or to a group of their own where all have
/// more against. Says whether any moved.
fn settle(votes: &Votes, group_of: &mut [usize]) -> bool {
    const TIMES: usize = 10;
    let units = votes.units;
    let mut ever = false;
    for _ in 0..TIMES {
        let mut moved = false;
        for unit in 0..units {
            let free = units + 1;
            let mut sums = vec![0.0f32; units + 1];
            for other in (0..units).filter(|other| *other != unit) {
                sums[group_of[other]] += votes.sums[unit * units + other];
            }
            let own = group_of[unit];
            let alone = (0..units).all(|other| other == unit || group_of[other] != own);
            let best = (0..=units).fold(own, |best, group| if sums[group] > sums[best] + 0.5 { group } else { best });
            let to = if sums[best] > 0.0 || alone { best } else { free };
            if to != own {
                let unused = || (0..=units).find(|group| !group_of.contains(group));
                group_of[unit] = if to == free { unused().unwrap_or(own) } else { to };
                moved = true;
            }
        }
        ever |= moved;
        if !moved {
            break;
        }
    }
    ever
}
