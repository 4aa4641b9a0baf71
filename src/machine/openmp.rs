//! OpenMP runtimes: which there are, and which of them this system has.

use super::Library;
use std::collections::BTreeMap;
use std::ffi::CStr;

/// A runtime library that compiled OpenMP programs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpenMp {
    /// GCC's.
    Libgomp,
    /// LLVM's, also Intel's.
    Libomp,
}

impl OpenMp {
    /// All of them.
    pub const ALL: [OpenMp; 2] = [OpenMp::Libgomp, OpenMp::Libomp];

    /// What starts its threads. GCC's interface, which both runtimes have.
    pub const PARALLEL: &CStr = c"GOMP_parallel";

    /// Its name on the command line, in plans and in records.
    pub fn name(self) -> &'static str {
        match self {
            OpenMp::Libgomp => "libgomp",
            OpenMp::Libomp => "libomp",
        }
    }

    /// The name that the system's loader knows it by.
    pub fn library(self) -> &'static str {
        match self {
            OpenMp::Libgomp => "libgomp.so.1",
            OpenMp::Libomp => "libomp.so.5",
        }
    }

    /// Why it cannot be measured on a system that does not have it.
    pub fn missing(self) -> String {
        let package = match self {
            OpenMp::Libgomp => "libgomp1",
            OpenMp::Libomp => "libomp5",
        };
        if Library::CAN_OPEN {
            format!("{} is not installed (Debian package {package})", self.library())
        } else {
            "this membar is statically linked and opens no libraries".to_owned()
        }
    }

    /// The runtimes that this system has, by name, each with the file that the loader takes for it.
    pub fn installed() -> BTreeMap<String, String> {
        let file = |runtime: &OpenMp| {
            let file = Library::find(runtime.library(), OpenMp::PARALLEL)?;
            Some((runtime.name().to_owned(), file.display().to_string()))
        };
        OpenMp::ALL.iter().filter_map(file).collect()
    }
}
