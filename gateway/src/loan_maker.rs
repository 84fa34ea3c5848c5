//! Lends paths of a parent's tree to the child that it asks for.
//!
//! # Flow
//! The paths are reserved in `status.claims` of the tree. Its node lays a mount over them in the parent's view and says so in `status.loans`. Then the parent's
//! runtime ends every process that has something there open, looks again, and answers that nobody has. Only then is the claim Fenced, and the child made.
//!
//! # Guarantees
//! * A write of the claims names the version that was read: what others wrote meanwhile is never undone.
//! * The same request asks for the same loan, however often it is sent.
//! * What was reserved and is not lent is given back, with the reason. What this process leaves behind when it dies, the operator gives up.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::timeout;
use yoi_crds::name::field_manager;
use yoi_crds::pod::ScopeAccess;
use yoi_crds::workspace::{Claim, LoanView};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_plan::reservation::{LoanRequest, moved};
use yoi_plan::scope::{ClaimState, claim_state};
use yoi_wire::children::{LentPaths, LoansRequest, LoansResponse, SharedPath, SpawnRequest};
use yoi_wire::fence::{FenceRequest, FenceResponse};
use yoi_wire::hub::{Refusal, RefusalReason, runtime_api};

use crate::open_lines::OpenLines;

/// How often a write is tried while others write the object.
const TRIES: usize = 6;
/// Bytes of a runtime's answer.
const MAX_ANSWER: usize = 64 * 1024;

/// Takes claims from nothing to Fenced, and gives them back.
pub struct LoanMaker {
    client: Client,
    lines: Arc<OpenLines>,
    limits: LoanLimits,
}

/// How long the parts of a loan may take.
#[derive(Clone, Copy)]
pub struct LoanLimits {
    /// One request to the API server.
    pub deadline: Duration,
    /// The node, until it has the paths covered.
    pub cover_wait: Duration,
    /// The lender's runtime, until nobody has anything there open.
    pub fence_timeout: Duration,
    /// The lender's line.
    pub line_wait: Duration,
}

/// Paths that are closed to their lender.
pub struct Lent {
    /// Name of the AgentWorkspace.
    pub tree: String,
    pub claim: Claim,
}

/// Who asks for what.
pub struct Asked<'a> {
    pub lender: &'a YoiPod,
    /// UID of the lender's Pod.
    pub pod_uid: &'a str,
    pub request: &'a SpawnRequest,
    pub share: &'a [SharedPath],
}

impl LoanMaker {
    pub fn new(client: Client, lines: Arc<OpenLines>, limits: LoanLimits) -> Self {
        LoanMaker { client, lines, limits }
    }

    /// Reserves the paths and closes them to the lender.
    ///
    /// # Errors
    /// Nothing is lent then, but for `Unacknowledged`: the same request goes on from there.
    pub async fn lend(&self, asked: &Asked<'_>) -> Result<Lent, Refusal> {
        let Asked { lender, pod_uid, request, share } = asked;
        let wanted = LoanRequest { lender, pod_uid, holder: &request.name, request_id: &request.request_id, share };
        let name = tree_of(lender)?;
        let api = self.api(lender);
        let claim = self.reserve(&api, name, &wanted).await?;
        match claim_state(claim.state) {
            Some(ClaimState::Reserved) => match self.fence(&api, name, asked, &claim).await {
                Ok(()) => {}
                Err(refusal) if refusal.reason == RefusalReason::Unacknowledged => return Err(refusal),
                Err(refusal) => {
                    self.give_back(lender, &claim.loan, &refusal.message).await;
                    return Err(refusal);
                }
            },
            Some(ClaimState::Fenced) => {}
            Some(ClaimState::Active | ClaimState::Reclaiming | ClaimState::Released) | None => {
                let why = claim.message.map(|message| format!(": {message}")).unwrap_or_default();
                return Err(not_lent(format!("the loan that this call asked for is over{why}; ask for it in a new call")));
            }
        }
        tracing::info!(
            tree = name,
            loan = claim.loan,
            lender = claim.lender.name,
            holder = claim.holder.name,
            "paths closed to their lender"
        );
        Ok(Lent { tree: name.to_owned(), claim })
    }

    /// Gives up a loan whose child is not made. Where this cannot be written, the operator does it some time later.
    pub async fn give_back(&self, lender: &YoiPod, loan: &str, why: &str) {
        let Ok(name) = tree_of(lender) else { return };
        let before = [ClaimState::Reserved, ClaimState::Fenced];
        match self.take_to(&self.api(lender), name, loan, &before, ClaimState::Reclaiming, Some(why)).await {
            Ok(_) => tracing::info!(tree = name, loan, why, "loan given up"),
            Err(refusal) => tracing::warn!(tree = name, loan, error = refusal.message, "loan not given up; the operator does it"),
        }
    }

    /// The loans that this lender has made of its tree. What it knows to be back is forgotten; if that cannot be written now, then the next time.
    pub async fn loans(&self, lender: &YoiPod, uid: &str, request: &LoansRequest) -> Result<LoansResponse, Refusal> {
        let Ok(name) = tree_of(lender) else { return Ok(LoansResponse::default()) };
        let api = self.api(lender);
        let tree = self.read(&api, name).await?;
        let claims = tree.status.as_ref().map(|status| status.claims.as_slice()).unwrap_or_default();
        let is_known = |claim: &&Claim| claim_state(claim.state) == Some(ClaimState::Released) && request.returned.contains(&claim.loan);
        let (known, left): (Vec<&Claim>, Vec<&Claim>) = claims.iter().filter(|claim| claim.lender.uid == uid).partition(is_known);
        if !known.is_empty() {
            let is_left = |claim: &&Claim| !known.iter().any(|known| known.loan == claim.loan);
            let left: Vec<Claim> = claims.iter().filter(is_left).cloned().collect();
            if let Err(refusal) = self.write(&api, &tree, &left).await {
                tracing::warn!(tree = name, error = refusal.message, "loans that are back are not forgotten yet");
            }
        }
        Ok(LoansResponse { loans: left.into_iter().map(|claim| lent_paths(&tree, claim)).collect() })
    }

    fn api(&self, lender: &YoiPod) -> Api<AgentWorkspace> {
        Api::namespaced(self.client.clone(), lender.metadata.namespace.as_deref().unwrap_or_default())
    }

    /// The claim of the request: a new one, or that which it has made before.
    async fn reserve(&self, api: &Api<AgentWorkspace>, name: &str, wanted: &LoanRequest<'_>) -> Result<Claim, Refusal> {
        for _ in 0..TRIES {
            let tree = self.read(api, name).await?;
            if let Some(claim) = wanted.claim_of(&tree) {
                return Ok(claim);
            }
            let claims = wanted.reserve(&tree, Timestamp::now())?;
            if self.write(api, &tree, &claims).await?
                && let Some(claim) = claims.last()
            {
                return Ok(claim.clone());
            }
        }
        Err(contended(name))
    }

    /// Waits for the node, then asks the lender's runtime, then says so.
    async fn fence(&self, api: &Api<AgentWorkspace>, name: &str, asked: &Asked<'_>, claim: &Claim) -> Result<(), Refusal> {
        self.wait_for_cover(api, name, claim).await?;
        let paths = written(claim);
        // Who only reads hinders nobody.
        if !paths.is_empty() {
            self.end_holders(asked, &FenceRequest { loan: claim.loan.clone(), paths }).await?;
        }
        if self.take_to(api, name, &claim.loan, &[ClaimState::Reserved], ClaimState::Fenced, None).await? {
            return Ok(());
        }
        Err(not_lent("the loan was given up meanwhile, because the agent was started anew, or all of this took too long".to_owned()))
    }

    async fn wait_for_cover(&self, api: &Api<AgentWorkspace>, name: &str, claim: &Claim) -> Result<(), Refusal> {
        let within = self.limits.cover_wait;
        let loan = claim.loan.clone();
        let is_decided = move |tree: Option<&AgentWorkspace>| {
            tree.is_none_or(|tree| view(tree, &loan).is_some_and(|view| view.covered || view.message.is_some()))
        };
        let tree = match timeout(within, await_condition(api.clone(), name, is_decided)).await {
            Ok(Ok(tree)) => tree,
            Ok(Err(error)) => return Err(not_lent(format!("AgentWorkspace {name} cannot be watched: {}", yoi_wire::error_chain(&error)))),
            Err(_) => {
                let message = format!(
                    "the node of AgentWorkspace {name} has not closed the paths within {}: its yoi-agent-shim may be down, or of an earlier version",
                    crate::seconds(within)
                );
                return Err(not_lent(message));
            }
        };
        let Some(tree) = tree else { return Err(not_lent(format!("AgentWorkspace {name} is gone"))) };
        match view(&tree, &claim.loan) {
            Some(LoanView { covered: true, .. }) => Ok(()),
            Some(LoanView { message: Some(message), .. }) => Err(not_lent(format!("the node cannot close the paths: {message}"))),
            Some(LoanView { .. }) | None => Err(not_lent("the node does not say whether the paths are closed".to_owned())),
        }
    }

    /// Has the lender's runtime end every process that could still write there.
    async fn end_holders(&self, asked: &Asked<'_>, fence: &FenceRequest) -> Result<(), Refusal> {
        let uid = asked.lender.metadata.uid.as_deref().unwrap_or_default();
        let line = self.lines.wait_for(uid, asked.pod_uid, self.limits.line_wait).await;
        let line = line.ok_or_else(|| not_lent("this replica of the gateway has no line to the agent; try again".to_owned()))?;
        let within = self.limits.fence_timeout;
        // A list of texts serializes without fail.
        let body = Bytes::from(serde_json::to_vec(fence).unwrap_or_default());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = axum::http::Uri::from_static(runtime_api::FENCE);
        request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        let answer = async {
            let response = line.handle.request(request).await.map_err(|error| yoi_wire::error_chain(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|error| error.to_string())?;
            Ok::<_, String>((status, body.to_bytes()))
        };
        let (status, body) = match timeout(within, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => return Err(not_lent(format!("the agent's runtime did not answer: {why}"))),
            Err(_) => {
                return Err(not_lent(format!(
                    "what is to be lent was not free within {}: a process there does not end",
                    crate::seconds(within)
                )));
            }
        };
        if status == StatusCode::NOT_FOUND {
            return Err(not_lent("the agent's runtime is of an earlier version, which lends nothing; restart the agent".to_owned()));
        }
        let response = serde_json::from_slice::<FenceResponse>(&body).ok().filter(|_| status.is_success());
        match response {
            Some(FenceResponse { fenced: true, .. }) => Ok(()),
            Some(held) => Err(not_lent(held.why_not())),
            None => {
                let refusal = serde_json::from_slice::<Refusal>(&body).map(|refusal| refusal.message).unwrap_or_default();
                Err(not_lent(format!("the agent's runtime answered {status} {refusal}")))
            }
        }
    }

    /// Takes a claim on, and returns whether it was in one of the states before.
    async fn take_to(
        &self,
        api: &Api<AgentWorkspace>,
        name: &str,
        loan: &str,
        before: &[ClaimState],
        to: ClaimState,
        message: Option<&str>,
    ) -> Result<bool, Refusal> {
        for _ in 0..TRIES {
            let tree = self.read(api, name).await?;
            let Some(claims) = moved(&tree, loan, before, to, message) else {
                // An earlier try may have done it.
                let state = tree.status.iter().flat_map(|status| &status.claims).find(|claim| claim.loan == loan).map(|claim| claim.state);
                return Ok(state.and_then(claim_state) == Some(to));
            };
            if self.write(api, &tree, &claims).await? {
                return Ok(true);
            }
        }
        Err(contended(name))
    }

    async fn read(&self, api: &Api<AgentWorkspace>, name: &str) -> Result<AgentWorkspace, Refusal> {
        let within = self.limits.deadline;
        match timeout(within, api.get_opt(name)).await {
            Ok(Ok(Some(tree))) => Ok(tree),
            Ok(Ok(None)) => Err(not_lent(format!("AgentWorkspace {name} does not exist"))),
            Ok(Err(error)) => Err(not_lent(format!("AgentWorkspace {name} cannot be read: {}; try again", yoi_wire::error_chain(&error)))),
            Err(_) => Err(not_lent(format!("the API server did not answer within {}; try again", crate::seconds(within)))),
        }
    }

    /// Writes the claims, and returns false when the object has changed since it was read.
    async fn write(&self, api: &Api<AgentWorkspace>, tree: &AgentWorkspace, claims: &[Claim]) -> Result<bool, Refusal> {
        let metadata = json!({"uid": tree.metadata.uid, "resourceVersion": tree.metadata.resource_version});
        let patch = json!({"metadata": metadata, "status": {"claims": claims}});
        let name = tree.metadata.name.as_deref().unwrap_or_default();
        let params = PatchParams { field_manager: Some(field_manager::GATEWAY.to_owned()), ..PatchParams::default() };
        let within = self.limits.deadline;
        match timeout(within, api.patch_status(name, &params, &Patch::Merge(&patch))).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() => Ok(false),
            Ok(Err(kube::Error::Api(status))) => {
                Err(not_lent(format!("the API server refused the claim on AgentWorkspace {name}: {}", status.message)))
            }
            Ok(Err(error)) => {
                Err(unacknowledged(format!("the claim on AgentWorkspace {name} may have been written: {}", yoi_wire::error_chain(&error))))
            }
            Err(_) => {
                Err(unacknowledged(format!("the API server did not say within {} whether the claim was written", crate::seconds(within))))
            }
        }
    }
}

fn tree_of(lender: &YoiPod) -> Result<&str, Refusal> {
    let tree = lender.status.as_ref().and_then(|status| status.workspace.as_ref()).map(|tree| tree.name.as_str());
    tree.ok_or_else(|| not_lent("the agent has no tree yet".to_owned()))
}

fn view<'a>(tree: &'a AgentWorkspace, loan: &str) -> Option<&'a LoanView> {
    tree.status.as_ref()?.loans.iter().find(|view| view.loan == loan)
}

fn lent_paths(tree: &AgentWorkspace, claim: &Claim) -> LentPaths {
    // The node takes its mounts off a moment after the claim is Released.
    let is_open = !view(tree, &claim.loan).is_some_and(|view| view.covered);
    LentPaths {
        loan: claim.loan.clone(),
        holder: claim.holder.name.clone(),
        paths: written(claim),
        back: is_open && claim_state(claim.state) == Some(ClaimState::Released),
        message: claim.message.clone(),
    }
}

/// The paths that a loan lets be written.
fn written(claim: &Claim) -> Vec<String> {
    claim.rules.allow.iter().filter(|rule| rule.access == ScopeAccess::Write).map(|rule| rule.path.clone()).collect()
}

fn not_lent(message: String) -> Refusal {
    Refusal { reason: RefusalReason::NotLent, message: format!("nothing is lent: {message}") }
}

fn unacknowledged(message: String) -> Refusal {
    Refusal { reason: RefusalReason::Unacknowledged, message }
}

fn contended(name: &str) -> Refusal {
    not_lent(format!("AgentWorkspace {name} was changed {TRIES} times meanwhile; try again"))
}
