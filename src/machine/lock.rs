//! One measurement at a time: two runs on one machine would measure each other.

use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Held while measuring. The lock is an abstract Unix socket name: exclusive across users, gone when the process is.
/// It reaches as far as the network namespace: runs in two containers do not see each other.
#[derive(Debug)]
pub struct RunLock {
    _listener: Option<UnixListener>,
    not_locked: Option<String>,
}

impl RunLock {
    /// Takes the machine for this process.
    ///
    /// # Errors
    /// When another run holds it. (Where abstract sockets do not exist there is no lock, and no error.)
    pub fn take() -> Result<RunLock> {
        RunLock::take_name(b"membar-run")
    }

    fn take_name(name: &[u8]) -> Result<RunLock> {
        match SocketAddr::from_abstract_name(name).and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(listener) => Ok(RunLock { _listener: Some(listener), not_locked: None }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Err(Error::refused(
                "measure",
                "another membar is measuring on this machine",
                "wait for it to end: two runs would measure each other",
            )),
            Err(error) => Ok(RunLock { _listener: None, not_locked: Some(error.to_string()) }),
        }
    }

    /// Why there is no lock, for [`crate::caveat::Caveat::NotLocked`]; `None` when it is held.
    pub fn not_locked(&self) -> Option<&str> {
        self.not_locked.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_until_the_first_ends() {
        let name = format!("membar-test-{}", std::process::id());
        let first = RunLock::take_name(name.as_bytes()).unwrap();
        if first.not_locked().is_some() {
            return;
        }
        let refused = RunLock::take_name(name.as_bytes()).unwrap_err();
        assert!(refused.to_string().starts_with("could not measure: another membar"), "{refused}");
        drop(first);
        assert!(RunLock::take_name(name.as_bytes()).is_ok());
    }
}
