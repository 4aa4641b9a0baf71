//! `src/barrier` as it is, under a checker, and barriers that are broken on purpose: a check that cannot fail proves nothing.
#![cfg(any(feature = "loom", feature = "shuttle"))]

#[path = "../../../src/barrier/mod.rs"]
pub mod barrier;
#[path = "../../../src/error.rs"]
pub mod error;

pub mod broken;
pub mod checker;
pub mod property;

/// What barriers ask the machine for: here it has no instructions that watch a line, which no checker could follow.
pub mod machine {
    #[derive(Clone, Copy)]
    pub enum MonitorWait {
        Umwait,
        Mwaitx,
    }

    impl MonitorWait {
        pub fn detect() -> Option<MonitorWait> {
            None
        }
    }
}
