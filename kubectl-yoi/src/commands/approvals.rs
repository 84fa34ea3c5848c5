//! `approvals`, `approve` and `deny`: the calls that wait for a person, and what the person says to them.

use futures::{StreamExt, stream};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;
use yoi_crds::YoiPod;
use yoi_wire::approval::{ApprovalRequest, ApprovalResponse, WaitingCall, WaitingCalls};
use yoi_wire::conversation::MAIN;
use yoi_wire::hub::{Activity, TaskState};

use crate::args::{ApprovalsOptions, ApproveOptions, DenyOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

/// Agents that are asked at once.
const ASKED_AT_ONCE: usize = 16;
/// Characters of what a call is about, in the table.
const ABOUT_CHARS: usize = 80;

/// A call, and whose it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentCall {
    namespace: String,
    agent: String,
    #[serde(flatten)]
    call: WaitingCall,
}

/// Lists the calls that wait.
pub async fn approvals(cluster: &Cluster, output: Option<OutputFormat>, args: &ApprovalsOptions) -> Result<(), Error> {
    let calls = match &args.name {
        Some(name) => calls_of(cluster, name).await?,
        None => {
            let pods: Vec<YoiPod> = cluster.list(args.all_namespaces, None).await?;
            tell_stopped(cluster, &pods, args.all_namespaces);
            let waiting = pods.into_iter().filter(needs_input);
            stream::iter(waiting).map(|pod| calls_of_pod(cluster, pod)).buffered(ASKED_AT_ONCE).concat().await
        }
    };
    let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
    let what = match &args.name {
        Some(name) => format!("calls of {name} that wait for a person"),
        None => "calls that wait for a person".to_owned(),
    };
    show::objects(output, &calls, |call| format!("{} {}", call.agent, call.call.call), || table(cluster, &calls, &what, namespace))
}

/// Says yes.
pub async fn approve(cluster: &Cluster, output: Option<OutputFormat>, args: &ApproveOptions) -> Result<(), Error> {
    let request = ApprovalRequest { call: args.call, approve: true, always: args.always, because: None };
    answer(cluster, output, &args.name, &request).await
}

/// Says no.
pub async fn deny(cluster: &Cluster, output: Option<OutputFormat>, args: &DenyOptions) -> Result<(), Error> {
    let request = ApprovalRequest { call: args.call, approve: false, always: false, because: Some(args.because.clone()) };
    answer(cluster, output, &args.name, &request).await
}

/// Whether an agent's object says that a call of it waits for a person.
pub fn needs_input(pod: &YoiPod) -> bool {
    let status = pod.status.as_ref();
    let live = status.and_then(|status| status.live.as_ref());
    // The hint is of one Pod, and means nothing for another.
    let is_of_pod = |uid: &String| status.and_then(|status| status.pod.as_ref()).is_some_and(|pod| pod.uid == *uid);
    live.is_some_and(|live| live.activity == Activity::NeedsInput && is_of_pod(&live.pod_uid))
}

/// Says on standard error which agents were stopped before their task ended. A call of theirs may wait, which their logs alone know.
fn tell_stopped(cluster: &Cluster, pods: &[YoiPod], all_namespaces: bool) {
    let is_open = |pod: &&YoiPod| {
        let task = pod.status.as_ref().and_then(|status| status.task.as_ref());
        yoi_plan::yoipod::is_stopped(pod)
            && task.is_some_and(|task| [TaskState::Submitted, TaskState::Running].iter().any(|open| task.state == *open))
    };
    let name =
        |pod: &YoiPod| if all_namespaces { format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()) } else { pod.name_any() };
    let stopped: Vec<String> = pods.iter().filter(is_open).map(name).collect();
    if !stopped.is_empty() {
        eprintln!(
            "note: stopped before their task ended: {}. A call of theirs may wait, and is listed once they run: {}",
            stopped.join(", "),
            cluster.plugin_command("start NAME")
        );
    }
}

/// The numbers of the calls of an agent that wait, for completion.
pub async fn numbers(cluster: &Cluster, name: &str) -> Option<Vec<(String, String)>> {
    let waiting = cluster.fetch_now::<WaitingCalls>(name, "approval").await.ok()?;
    Some(waiting.calls.iter().map(|call| (call.call.to_string(), format!("{} {}", call.tool, about(call)))).collect())
}

/// One that cannot be asked hides no other.
async fn calls_of_pod(cluster: &Cluster, pod: YoiPod) -> Vec<AgentCall> {
    let cluster = cluster.in_namespace(pod.namespace().unwrap_or_default());
    let calls = calls_of(&cluster, &pod.name_any()).await;
    calls.inspect_err(|error| eprintln!("{}", show::visible(&error.to_string()))).unwrap_or_default()
}

async fn calls_of(cluster: &Cluster, name: &str) -> Result<Vec<AgentCall>, Error> {
    let waiting = cluster.fetch_now::<WaitingCalls>(name, "approval").await?;
    let of_agent = |call| AgentCall { namespace: cluster.namespace.clone(), agent: name.to_owned(), call };
    Ok(waiting.calls.into_iter().map(of_agent).collect())
}

async fn answer(cluster: &Cluster, output: Option<OutputFormat>, name: &str, request: &ApprovalRequest) -> Result<(), Error> {
    let operation = if request.approve { "approve a call of" } else { "deny a call of" };
    let response = cluster.answer_call(name, operation, request).await?;
    let sentence = sentence(name, request, &response);
    // Who is told that the opposite holds has not done what was asked.
    if response.answer.approved == request.approve {
        return show::object(output, &response, &format!("yoipod.yoi.dev/{name}"), &sentence);
    }
    let next = format!("see what came of it: {}", cluster.plugin_command(&format!("log {name}")));
    Err(cluster.refused_error::<YoiPod>(operation, name, sentence, next))
}

/// What counts, in words.
fn sentence(name: &str, request: &ApprovalRequest, response: &ApprovalResponse) -> String {
    let ApprovalResponse { call, answer, repeated } = response;
    let what = if answer.approved { "approved" } else { "denied" };
    let by = show::one_line(&answer.by);
    match (repeated, answer.always) {
        (false, true) => format!("call {call} of {name} is approved, and so are others that the same rules of the policy ask about"),
        (false, false) => format!("call {call} of {name} is {what}"),
        (true, _) if answer.approved != request.approve => format!("{by} {what} call {call} of {name} before, and the first answer counts"),
        (true, _) => format!("{by} {what} call {call} of {name} before"),
    }
}

/// What a call is about, in one line: the argument that says most, else all of them.
pub fn about(call: &WaitingCall) -> String {
    let first = ["command", "path", "file_path", "url", "to"].iter().find_map(|field| call.args.get(field).and_then(Value::as_str));
    show::shortened(&show::one_line(&first.map_or_else(|| call.args.to_string(), str::to_owned)), ABOUT_CHARS)
}

/// The table of one namespace, or with a column for it, and the commands that answer. `what` was looked for.
fn table(cluster: &Cluster, calls: &[AgentCall], what: &str, of_namespace: Option<&str>) -> String {
    let Some(first) = calls.first() else { return show::empty_list(what, of_namespace) };
    let namespace = if of_namespace.is_none() { ["namespace"].as_slice() } else { &[] };
    // Most agents have one conversation.
    let others = calls.iter().any(|AgentCall { call, .. }| call.conversation.is_some());
    let conversation = if others { ["conversation"].as_slice() } else { &[] };
    let mut table = show::table(&[namespace, &["agent"], conversation, &["call", "tool", "what", "rule", "since"]].concat());
    for AgentCall { namespace, agent, call } in calls {
        let since = call.since.parse().ok();
        let of = others.then(|| show::one_line(call.conversation.as_deref().unwrap_or(MAIN)));
        let first = of_namespace.is_none().then(|| namespace.clone()).into_iter().chain([agent.clone()]).chain(of);
        let row = [call.call.to_string(), call.tool.clone(), about(call), call.rules.join(", "), show::age(since)];
        table.add_row(first.chain(row).map(show::cell).collect::<Vec<_>>());
    }
    let cluster = cluster.in_namespace(first.namespace.clone());
    let of = first.call.conversation.as_deref().map_or(String::new(), |name| format!(" --conversation {}", show::one_line(name)));
    let command = |verb: &str, more: &str| cluster.plugin_command(&format!("{verb} {} {}{of}{more}", first.agent, first.call.call));
    format!("{}answer one: {} or {}\n", show::lines(&table), command("approve", ""), command("deny", " --because TEXT"))
}
