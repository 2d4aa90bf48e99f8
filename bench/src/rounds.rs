use std::{
    error::Error,
    fmt::Write as _,
    time::{Duration, Instant},
};

/// What is compared: a name, and the work of one repetition.
pub(crate) type Work<'a> = (&'a str, &'a dyn Fn() -> Result<(), Box<dyn Error>>);

/// Rounds of each work, one after the other in turn.
const ROUNDS: usize = 21;
/// How long one round of one work takes, roughly.
const ROUND: Duration = Duration::from_millis(60);

/// A line for each work: the median time of one repetition, and its ratio to the first work's, round
/// by round: median, least and most.
///
/// # Errors
/// What a work says; nothing is printed of a comparison that did not end.
pub(crate) fn compare(works: &[Work<'_>]) -> Result<String, Box<dyn Error>> {
    let mut repetitions = Vec::new();
    for (_, work) in works {
        let start = Instant::now();
        let mut n = 0_u32;
        while start.elapsed() < ROUND {
            work()?;
            n = n.saturating_add(1);
        }
        repetitions.push(n.max(1));
    }
    let mut times = vec![Vec::new(); works.len()];
    for _ in 0..ROUNDS {
        for (((_, work), n), times) in works.iter().zip(&repetitions).zip(&mut times) {
            let start = Instant::now();
            for _ in 0..*n {
                work()?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(*n));
        }
    }
    let mut lines = String::new();
    let base = times.first().cloned().unwrap_or_default();
    for ((name, _), times) in works.iter().zip(&times) {
        let ratios: Vec<f64> = times
            .iter()
            .zip(&base)
            .map(|(one, base)| one / base)
            .collect();
        let [least, middle, most] = spread(&ratios);
        let [_, nanoseconds, _] = spread(times);
        writeln!(
            lines,
            "  {name:<44} {nanoseconds:>8.0} ns  x {middle:.2}  ({least:.2} to {most:.2})"
        )?;
    }
    Ok(lines)
}

/// The least, the median and the most.
fn spread(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    [0, sorted.len() / 2, sorted.len().saturating_sub(1)].map(at)
}
