//! `--threads`: read as text first; what it means depends on the machine.

use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::str::FromStr;

/// Thread counts as typed: `1,2,4`, `1-8`, `8-64+8`, `1-64*2`, `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadList {
    text: String,
    items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    All,
    Range { first: u32, last: u32, step: Step },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add(u32),
    Multiply(u32),
}

/// More threads than this is a typing error: Linux allows about four million, and CPUs end at 8,192.
const MOST: u32 = 65_536;

impl ThreadList {
    /// The counts in ascending order, where `all` stands for `cpus`.
    ///
    /// # Errors
    /// A usage error when a count is above `most`.
    pub fn resolve(&self, cpus: u32, most: u32) -> Result<Vec<u32>> {
        let mut counts = BTreeSet::new();
        for item in &self.items {
            match *item {
                Item::All => {
                    counts.insert(cpus);
                }
                Item::Range { first, last, step } => {
                    let mut count = first;
                    while count <= last {
                        counts.insert(count);
                        count = match step {
                            Step::Add(by) => count.saturating_add(by),
                            Step::Multiply(by) => count.saturating_mul(by),
                        };
                    }
                }
            }
        }
        match counts.iter().find(|count| **count > most) {
            Some(count) => Err(Error::usage(
                format!("use {count} threads"),
                format!("only {cpus} CPUs are allowed here"),
                format!("name counts from 1 to {most}, or widen --cpus; only barriers may be oversubscribed"),
            )),
            None => Ok(counts.into_iter().collect()),
        }
    }
}

impl From<u32> for ThreadList {
    /// This count alone.
    fn from(count: u32) -> Self {
        let only = Item::Range { first: count, last: count, step: Step::Add(1) };
        ThreadList { text: count.to_string(), items: vec![only] }
    }
}

impl FromStr for ThreadList {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let items = text.split(',').map(|item| parse(item.trim())).collect::<Option<Vec<Item>>>();
        let items = items.ok_or_else(|| {
            format!("'{text}' is not a list of thread counts from 1 to {MOST}, with steps from 1 and factors from 2")
        })?;
        Ok(ThreadList { text: text.to_owned(), items })
    }
}

impl std::fmt::Display for ThreadList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse(item: &str) -> Option<Item> {
    let count = |text: &str| text.parse::<u32>().ok().filter(|count| (1..=MOST).contains(count));
    if item == "all" {
        return Some(Item::All);
    }
    let Some((first, rest)) = item.split_once('-') else {
        let only = count(item)?;
        return Some(Item::Range { first: only, last: only, step: Step::Add(1) });
    };
    let (last, step) = if let Some((last, by)) = rest.split_once('+') {
        (last, Step::Add(count(by)?))
    } else if let Some((last, by)) = rest.split_once('*') {
        (last, Step::Multiply(count(by).filter(|by| *by > 1)?))
    } else {
        (rest, Step::Add(1))
    };
    let (first, last) = (count(first)?, count(last)?);
    (first <= last).then_some(Item::Range { first, last, step })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str, cpus: u32) -> Vec<u32> {
        text.parse::<ThreadList>().unwrap().resolve(cpus, 1000).unwrap()
    }

    #[test]
    fn every_form_of_the_contract() {
        assert_eq!(resolve("1,2,4", 8), [1, 2, 4]);
        assert_eq!(resolve("1-4", 8), [1, 2, 3, 4]);
        assert_eq!(resolve("8-64+8", 64), [8, 16, 24, 32, 40, 48, 56, 64]);
        assert_eq!(resolve("1-64*2", 64), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(resolve("all,1", 372), [1, 372]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "0", "1,0", "0-4", "4-1", "1-8+0", "1-8*1", "1-8*0", "x", "1-", "-3", "1..4", "99999999999"] {
            assert!(text.parse::<ThreadList>().is_err(), "{text}");
        }
        let error = "4".parse::<ThreadList>().unwrap().resolve(2, 2).unwrap_err().to_string();
        assert!(error.contains("only 2 CPUs are allowed"), "{error}");
    }
}
