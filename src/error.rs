//! One error type: what was tried, on what, why it failed, what to do.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why membar could not do something. Its text always reads
/// *could not {do what, to what}: {reason}; {what to do}*.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    kind: Kind,
    action: String,
    reason: String,
    advice: String,
}

/// Whose doing an [`Error`] is. It decides the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The command line or a file given to us is wrong: exit status 2.
    Usage,
    /// The system refused something, or a check failed: exit status 1.
    Refused,
}

/// The result of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The caller gave something that cannot be used.
    ///
    /// `action` completes "could not …", `advice` is an instruction ("name one of 0-1").
    pub fn usage(action: impl Into<String>, reason: impl fmt::Display, advice: impl Into<String>) -> Self {
        Error { kind: Kind::Usage, action: action.into(), reason: reason.to_string(), advice: advice.into() }
    }

    /// The system refused something, or a result check failed.
    pub fn refused(action: impl Into<String>, reason: impl fmt::Display, advice: impl Into<String>) -> Self {
        Error { kind: Kind::Refused, action: action.into(), reason: reason.to_string(), advice: advice.into() }
    }

    /// Whose doing this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {}; {}", self.action, self.reason, self.advice)
    }
}

impl std::error::Error for Error {}
