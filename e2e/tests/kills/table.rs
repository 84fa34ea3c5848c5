//! What a run shows: a line for each round, and the sums by kind.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::settle::Settled;
use crate::strike::Kind;
use crate::world::World;

pub struct Row {
    kind: Kind,
    /// What was done, and when.
    said: String,
    settled: Settled,
    /// So far in this world.
    acknowledged: usize,
    repeated: u64,
    calls: usize,
    unknown: usize,
    pub broken: Vec<String>,
}

impl Row {
    pub fn of(world: &World, kind: Kind, said: String, settled: Settled, broken: Vec<String>) -> Row {
        let (unknown, calls) = world.calls();
        let acknowledged = world.accounts.iter().map(|account| account.acknowledged().len()).sum();
        let repeated = world.accounts.iter().map(|account| account.repeated()).sum();
        Row { kind, said, settled, acknowledged, repeated, calls, unknown, broken }
    }

    pub fn failed(kind: Kind, why: String) -> Row {
        let settled = Settled::default();
        Row { kind, said: String::new(), settled, acknowledged: 0, repeated: 0, calls: 0, unknown: 0, broken: vec![why] }
    }
}

#[derive(Default)]
pub struct Table(Vec<Row>);

impl Table {
    pub fn add(&mut self, number: usize, row: Row) {
        println!(
            "round {number:>3}  {:<20} converged {:>5.1} s, of it back-off {:>4.1} s, clean after {:>4.1} s | in this world: {} messages ({} repeated), {} calls ({} unknown) | {}",
            row.kind.name(),
            row.settled.took.as_secs_f32(),
            row.settled.backed_off.as_secs_f32(),
            row.settled.cleared.as_secs_f32(),
            row.acknowledged,
            row.repeated,
            row.calls,
            row.unknown,
            row.said,
        );
        if let Some(last) = row.settled.last() {
            println!("           last came: {last}");
        }
        self.0.push(row);
    }

    /// Messages that were acknowledged and calls whose outcome is unknown, at the most in one world.
    pub fn happened(&self) -> (usize, usize) {
        let most = |of: fn(&Row) -> usize| self.0.iter().map(of).max().unwrap_or_default();
        (most(|row| row.acknowledged), most(|row| row.unknown))
    }

    pub fn print(&self) {
        let mut by: BTreeMap<Kind, Vec<&Settled>> = BTreeMap::new();
        for row in &self.0 {
            by.entry(row.kind).or_default().push(&row.settled);
        }
        println!(
            "\n{:<20} {:>6} {:>8} {:>8} {:>8} {:>14} {:>12}",
            "kind", "rounds", "p50 s", "p99 s", "max s", "back-off max s", "clean max s"
        );
        for (kind, all) in by {
            line(&kind.name(), &all);
        }
        line("all", &self.0.iter().map(|row| &row.settled).collect::<Vec<_>>());
        let failed = self.0.iter().filter(|row| !row.broken.is_empty()).count();
        println!("{} rounds, {failed} failed", self.0.len());
    }
}

fn line(name: &str, all: &[&Settled]) {
    let mut took: Vec<Duration> = all.iter().map(|settled| settled.took).collect();
    took.sort_unstable();
    let at = |part: usize| took.get((took.len() * part).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default().as_secs_f32();
    let most = |of: fn(&Settled) -> Duration| all.iter().map(|settled| of(settled)).max().unwrap_or_default().as_secs_f32();
    let (waited, cleared) = (most(|settled| settled.backed_off), most(|settled| settled.cleared));
    println!("{name:<20} {:>6} {:>8.1} {:>8.1} {:>8.1} {waited:>14.1} {cleared:>12.1}", took.len(), at(50), at(99), at(100));
}
