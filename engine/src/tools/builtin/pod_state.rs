//! The tool PodState.

use yoi_wire::bundle::Uncommitted;
use yoi_wire::entry::RunOutcome;
use yoi_wire::entry_text::run_outcome;
use yoi_wire::evidence::{ChildFacts, ChildStateRequest, LogFacts, RunFacts, TreeFacts};
use yoi_wire::manifest::RunLimits;

use super::child::{ChildName, ask};
use crate::decision::Refusal;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Reads how far a child is.
pub struct PodState;

impl TypedTool for PodState {
    type Args = ChildName;
    const NAME: &'static str = "PodState";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Read how far an agent that you started is, living or stopped: its task, how its last run ended by its log, what it has committed and what it has not \
         by its tree."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &ChildName) -> Result<(), Refusal> {
        context.children().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: ChildName, _live: &LiveOutput) -> CallResult {
        let request = ChildStateRequest { name: args.name };
        ask(context, |children| async move {
            let facts = children.state(&request).await?;
            Ok(CallResult::succeeded(text(&request.name, &facts)))
        })
        .await
    }
}

fn text(name: &str, facts: &ChildFacts) -> String {
    let ChildFacts { state, why, task, starts, session, log, log_unread, tree, tree_unread } = facts;
    let because = |why: &Option<String>| why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let times = if *starts == 1 { "once".to_owned() } else { format!("{starts} times") };
    let mut lines = vec![format!("{name} is {state}{}; it was started {times}", because(why))];
    lines.push(match task {
        Some(task) => format!("task: {}{}", task.state, because(&task.reason)),
        None => "task: it has not taken it up yet".to_owned(),
    });
    match (log, log_unread) {
        (Some(log), _) => lines.push(log_line(log)),
        (None, Some(why)) => lines.push(format!("log: it cannot be read now: {why}")),
        (None, None) if session.is_none() => lines.push("log: it has no session yet".to_owned()),
        (None, None) => lines.push("log: it is empty".to_owned()),
    }
    match (tree, tree_unread) {
        (Some(tree), _) => lines.extend(tree_lines(tree)),
        (None, why) => lines.push(format!("tree: it cannot be read now{}", because(why))),
    }
    lines.join("\n")
}

fn log_line(LogFacts { seq, at, run }: &LogFacts) -> String {
    let last = format!("log: entry {seq} is the last, of {at}");
    match run {
        Some(RunFacts { run_id, outcome: None, .. }) => format!("{last}; run {run_id} is under way, or was broken off"),
        Some(RunFacts { run_id, outcome: Some(RunOutcome::Finished), .. }) => format!("{last}; its last run, {run_id}, finished"),
        Some(RunFacts { run_id, outcome: Some(outcome), reason, message }) => {
            let why = [reason, message].into_iter().flatten().map(|why| format!(": {why}")).collect::<String>();
            format!("{last}; its last run, {run_id}, did not finish: {}{why}", run_outcome(*outcome))
        }
        None => format!("{last}; no run is among the last entries"),
    }
}

fn tree_lines(TreeFacts { commit, base, commits, uncommitted }: &TreeFacts) -> Vec<String> {
    let committed = match (commit, base) {
        (None, _) => "tree: nothing is committed in it".to_owned(),
        (Some(commit), Some(base)) => format!("tree: at commit {commit}, {commits} commits since {base}"),
        (Some(commit), None) => format!("tree: at commit {commit}, of {commits} commits"),
    };
    let Uncommitted { count, cut, paths } = uncommitted;
    if *count == 0 {
        return vec![committed, "everything in it is committed".to_owned()];
    }
    let at_least = if *cut { "at least " } else { "" };
    let named = paths.iter().map(|path| path.escape_debug().to_string()).collect::<Vec<_>>().join(", ");
    let more = if *count > paths.len() as u64 { " and more" } else { "" };
    vec![committed, format!("not committed: {at_least}{count} paths: {named}{more}")]
}

#[cfg(test)]
mod tests {
    use yoi_wire::hub::{TaskReport, TaskState};

    use super::*;

    #[test]
    fn d11_what_cannot_be_read_is_said_beside_what_can() {
        let run = RunFacts { run_id: "r".into(), outcome: Some(RunOutcome::Failed), reason: Some("Refused".into()), message: None };
        let uncommitted = Uncommitted { count: 3, cut: false, paths: vec!["a\n".into(), "b".into()] };
        let facts = ChildFacts {
            state: "Stopped".into(),
            why: None,
            task: Some(TaskReport { id: "t".into(), state: TaskState::Failed.into(), reason: Some("Refused".into()) }),
            starts: 2,
            session: None,
            log: Some(LogFacts { seq: 9, at: "T".into(), run: Some(run) }),
            log_unread: None,
            tree: Some(TreeFacts { commit: Some("c1".into()), base: Some("c0".into()), commits: 1, uncommitted }),
            tree_unread: None,
        };
        let words = "c is Stopped; it was started 2 times\ntask: Failed: Refused\n\
                     log: entry 9 is the last, of T; its last run, r, did not finish: failed: Refused\n\
                     tree: at commit c1, 1 commits since c0\nnot committed: 3 paths: a\\n, b and more";
        assert_eq!(text("c", &facts), words);
        let unread =
            ChildFacts { log: None, tree: None, log_unread: Some("no reader".into()), tree_unread: Some("no git".into()), ..facts };
        let words = text("c", &unread);
        assert!(
            words.contains("log: it cannot be read now: no reader") && words.ends_with("tree: it cannot be read now: no git"),
            "{words}"
        );
    }
}
