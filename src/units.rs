//! Quantities that must not be mixed up: one constructor and one `Display` each.
//!
//! Arithmetic exists only where it means something: bytes over nanoseconds is a rate, and nothing else is.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A count of bytes. Displayed with a binary prefix (MiB) when it is a short whole number of them, else decimal (MB, 10⁶).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// A transfer rate in bytes per second. Displayed as GB/s with 1 GB = 10⁹ bytes.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BytesPerSecond(pub f64);

/// The kernel's number of a logical CPU (hwloc: the OS index of a PU).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuId(pub u32);

/// The kernel's number of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl Bytes {
    /// The rate at which these bytes move in `time`; `None` when no time passed, since that is no measurement.
    pub fn per(self, time: Nanos) -> Option<BytesPerSecond> {
        (time.0 > 0).then(|| BytesPerSecond(self.0 as f64 * 1e9 / time.0 as f64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (unit, name) in BINARY {
            // 198102140 KiB would be exact and unreadable.
            if self.0.is_multiple_of(unit) && (1..10_000).contains(&(self.0 / unit)) {
                return write!(f, "{} {name}", self.0 / unit);
            }
        }
        const DECIMAL: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
        for (unit, name) in DECIMAL {
            if self.0 >= unit {
                return write!(f, "{:.2} {name}", self.0 as f64 / unit as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl FromStr for Bytes {
    type Err = String;

    /// Sizes as the command line takes them: `4096`, `128M` (10⁶), `128MiB` (2²⁰).
    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 13] = [
            ("TiB", 1 << 40),
            ("TB", 1_000_000_000_000),
            ("T", 1_000_000_000_000),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("K", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
            ("", 1),
        ];
        let wrong = || format!("'{text}' is not a size");
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        let factor = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor);
        let (Ok(number), Some(factor)) = (digits.trim().parse::<f64>(), factor) else { return Err(wrong()) };
        let bytes = number * factor as f64;
        if !(bytes.is_finite() && (1.0..=(1u64 << 53) as f64).contains(&bytes)) {
            return Err(wrong());
        }
        Ok(Bytes(bytes as u64))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..10_000 => write!(f, "{} ns", self.0),
            10_000..1_000_000 => write!(f, "{:.1} µs", ns / 1e3),
            1_000_000..10_000_000 => write!(f, "{:.2} ms", ns / 1e6),
            10_000_000..1_000_000_000 => write!(f, "{:.1} ms", ns / 1e6),
            _ => write!(f, "{:.1} s", ns / 1e9),
        }
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gb = self.0 / 1e9;
        if gb < 100.0 { write!(f, "{gb:.1} GB/s") } else { write!(f, "{gb:.0} GB/s") }
    }
}

/// A number of threads. Displayed as `1 thread`, `2 threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Threads(pub u32);

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} thread{plural}", self.0)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something the kernel numbers and prints in lists such as `0-3,8-11`.
pub trait Id: Copy + Ord {
    /// The identifier with this number.
    fn from_number(number: u32) -> Self;
    /// The number of this identifier.
    fn number(self) -> u32;
}

impl Id for CpuId {
    fn from_number(number: u32) -> Self {
        CpuId(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

impl Id for NodeId {
    fn from_number(number: u32) -> Self {
        NodeId(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

/// A set of CPUs or nodes, written and read in the kernel's list form (`0-3,8-11`), also in JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet<T: Ord>(BTreeSet<T>);

/// A set of logical CPUs.
pub type CpuSet = IdSet<CpuId>;
/// A set of NUMA nodes.
pub type NodeSet = IdSet<NodeId>;

impl<T: Id> IdSet<T> {
    /// Larger than any CPU or node number that Linux hands out (CONFIG_NR_CPUS is at most 8,192); bounds what a list may expand to.
    pub const NUMBER_LIMIT: u32 = 1 << 20;

    /// The members in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator + '_ {
        self.0.iter().copied()
    }
    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether `id` is a member.
    pub fn contains(&self, id: T) -> bool {
        self.0.contains(&id)
    }
    /// The smallest member.
    pub fn first(&self) -> Option<T> {
        self.0.first().copied()
    }
    /// Adds a member.
    pub fn insert(&mut self, id: T) {
        self.0.insert(id);
    }
    /// The members of both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        IdSet(self.0.intersection(&other.0).copied().collect())
    }
    /// The members of this set that `other` lacks.
    pub fn difference(&self, other: &Self) -> Self {
        IdSet(self.0.difference(&other.0).copied().collect())
    }
}

impl<T: Ord> Default for IdSet<T> {
    fn default() -> Self {
        IdSet(BTreeSet::new())
    }
}

impl<T: Id> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        IdSet(members.into_iter().collect())
    }
}

impl<T: Id> fmt::Display for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = self.iter().map(T::number).peekable();
        let mut separator = "";
        while let Some(first) = members.next() {
            let mut last = first;
            while members.peek() == Some(&(last + 1)) {
                last += 1;
                members.next();
            }
            if last == first {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl<T: Id> FromStr for IdSet<T> {
    type Err = String;

    /// The kernel's list form. An empty text is the empty set, as in /sys for a node without CPUs.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let mut set = BTreeSet::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| digits.trim().parse::<u32>().ok().filter(|n| *n < Self::NUMBER_LIMIT);
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => set.extend((first..=last).map(T::from_number)),
                _ => {
                    return Err(format!(
                        "'{part}' is not a number below {} or a range such as 0-3",
                        Self::NUMBER_LIMIT
                    ));
                }
            }
        }
        Ok(IdSet(set))
    }
}

impl<T: Id> Serialize for IdSet<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: Id> Deserialize<'de> for IdSet<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip_and_refuse_nonsense() {
        for text in ["", "0", "0-3", "0-3,8-11", "16-31,80-95", "5,7,9"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
        assert_eq!("3,1,2,1".parse::<CpuSet>().unwrap().to_string(), "1-3");
        for text in ["a", "3-1", "1-", "-", "1,,2", "999999999", "0-999999999", "1.5"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_follow_the_contract() {
        let parse = |text: &str| text.parse::<Bytes>();
        assert_eq!(parse("128MiB"), Ok(Bytes(128 << 20)));
        assert_eq!(parse("1.5G"), Ok(Bytes(1_500_000_000)));
        assert_eq!(parse("800MB"), Ok(Bytes(800_000_000)));
        assert_eq!(parse("4096"), Ok(Bytes(4096)));
        for text in ["", "x", "-1", "0", "12XB", "1e30", "nan", "infG"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_print_with_their_unit() {
        assert_eq!(Bytes(128 << 20).to_string(), "128 MiB");
        assert_eq!(Bytes(32_000_000).to_string(), "32.00 MB");
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(2_306_975_872).to_string(), "2.31 GB");
        assert_eq!(Nanos(66).to_string(), "66 ns");
        assert_eq!(Nanos(54_300_000).to_string(), "54.3 ms");
        assert_eq!(BytesPerSecond(43.21e9).to_string(), "43.2 GB/s");
        assert_eq!(Bytes(1000).per(Nanos(0)), None);
        assert_eq!(Bytes(43).per(Nanos(1)), Some(BytesPerSecond(43e9)));
    }
}
