use anyhow::{Result, anyhow};
use std::time::{Duration, Instant};

pub enum LaneOutcome {
    Passed,
    Skipped { why: String },
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

/// A lane that may run at the same time as others.
pub struct Lane<'a> {
    name: &'static str,
    run: Box<dyn FnOnce() -> Result<LaneOutcome> + Send + 'a>,
}

impl<'a> Lane<'a> {
    pub fn new(name: &'static str, run: impl FnOnce() -> Result<LaneOutcome> + Send + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

pub struct Report {
    rows: Vec<Row>,
    began: Instant,
}

impl Default for Report {
    fn default() -> Self {
        Self { rows: vec![], began: Instant::now() }
    }
}

impl Report {
    /// Runs a lane now; its failure is a row, and the next lane still runs.
    pub fn lane(&mut self, lane: &'static str, run: impl FnOnce() -> Result<LaneOutcome>) {
        self.heading(lane);
        self.rows.push(row(lane, run));
    }

    /// Runs lanes at the same time.
    pub fn run_parallel(&mut self, lanes: Vec<Lane<'_>>) {
        self.heading(&lanes.iter().map(|lane| lane.name).collect::<Vec<_>>().join(", beside it "));
        let rows = std::thread::scope(|scope| {
            let running: Vec<_> = lanes.into_iter().map(|lane| (lane.name, scope.spawn(move || row(lane.name, lane.run)))).collect();
            let panicked = |name| Row { lane: name, took: Duration::ZERO, outcome: Err(anyhow!("it panicked")) };
            running.into_iter().map(|(name, row)| row.join().unwrap_or_else(|_| panicked(name))).collect::<Vec<_>>()
        });
        self.rows.extend(rows);
    }

    /// With the time since the run began: who reads the output of a run that was ended from outside sees where it stood.
    fn heading(&self, lanes: &str) {
        eprintln!("\n== {} {lanes}", crate::progress::minutes(self.began.elapsed()));
    }

    pub fn passed(&self, lane: &str) -> bool {
        self.rows.iter().any(|row| row.lane == lane && matches!(row.outcome, Ok(LaneOutcome::Passed)))
    }

    pub fn failed(&self) -> bool {
        self.rows.iter().any(|row| row.outcome.is_err())
    }

    /// Prints a table, and the counts on a line of their own at the end.
    pub fn print(&self) {
        println!();
        for row in &self.rows {
            let (verdict, why) = match &row.outcome {
                Ok(LaneOutcome::Passed) => ("passed", String::new()),
                Ok(LaneOutcome::Skipped { why }) => ("skipped", why.clone()),
                Err(error) => ("FAILED", error.to_string().lines().next().unwrap_or_default().to_owned()),
            };
            println!("{:<28} {verdict:<8} {:>6.1}s  {why}", row.lane, row.took.as_secs_f32());
        }
        // Less than the sum of the rows if lanes ran at the same time.
        println!("{:<28} {:<8} {:>6.1}s", "the whole run", "", self.began.elapsed().as_secs_f32());
        println!("\n{}", self.sum());
    }

    fn sum(&self) -> String {
        let count = |wanted: fn(&Result<LaneOutcome>) -> bool| self.rows.iter().filter(|row| wanted(&row.outcome)).count();
        let passed = count(|outcome| matches!(outcome, Ok(LaneOutcome::Passed)));
        let skipped = count(|outcome| matches!(outcome, Ok(LaneOutcome::Skipped { .. })));
        format!("{passed} passed, {} failed, {skipped} skipped", count(Result::is_err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_cannot_run_is_counted_and_never_passed() {
        let mut report = Report::default();
        report.lane("a", || Ok(LaneOutcome::Passed));
        report.lane("b", || anyhow::bail!("no"));
        report.lane("c", || Ok(LaneOutcome::skipped("no root")));
        assert_eq!(report.sum(), "1 passed, 1 failed, 1 skipped");
        assert!(report.failed() && report.passed("a") && !report.passed("c"));
    }

    #[test]
    fn parallel_lanes_are_rows_of_their_own_even_if_one_panics() {
        let mut report = Report::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        let wait = move || receiver.recv_timeout(Duration::from_secs(10)).map(|()| LaneOutcome::Passed).map_err(Into::into);
        let tell = move || sender.send(()).map(|()| LaneOutcome::Passed).map_err(Into::into);
        // The first ends only if the second runs meanwhile.
        report.run_parallel(vec![Lane::new("waits", wait), Lane::new("tells", tell), Lane::new("panics", || panic!("on purpose"))]);
        assert_eq!(report.sum(), "2 passed, 1 failed, 0 skipped");
        assert!(report.passed("waits") && report.passed("tells") && !report.passed("panics"));
    }
}
