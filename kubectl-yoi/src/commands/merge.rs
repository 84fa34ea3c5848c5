//! `merge`: merges what an agent has done into the tree of another one, most often of the one that has started it, or into the working tree at hand.

mod working_tree;

use yoi_crds::YoiPod;
use yoi_plan::visibility::is_agent_name;
use yoi_wire::merge::{MergeConflict, MergeOutcome, MergeStrategy, MergedPath, PersonMerge};

use crate::args::{MergeOptions, MergeSide, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub(super) const OPERATION: &str = "merge the work of";

pub async fn merge(cluster: &Cluster, output: Option<OutputFormat>, args: &MergeOptions) -> Result<(), Error> {
    let name = &args.name;
    let (into, is_branch) = match &args.into {
        Some(into) => (into.clone(), is_branch(cluster, name, into).await?),
        None => (parent_of(cluster, name).await?, false),
    };
    let outcome = if is_branch { working_tree::merge_here(cluster, args).await? } else { merge_into(cluster, args, &into).await? };
    let title = if is_branch { into.clone() } else { format!("yoipod.yoi.dev/{into}") };
    show::object(output, &outcome, &title, &text(name, &into, &outcome))?;
    for note in &outcome.notes {
        eprintln!("{}", show::one_line(note));
    }
    if outcome.conflicts.is_empty() {
        return Ok(());
    }
    let message = format!("{} are in conflict, and nothing was merged into {into}", paths(outcome.conflict_count));
    let next = format!(
        "let one side solve them, or say whose lines count: {}",
        cluster.plugin_command(&format!("merge {name} --into {into} --strategy theirs"))
    );
    Err(cluster.refused_error::<YoiPod>(OPERATION, name, message, next))
}

/// Whether `--into` names the branch that is checked out here, and not an agent.
async fn is_branch(cluster: &Cluster, name: &str, into: &str) -> Result<bool, Error> {
    let is_agent = is_agent_name(into) && cluster.get_opt::<YoiPod>(into).await?.is_some();
    let is_here = working_tree::branch_here().await.as_deref() == Some(into);
    let refused = |message: String, next: &str| Err(cluster.refused_error::<YoiPod>(OPERATION, name, message, next));
    match (is_agent, is_here) {
        (true, false) => Ok(false),
        (false, true) => Ok(true),
        (true, true) => refused(
            format!("{into} is an agent, and the branch that is checked out here"),
            "run it in a folder outside of the clone for the agent, or rename the branch",
        ),
        (false, false) => refused(
            format!("{into} is neither an agent of namespace {} nor the branch that is checked out here", cluster.namespace),
            "name an agent; or check the branch out in the clone at hand, and merge again there",
        ),
    }
}

async fn merge_into(cluster: &Cluster, args: &MergeOptions, into: &str) -> Result<MergeOutcome, Error> {
    let strategy = match args.strategy {
        None => MergeStrategy::Stop,
        Some(MergeSide::Ours) => MergeStrategy::Ours,
        Some(MergeSide::Theirs) => MergeStrategy::Theirs,
    };
    let request = PersonMerge { from: args.name.clone(), dry_run: args.dry_run, strategy };
    cluster.merge_into(into, &request).await
}

/// The agent that has started this one.
async fn parent_of(cluster: &Cluster, name: &str) -> Result<String, Error> {
    let pod: YoiPod = cluster.get(name).await?;
    pod.spec.spawned_by.map(|by| by.name).ok_or_else(|| {
        let next = format!(
            "name the agent, or the branch that is checked out here: {}",
            cluster.plugin_command(&format!("merge {name} --into AGENT|BRANCH"))
        );
        cluster.refused_error::<YoiPod>(OPERATION, name, "no agent has started it, and none is named to merge it into", next)
    })
}

fn paths(count: u64) -> String {
    if count == 1 { "1 path".to_owned() } else { format!("{count} paths") }
}

fn text(name: &str, into: &str, outcome: &MergeOutcome) -> String {
    let MergeOutcome { commit, dry_run, conflicts, conflict_count, paths: merged, path_count, notes: _ } = outcome;
    if !conflicts.is_empty() {
        let mut table = show::table(&["path", "conflict"]);
        for MergeConflict { path, why } in conflicts {
            table.add_row([show::cell(show::quoted_path(path)), show::cell(show::one_line(why))]);
        }
        return format!("{}{}", show::lines(&table), more(*conflict_count, conflicts.len()));
    }
    let sentence = match (path_count, dry_run) {
        (0, _) if commit.is_none() => format!("{name} has changed nothing"),
        (0, _) => format!("the tree of {into} has all that {name} has done"),
        (count, true) => format!("{} would be merged from {name} into {into}, without a conflict", paths(*count)),
        (count, false) => format!("{} merged from {name} into {into}; nothing is committed", paths(*count)),
    };
    if merged.is_empty() {
        return sentence;
    }
    let mut table = show::table(&["path", "what"]);
    for MergedPath { path, change } in merged {
        table.add_row([show::cell(show::quoted_path(path)), show::cell(change.to_lowercase())]);
    }
    format!("{}{}{sentence}", show::lines(&table), more(*path_count, merged.len()))
}

fn more(count: u64, shown: usize) -> String {
    match count.saturating_sub(shown as u64) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    }
}
