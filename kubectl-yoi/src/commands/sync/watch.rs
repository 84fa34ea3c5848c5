//! `sync --watch`: sends the working tree at hand each time that it has changed, until it is ended.
//!
//! # Guarantees
//! - One state after the other: the next one is captured once trees are made from the last one, or once it is known that they are not.
//! - A state is sent because the tree has changed, never because time has passed: what another machine has sent since stays what counts.
//! - Each state that trees are made from is said on standard output, with its moment. What is late, broken, or somebody else's is said on standard error.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use yoi_crds::YoiProject;
use yoi_crds::sync::SyncedTree;

use super::changes::Changes;
use super::clone::{Folders, prepare};
use super::{CapturedTree, Sent, project_name, refused, server_of, state, title, wait};
use crate::args::{ClusterOptions, OutputFormat, SyncOptions};
use crate::cluster::{Cluster, Wait};
use crate::error::{Error, RefusalKind};
use crate::progress::Progress;
use crate::show;

/// After how long a state that trees are not made from is late.
const LATE: Duration = Duration::from_secs(30);
/// How long after a failure it is tried again, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long one watch of the project lasts, while nothing changes.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Goes on until a failure that nothing but another command line can mend.
pub async fn watch(cluster: Cluster, connection: &ClusterOptions, output: Option<OutputFormat>, args: &SyncOptions) -> Result<(), Error> {
    let project = project_name(args)?;
    let object: YoiProject = cluster.get(project).await?;
    prepare(server_of(&cluster, project, &object)?).await.map_err(|why| refused(&cluster, project, why))?;
    let folders = Folders::find().await.map_err(|why| refused(&cluster, project, why))?;
    let _only_one = folders.lock_watch().map_err(|why| refused(&cluster, project, why))?;
    // Before the first capture: what changes while it is made is told.
    let mut changes = Changes::begin(&folders, !args.include.is_empty());
    let mut watch = Watch {
        cluster,
        connection,
        output,
        args,
        project,
        sent: None,
        is_over: true,
        told: BTreeSet::new(),
        others: BTreeSet::new(),
        broken: None,
    };
    watch.keep_to(&mut changes, &folders).await
}

struct Watch<'a> {
    cluster: Cluster,
    connection: &'a ClusterOptions,
    output: Option<OutputFormat>,
    args: &'a SyncOptions,
    project: &'a str,
    /// What the project has got last from here.
    sent: Option<Sent>,
    /// Trees are made from it, or another state has taken its place.
    is_over: bool,
    /// What needs no second word.
    told: BTreeSet<String>,
    /// Commits of other machines that were told of.
    others: BTreeSet<String>,
    /// The failure that holds.
    broken: Option<String>,
}

/// What helps after a failure.
#[derive(Debug, PartialEq, Eq)]
enum Mended {
    /// Another try.
    Soon,
    /// A change of the tree, or of something that a later look may find.
    ByChange,
    Never,
}

/// Answers that were not there, and states that somebody else was faster with, come by themselves.
fn mended(error: &Error) -> Mended {
    match error {
        Error::Unreachable { .. } | Error::TimedOut { .. } | Error::Refused { kind: RefusalKind::Unreachable, .. } => Mended::Soon,
        Error::Refused { kind: RefusalKind::Other, .. } | Error::NeedsPerson { .. } | Error::Local { .. } => Mended::ByChange,
        Error::Refused { kind: RefusalKind::Forbidden, .. } | Error::Config { .. } | Error::Usage { .. } => Mended::Never,
        Error::Missing { .. } | Error::Gone { .. } => Mended::Never,
        // None of these comes from here.
        Error::TaskFailed { .. }
        | Error::RunFailed { .. }
        | Error::ToolFailed { .. }
        | Error::Cut { .. }
        | Error::LeftAlone { .. }
        | Error::Unhealthy { .. } => Mended::Never,
    }
}

impl Watch<'_> {
    async fn keep_to(&mut self, changes: &mut Changes, folders: &Folders) -> Result<(), Error> {
        let (shortest, longest) = RETRY;
        let (mut is_first, mut delay) = (true, self.patience(shortest));
        loop {
            if let Some(trouble) = changes.new_trouble() {
                self.tell(trouble);
            }
            match self.round().await {
                Ok(()) => {
                    if self.broken.take().is_some() {
                        eprintln!("it goes on: what is here was sent");
                    }
                    delay = self.patience(shortest);
                }
                // What is wrong with the line is said at once, and a state that is only late is none of that.
                Err(error) if is_first && !matches!(error, Error::TimedOut { .. }) => return Err(error),
                Err(error) => match mended(&error) {
                    Mended::Never => return Err(error),
                    Mended::ByChange => self.tell_broken(&error, "with the next change it is tried again"),
                    Mended::Soon => {
                        self.tell_broken(&error, "it goes on by itself");
                        tokio::time::sleep(delay).await;
                        delay = (delay * 2).min(self.patience(longest));
                        // A connection that a sleeping machine has lost says nothing.
                        if let Ok(cluster) = Cluster::connect(self.connection).await {
                            self.cluster = cluster;
                        }
                        continue;
                    }
                },
            }
            if is_first {
                let root = show::one_line(&folders.root.display().to_string());
                eprintln!("watching {root} until this is ended: what changes there is sent");
            }
            is_first = false;
            self.rest(changes).await?;
        }
    }

    fn patience(&self, of: Duration) -> Duration {
        of * self.cluster.patience_percent / 100
    }

    fn tell(&mut self, words: String) {
        if !self.told.contains(&words) {
            eprintln!("{words}");
            self.told.insert(words);
        }
    }

    fn tell_broken(&mut self, error: &Error, then: &str) {
        let words = show::visible(&format!("{error}"));
        if self.broken.as_ref() != Some(&words) {
            eprintln!("broken: {words}\n  {}; {then}", self.until_now());
            self.broken = Some(words);
        }
    }

    /// What trees are made from, as far as this has seen.
    fn until_now(&self) -> String {
        match &self.sent {
            Some(sent) if self.is_over => format!("what has changed here since {} is not sent", sent.result.captured_at),
            Some(sent) => format!("the tree as it was at {} was sent, and trees are not made from it yet", sent.result.captured_at),
            None => "nothing was sent from here".to_owned(),
        }
    }

    /// Sends the tree if it has changed, and waits until trees are made from it. Says when that takes long.
    async fn round(&mut self) -> Result<(), Error> {
        let (why, late) = (RefCell::new(String::new()), self.patience(LATE));
        let until_now = self.sent.as_ref().map(|sent| format!(" since {}", sent.result.captured_at)).unwrap_or_default();
        let what = self.cluster.display_name::<YoiProject>(self.project);
        let mut work = std::pin::pin!(self.work(&why));
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(late) => {}
        }
        let why = show::one_line(&why.borrow());
        let why = if why.is_empty() { String::new() } else { format!(": {what}: {why}") };
        eprintln!("late: what has changed here{until_now} is in no new tree yet{why}");
        work.await
    }

    async fn work(&mut self, why: &RefCell<String>) -> Result<(), Error> {
        let mut words = Vec::new();
        let sent = self.send(&mut |more| words.push(more)).await;
        words.into_iter().for_each(|words| self.tell(words));
        if let Some(sent) = sent? {
            self.sent = Some(sent);
            self.is_over = false;
        }
        let Some(sent) = self.sent.as_ref().filter(|_| !self.is_over) else { return Ok(()) };
        let other = wait(&self.cluster, self.args, sent, |now| now.clone_into(&mut why.borrow_mut())).await?;
        match other {
            None => show::object(self.output, &sent.result, &title(self.project), &sent.sentence())?,
            Some(other) => {
                eprintln!("{}", of_another(&other));
                self.others.insert(other.commit);
            }
        }
        let repositories = sent.result.of_repositories();
        self.is_over = true;
        repositories.into_iter().for_each(|words| self.tell(words));
        Ok(())
    }

    /// `None`: it is as it was when it was sent last.
    async fn send(&self, tell: &mut dyn FnMut(String)) -> Result<Option<Sent>, Error> {
        // Beside its answers, a watch is silent while all is well.
        let mut progress = Progress::silent();
        let captured = CapturedTree::of_clone(&self.cluster, self.project, self.args, &mut progress, tell).await?;
        match &self.sent {
            Some(sent) if captured.is_still(sent) => Ok(None),
            _ => captured.send(&self.cluster, self.args, &mut progress, tell).await.map(Some),
        }
    }

    /// Waits until the tree has changed. Says what other machines send meanwhile.
    async fn rest(&mut self, changes: &mut Changes) -> Result<(), Error> {
        let machine = self.sent.as_ref().map(|sent| sent.result.machine.clone());
        let mut changed = std::pin::pin!(changes.next());
        loop {
            let other = self.cluster.watch(
                self.project,
                DAY,
                "synced by another machine",
                |project: Option<&YoiProject>| {
                    let Some(project) = project else { return Err(self.cluster.gone_error::<YoiProject>(self.project)) };
                    let last = project.status.as_ref().and_then(|status| status.sync.as_ref()?.last.clone());
                    // What this machine has sent by another line, such as `run`, is known to the person.
                    let other = last.filter(|last| Some(&last.machine) != machine.as_ref() && !self.others.contains(&last.commit));
                    Ok(other.map_or_else(|| Wait::Pending(String::new()), Wait::Done))
                },
                |_| {},
            );
            let other = tokio::select! {
                () = &mut changed => return Ok(()),
                other = other => other,
            };
            match other {
                Ok(other) => {
                    eprintln!("{}", of_another(&other));
                    self.others.insert(other.commit);
                }
                Err(Error::TimedOut { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn of_another(other: &SyncedTree) -> String {
    format!("another state has come, and counts until something changes here: {}", state(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_goes_on_where_the_cluster_does_not_answer_and_ends_where_the_person_may_not() {
        let refused = |kind| Error::refused_error("sync", "no", "look", kind);
        let timed_out = Error::TimedOut { what: "p".into(), seconds: 1, why: "it is not".into(), next: "look".into() };
        for (error, expected) in [
            (Error::no_answer("sync", LATE), Mended::Soon),
            (timed_out, Mended::Soon),
            (refused(RefusalKind::Unreachable), Mended::Soon),
            (refused(RefusalKind::Other), Mended::ByChange),
            (refused(RefusalKind::Forbidden), Mended::Never),
            (Error::Missing { what: "p".into(), next: "look".into() }, Mended::Never),
            (Error::Gone { what: "p".into(), next: "look".into() }, Mended::Never),
        ] {
            assert_eq!(mended(&error), expected, "{error}");
        }
    }
}
