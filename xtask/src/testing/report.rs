use super::outcome::Counts;
use anyhow::{Result, anyhow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub enum LaneOutcome {
    Passed,
    /// Tests ran, and these are their counts. Whether that is a success is decided when all are done.
    Ran(String),
    Skipped {
        why: String,
    },
}

impl LaneOutcome {
    pub fn skipped(why: &str) -> Self {
        LaneOutcome::Skipped { why: why.to_owned() }
    }
}

struct Row {
    lane: &'static str,
    took: Duration,
    outcome: Result<LaneOutcome>,
}

fn row(lane: &'static str, run: impl FnOnce() -> Result<LaneOutcome>) -> Row {
    let began = Instant::now();
    let outcome = run();
    if let Err(error) = &outcome {
        crate::progress::failure(&format!("{lane}: {error:#}"));
    }
    Row { lane, took: began.elapsed(), outcome }
}

/// The error with its causes: often the end of the output is all that somebody sees of a run.
fn on_one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ").chars().take(400).collect()
}

/// The lanes of a run. Several may run at the same time, from threads of their own.
pub struct Report {
    rows: Mutex<Vec<Row>>,
    began: Instant,
}

impl Default for Report {
    fn default() -> Self {
        Self { rows: Mutex::default(), began: Instant::now() }
    }
}

impl Report {
    /// Runs a lane now; its failure is a row, and the next lane still runs.
    pub fn lane(&self, lane: &'static str, run: impl FnOnce() -> Result<LaneOutcome>) {
        self.heading(lane);
        // A panic in one lane says nothing about the others.
        let ended = catch_unwind(AssertUnwindSafe(|| row(lane, run)));
        let row = ended.unwrap_or_else(|_| Row { lane, took: Duration::ZERO, outcome: Err(anyhow!("it panicked")) });
        self.rows().push(row);
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the time since the run began: who reads the output of a run that was ended from outside sees where it stood.
    fn heading(&self, lanes: &str) {
        eprintln!("\n== {} {lanes}", crate::progress::minutes(self.began.elapsed()));
    }

    pub fn passed(&self, lane: &str) -> bool {
        self.rows().iter().any(|row| row.lane == lane && matches!(row.outcome, Ok(LaneOutcome::Passed | LaneOutcome::Ran(_))))
    }

    pub fn failed(&self) -> bool {
        self.rows().iter().any(|row| row.outcome.is_err())
    }

    /// Prints a table, and at the end the counts of lanes and `tests` on a line of their own.
    pub fn print(&self, tests: Counts) {
        println!();
        for row in &*self.rows() {
            let (verdict, why) = match &row.outcome {
                Ok(LaneOutcome::Passed) => ("passed", String::new()),
                Ok(LaneOutcome::Ran(counts)) => ("ran", counts.clone()),
                Ok(LaneOutcome::Skipped { why }) => ("skipped", why.clone()),
                Err(error) => ("FAILED", on_one_line(error)),
            };
            println!("{:<36} {verdict:<8} {:>6.1}s  {why}", row.lane, row.took.as_secs_f32());
        }
        // Less than the sum of the rows if lanes ran at the same time.
        println!("{:<36} {:<8} {:>6.1}s", "the whole run", "", self.began.elapsed().as_secs_f32());
        println!("\n{}", self.sum(tests));
    }

    fn sum(&self, tests: Counts) -> String {
        let count = |wanted: fn(&Result<LaneOutcome>) -> bool| self.rows().iter().filter(|row| wanted(&row.outcome)).count();
        let passed = tests.passed + tests.flaky + count(|outcome| matches!(outcome, Ok(LaneOutcome::Passed)));
        let skipped = tests.not_run + count(|outcome| matches!(outcome, Ok(LaneOutcome::Skipped { .. })));
        format!("{passed} passed, {} failed, {skipped} skipped", tests.failed + count(Result::is_err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w43_a_lane_that_cannot_run_is_counted_and_never_passed() {
        let report = Report::default();
        report.lane("a", || Ok(LaneOutcome::Passed));
        report.lane("b", || anyhow::bail!("no"));
        report.lane("c", || Ok(LaneOutcome::skipped("no root")));
        report.lane("d", || Ok(LaneOutcome::Ran("the tests below".into())));
        assert_eq!(report.sum(Counts::default()), "1 passed, 1 failed, 1 skipped");
        assert_eq!(report.sum(Counts { passed: 5, flaky: 1, failed: 2, not_run: 3 }), "7 passed, 3 failed, 4 skipped");
        assert!(report.failed() && report.passed("a") && !report.passed("c"));
    }

    #[test]
    fn lanes_of_several_threads_are_rows_of_their_own_even_if_one_panics() {
        let report = Report::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            // The first ends only if the second runs meanwhile.
            scope.spawn(|| {
                report.lane("waits", move || Ok(receiver.recv_timeout(Duration::from_secs(60)).map(|()| LaneOutcome::Passed)?))
            });
            scope.spawn(|| report.lane("tells", move || Ok(sender.send(()).map(|()| LaneOutcome::Passed)?)));
            scope.spawn(|| report.lane("panics", || panic!("on purpose")));
        });
        assert_eq!(report.sum(Counts::default()), "2 passed, 1 failed, 0 skipped");
        assert!(report.passed("waits") && report.passed("tells") && !report.passed("panics"));
    }
}
