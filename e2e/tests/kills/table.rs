//! Output of a run: a line for each round, and a summary for each kind.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::convergence::Convergence;
use crate::faults::FaultKind;
use crate::workload::Workload;

pub struct Row {
    kind: FaultKind,
    /// What was killed or stopped, and when.
    actions: String,
    convergence: Convergence,
    /// Messages acknowledged so far in this workload.
    acknowledged: usize,
    repeated: u64,
    /// Requests of persons that were carried out so far in this workload.
    steered: usize,
    calls: usize,
    unknown: usize,
    pub broken: Vec<String>,
}

impl Row {
    pub fn new(workload: &Workload, kind: FaultKind, actions: String, convergence: Convergence, broken: Vec<String>) -> Row {
        let (unknown, calls) = workload.calls();
        let acknowledged = workload.agent_clients.iter().map(|agent_client| agent_client.acknowledged_ids().len()).sum();
        let repeated = workload.agent_clients.iter().map(|agent_client| agent_client.repeat_count()).sum();
        Row { kind, actions, convergence, acknowledged, repeated, steered: workload.steered(), calls, unknown, broken }
    }

    pub fn failed(kind: FaultKind, why: String) -> Row {
        let convergence = Convergence::default();
        Row { kind, actions: String::new(), convergence, acknowledged: 0, repeated: 0, steered: 0, calls: 0, unknown: 0, broken: vec![why] }
    }
}

#[derive(Default)]
pub struct Table(Vec<Row>);

impl Table {
    pub fn add(&mut self, number: usize, row: Row) {
        println!(
            "round {number:>3}  {:<20} converged {:>5.1} s, of it back-off {:>4.1} s, clean after {:>4.1} s | in this workload: {} messages ({} repeated), {} requests carried out, {} calls ({} unknown) | {}",
            row.kind.name(),
            row.convergence.took.as_secs_f32(),
            row.convergence.backed_off.as_secs_f32(),
            row.convergence.cleared.as_secs_f32(),
            row.acknowledged,
            row.repeated,
            row.steered,
            row.calls,
            row.unknown,
            row.actions,
        );
        if let Some(slowest) = row.convergence.slowest() {
            println!("           last came: {slowest}");
        }
        self.0.push(row);
    }

    /// Returns the largest number of acknowledged messages, and of calls with an unknown outcome, in one workload.
    pub fn most_in_one_workload(&self) -> (usize, usize) {
        let max = |of: fn(&Row) -> usize| self.0.iter().map(of).max().unwrap_or_default();
        (max(|row| row.acknowledged), max(|row| row.unknown))
    }

    pub fn print(&self) {
        let mut by: BTreeMap<FaultKind, Vec<&Convergence>> = BTreeMap::new();
        for row in &self.0 {
            by.entry(row.kind).or_default().push(&row.convergence);
        }
        println!(
            "\n{:<20} {:>6} {:>8} {:>8} {:>8} {:>14} {:>12}",
            "kind", "rounds", "p50 s", "p99 s", "max s", "back-off max s", "clean max s"
        );
        for (kind, all) in by {
            line(&kind.name(), &all);
        }
        line("all", &self.0.iter().map(|row| &row.convergence).collect::<Vec<_>>());
        let failed = self.0.iter().filter(|row| !row.broken.is_empty()).count();
        println!("{} rounds, {failed} failed", self.0.len());
    }
}

fn line(name: &str, all: &[&Convergence]) {
    let mut took: Vec<Duration> = all.iter().map(|convergence| convergence.took).collect();
    took.sort_unstable();
    let at = |part: usize| took.get((took.len() * part).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default().as_secs_f32();
    let max = |of: fn(&Convergence) -> Duration| all.iter().map(|convergence| of(convergence)).max().unwrap_or_default().as_secs_f32();
    let (waited, cleared) = (max(|convergence| convergence.backed_off), max(|convergence| convergence.cleared));
    println!("{name:<20} {:>6} {:>8.1} {:>8.1} {:>8.1} {waited:>14.1} {cleared:>12.1}", took.len(), at(50), at(99), at(100));
}
