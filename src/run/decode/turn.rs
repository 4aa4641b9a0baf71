//! The replay of one model in turn with another program, round by round.

use super::{Context, IsaSet, Outcome, Plan, Replay, Result, Round, prepare, starting, title};
use crate::workload::Arm;

/// The other program, and how much of the replay stands beside it.
pub struct Turn<'a> {
    /// Tokens of a sample of the arm `full`.
    pub tokens: u64,
    /// Runs the other program once, beside a configuration of the plan, in a round. Whether to go on.
    pub other: &'a mut dyn FnMut(usize, u32, &mut Context<'_>) -> Result<bool>,
}

/// Runs the plan's first model for as many rounds as it allows at most. In each, every thread count has its arms and the other
/// program back to back: first one goes first, then the other, so that a machine that gets slower or faster favours neither.
///
/// # Errors
/// As [`super::run`].
pub fn in_turn(plan: &Plan, isa: &IsaSet, context: &mut Context<'_>, turn: &mut Turn<'_>) -> Result<()> {
    for left_out in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left_out.clone()))?;
    }
    let Some(mut session) = prepare(plan, isa, context)? else { return Ok(()) };
    let Some(model) = plan.models.first() else { return Ok(()) };
    (context.outcome)(Outcome::Starting(starting(model)))?;
    let replay = Replay::new(model, plan.seed);
    let blocks = session.fill(&replay, context).and_then(|()| session.blocks(&replay, context));
    let mut blocks = match blocks {
        Ok(Some(blocks)) => blocks,
        Ok(None) => return session.stopped(&replay, 0, context),
        Err(error) => return (context.outcome)(Outcome::Failed(error)),
    };
    let mut random = fastrand::Rng::with_seed(replay.seed);
    let mut last = Round::default();
    for number in 0..plan.rounds.most {
        if context.stop_reason().is_some() {
            return session.stopped(&replay, number, context);
        }
        let what = format!("{}, round {} of {}", title(model), number + 1, plan.rounds.most);
        (context.outcome)(Outcome::Starting(what))?;
        last = Round::new(number, session.placement(&replay));
        for block in &mut blocks {
            let other_first = number % 2 == 0;
            random.shuffle(block);
            // The arm that is compared runs next to the other program.
            block.sort_by_key(|job| (job.arm == Arm::Full) != other_first);
            block.iter_mut().filter(|job| job.arm == Arm::Full).for_each(|job| job.tokens = turn.tokens);
            let configuration = block.first().map_or(0, |job| job.configuration as usize);
            for other in [other_first, !other_first] {
                let go_on = match other {
                    true => (turn.other)(configuration, number, context)?,
                    false => session.run_block(&replay, block, &mut last, context)?,
                };
                if !go_on {
                    return Ok(());
                }
            }
        }
    }
    session.keeps_its_place(&replay, &last, context)
}
