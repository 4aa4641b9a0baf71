//! Arms: one replay with more and more left in.

use serde::{Deserialize, Serialize};

/// What is left in while a token is replayed. Their differences are the parts of a token's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The token's weight bytes read by the fastest thread set.
    Roof,
    /// The weight bytes read by this configuration's threads in its slices, no barrier.
    Read,
    /// With the arithmetic.
    Dot,
    /// With a barrier at every barrier point.
    Sync,
    /// With activations moving and single-thread phases.
    Full,
    /// The barrier points alone.
    Barrier,
    /// Full, with time stamps.
    Traced,
}

impl Arm {
    /// Its name in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Roof => "roof",
            Arm::Read => "read",
            Arm::Dot => "dot",
            Arm::Sync => "sync",
            Arm::Full => "full",
            Arm::Barrier => "barrier",
            Arm::Traced => "traced",
        }
    }
}
