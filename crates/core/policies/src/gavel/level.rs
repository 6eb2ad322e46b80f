//! The kernel of most objectives: raise every job's rate, each in proportion to its need, as far as it goes.

use super::engine::{Engine, Unsolved};
use super::frame::Frame;
use super::pooled;
use super::problem::Problem;
use trainyard_solver::{Name, Sense};

/// The highest level at which every job has its need times the level.
pub struct Level {
    /// The level.
    pub level: f64,
    /// Shares that reach it, one for each choice.
    pub shares: Vec<f64>,
}

/// Maximises s where each party's rate is at least s times its need.
pub fn highest(
    problem: &Problem<'_>,
    needs: &[f64],
    engine: &mut Engine,
) -> Result<Level, Unsolved> {
    if engine.structured()
        && let Some((level, shares)) = pooled::max_min(problem, needs, engine)
    {
        return Ok(Level { level, shares });
    }
    let mut frame = Frame::new(Sense::Maximise, problem);
    let rows = frame.at_least("rate", problem, |_| 0.0);
    let into: Vec<_> = rows.iter().zip(needs).map(|(row, need)| (*row, 1.0 / need)).collect();
    let columns = frame.fill(problem, engine.exact(), |_| 0.0, &into);
    let (lowest, highest) = (f64::NEG_INFINITY, f64::INFINITY);
    let level = frame.model.column(1.0, lowest, highest, rows.iter().map(|row| (*row, -1.0)));
    let solution = engine.linear(&frame.model)?;
    let shares = columns.of(&solution.values);
    Ok(Level { level: solution.values[level.index()], shares })
}

/// The same, and what is left after that shared out in the same way where the engine can; shares that are found by the
/// interior point lie in the middle of all best ones and leave nothing worth a second solve.
pub fn filled(
    problem: &Problem<'_>,
    needs: &[f64],
    engine: &mut Engine,
) -> Result<Vec<f64>, Unsolved> {
    if engine.structured()
        && let Some((_, shares)) = pooled::filled(problem, needs, engine)
    {
        return Ok(shares);
    }
    Ok(highest(problem, needs, engine)?.shares)
}

/// Shares under which each party has at least a rate; an error where there are none. Which of them is the engine's to
/// say: there is no objective.
pub fn reach(
    problem: &Problem<'_>,
    rates: &[f64],
    engine: &mut Engine,
) -> Result<Vec<f64>, Unsolved> {
    let mut frame = Frame::new(Sense::Maximise, problem);
    let rows = frame.at_least("rate", problem, |party| rates[party]);
    let into: Vec<_> = rows.iter().map(|row| (*row, 1.0)).collect();
    let columns = frame.fill(problem, engine.exact(), |_| 0.0, &into);
    Ok(columns.of(&engine.linear(&frame.model)?.values))
}

/// Maximises the worth of all choices together, where each party has at least a rate.
pub fn dearest(
    problem: &Problem<'_>,
    worth: &[f64],
    floors: Option<&[f64]>,
    engine: &mut Engine,
) -> Result<Vec<f64>, Unsolved> {
    if engine.structured()
        && let Some(answer) = pooled::max_sum(problem, worth, floors, engine)
    {
        return answer;
    }
    let mut frame = Frame::new(Sense::Maximise, problem);
    let mut into = Vec::new();
    if let Some(floors) = floors {
        for party in problem.all() {
            let bound = if floors[party] > 0.0 { floors[party] } else { f64::NEG_INFINITY };
            let row = frame.model.row(Name("floor", party), bound, f64::INFINITY);
            into.push((row, 1.0));
        }
    }
    let columns = frame.fill(problem, engine.exact(), |choice| worth[choice], &into);
    Ok(columns.of(&engine.linear(&frame.model)?.values))
}
