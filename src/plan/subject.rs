//! Whose barrier is measured: one of membar's table, an OpenMP runtime's, or somebody else's.

use crate::barrier::{Algorithm, Plugin, Row, Wait};
use crate::error::{Error, Result};
use crate::machine::OpenMp;
use serde::{Deserialize, Serialize};

/// A barrier that can be measured. In plans and records it stands by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Subject {
    /// A row of the barrier table.
    Row(Algorithm),
    /// An OpenMP runtime's, entered by the threads that the runtime starts.
    OpenMp(OpenMp),
    /// A shared library's.
    Plugin(Plugin),
    /// A type of the program that membar is a part of, by the name that it gave.
    Given(String),
}

impl Subject {
    /// All that have a fixed name: the table in its order, then the runtimes.
    pub fn all() -> Vec<Subject> {
        let rows = Algorithm::ALL.iter().copied().map(Subject::Row);
        rows.chain(OpenMp::ALL.map(Subject::OpenMp)).collect()
    }

    /// Its name on the command line, in files and in records.
    pub fn name(&self) -> &str {
        match self {
            Subject::Plugin(plugin) => plugin.name(),
            Subject::Given(name) => name,
            known => known.row().map_or("", |row| row.name),
        }
    }

    /// Its line of the table, if it has one.
    pub fn row(&self) -> Option<&'static Row> {
        match self {
            Subject::Row(algorithm) => Some(algorithm.row()),
            Subject::OpenMp(runtime) => Some(runtime.row()),
            Subject::Plugin(_) | Subject::Given(_) => None,
        }
    }

    /// Ways of waiting that it can use; the first is the default.
    pub fn waits(&self) -> &'static [Wait] {
        self.row().map_or(&[Wait::Unknown], |row| row.waits)
    }

    /// Whether it can wait like this, by whatever number of spins.
    pub fn can_wait(&self, wait: Wait) -> bool {
        self.waits().iter().any(|other| other.is_like(wait))
    }

    /// The one of that name, of those with a fixed name.
    ///
    /// # Errors
    /// A usage error that lists the names.
    pub fn find(name: &str) -> Result<Subject> {
        Subject::all().into_iter().find(|subject| subject.name() == name).ok_or_else(|| {
            let all = Subject::all();
            let names: Vec<&str> = all.iter().map(Subject::name).collect();
            Error::usage(
                format!("use the barrier '{name}'"),
                "there is no such algorithm",
                format!("name one of {}", names.join(", ")),
            )
        })
    }
}

impl From<Algorithm> for Subject {
    fn from(algorithm: Algorithm) -> Subject {
        Subject::Row(algorithm)
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> String {
        subject.name().to_owned()
    }
}

impl TryFrom<String> for Subject {
    type Error = Error;

    fn try_from(name: String) -> Result<Subject> {
        Subject::find(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for subject in Subject::all() {
            assert_eq!(Subject::find(subject.name()).unwrap(), subject);
            assert_eq!(serde_json::to_string(&subject).unwrap(), format!("\"{}\"", subject.name()));
        }
        let error = Subject::find("hypercube").unwrap_err().to_string();
        assert!(error.contains("central") && error.contains("libgomp"), "{error}");
    }

    #[test]
    fn any_number_of_spins_will_do_but_not_any_way_of_waiting() {
        let can = |algorithm: Algorithm, wait| Subject::Row(algorithm).can_wait(wait);
        assert!(can(Algorithm::Central, Wait::SpinThenYield(7)) && can(Algorithm::Futex, Wait::SpinThenFutex(7)));
        assert!(!can(Algorithm::Central, Wait::SpinThenFutex(7)));
        assert!(!can(Algorithm::Futex, Wait::HINT) && !can(Algorithm::Standard, Wait::Spin));
    }
}
