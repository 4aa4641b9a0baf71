//! Samples recorded on a machine with two plateaus: what is judged from them.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use membar::stats;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    steps: Vec<RecordedStep>,
}

/// Values of one step, and the two levels that they sit on, if they do.
#[derive(Deserialize)]
struct RecordedStep {
    commit: String,
    step: String,
    levels_ns: Option<(f64, f64)>,
    values_ns: Vec<f64>,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("data/plateaus.json")).unwrap()
}

#[test]
fn recorded_levels_are_found_and_steady_steps_are_not_split() {
    let steps = recorded().steps;
    assert!(steps.iter().any(|step| step.levels_ns.is_some()) && steps.iter().any(|step| step.levels_ns.is_none()));
    for step in steps {
        let name = format!("{} of {}", step.step, step.commit);
        match (stats::two_levels(&step.values_ns), step.levels_ns) {
            (None, None) => {}
            (Some((low, high)), Some((low_seen, high_seen))) => {
                assert!(stats::same_level(low, low_seen, 0.01), "{name}: {low}");
                assert!(stats::same_level(high, high_seen, 0.01), "{name}: {high}");
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}
