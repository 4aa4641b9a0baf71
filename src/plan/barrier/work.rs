//! What threads do between two episodes.

use crate::memory::Line;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What threads do between two episodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Nothing: all arrive together.
    Nothing,
    /// Thread 0 alone computes for so long, and arrives late.
    Late(Nanos),
    /// Each thread computes for so long.
    Compute(Nanos),
    /// Each thread reads so many bytes of its own from memory.
    Stream(Bytes),
    /// Each thread writes its part of a vector of so many bytes in all, and after the barrier reads all of it.
    Exchange(Bytes),
}

impl Work {
    /// Memory beyond the vectors that are exchanged.
    pub fn streams(self) -> bool {
        matches!(self, Work::Stream(_))
    }

    /// The same in whole lines, which is what cores read and write.
    pub fn whole_lines(self) -> Work {
        let whole = |bytes: Bytes| Bytes(bytes.0.checked_next_multiple_of(Line::BYTES).unwrap_or(bytes.0));
        match self {
            Work::Stream(bytes) => Work::Stream(whole(bytes)),
            Work::Exchange(bytes) => Work::Exchange(whole(bytes)),
            other => other,
        }
    }

    /// Memory that all its vectors take.
    pub fn exchanged_bytes(self) -> u64 {
        match self {
            Work::Exchange(bytes) => 3 * bytes.0,
            _ => 0,
        }
    }

    /// Seconds that it lasts at least.
    pub fn least_s(self) -> f64 {
        match self {
            Work::Late(time) | Work::Compute(time) => time.0 as f64 * 1e-9,
            Work::Nothing | Work::Stream(_) | Work::Exchange(_) => 0.0,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Nothing => f.write_str("nothing"),
            Work::Late(time) => write!(f, "thread 0 late by {time}"),
            Work::Compute(time) => write!(f, "computing for {time}"),
            Work::Stream(bytes) => write!(f, "reading {bytes} a thread"),
            Work::Exchange(bytes) => write!(f, "exchanging {bytes}"),
        }
    }
}

/// A list of times, as `--late` takes it: `0`, `500ns`, `2us`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lateness(pub Vec<Work>);

/// A list of work, as `--after` takes it: times, sizes, and `exchange-` with a size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct After(pub Vec<Work>);

/// The longest that a thread may compute before an episode: a token lasts no longer.
const MOST: Nanos = Nanos(1_000_000_000);

fn time(token: &str) -> Option<Nanos> {
    if token == "0" {
        return Some(Nanos(0));
    }
    let time = humantime::parse_duration(token).ok()?;
    u64::try_from(time.as_nanos()).ok().map(Nanos).filter(|time| *time <= MOST)
}

impl FromStr for Lateness {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |token: &str| match time(token.trim()) {
            Some(Nanos(0)) => Ok(Work::Nothing),
            Some(time) => Ok(Work::Late(time)),
            None => Err(format!("'{token}' is no length of time up to {MOST}")),
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Lateness)
    }
}

impl FromStr for After {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// Hundreds of times the activations of a token.
        const EXCHANGE_MOST: u64 = 16 << 20;
        let one = |token: &str| {
            let token = token.trim();
            let wrong = || {
                format!(
                    "'{token}' is no time up to {MOST}, no size and no exchange-SIZE up to {}",
                    Bytes(EXCHANGE_MOST)
                )
            };
            if let Some(size) = token.strip_prefix("exchange-") {
                let bytes: Bytes = size.parse()?;
                return if (1..=EXCHANGE_MOST).contains(&bytes.0) { Ok(Work::Exchange(bytes)) } else { Err(wrong()) };
            }
            match (time(token), token.parse::<Bytes>()) {
                (Some(Nanos(0)), _) => Ok(Work::Nothing),
                (Some(time), _) => Ok(Work::Compute(time)),
                (None, Ok(bytes)) if bytes.0 > 0 => Ok(Work::Stream(bytes)),
                (None, _) => Err(wrong()),
            }
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(After)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_exchanges_are_told_apart() {
        let after = |text: &str| text.parse::<After>().map(|After(work)| work);
        assert_eq!(
            after("0,100ns, 64KiB,exchange-16KiB").unwrap(),
            [Work::Nothing, Work::Compute(Nanos(100)), Work::Stream(Bytes(64 << 10)), Work::Exchange(Bytes(16 << 10))]
        );
        assert_eq!("0,2us".parse::<Lateness>().unwrap().0, [Work::Nothing, Work::Late(Nanos(2_000))]);
        for wrong in ["", "x", "100ns,,1us", "exchange-", "exchange-0", "exchange-2GiB", "0KiB", "-5ns", "2h"] {
            assert!(after(wrong).is_err(), "{wrong}");
        }
        assert!("64KiB".parse::<Lateness>().is_err());
    }
}
