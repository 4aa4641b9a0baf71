//! Appends lines to a record, each flushed before the next step starts.

use super::Line;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// An open record, or none (`--out none`).
#[derive(Debug)]
pub struct Writer {
    target: Option<(File, PathBuf)>,
    /// Bytes of the lines that are whole.
    whole: u64,
}

impl Writer {
    /// Creates the file before anything is measured, so that an unwritable path costs nothing.
    ///
    /// # Errors
    /// When it exists already or cannot be created.
    pub fn create(path: &Path) -> Result<Writer> {
        let file = File::create_new(path).map_err(|reason| {
            let advice = match reason.kind() {
                std::io::ErrorKind::AlreadyExists if path.is_file() => {
                    "name another file: records are never overwritten"
                }
                _ => "name a file in a directory that you may write to, or `none`",
            };
            Error::usage(format!("write the record to {}", path.display()), reason, advice)
        })?;
        Ok(Writer { target: Some((file, path.to_owned())), whole: 0 })
    }

    /// Writes nothing.
    pub fn none() -> Writer {
        Writer { target: None, whole: 0 }
    }

    /// Where it writes.
    pub fn path(&self) -> Option<&Path> {
        self.target.as_ref().map(|(_, path)| path.as_path())
    }

    /// Appends one line and hands it to the kernel.
    ///
    /// # Errors
    /// When the file system refuses (no space, gone). The record then ends with its last whole line, and later lines go
    /// nowhere.
    pub fn append(&mut self, line: &Line) -> Result<()> {
        let Some((file, path)) = &mut self.target else { return Ok(()) };
        let mut text = serde_json::to_vec(line).map_err(std::io::Error::from);
        if let Ok(bytes) = &mut text {
            bytes.push(b'\n');
        }
        // One write for each line: a reader, or a kill, never sees half of one on a local file system.
        match text.and_then(|bytes| file.write_all(&bytes).map(|()| bytes.len() as u64)) {
            Ok(bytes) => {
                self.whole += bytes;
                Ok(())
            }
            Err(reason) => {
                let error = Error::refused(
                    format!("append to the record {}", path.display()),
                    reason,
                    "free some space and run again; it ends with its last whole line",
                );
                let _ = file.set_len(self.whole);
                self.target = None;
                Err(error)
            }
        }
    }
}
