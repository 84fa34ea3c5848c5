//! Every disk operation of every verb fails once, with every error that a disk has, and the process dies before every one of them.

use std::fs;
use std::path::{Path, PathBuf};

use yoi_workspace::mount::{Bound, TargetRoot, unbind};
use yoi_workspace::plan::{self, DiskStep, RecoveryStep};
use yoi_workspace::{CloneAccess, DataRoot, Journal, Making, Place, ProviderKind, RecordState, Uid, mountinfo};

use crate::lab::{Lab, Lane, content, is_root, me, nothing_to_do, nth_uid};
use crate::tripwire::{Counted, Strike, walk};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w32_whatever_disk_operation_fails_a_tree_is_made_or_not", make),
    ("w32_whatever_disk_operation_fails_a_fork_is_made_or_not", fork),
    ("w32_whatever_disk_operation_fails_a_tree_is_sealed_or_not", seal),
    ("w32_whatever_disk_operation_fails_a_tree_is_shown_or_not", publish),
    ("w32_whatever_disk_operation_fails_a_tree_is_destroyed_or_not", destroy),
    ("w32_whatever_disk_operation_fails_a_recovery_goes_on_where_it_stopped", recover),
    ("planted_an_intent_written_too_late_is_found", late_intent),
    ("planted_a_name_given_before_the_marker_is_found", late_marker),
    ("planted_a_destruction_by_name_alone_is_found", by_name),
    ("planted_a_trash_that_is_never_emptied_is_found", full_trash),
    ("planted_a_recovery_that_makes_a_tree_anew_is_found", anew),
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verb {
    Make,
    Fork,
    Seal,
    Publish,
    Destroy,
    Recover,
}

type Said = Result<(), String>;

/// Who does the work: as the shim does it, or with a planted fault.
#[derive(Clone, Copy)]
struct Crew {
    make: fn(&Hands, Uid, Making) -> Said,
    destroy: fn(&Hands, Uid) -> Said,
    recover: fn(&Hands) -> Said,
}

const HONEST: Crew = Crew { make: make_as_the_shim, destroy: destroy_as_the_shim, recover: recover_as_the_shim };

/// A process that has just started.
struct Hands {
    root: DataRoot,
    journal: Journal,
    kind: ProviderKind,
    dir: PathBuf,
}

fn told<T, E: std::error::Error>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|e| format!("{e}: {}", e.source().map(ToString::to_string).unwrap_or_default()))
}

fn raw_make(hands: &Hands, uid: Uid, making: Making) -> Said {
    let hand = told(hands.root.provider(hands.kind))?;
    match making {
        Making::Empty { owner } => told(hand.create_empty(uid, owner))?,
        Making::Clone { from, access } => told(hand.clone_tree(uid, from, access))?,
    };
    Ok(())
}

fn make_as_the_shim(hands: &Hands, uid: Uid, making: Making) -> Said {
    told(hands.journal.begin_create(uid, hands.kind, making))?;
    if let Err(error) = raw_make(hands, uid, making) {
        told(hands.journal.begin_destroy(uid).and_then(|()| hands.journal.destroyed(uid)))?;
        return Err(error);
    }
    told(hands.journal.created(uid))
}

fn destroy_as_the_shim(hands: &Hands, uid: Uid) -> Said {
    told(hands.journal.begin_destroy(uid))?;
    told(hands.root.provider(hands.kind).and_then(|hand| hand.destroy(uid)))?;
    told(hands.journal.destroyed(uid))
}

/// A tree that cannot be recovered stops no other.
fn recover_as_the_shim(hands: &Hands) -> Said {
    let mut stuck: Vec<Uid> = Vec::new();
    let plan = plan::recover(&told(hands.journal.all())?, &told(hands.root.inventory())?);
    for step in &plan.steps {
        let uid = step.uid();
        match step {
            _ if stuck.contains(&uid) => {}
            RecoveryStep::Disk(step) => match hands.root.perform(step) {
                Err(yoi_workspace::Error::Foreign { .. }) => stuck.push(uid),
                done => told(done)?,
            },
            RecoveryStep::Journal(step) => told(hands.journal.apply(step))?,
        }
    }
    // The others are served; of these it is said that they were left alone.
    if plan.unknown.is_empty() { Ok(()) } else { Err(format!("left alone: {:?}", plan.unknown)) }
}

fn seal_as_the_shim(hands: &Hands, uid: Uid) -> Said {
    told(hands.journal.begin_seal(uid))?;
    told(hands.root.provider(hands.kind).and_then(|hand| hand.seal(uid)))?;
    told(hands.journal.sealed(uid))
}

/// A data root with a base, and things that are not ours.
struct Scene<'a> {
    lab: &'a Lab,
    crew: Crew,
    base: Uid,
    strangers: Vec<PathBuf>,
    stranger: Uid,
    targets: PathBuf,
}

impl<'a> Scene<'a> {
    fn new(lab: &'a Lab, crew: Crew) -> Self {
        let hands = Self::start(lab);
        let base = lab.uid();
        make_as_the_shim(&hands, base, Making::Empty { owner: me() }).unwrap();
        let path = lab.path(base);
        fs::create_dir(path.join("dir")).unwrap();
        fs::write(path.join("dir/file"), "precious").unwrap();
        fs::hard_link(path.join("dir/file"), path.join("twin")).unwrap();
        std::os::unix::fs::symlink("dir/file", path.join("link")).unwrap();
        seal_as_the_shim(&hands, base).unwrap();
        let stranger = lab.uid();
        let strangers = [
            lab.dir.join("trees").join(stranger.shard()).join(stranger.to_string()).join("tree/file"),
            lab.dir.join("trash").join(lab.uid().to_string()).join("tree/file"),
            lab.dir.join("trees/00/notes/file"),
        ];
        for file in &strangers {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "precious").unwrap();
        }
        let targets = lab.dir.join("targets");
        fs::create_dir_all(&targets).unwrap();
        Self { lab, crew, base, strangers: strangers.to_vec(), stranger, targets }
    }

    fn start(lab: &Lab) -> Hands {
        let journal = Journal::open(&lab.dir.join("journal")).unwrap();
        Hands { root: DataRoot::open(&lab.dir).unwrap(), journal, kind: lab.kind(), dir: lab.dir.clone() }
    }

    fn clone_of_base(&self) -> Making {
        Making::Clone { from: self.base, access: CloneAccess::ReadWrite }
    }

    fn making(&self, verb: Verb) -> Making {
        if verb == Verb::Make { Making::Empty { owner: me() } } else { self.clone_of_base() }
    }

    fn entry(&self, uid: Uid) -> PathBuf {
        self.lab.dir.join("trees").join(uid.shard()).join(uid.to_string())
    }

    /// What stands before the verb is said. Answers with the UIDs that it will be about.
    fn prepare(&self, hands: &Hands, verb: Verb) -> Vec<Uid> {
        let make = |uid| make_as_the_shim(hands, uid, self.clone_of_base()).unwrap();
        // The same each time, so that the n-th operation is the same one each time.
        let uids: Vec<_> = (1001..if verb == Verb::Recover { 1006 } else { 1002 }).map(nth_uid).collect();
        match verb {
            Verb::Make | Verb::Fork => {}
            Verb::Seal | Verb::Publish | Verb::Destroy => make(uids[0]),
            Verb::Recover => {
                let [half, unnamed, trashed, sealing, doomed] = uids[..] else { unreachable!() };
                let temporary = |uid: Uid| self.entry(uid).with_extension("tmp");
                hands.journal.begin_create(half, hands.kind, self.clone_of_base()).unwrap();
                raw_make(hands, half, self.clone_of_base()).unwrap();
                fs::rename(self.entry(half), temporary(half)).unwrap();
                make(unnamed);
                fs::rename(self.entry(unnamed), temporary(unnamed)).unwrap();
                make(trashed);
                hands.journal.begin_destroy(trashed).unwrap();
                fs::rename(self.entry(trashed), self.lab.dir.join("trash").join(trashed.to_string())).unwrap();
                make(sealing);
                hands.journal.begin_seal(sealing).unwrap();
                make(doomed);
                hands.journal.begin_destroy(doomed).unwrap();
            }
        }
        uids
    }

    fn say(&self, hands: &Hands, verb: Verb, uids: &[Uid]) -> Said {
        match verb {
            Verb::Make | Verb::Fork => (self.crew.make)(hands, uids[0], self.making(verb)),
            Verb::Seal => seal_as_the_shim(hands, uids[0]),
            Verb::Destroy => (self.crew.destroy)(hands, uids[0]),
            Verb::Recover => (self.crew.recover)(hands),
            Verb::Publish => {
                let targets = told(TargetRoot::open(&self.targets))?;
                match hands.root.publish(uids[0], &targets, Path::new("mount"), false) {
                    Ok(Bound::Mounted | Bound::AlreadyMounted) => Ok(()),
                    Err(error) => {
                        told(unbind(&targets, Path::new("mount")))?;
                        Err(error.to_string())
                    }
                }
            }
        }
    }

    /// What a verb that said yes has promised.
    fn kept_its_word(&self, hands: &Hands, verb: Verb, uids: &[Uid]) -> Said {
        let sealed = |uid| told(hands.root.marker(uid)).map(|m| m.sealed.is_some());
        match verb {
            Verb::Make | Verb::Fork => drop(told(hands.root.marker(uids[0]))?),
            Verb::Seal if !sealed(uids[0])? => return Err("it was said to be sealed, and is not".into()),
            Verb::Destroy if self.entry(uids[0]).exists() => return Err("it was said to be destroyed, and stands".into()),
            Verb::Publish if self.shown() != 1 => return Err(format!("it was said to be shown, and is {} times", self.shown())),
            Verb::Seal | Verb::Destroy | Verb::Publish => {}
            Verb::Recover => {
                let [half, unnamed, trashed, sealing, doomed] = uids[..] else { unreachable!() };
                if !self.entry(unnamed).exists() || !sealed(sealing)? {
                    return Err("a tree that was promised is not there after the recovery".into());
                }
                if [half, trashed, doomed].iter().any(|uid| self.entry(*uid).exists()) {
                    return Err("a tree that was to go is there after the recovery".into());
                }
            }
        }
        Ok(())
    }

    fn shown(&self) -> usize {
        let at = self.targets.join("mount");
        mountinfo::read().unwrap().iter().filter(|m| m.mount_point == at).count()
    }

    /// Nothing that stands under a name is half made, and nothing that is not ours has gone.
    fn nothing_false(&self, hands: &Hands, verb: Verb, uids: &[Uid]) -> Said {
        let wanted = content(&self.lab.path(self.base));
        if wanted.len() != 4 {
            return Err(format!("the base changed: {wanted:?}"));
        }
        for uid in uids {
            match told(hands.root.inventory())?.entries.iter().find(|e| e.uid == *uid && e.place == Place::Live) {
                None => continue,
                Some(entry) if entry.marker.is_none() => return Err(format!("{uid} stands under its name without a marker")),
                Some(_) => {}
            }
            let found = content(&self.lab.path(*uid));
            let right = if verb == Verb::Make { found.is_empty() } else { found == wanted };
            if !right {
                return Err(format!("{uid} stands under its name and holds {:?}", found.iter().map(|(p, ..)| p).collect::<Vec<_>>()));
            }
        }
        match self.strangers.iter().find(|s| fs::read_to_string(s).ok().as_deref() != Some("precious")) {
            Some(gone) => Err(format!("{} was not ours, and is gone", gone.display())),
            None => Ok(()),
        }
    }

    /// After a restart: journal and disk agree about every tree.
    fn settled(&self, hands: &Hands) -> Said {
        let (records, found) = (told(hands.journal.all())?, told(hands.root.inventory())?);
        let mut rest = plan::recover(&records, &found);
        let strange =
            |name: &String| self.strangers.iter().any(|s| s.to_string_lossy().contains(&name[name.rfind('/').map_or(0, |at| at + 1)..]));
        rest.foreign.retain(|name| !strange(name));
        rest.steps.retain(|step| !matches!(step, RecoveryStep::Disk(DiskStep::Purge { uid }) if strange(&uid.to_string())));
        match records.records.iter().find(|r| !matches!(r.state, RecordState::Ready | RecordState::Sealed)) {
            Some(record) => Err(format!("after the recovery {} is {:?}", record.uid, record.state)),
            None if !nothing_to_do(&rest) => Err(format!("after the recovery there is left {rest:?}")),
            None => Ok(()),
        }
    }

    /// The end of it all: everything of the case goes, and nothing is left.
    fn end(&self, hands: &Hands, uids: &[Uid]) -> Said {
        told(unbind(&told(TargetRoot::open(&self.targets))?, Path::new("mount")))?;
        for uid in uids {
            destroy_as_the_shim(hands, *uid)?;
        }
        if (self.crew.destroy)(hands, self.stranger).is_ok() {
            return Err("a directory that carries no marker of ours was destroyed".into());
        }
        let left: Vec<_> = told(hands.root.inventory())?.entries.into_iter().filter(|e| uids.contains(&e.uid)).collect();
        let records: Vec<_> = told(hands.journal.all())?.records.into_iter().filter(|r| uids.contains(&r.uid)).collect();
        let shown = fs::read_dir(&self.targets).map_err(|e| e.to_string())?.count();
        let files = fs::read_dir(self.lab.dir.join("journal")).map_err(|e| e.to_string())?.count();
        if !left.is_empty() || !records.is_empty() || shown + self.shown() != 0 || files != 1 {
            return Err(format!("left behind: {left:?} {records:?}, {shown} targets, {files} records"));
        }
        Ok(())
    }

    fn case(&self, verb: Verb, counted: Counted, nth: usize, strike: Strike, untouched: &mut Option<Vec<Uid>>) -> Result<bool, String> {
        let mut hands = Self::start(self.lab);
        let uids = untouched.take().unwrap_or_else(|| self.prepare(&hands, verb));
        let walked = walk(counted, nth, strike, || self.say(&hands, verb, &uids)).unwrap();
        let Some(answer) = walked.answer else { return Err("it panicked".into()) };
        let Some(struck) = walked.struck else {
            answer?;
            self.kept_its_word(&hands, verb, &uids)?;
            self.nothing_false(&hands, verb, &uids)?;
            self.end(&hands, &uids)?;
            return Ok(false);
        };
        if answer.is_err() && walked.changed == 0 {
            // It said no and did nothing: what was prepared serves once more.
            self.nothing_false(&hands, verb, &[]).map_err(|e| format!("{e} [{verb:?}, {strike:?} at operation {nth}, {struck}]"))?;
            *untouched = Some(uids);
            return Ok(true);
        }
        let judge = |hands: &Hands| -> Said {
            self.nothing_false(hands, verb, &uids)?;
            if answer.is_ok() {
                self.kept_its_word(hands, verb, &uids)?;
            }
            Ok(())
        };
        let mut whole = || -> Said {
            if strike == Strike::Death {
                hands = Self::start(self.lab);
                // What the disk still holds under a temporary name or in the trash of strangers stops no recovery of ours.
                self.recovered(&hands)?;
                self.settled(&hands)?;
            }
            judge(&hands)?;
            self.say(&hands, verb, &uids)?;
            self.kept_its_word(&hands, verb, &uids)?;
            self.nothing_false(&hands, verb, &uids)?;
            hands = Self::start(self.lab);
            self.recovered(&hands)?;
            self.settled(&hands)?;
            self.end(&hands, &uids)
        };
        whole().map_err(|e| format!("{e} [{verb:?}, {strike:?} at operation {nth}, {struck}]"))?;
        Ok(true)
    }

    fn recovered(&self, hands: &Hands) -> Said {
        (self.crew.recover)(hands)
    }

    /// All n for one verb and one way to strike. Answers with the number of cases, or the first complaint.
    fn hunt(&self, verb: Verb, counted: Counted, strike: Strike) -> Result<usize, String> {
        let mut untouched = None;
        for nth in 1.. {
            if !self.case(verb, counted, nth, strike, &mut untouched)? {
                return Ok(nth - 1);
            }
        }
        Ok(0)
    }
}

/// A death before an operation that changes nothing is a death before the next that does.
const ERRORS: [(Counted, Strike); 5] = [
    (Counted::Changes, Strike::Death),
    (Counted::All, Strike::Once(libc::EIO)),
    (Counted::Changes, Strike::Once(libc::ENOSPC)),
    (Counted::Changes, Strike::Once(libc::EDQUOT)),
    (Counted::Changes, Strike::Once(libc::EROFS)),
];

fn all(lab: &Lab, verb: Verb, at_least: usize) -> Verdict {
    if let Some(verdict) = not_here(lab) {
        return verdict;
    }
    let scene = Scene::new(lab, HONEST);
    let (mut cases, mut each) = (0, Vec::new());
    for (mut counted, strike) in ERRORS {
        // What a recovery reads does not depend on the provider: one lane is enough for that.
        if verb == Verb::Recover && lab.lane == Lane::Copy {
            counted = Counted::Changes;
        }
        let n = scene.hunt(verb, counted, strike).unwrap_or_else(|complaint| panic!("{complaint}"));
        each.push(n);
        cases += n;
    }
    println!(
        "    {cases} cases: dies before each of {}, EIO at each of {}, ENOSPC, EDQUOT and EROFS at each of {}",
        each[0], each[1], each[2]
    );
    assert!(cases >= at_least, "only {cases} cases");
    Verdict::Ran
}

fn not_here(lab: &Lab) -> Option<Verdict> {
    if lab.lane == Lane::CopyOnBtrfs {
        return Some(Verdict::NotRun("the lanes Copy and Btrfs are enough"));
    }
    (!is_root()).then_some(Verdict::Lacks("needs root to mount, and to own files of others"))
}

fn make(lab: &Lab) -> Verdict {
    all(lab, Verb::Make, 80)
}

fn fork(lab: &Lab) -> Verdict {
    all(lab, Verb::Fork, 80)
}

fn seal(lab: &Lab) -> Verdict {
    all(lab, Verb::Seal, 100)
}

fn publish(lab: &Lab) -> Verdict {
    all(lab, Verb::Publish, 30)
}

fn destroy(lab: &Lab) -> Verdict {
    all(lab, Verb::Destroy, 100)
}

fn recover(lab: &Lab) -> Verdict {
    all(lab, Verb::Recover, 150)
}

/// The harness must complain of this crew.
fn found(lab: &Lab, crew: Crew, verb: Verb) -> Verdict {
    if let Some(verdict) = not_here(lab) {
        return verdict;
    }
    let complaint = Scene::new(lab, crew).hunt(verb, Counted::Changes, Strike::Death).expect_err("the harness is blind");
    println!("    found: {complaint}");
    Verdict::Ran
}

fn late_intent(lab: &Lab) -> Verdict {
    fn make(hands: &Hands, uid: Uid, making: Making) -> Said {
        raw_make(hands, uid, making)?;
        told(hands.journal.begin_create(uid, hands.kind, making))?;
        told(hands.journal.created(uid))
    }
    found(lab, Crew { make, ..HONEST }, Verb::Fork)
}

fn late_marker(lab: &Lab) -> Verdict {
    /// The entry gets its name first, and what makes it ours last.
    fn make(hands: &Hands, uid: Uid, making: Making) -> Said {
        told(hands.journal.begin_create(uid, hands.kind, making))?;
        let live = hands.dir.join("trees").join(uid.shard()).join(uid.to_string());
        if !live.exists() {
            raw_make(hands, uid, making)?;
            let marker = told(fs::read_link(live.join("marker")))?;
            told(fs::remove_file(live.join("marker")))?;
            told(std::os::unix::fs::symlink(marker, live.join("marker")))?;
        }
        told(hands.journal.created(uid))
    }
    found(lab, Crew { make, ..HONEST }, Verb::Fork)
}

fn by_name(lab: &Lab) -> Verdict {
    fn destroy(hands: &Hands, uid: Uid) -> Said {
        match destroy_as_the_shim(hands, uid) {
            Ok(()) => Ok(()),
            Err(_) => told(fs::remove_dir_all(hands.dir.join("trees").join(uid.shard()).join(uid.to_string()))),
        }
    }
    found(lab, Crew { destroy, ..HONEST }, Verb::Destroy)
}

fn full_trash(lab: &Lab) -> Verdict {
    fn recover(hands: &Hands) -> Said {
        for step in &plan::recover(&told(hands.journal.all())?, &told(hands.root.inventory())?).steps {
            match step {
                RecoveryStep::Disk(DiskStep::Purge { .. }) => {}
                RecoveryStep::Disk(step) => told(hands.root.perform(step))?,
                RecoveryStep::Journal(step) => told(hands.journal.apply(step))?,
            }
        }
        Ok(())
    }
    found(lab, Crew { recover, ..HONEST }, Verb::Destroy)
}

fn anew(lab: &Lab) -> Verdict {
    /// Whatever the journal says was begun is made, instead of looked for.
    fn recover(hands: &Hands) -> Said {
        for record in told(hands.journal.all())?.records.iter().filter(|r| r.state == RecordState::Creating) {
            let hand = told(hands.root.provider(hands.kind))?;
            told(hand.destroy(record.uid))?;
            told(hand.create_empty(record.uid, me()))?;
        }
        recover_as_the_shim(hands)
    }
    found(lab, Crew { recover, ..HONEST }, Verb::Fork)
}
