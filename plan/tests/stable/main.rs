//! The promise: from any world, with a stop after any step and with views that lag behind, asking again and again ends with plans without steps and
//! with statuses that stay; and at no moment is a promise broken. Planted faults show that this would be found out.

#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may use all cores and show what it saw; the plan may not"
)]

mod cluster;
mod cover;
mod faults;
mod judge;
mod kubernetes;
mod luck;
mod node_side;
mod operator;
mod people;
mod rest;

use cluster::{Broken, Cluster};
use cover::Cover;
use faults::Fault;
use operator::{Did, Governed, KINDS, Operator};
use people::Dice;
use yoi_crds::{AgentWorkspace, YoiPod};

/// Lives of one run; each is a world of its own.
const WORLDS: u64 = 10_000;

struct Life {
    cluster: Cluster,
    operator: Operator,
}

impl Life {
    fn new(fault: Fault) -> Self {
        let mut cluster = Cluster::default();
        luck::machine(&mut cluster, "n1");
        luck::machine(&mut cluster, "n2");
        let mut operator = Operator::new(fault);
        operator.catch_up_all(&cluster);
        Life { cluster, operator }
    }

    /// A wild time, then peace: and in peace everything must come to rest.
    fn live(&mut self, seed: u64) -> Result<(), Broken> {
        let mut dice = Dice(seed);
        let c = &mut self.cluster;
        people::begin(c, &mut dice);
        let length = 60 + dice.roll(120);
        for _ in 0..length {
            let c = &mut self.cluster;
            c.seconds += i64::try_from(dice.roll(4)).expect("small");
            if dice.one_in(8) {
                luck::unheard(c);
            }
            match dice.roll(24) {
                0 | 1 => people::act(c, &mut dice),
                2 => luck::strike(c, &mut dice),
                3..=6 => kubernetes::everybody(c),
                7..=9 => node_side::shims(c, Some(&mut dice)),
                10 if dice.one_in(3) => self.calm()?,
                10 => node_side::gateway(c, Some(&mut dice)),
                11..=13 => {
                    let kind = usize::try_from(dice.roll(KINDS as u64)).expect("small");
                    self.operator.catch_up(c, kind);
                }
                14 if dice.one_in(3) => self.cut_short(&mut dice)?,
                _ => self.wild_round(&mut dice)?,
            }
        }
        self.settle(&mut dice)
    }

    fn wild_round(&mut self, dice: &mut Dice) -> Result<(), Broken> {
        let c = &mut self.cluster;
        if dice.one_in(2) {
            self.operator.catch_up_all(c);
        } else {
            c.cover.feature("operator: old view");
            // Its own object as it is, so that its writes pass, and what belongs to it as it was.
            if dice.one_in(2) {
                self.operator.catch_up_governed(c);
            }
        }
        let all = self.operator.all();
        let Some((kind, title)) = dice.pick(&all).cloned() else { return Ok(()) };
        let luck = dice.roll(u64::MAX);
        self.operator.round(c, kind, &title, Some(luck))?;
        if std::mem::take(&mut self.operator.died) && dice.one_in(2) {
            // The next process lists everything anew.
            c.cover.feature("operator: restarts");
            self.operator.due.clear();
            self.operator.catch_up_all(c);
        }
        Ok(())
    }

    /// Something is deleted as soon as the operator has made what belongs to it, and before the operator has heard of that.
    fn cut_short(&mut self, dice: &mut Dice) -> Result<(), Broken> {
        let c = &mut self.cluster;
        self.operator.catch_up_all(c);
        let all = self.operator.all();
        let Some((kind, title)) = dice.pick(&all).cloned() else { return Ok(()) };
        self.operator.round(c, kind, &title, None)?;
        match kind {
            Governed::Workspace => c.remove::<AgentWorkspace>(&title),
            Governed::YoiPod => c.remove::<YoiPod>(&title),
            Governed::Project | Governed::Peer | Governed::Offer | Governed::Claim => return Ok(()),
        }
        c.cover.feature("operator: what it made is not seen yet");
        for _ in 0..3 {
            node_side::shims(c, None);
            self.operator.catch_up_governed(c);
            self.operator.round(c, kind, &title, None)?;
        }
        Ok(())
    }

    /// A while in which nobody disturbs, so that worlds grow up.
    fn calm(&mut self) -> Result<(), Broken> {
        for _ in 0..6 {
            self.others();
            self.everybody()?;
            self.cluster.seconds += 1;
        }
        Ok(())
    }

    /// Everybody once. Empty: nobody did anything.
    fn everybody(&mut self) -> Result<String, Broken> {
        let c = &mut self.cluster;
        let mut last = String::new();
        self.operator.catch_up_all(c);
        for (kind, title) in self.operator.all() {
            self.operator.catch_up_all(c);
            if let Did::Something(what) = self.operator.round(c, kind, &title, None)? {
                last = what;
            }
        }
        Ok(last)
    }

    fn others(&mut self) {
        let c = &mut self.cluster;
        kubernetes::everybody(c);
        node_side::shims(c, None);
        node_side::gateway(c, None);
    }

    fn settle(&mut self, dice: &mut Dice) -> Result<(), Broken> {
        const ROUNDS: usize = 120;
        luck::peace(&mut self.cluster, dice);
        for stranger in people::strangers(&self.cluster) {
            if dice.one_in(2) {
                people::take_away(&mut self.cluster, &stranger);
            }
        }
        let mut last = String::new();
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            let before = self.cluster.counter;
            if quiet > 0 {
                // Only time has passed, and nobody had asked for that.
                let what = self.everybody()?;
                if !what.is_empty() {
                    return Err(Broken(format!("something is done at an hour that was not announced: {what}")));
                }
            }
            self.others();
            last = self.everybody()?;
            self.others();
            if !last.is_empty() || self.cluster.counter != before {
                self.cluster.seconds += 1;
                quiet = 0;
                continue;
            }
            // Rest: until an hour strikes that somebody waits for, or nobody waits for anything.
            let all = self.operator.all();
            self.operator.due.retain(|key, _| all.contains(key));
            let due = self.operator.due.values().min().copied();
            if let Some(due) = due.filter(|due| *due < cluster::at(self.cluster.seconds + 100_000)) {
                self.cluster.cover.feature("operator: waits for its hour");
                let now = cluster::at(self.cluster.seconds);
                self.cluster.seconds += due.duration_since(now).as_secs().max(0) + 1;
                quiet = 0;
            } else if quiet == 2 {
                return rest::check(&self.cluster);
            } else {
                quiet += 1;
                self.cluster.seconds += 4000;
            }
        }
        Err(Broken(format!("no rest after {ROUNDS} rounds: {last}")))
    }
}

/// What came of many lives.
#[derive(Default)]
struct Outcome {
    count: u64,
    cover: Cover,
    /// Seeds of the first lives that broke, with their sentences.
    broken: Vec<(u64, String)>,
}

/// The lives of these seeds, on all cores; each core stops after so many that broke.
fn lives(fault: Fault, worlds: u64, most: usize) -> Outcome {
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) as u64;
    let found = std::sync::atomic::AtomicUsize::new(0);
    let work = |worker: u64| {
        let mut outcome = Outcome::default();
        let mut seed = worker;
        while seed < worlds && found.load(std::sync::atomic::Ordering::Relaxed) < most {
            let mut life = Life::new(fault);
            let ended = life.live(seed);
            outcome.cover.add(&life.cluster.cover);
            outcome.count += 1;
            if let Err(Broken(why)) = ended {
                found.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                outcome.broken.push((seed, why));
            }
            seed += workers;
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
            all.cover.add(&outcome.cover);
            all.broken.extend(outcome.broken);
        }
    });
    all.broken.sort();
    all
}

/// The end of one life, to be read by whoever wants to know why it broke.
fn story(seed: u64) -> String {
    let mut life = Life::new(Fault::None);
    life.cluster.cover.story = Some(Vec::new());
    let _ = life.live(seed);
    let story = life.cluster.cover.story.unwrap_or_default();
    story[story.len().saturating_sub(80)..].join("\n")
}

#[test]
fn every_world_comes_to_rest_whatever_crashes_and_breaks_no_promise() {
    let outcome = lives(Fault::None, WORLDS, 8);
    if let Some((first, _)) = outcome.broken.first() {
        panic!("{:#?}\nThe end of seed {first}:\n{}", outcome.broken, story(*first));
    }
    println!("{} worlds came to rest", outcome.count);
    outcome.cover.print();
    assert_eq!(outcome.count, WORLDS);
    assert_eq!(outcome.cover.missing(), Vec::<&str>::new(), "the generator has gone blind for these");
}

#[test]
fn every_planted_fault_is_found() {
    let mut unseen = Vec::new();
    for fault in faults::ALL {
        match lives(*fault, WORLDS, 1).broken.first() {
            Some((seed, why)) => println!("{fault:?}: seed {seed}: {why}"),
            None => unseen.push(*fault),
        }
    }
    println!("{} of {} faults found", faults::ALL.len() - unseen.len(), faults::ALL.len());
    assert_eq!(unseen, Vec::new(), "these went unnoticed");
}
