//! `scope`: which paths of its tree an agent may write, and by which covers its node holds that.

use serde::Serialize;
use yoi_crds::YoiPod;
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::pod::{Scope, ScopeRule};
use yoi_crds::reason::{self, condition};
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
}

pub async fn scope(cluster: &Cluster, output: Option<OutputFormat>, args: &ScopeOptions) -> Result<(), Error> {
    let agent: YoiPod = cluster.get(&args.name).await?;
    let (covers, invalid) = match yoi_plan::scope::covers(&agent) {
        Ok(covers) => (covers, None),
        Err(why) => (Vec::new(), Some(why)),
    };
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
    };
    show::object(output, &scope, &format!("yoipod.yoi.dev/{}", args.name), &text(&scope))
}

fn text(of: &ScopeOfAgent<'_>) -> String {
    let ScopeOfAgent { namespace: _, name, scope, covers, invalid, enforced, changed_since_start } = of;
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
    text
}

fn word(shown: Shown) -> &'static str {
    match shown {
        Shown::Writable => "writable",
        Shown::ReadOnly => "read-only",
        Shown::Hidden => "hidden",
    }
}
