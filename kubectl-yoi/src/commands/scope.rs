//! `scope`: which paths of its tree an agent may write, by which covers its node holds that, and what it has lent or was lent.

use serde::Serialize;
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::pod::{Delegation, Scope, ScopeAccess, ScopeRule};
use yoi_crds::reason::{self, condition};
use yoi_crds::workspace::{Claim, ClaimState};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_plan::yoipod::workspace_name;
use yoi_wire::cover::{Cover, Shown};

use crate::args::{OutputFormat, ScopeOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScopeOfAgent<'a> {
    namespace: &'a str,
    name: &'a str,
    /// Absent: it may write the whole tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a Scope>,
    /// What its node lays over its tree at its next start.
    covers: Vec<Cover>,
    /// Why there are none although there is a scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    invalid: Option<String>,
    /// The condition ScopeEnforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforced: Option<&'a Condition>,
    /// The spec has changed since the agent was started.
    changed_since_start: bool,
    /// What it may lend to agents that it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    delegation: Option<&'a Delegation>,
    /// The loans of its tree that it has made, or by which it works in another one's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loans: Vec<LoanOfAgent>,
}

/// A loan.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LoanOfAgent {
    #[serde(flatten)]
    claim: Claim,
    /// Whether its node has the paths closed to the lender; absent while it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    covered: Option<bool>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_covered: Option<String>,
    /// The agent that holds the paths is gone, or never came.
    holder_missing: bool,
}

pub async fn scope(cluster: &Cluster, output: Option<OutputFormat>, args: &ScopeOptions) -> Result<(), Error> {
    let agent: YoiPod = cluster.get(&args.name).await?;
    let (covers, invalid) = match yoi_plan::scope::covers(&agent) {
        Ok(covers) => (covers, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let loans = loans(cluster, &agent).await?;
    let conditions = agent.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let current = find(conditions, condition::MANIFEST_CURRENT);
    let scope = ScopeOfAgent {
        namespace: &cluster.namespace,
        name: &args.name,
        scope: agent.spec.scope.as_deref(),
        covers,
        invalid,
        enforced: find(conditions, condition::SCOPE_ENFORCED),
        changed_since_start: current.is_some_and(|current| current.reason == reason::SPEC_CHANGED),
        delegation: agent.spec.delegation.as_deref(),
        loans,
    };
    show::object(output, &scope, &format!("yoipod.yoi.dev/{}", args.name), &text(&scope))
}

/// Only of an agent that can have any.
async fn loans(cluster: &Cluster, agent: &YoiPod) -> Result<Vec<LoanOfAgent>, Error> {
    let own = agent.spec.spawned_by.as_ref().and_then(|by| by.loan.as_deref());
    if own.is_none() && agent.spec.delegation.is_none() {
        return Ok(Vec::new());
    }
    let Some(tree) = cluster.get_opt::<AgentWorkspace>(workspace_name(agent)).await? else { return Ok(Vec::new()) };
    let status = tree.status.unwrap_or_default();
    let uid = agent.metadata.uid.as_deref().unwrap_or_default();
    let mut loans = Vec::new();
    for claim in status.claims.into_iter().filter(|claim| claim.lender.uid == uid || own == Some(claim.loan.as_str())) {
        let view = status.loans.iter().find(|view| view.loan == claim.loan);
        let holder = cluster.get_opt::<YoiPod>(&claim.holder.name).await?;
        let is_it = |holder: &YoiPod| holder.spec.spawned_by.as_ref().is_some_and(|by| by.loan.as_deref() == Some(claim.loan.as_str()));
        loans.push(LoanOfAgent {
            covered: view.map(|view| view.covered),
            not_covered: view.and_then(|view| view.message.clone()),
            holder_missing: !holder.as_ref().is_some_and(is_it),
            claim,
        });
    }
    Ok(loans)
}

fn loans_text(name: &str, delegation: Option<&Delegation>, loans: &[LoanOfAgent]) -> String {
    let mut text = String::new();
    let allowed = delegation.map(|delegation| delegation.allow.as_slice()).unwrap_or_default();
    if !allowed.is_empty() {
        let paths: Vec<String> = allowed.iter().map(|rule| show::quoted_path(&rule.path)).collect();
        text.push_str(&format!("\n{name} may lend: {}", paths.join(", ")));
    }
    if loans.is_empty() {
        return text;
    }
    let mut table = show::table(&["loan", "paths", "lender", "holder", "state", "closed to the lender"]);
    for LoanOfAgent { claim, covered, not_covered, holder_missing } in loans {
        let Claim { loan, lender, holder, rules, state, .. } = claim;
        let written = rules.allow.iter().filter(|rule| rule.access == ScopeAccess::Write).map(|rule| show::quoted_path(&rule.path));
        let gone = if *holder_missing && *state != ClaimState::Released { " (gone)" } else { "" };
        let closed = match (covered, not_covered) {
            (Some(true), _) => "yes".to_owned(),
            (_, Some(why)) => format!("no: {}", show::one_line(why)),
            (Some(false), None) => "no".to_owned(),
            // The node forgets a loan once it has opened its paths.
            (None, None) if *state == ClaimState::Released => "no".to_owned(),
            (None, None) => "not known".to_owned(),
        };
        let (paths, holder) = (written.collect::<Vec<_>>().join(", "), format!("{}{gone}", holder.name));
        table.add_row([loan.as_str(), &paths, &lender.name, &holder, &state.to_string(), &closed].map(show::cell));
    }
    text.push('\n');
    text.push_str(&show::lines(&table));
    for LoanOfAgent { claim, .. } in loans {
        if let Some(message) = &claim.message {
            text.push_str(&format!("\n{}: {}", claim.loan, show::one_line(message)));
        }
    }
    text
}

fn text(of: &ScopeOfAgent<'_>) -> String {
    let ScopeOfAgent { namespace: _, name, scope, covers, invalid, enforced, changed_since_start, delegation, loans } = of;
    let mut text = String::new();
    match scope {
        None => text.push_str(&format!("{name} may write its whole tree: it has no spec.scope")),
        Some(Scope { allow, deny }) => {
            let mut rules = show::table(&["rule", "access", "path", "below it"]);
            for (list, rule) in allow.iter().map(|rule| ("allow", rule)).chain(deny.iter().map(|rule| ("deny", rule))) {
                let ScopeRule { path, access, recursive } = rule;
                let below = if *recursive { "yes" } else { "files only" };
                rules.add_row([list, &access.to_string(), &show::quoted_path(path), below].map(show::cell));
            }
            text.push_str(&show::lines(&rules));
            text.push('\n');
            if covers.is_empty() && invalid.is_none() {
                text.push_str("These rules leave the whole tree open, so there are no covers.\n");
            } else if invalid.is_none() {
                let mut table = show::table(&["cover", "shown", "folders in it"]);
                for Cover { path, shown, shown_file: _, folders } in covers {
                    table.add_row([show::quoted_path(path).as_str(), word(*shown), folders.map_or("", word)].map(show::cell));
                }
                text.push_str(&show::lines(&table));
                text.push_str("\nWhat has no rule is read-only.\n");
            }
            match enforced {
                _ if invalid.is_some() => text.push_str(invalid.as_deref().unwrap_or_default()),
                Some(enforced) if enforced.status == ConditionStatus::True => text.push_str("ScopeEnforced"),
                Some(enforced) => text.push_str(&format!("not ScopeEnforced: {}: {}", enforced.reason, show::one_line(&enforced.message))),
                None => text.push_str("ScopeEnforced is not known: the agent does not run"),
            }
        }
    }
    if *changed_since_start {
        text.push_str("\nThe spec has changed since the agent was started; its next start takes it as it is now");
    }
    text.push_str(&loans_text(name, *delegation, loans));
    text
}

fn word(shown: Shown) -> &'static str {
    match shown {
        Shown::Writable => "writable",
        Shown::ReadOnly => "read-only",
        Shown::Hidden => "hidden",
    }
}
