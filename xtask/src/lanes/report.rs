use anyhow::Result;
use std::time::{Duration, Instant};

pub enum Outcome {
    Passed,
    Skipped { why: String },
}

impl Outcome {
    pub fn skipped(why: &str) -> Self {
        Outcome::Skipped { why: why.to_owned() }
    }
}

struct Row {
    lane: &'static str,
    took: Duration,
    outcome: Result<Outcome>,
}

#[derive(Default)]
pub struct Report(Vec<Row>);

impl Report {
    /// Runs a lane now; its failure is a row, and the next lane still runs.
    pub fn lane(&mut self, lane: &'static str, run: impl FnOnce() -> Result<Outcome>) {
        eprintln!("\n== {lane}");
        let began = Instant::now();
        let outcome = run();
        if let Err(error) = &outcome {
            crate::say::failure(&format!("{error:#}"));
        }
        self.0.push(Row { lane, took: began.elapsed(), outcome });
    }

    pub fn passed(&self, lane: &str) -> bool {
        self.0.iter().any(|row| row.lane == lane && matches!(row.outcome, Ok(Outcome::Passed)))
    }

    pub fn failed(&self) -> bool {
        self.0.iter().any(|row| row.outcome.is_err())
    }

    /// A table, and alone on the last line the sum.
    pub fn print(&self) {
        println!();
        for row in &self.0 {
            let (verdict, why) = match &row.outcome {
                Ok(Outcome::Passed) => ("passed", String::new()),
                Ok(Outcome::Skipped { why }) => ("skipped", why.clone()),
                Err(error) => ("FAILED", error.to_string().lines().next().unwrap_or_default().to_owned()),
            };
            println!("{:<28} {verdict:<8} {:>6.1}s  {why}", row.lane, row.took.as_secs_f32());
        }
        println!("\n{}", self.sum());
    }

    fn sum(&self) -> String {
        let count = |wanted: fn(&Result<Outcome>) -> bool| self.0.iter().filter(|row| wanted(&row.outcome)).count();
        let passed = count(|outcome| matches!(outcome, Ok(Outcome::Passed)));
        let skipped = count(|outcome| matches!(outcome, Ok(Outcome::Skipped { .. })));
        format!("{passed} passed, {} failed, {skipped} skipped", count(Result::is_err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_cannot_run_is_counted_and_never_passed() {
        let mut report = Report::default();
        report.lane("a", || Ok(Outcome::Passed));
        report.lane("b", || anyhow::bail!("no"));
        report.lane("c", || Ok(Outcome::skipped("no root")));
        assert_eq!(report.sum(), "1 passed, 1 failed, 1 skipped");
        assert!(report.failed() && report.passed("a") && !report.passed("c"));
    }
}
