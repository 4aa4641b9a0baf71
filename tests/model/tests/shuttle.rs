//! Random interleavings of more threads than can be explored.
#![cfg(shuttle)]

use membar_model::barrier::*;
use membar_model::broken::{Counter, MissedWakeUp, Once};
use membar_model::property::{algorithms, holds};

/// Schedules of each model.
const SCHEDULES: usize = 200;
/// Episodes of each model.
const EPISODES: u32 = 3;

/// Runs a model under random schedules.
fn sample(model: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(model, SCHEDULES);
}
