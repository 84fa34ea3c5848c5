//! The guarantee: from any state, with a crash after any step and with old caches, reconciling again and again ends with plans without steps and with
//! statuses that do not change; and no write ever breaks an invariant. Planted faults show that the test finds violations.

#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may use all cores and show what it saw; the plan may not"
)]

mod cluster;
mod coverage;
mod end_state;
mod failures;
mod faults;
mod host_sources;
mod invariants;
mod kubernetes;
mod loans;
mod looks;
mod node_side;
mod operator;
mod prepared;
mod pushes;
mod quotas;
mod users;
mod warm;

use cluster::{Cluster, Violation};
use coverage::Coverage;
use faults::Fault;
use operator::{KINDS, Operator, Reconciled, RoundResult};
use users::Random;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_test_support::{Share, thorough};

/// Simulations of a thorough run, each with a cluster of its own. A landing plays one in five of them.
const WORLDS: u64 = 10_000;

struct Simulation {
    cluster: Cluster,
    operator: Operator,
}

impl Simulation {
    fn new(fault: Fault) -> Self {
        let mut cluster = Cluster::default();
        failures::machine(&mut cluster, "n1");
        failures::machine(&mut cluster, "n2");
        let mut operator = Operator::new(fault);
        operator.catch_up_all(&cluster);
        Simulation { cluster, operator }
    }

    /// First users, failures and crashes disturb; then nothing does, and everything must settle.
    fn run(&mut self, seed: u64) -> Result<(), Violation> {
        let mut random = Random(seed);
        let c = &mut self.cluster;
        let mut lending = loans::begin(c, seed);
        users::begin(c, &mut random);
        if loans::furnish(c) {
            for _ in 0..4 {
                self.calm()?;
                loans::act(&mut self.cluster, &mut lending);
            }
        }
        let length = 60 + random.roll(120);
        for _ in 0..length {
            let c = &mut self.cluster;
            c.seconds += i64::try_from(random.roll(4)).expect("small");
            if random.one_in(8) {
                failures::missed_ends(c);
            }
            match random.roll(24) {
                0 | 1 => users::act(c, &mut random),
                2 => failures::fail(c, &mut random),
                3..=6 => kubernetes::everyone(c),
                7..=9 => node_side::shims(c, Some(&mut random)),
                10 if random.one_in(3) => self.calm()?,
                10 => node_side::gateway(c, Some(&mut random)),
                11..=13 => {
                    let kind = usize::try_from(random.roll(KINDS as u64)).expect("small");
                    self.operator.catch_up(c, kind);
                }
                14 if random.one_in(3) => self.cut_short(&mut random)?,
                _ => self.wild_round(&mut random)?,
            }
            // A loan takes the turns of many.
            if loans::act(&mut self.cluster, &mut lending) {
                self.others();
                self.everyone()?;
            }
            loans::broken(&mut self.cluster)?;
        }
        self.settle(&mut random)
    }

    fn wild_round(&mut self, random: &mut Random) -> Result<(), Violation> {
        let c = &mut self.cluster;
        if random.one_in(2) {
            self.operator.catch_up_all(c);
        } else {
            c.coverage.feature("operator: old view");
            // The object is up to date, so that its writes pass; the caches of what it owns are old.
            if random.one_in(2) {
                self.operator.catch_up_reconciled(c);
            }
        }
        let all = self.operator.all();
        let Some((kind, title)) = random.pick(&all).cloned() else { return Ok(()) };
        let crash = random.roll(u64::MAX);
        self.operator.round(c, kind, &title, Some(crash))?;
        if std::mem::take(&mut self.operator.crashed) && random.one_in(2) {
            // The next process lists everything again.
            c.coverage.feature("operator: restarts");
            self.operator.due.clear();
            self.operator.catch_up_all(c);
        }
        Ok(())
    }

    /// An object is deleted as soon as the operator has made what the object owns, and before the operator's caches show that.
    fn cut_short(&mut self, random: &mut Random) -> Result<(), Violation> {
        let c = &mut self.cluster;
        self.operator.catch_up_all(c);
        let all = self.operator.all();
        let Some((kind, title)) = random.pick(&all).cloned() else { return Ok(()) };
        self.operator.round(c, kind, &title, None)?;
        match kind {
            Reconciled::Workspace => c.remove::<AgentWorkspace>(&title),
            Reconciled::YoiPod => c.remove::<YoiPod>(&title),
            Reconciled::Project | Reconciled::Peer | Reconciled::Offer | Reconciled::Claim => return Ok(()),
        }
        c.coverage.feature("operator: what it made is not seen yet");
        for _ in 0..3 {
            node_side::shims(c, None);
            self.operator.catch_up_reconciled(c);
            self.operator.round(c, kind, &title, None)?;
        }
        Ok(())
    }

    /// A while without disturbance, so that objects become ready.
    fn calm(&mut self) -> Result<(), Violation> {
        for _ in 0..6 {
            self.others();
            self.everyone()?;
            self.cluster.seconds += 1;
        }
        Ok(())
    }

    /// Reconciles every object once and returns the last thing that was done; empty when nothing was.
    fn everyone(&mut self) -> Result<String, Violation> {
        let c = &mut self.cluster;
        let mut last = String::new();
        self.operator.catch_up_all(c);
        for (kind, title) in self.operator.all() {
            self.operator.catch_up_all(c);
            if let RoundResult::Something(what) = self.operator.round(c, kind, &title, None)? {
                last = what;
            }
        }
        Ok(last)
    }

    fn others(&mut self) {
        let c = &mut self.cluster;
        kubernetes::everyone(c);
        node_side::shims(c, None);
        node_side::gateway(c, None);
        loans::gateway(c);
    }

    fn settle(&mut self, random: &mut Random) -> Result<(), Violation> {
        const ROUNDS: usize = 120;
        failures::repair(&mut self.cluster, random);
        for object in users::foreign_objects(&self.cluster) {
            if random.one_in(2) {
                users::take_away(&mut self.cluster, &object);
            }
        }
        let mut last = String::new();
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            let before = self.cluster.counter;
            if quiet > 0 {
                // Only time has passed, and no plan had asked to be made again by now.
                let what = self.everyone()?;
                if !what.is_empty() {
                    return Err(Violation(format!("something is done at a time that no plan had announced: {what}")));
                }
            }
            self.others();
            last = self.everyone()?;
            self.others();
            loans::broken(&mut self.cluster)?;
            if !last.is_empty() || self.cluster.counter != before {
                self.cluster.seconds += 1;
                quiet = 0;
                continue;
            }
            // Nothing changes until the next requeue is due, or ever again.
            let all = self.operator.all();
            self.operator.due.retain(|key, _| all.contains(key));
            let due = self.operator.due.values().min().copied();
            if let Some(due) = due.filter(|due| *due < cluster::at(self.cluster.seconds + 100_000)) {
                self.cluster.coverage.feature("operator: waits for its hour");
                let now = cluster::at(self.cluster.seconds);
                self.cluster.seconds += due.duration_since(now).as_secs().max(0) + 1;
                quiet = 0;
            } else if quiet == 2 {
                return end_state::check(&self.cluster);
            } else {
                quiet += 1;
                self.cluster.seconds += 4000;
            }
        }
        Err(Violation(format!("no rest after {ROUNDS} rounds: {last}")))
    }
}

/// Results of many simulations.
#[derive(Default)]
struct Outcome {
    count: u64,
    coverage: Coverage,
    /// Seeds of the first simulations that failed, each with its violation.
    broken: Vec<(u64, String)>,
}

/// Runs the simulations of these seeds, on all cores. Each core stops when `most` have failed.
fn simulations(fault: Fault, seeds: &[u64], most: usize) -> Outcome {
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let found = std::sync::atomic::AtomicUsize::new(0);
    let work = |worker: usize| {
        let mut outcome = Outcome::default();
        for seed in seeds.iter().skip(worker).step_by(workers) {
            if found.load(std::sync::atomic::Ordering::Relaxed) >= most {
                break;
            }
            let mut simulation = Simulation::new(fault);
            let ended = simulation.run(*seed);
            outcome.coverage.add(&simulation.cluster.coverage);
            outcome.count += 1;
            if let Err(Violation(why)) = ended {
                found.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                outcome.broken.push((*seed, why));
            }
        }
        outcome
    };
    let mut all = Outcome::default();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers)
            .map(|worker| {
                scope.spawn({
                    let work = &work;
                    move || work(worker)
                })
            })
            .collect();
        for outcome in running.into_iter().map(|w| w.join().expect("a worker that ends")) {
            all.count += outcome.count;
            all.coverage.add(&outcome.coverage);
            all.broken.extend(outcome.broken);
        }
    });
    all.broken.sort();
    all
}

/// The last lines of one simulation's trace: why it failed.
fn trace(seed: u64) -> String {
    let mut simulation = Simulation::new(Fault::None);
    simulation.cluster.coverage.trace = Some(Vec::new());
    let _ = simulation.run(seed);
    let trace = simulation.cluster.coverage.trace.unwrap_or_default();
    trace[trace.len().saturating_sub(80)..].join("\n")
}

#[test]
fn every_world_comes_to_rest_whatever_crashes_and_breaks_no_promise() {
    let mut share = Share::one_in(5);
    let seeds: Vec<u64> = (0..WORLDS).filter(|_| share.takes_next()).collect();
    let outcome = simulations(Fault::None, &seeds, 8);
    if let Some((first, _)) = outcome.broken.first() {
        panic!("{:#?}\nThe end of seed {first}:\n{}", outcome.broken, trace(*first));
    }
    println!("{} worlds came to rest: {share}", outcome.count);
    outcome.coverage.print();
    assert_eq!(outcome.count, share.tried());
    let missing = outcome.coverage.missing();
    if share.is_all() {
        assert_eq!(missing, Vec::<&str>::new(), "these never happened, so they are not tested");
    } else {
        // In fewer worlds what is rare may not happen.
        println!("never happened in this share: {missing:?}");
    }
}

/// More of the worlds that lend than the test above has.
#[test]
fn c15_c18_c20_c25_no_world_has_two_holders_of_one_path_and_each_loan_ends_as_active_or_released() {
    let mut share = Share::one_in(16);
    let seeds: Vec<u64> = (0..2 * WORLDS).filter(|seed| loans::is_lending(*seed)).filter(|_| share.takes_next()).collect();
    let outcome = simulations(Fault::None, &seeds, 8);
    if let Some((first, _)) = outcome.broken.first() {
        panic!("{:#?}\nThe end of seed {first}:\n{}", outcome.broken, trace(*first));
    }
    println!("{} worlds lent and came to rest: {share}", outcome.count);
    let missing = outcome.coverage.missing_of("loan: ");
    assert!(missing.is_empty() || !share.is_all(), "these never happened, so they are not tested: {missing:?}");
}

/// A thorough run looks for each fault in random worlds. A landing begins with the world in which it was seen before, and looks further only where a change
/// of the plan or of the simulation has made another one of it.
#[test]
fn every_planted_fault_is_found() {
    let mut unseen = Vec::new();
    // What a fault needs may be rarer than what the product meets.
    let all: Vec<u64> = (0..2 * WORLDS).collect();
    for (fault, seed) in faults::ALL {
        let known = if thorough() { Vec::new() } else { simulations(*fault, &[*seed], 1).broken };
        let found = if known.is_empty() { simulations(*fault, &all, 1).broken } else { known };
        match found.first() {
            Some((now, why)) if now == seed || thorough() => println!("{fault:?}: seed {now}: {why}"),
            Some((now, why)) => println!("{fault:?}: seed {now}, and {seed} shows it no more: {why}"),
            None => unseen.push(*fault),
        }
    }
    println!("{} of {} faults found", faults::ALL.len() - unseen.len(), faults::ALL.len());
    assert_eq!(unseen, Vec::new(), "these went unnoticed");
}
