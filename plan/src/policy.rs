//! The policy of an agent: that of its project, which its own may only narrow.

use yoi_crds::condition::ConditionValue;
use yoi_crds::policy::{OutsideFolder, Policy, PolicyNetwork, SecretsInResults, SensitiveFiles};
use yoi_crds::reason;
use yoi_wire::policy::{
    NetworkPolicy, OutsideException, Rule, ToolPolicy, check_host, check_outside, check_path, check_variable, is_folder_within,
    is_host_below,
};

use crate::duration::parse;

/// Seconds that a call may wait for a person.
const APPROVAL_BOUNDS: std::ops::RangeInclusive<u64> = 10..=168 * 3600;

/// The condition PolicyValid of an object whose `spec.policy` this is.
pub(crate) fn condition(policy: &Policy) -> ConditionValue {
    match check(policy) {
        Ok(_) => ConditionValue::yes(reason::VALID, "every line of the policy is understood"),
        Err(line) => ConditionValue::no(reason::POLICY_INVALID, line),
    }
}

/// The policy that both make. `project` is the name of the YoiProject.
///
/// # Errors
/// The line that is wrong or that widens, and why.
pub(crate) fn narrow(project: &str, of_project: Option<&Policy>, own: Option<&Policy>) -> Result<ToolPolicy, String> {
    let base = of_project.map(check).transpose().map_err(|line| format!("YoiProject {project}: {line}"))?;
    let own = own.map(check).transpose()?;
    match (base, own) {
        (None, None) => Ok(ToolPolicy::default()),
        (Some(only), None) => Ok(only.wire()),
        (base, Some(own)) => own.within(project, base.unwrap_or_default()),
    }
}

/// The seconds of a timeout, within what the CRD allows.
fn seconds(text: &str) -> Result<u64, String> {
    let timeout = parse(text).map_err(|error| error.to_string())?.as_secs();
    if APPROVAL_BOUNDS.contains(&timeout) { Ok(timeout) } else { Err(format!("{text:?} is not between 10s and 168h")) }
}

/// A policy whose lines are understood.
#[derive(Clone, Default)]
struct Checked {
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    /// Seconds after which a call that waits is refused.
    approval: Option<u64>,
    allow: Vec<Rule>,
    sensitive: Vec<String>,
    except: Vec<String>,
    outside: Vec<OutsideException>,
    environment: Vec<String>,
    network: Option<NetworkPolicy>,
    secrets: Option<SecretsInResults>,
}

fn each<T, E: std::fmt::Display>(field: &str, lines: &[String], read: impl Fn(&str) -> Result<T, E>) -> Result<Vec<T>, String> {
    let read = |(index, line): (usize, &String)| read(line).map_err(|why| format!("spec.policy.{field}[{index}]: {line:?} {why}"));
    lines.iter().enumerate().map(read).collect()
}

fn check(policy: &Policy) -> Result<Checked, String> {
    let Policy { deny, ask, approval, allow, sensitive_files, outside, environment, network, secrets_in_results } = policy;
    let timeout = approval.as_ref().and_then(|approval| approval.timeout.as_deref());
    let timeout = timeout.map(|text| seconds(text).map_err(|why| format!("spec.policy.approval.timeout: {why}"))).transpose()?;
    let SensitiveFiles { add, except } = sensitive_files.clone().unwrap_or_default();
    let network = match network {
        None => None,
        Some(PolicyNetwork { hosts, schemes }) => {
            Some(NetworkPolicy { hosts: each("network.hosts", hosts, check_host)?, schemes: schemes.clone() })
        }
    };
    let folder = |(index, OutsideFolder { path, reason }): (usize, &OutsideFolder)| {
        let exception = OutsideException { path: path.clone(), reason: reason.clone() };
        match check_outside(&exception) {
            Ok(()) => Ok(exception),
            Err(why) => Err(format!("spec.policy.outside[{index}]: {path:?} {why}")),
        }
    };
    Ok(Checked {
        outside: outside.iter().enumerate().map(folder).collect::<Result<_, _>>()?,
        environment: each("environment", environment, |name| check_variable(name).map(|()| name.to_owned()))?,
        deny: each("deny", deny, Rule::parse)?,
        ask: each("ask", ask, Rule::parse)?,
        approval: timeout,
        allow: each("allow", allow, Rule::parse)?,
        sensitive: each("sensitiveFiles.add", &add, check_path)?,
        except: each("sensitiveFiles.except", &except, check_path)?,
        network,
        secrets: *secrets_in_results,
    })
}

impl Checked {
    fn wire(self) -> ToolPolicy {
        let allow: Vec<Vec<String>> = self.allowed().into_iter().collect();
        let Self { deny, ask, approval, allow: _, sensitive, except, outside, environment, network, secrets } = self;
        ToolPolicy {
            deny: texts(deny),
            ask: texts(ask),
            approval_seconds: approval,
            allow,
            sensitive,
            not_sensitive: except,
            outside,
            environment,
            network,
            keep_secrets: secrets == Some(SecretsInResults::Keep),
            secret_variables: Vec::new(),
        }
    }

    /// What may run or be asked about, where the policy says what may run.
    fn allowed(&self) -> Option<Vec<String>> {
        let rules = self.allow.iter().chain(&self.ask).map(|rule| rule.text.clone());
        (!self.allow.is_empty()).then(|| rules.collect())
    }

    /// Both policies in one, when this one widens nothing.
    fn within(self, project: &str, base: Checked) -> Result<ToolPolicy, String> {
        let wider = |field: &str, index: usize, line: &str| {
            format!(
                "spec.policy.{field}[{index}]: {line:?} allows more than spec.policy.{field} of YoiProject {project}, which a YoiPod may only narrow"
            )
        };
        if !base.allow.is_empty()
            && let Some((index, rule)) = first_outside(&self.allow, |rule| base.allow.iter().chain(&base.ask).any(|wide| wide.covers(rule)))
        {
            return Err(wider("allow", index, &rule.text));
        }
        if let (Some(own), Some(base)) = (self.approval, base.approval)
            && own > base
        {
            return Err(format!(
                "spec.policy.approval.timeout: {own} s is longer than the {base} s of YoiProject {project}, which a YoiPod may only narrow"
            ));
        }
        if let Some((index, file)) = first_outside(&self.except, |file| base.except.contains(file)) {
            return Err(wider("sensitiveFiles.except", index, file));
        }
        if let Some((index, folder)) =
            first_outside(&self.outside, |folder| base.outside.iter().any(|wide| is_folder_within(&folder.path, &wide.path)))
        {
            return Err(wider("outside", index, &folder.path));
        }
        if let Some((index, name)) = first_outside(&self.environment, |name| base.environment.contains(name)) {
            return Err(wider("environment", index, name));
        }
        if (self.secrets, base.secrets) == (Some(SecretsInResults::Keep), Some(SecretsInResults::Redact)) {
            return Err(format!(
                "spec.policy.secretsInResults: Keep allows more than the Redact of YoiProject {project}, which a YoiPod may only narrow"
            ));
        }
        if let (Some(own), Some(base)) = (&self.network, &base.network) {
            if let Some((index, host)) = first_outside(&own.hosts, |host| base.hosts.iter().any(|wide| is_host_below(host, wide))) {
                return Err(wider("network.hosts", index, host));
            }
            if let Some((index, scheme)) = first_outside(&own.schemes, |scheme| base.schemes.contains(scheme)) {
                return Err(wider("network.schemes", index, scheme));
            }
        }
        // Both lists are asked, so that nothing runs under a wider one even where a text misleads.
        let allow = [base.allowed(), self.allowed()].into_iter().flatten().collect();
        let except = if self.except.is_empty() { base.except.clone() } else { self.except };
        let outside = if self.outside.is_empty() { base.outside.clone() } else { self.outside };
        let environment = if self.environment.is_empty() { base.environment.clone() } else { self.environment };
        Ok(ToolPolicy {
            deny: texts(base.deny.into_iter().chain(self.deny).collect()),
            ask: texts(base.ask.into_iter().chain(self.ask).collect()),
            approval_seconds: self.approval.or(base.approval),
            allow,
            sensitive: base.sensitive.into_iter().chain(self.sensitive).collect(),
            not_sensitive: except,
            outside,
            environment,
            network: self.network.or(base.network),
            keep_secrets: self.secrets.or(base.secrets) == Some(SecretsInResults::Keep),
            secret_variables: Vec::new(),
        })
    }
}

/// The texts of rules, each once: project and agent may have the same.
fn texts(rules: Vec<Rule>) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for Rule { text, .. } in rules {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

fn first_outside<T>(lines: &[T], is_within: impl Fn(&T) -> bool) -> Option<(usize, &T)> {
    lines.iter().enumerate().find(|(_, line)| !is_within(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(json: serde_json::Value) -> Policy {
        serde_json::from_value(json).unwrap_or_default()
    }

    #[test]
    fn p74_a_yoipod_narrows_the_policy_of_its_project_and_widens_it_in_no_line() {
        let project = policy(serde_json::json!({
            "deny": ["Write"], "allow": ["Shell(git *)", "Read"],
            "sensitiveFiles": { "add": ["*.tfstate"], "except": [".env.example", ".env.test"] },
            "network": { "hosts": ["example.org"] },
        }));
        let narrowed = |own: serde_json::Value| narrow("site", Some(&project), Some(&policy(own)));
        let own = serde_json::json!({
            "deny": ["Shell(git push *)"], "allow": ["Bash(git log *)"],
            "sensitiveFiles": { "except": [".env.example"] },
            "network": { "hosts": ["docs.example.org"], "schemes": ["https"] },
        });
        let both = narrowed(own).unwrap();
        assert_eq!(both.deny, ["Write", "Shell(git push *)"]);
        assert_eq!(both.allow, [vec!["Shell(git *)", "Read"], vec!["Bash(git log *)"]]);
        assert_eq!((both.sensitive, both.not_sensitive), (vec!["*.tfstate".to_owned()], vec![".env.example".to_owned()]));
        assert_eq!(both.network.unwrap().hosts, ["docs.example.org"]);
        for (own, line) in [
            (serde_json::json!({ "allow": ["Read", "Shell"] }), "spec.policy.allow[1]: \"Shell\" allows more than"),
            (serde_json::json!({ "allow": ["Edit(a)"] }), "spec.policy.allow[0]"),
            (serde_json::json!({ "sensitiveFiles": { "except": [".env"] } }), "spec.policy.sensitiveFiles.except[0]"),
            (serde_json::json!({ "network": { "hosts": ["example.com"] } }), "spec.policy.network.hosts[0]"),
            (serde_json::json!({ "network": { "hosts": [], "schemes": ["ftp"] } }), "spec.policy.network.schemes[0]"),
        ] {
            let error = narrowed(own.clone()).unwrap_err();
            assert!(error.starts_with(line) && error.contains("YoiProject site"), "{own}: {error}");
        }
    }

    #[test]
    fn p74_a_yoipod_keeps_secrets_in_results_only_where_its_project_does_not_say_redact() {
        let says = |word: &str| policy(serde_json::json!({ "secretsInResults": word }));
        let (keep, redact, silent) = (says("Keep"), says("Redact"), policy(serde_json::json!({})));
        for (of_project, own, kept) in [
            (None, None, false),
            (Some(&keep), None, true),
            (None, Some(&keep), true),
            (Some(&silent), Some(&keep), true),
            (Some(&keep), Some(&silent), true),
            (Some(&keep), Some(&redact), false),
            (Some(&redact), Some(&silent), false),
            (Some(&says("Tomorrow")), None, false),
        ] {
            assert_eq!(narrow("site", of_project, own).unwrap().keep_secrets, kept, "{of_project:?} {own:?}");
        }
        let error = narrow("site", Some(&redact), Some(&keep)).unwrap_err();
        assert!(error.starts_with("spec.policy.secretsInResults: Keep") && error.contains("YoiProject site"), "{error}");
    }

    #[test]
    fn p17_p21_a_yoipod_excepts_only_folders_of_its_project_and_sets_only_variables_that_that_names() {
        let project = policy(serde_json::json!({
            "outside": [{ "path": "/usr/include", "reason": "SystemHeaders" }], "environment": ["RUST_LOG", "CI"],
        }));
        let narrowed = |own: serde_json::Value| narrow("site", Some(&project), Some(&policy(own)));
        let both =
            narrowed(serde_json::json!({ "outside": [{ "path": "/usr/include/linux", "reason": "Kernel" }], "environment": ["CI"] }))
                .unwrap();
        assert_eq!((both.outside[0].path.as_str(), both.outside.len(), both.environment), ("/usr/include/linux", 1, vec!["CI".to_owned()]));
        let left_out = narrowed(serde_json::json!({ "deny": ["Write"] })).unwrap();
        assert_eq!((left_out.outside.len(), left_out.environment.len()), (1, 2));
        for (own, line) in [
            (serde_json::json!({ "outside": [{ "path": "/usr", "reason": "All" }] }), "spec.policy.outside[0]: \"/usr\" allows more than"),
            (serde_json::json!({ "environment": ["CI", "PATH"] }), "spec.policy.environment[1]: \"PATH\" allows more than"),
            (
                serde_json::json!({ "outside": [{ "path": "/a/../b", "reason": "R" }] }),
                "spec.policy.outside[0]: \"/a/../b\" is no absolute path",
            ),
            (serde_json::json!({ "environment": ["A-B"] }), "spec.policy.environment[0]: \"A-B\" is no name of a variable"),
        ] {
            let error = narrowed(own.clone()).unwrap_err();
            assert!(error.starts_with(line), "{own}: {error}");
        }
        assert!(narrow("site", None, Some(&project)).is_err(), "without a project nothing is excepted");
    }

    #[test]
    fn a_yoipod_may_have_more_asked_and_asks_away_nothing() {
        let project = policy(serde_json::json!({ "allow": ["Read"], "ask": ["Shell(git *)"], "approval": { "timeout": "30m" } }));
        let narrowed = |own: serde_json::Value| narrow("site", Some(&project), Some(&policy(own)));
        let alone = narrow("site", Some(&project), None).unwrap();
        assert_eq!(
            (alone.ask, alone.allow, alone.approval_seconds),
            (vec!["Shell(git *)".to_owned()], vec![vec!["Read".into(), "Shell(git *)".into()]], Some(1800))
        );
        // What the project has asked stays asked although the YoiPod allows it, and what it adds is asked only where the project lets it be asked.
        let both =
            narrowed(serde_json::json!({ "allow": ["Shell(git log *)"], "ask": ["Read"], "approval": { "timeout": "10s" } })).unwrap();
        assert_eq!((both.ask, both.approval_seconds), (vec!["Shell(git *)".to_owned(), "Read".to_owned()], Some(10)));
        assert_eq!(both.allow, [vec!["Read", "Shell(git *)"], vec!["Shell(git log *)", "Read"]]);
        // What both have asked or denied stands there once, so that a call that waits is shown with it once.
        let same = narrowed(serde_json::json!({ "deny": ["Write", "Write"], "ask": ["Shell(git *)", "Read"] })).unwrap();
        assert_eq!((same.deny, same.ask), (vec!["Write".to_owned()], vec!["Shell(git *)".to_owned(), "Read".to_owned()]));
        for (own, line) in [
            (
                serde_json::json!({ "approval": { "timeout": "31m" } }),
                "spec.policy.approval.timeout: 1860 s is longer than the 1800 s of YoiProject site",
            ),
            (serde_json::json!({ "approval": { "timeout": "9s" } }), "spec.policy.approval.timeout: \"9s\" is not between"),
            (serde_json::json!({ "approval": { "timeout": "169h" } }), "spec.policy.approval.timeout: \"169h\" is not between"),
            (serde_json::json!({ "ask": ["Read", "Raed"] }), "spec.policy.ask[1]: \"Raed\" names the tool"),
            (serde_json::json!({ "allow": ["Shell"] }), "spec.policy.allow[0]: \"Shell\" allows more than"),
        ] {
            let error = narrowed(own.clone()).unwrap_err();
            assert!(error.starts_with(line), "{own}: {error}");
        }
    }

    #[test]
    fn a_part_that_a_yoipod_leaves_out_is_its_projects_and_without_a_project_it_excepts_no_file() {
        let project = policy(serde_json::json!({ "sensitiveFiles": { "except": ["a.key"] }, "network": { "hosts": ["example.org"] } }));
        let both = narrow("site", Some(&project), Some(&policy(serde_json::json!({ "deny": ["Write"] })))).unwrap();
        assert_eq!((both.not_sensitive, both.network.unwrap().schemes.len()), (vec!["a.key".to_owned()], 2));
        assert!(narrow("site", None, Some(&policy(serde_json::json!({ "sensitiveFiles": { "except": ["a.key"] } })))).is_err());
        assert!(narrow("site", None, None).unwrap().is_empty());
    }

    #[test]
    fn a_line_that_is_none_is_named_with_its_place_and_its_cause() {
        for (own, line) in [
            (
                serde_json::json!({ "deny": ["Write", "Shel(x)"] }),
                "spec.policy.deny[1]: \"Shel(x)\" names the tool \"Shel\", which is none",
            ),
            (serde_json::json!({ "allow": ["ListPods(x)"] }), "spec.policy.allow[0]: \"ListPods(x)\" has a pattern"),
            (serde_json::json!({ "sensitiveFiles": { "add": ["../x"] } }), "spec.policy.sensitiveFiles.add[0]"),
            (serde_json::json!({ "network": { "hosts": ["-"] } }), "spec.policy.network.hosts[0]"),
        ] {
            let error = narrow("site", None, Some(&policy(own.clone()))).unwrap_err();
            assert!(error.starts_with(line), "{own}: {error}");
            let of_project = narrow("site", Some(&policy(own)), None).unwrap_err();
            assert_eq!(of_project, format!("YoiProject site: {error}"));
        }
    }
}
