//! Versions: the API server is new enough, and charts, processes, CRDs and this plugin have the same version.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde_json::Value;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, ReadFailureCause, display_name, listed};
use super::or_ok;

const OLDEST_SUPPORTED: (u32, u32) = (1, 33);
const VERSION_LABEL: &str = "app.kubernetes.io/version";

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    if observed.server < OLDEST_SUPPORTED {
        let what =
            format!("it is {}.{}; Yoi needs {}.{} or later", observed.server.0, observed.server.1, OLDEST_SUPPORTED.0, OLDEST_SUPPORTED.1);
        found.push(Finding::error("API server", what, "kubectl version"));
    }
    let mut versions = vec![("kubectl-yoi".to_owned(), observed.version.to_owned())];
    let deployments = listed(&observed.deployments).iter().filter(|d| ["yoi-operator", "yoi-gateway"].contains(&&*d.name_any()));
    versions.extend(deployments.filter_map(|d| Some((display_name(d), d.labels().get(VERSION_LABEL)?.clone()))));
    let shims = listed(&observed.daemon_sets).iter().filter(|d| d.name_any() == "yoi-agent-shim");
    versions.extend(shims.filter_map(|d| Some((display_name(d), d.labels().get(VERSION_LABEL)?.clone()))));
    for (object, version) in versions.iter().filter(|(_, version)| version != observed.version) {
        let command = format!("helm upgrade yoi-operator charts/yoi-operator -n {} --reuse-values", observed.operator_namespace);
        found.push(Finding::warning(object, format!("it is of version {version}, and this plugin of {}", observed.version), command));
    }
    found.extend(crd_findings(observed));
    let complete = observed.crds.is_ok() && observed.deployments.is_ok() && observed.daemon_sets.is_ok();
    or_ok(found, complete, "versions", || {
        format!(
            "Kubernetes {}.{}; plugin, charts and processes are {}, and the CRDs are theirs",
            observed.server.0, observed.server.1, observed.version
        )
    })
}

/// Returns a finding for each CRD that is missing or different. A user who may not read CRDs still gets the missing ones.
fn crd_findings(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    let install = "kubectl yoi crds | kubectl apply --server-side --force-conflicts -f -";
    let absent =
        |missed: &super::super::observed::ReadFailure| missed.cause == ReadFailureCause::Absent && missed.permission.ends_with(".yoi.dev");
    for wanted in yoi_crds::all() {
        let name = wanted.name_any();
        let object = format!("CustomResourceDefinition {name}");
        match &observed.crds {
            Err(_) if observed.read_failures().iter().any(|m| absent(m) && m.permission == format!("list {name}")) => {
                found.push(Finding::error(object, "it is not installed", install));
            }
            Err(_) => {}
            Ok(crds) => match crds.iter().find(|c| c.name_any() == name) {
                None => found.push(Finding::error(object, "it is not installed", install)),
                Some(there) => {
                    if let Some(difference) = crd_difference(&wanted, there) {
                        found.push(Finding::error(object, format!("it is not that of this version: {difference}"), install));
                    }
                }
            },
        }
    }
    found
}

/// Returns the first difference between the CRD of this version and that of the cluster. What the API server adds by itself is none.
fn crd_difference(wanted: &CustomResourceDefinition, there: &CustomResourceDefinition) -> Option<String> {
    let stored = there.status.as_ref().and_then(|s| s.stored_versions.clone()).unwrap_or_default();
    for version in &wanted.spec.versions {
        let Some(served) = there.spec.versions.iter().find(|v| v.name == version.name && v.served) else {
            return Some(format!("version {} is not served", version.name));
        };
        let json = |v: &_| serde_json::to_value(v).unwrap_or_default();
        if let Some(path) = first_difference(&json(version), &json(served)) {
            return Some(format!("{}{path}", version.name));
        }
    }
    let old = stored.into_iter().find(|name| !wanted.spec.versions.iter().any(|v| v.name == *name));
    old.map(|name| format!("objects may still be stored as version {name}"))
}

/// Returns the path of the first difference. Below `properties` an extra field of `there` is one too.
fn first_difference(wanted: &Value, there: &Value) -> Option<String> {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => {
            for (key, value) in wanted {
                let part = path_part(key);
                match there.get(key) {
                    None if is_empty(value) => {}
                    None => return Some(format!("{part} is missing")),
                    Some(other) => {
                        if key == "properties"
                            && let Some(extra) = extra_key(value, other)
                        {
                            return Some(format!(".{extra} is one too many"));
                        }
                        if let Some(rest) = first_difference(value, other) {
                            return Some(format!("{part}{rest}"));
                        }
                    }
                }
            }
            None
        }
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            wanted.iter().zip(there).enumerate().find_map(|(n, (a, b))| Some(format!("[{n}]{}", first_difference(a, b)?)))
        }
        (a, b) => (!equal(a, b)).then(|| " is another".to_owned()),
    }
}

/// Returns a key as a part of a path. Keys that only structure a schema are left out.
fn path_part(key: &str) -> String {
    if ["schema", "openAPIV3Schema", "properties"].contains(&key) { String::new() } else { format!(".{key}") }
}

fn extra_key(wanted: &Value, there: &Value) -> Option<String> {
    let (wanted, there) = (wanted.as_object()?, there.as_object()?);
    there.keys().find(|key| !wanted.contains_key(*key)).cloned()
}

/// Compares numbers by value: 1 equals 1.0.
fn equal(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() < f64::EPSILON,
        (_, _) => a == b,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::observed::{ReadFailure, ReadFailureCause};
    use super::super::sample::{expect_finding, healthy};

    #[test]
    fn an_old_api_server_and_other_versions_are_told() {
        let mut observed = healthy();
        observed.server = (1, 32);
        expect_finding(&observed, "versions", "1.33 or later");
        let mut observed = healthy();
        observed.version = "9.9.9";
        expect_finding(&observed, "versions", "this plugin of 9.9.9");
    }

    #[test]
    fn a_crd_that_lacks_a_field_or_has_one_too_many_or_is_not_there_is_told() {
        let mut observed = healthy();
        let crds = observed.crds.as_mut().unwrap();
        let schema = crds[1].spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap().properties.as_mut().unwrap();
        let field = spec.remove("limits").unwrap();
        let finding = expect_finding(&observed, "versions", "not that of this version");
        assert!(finding.message.ends_with("v1alpha1.spec.limits is missing"), "{finding:?}");
        let crds = observed.crds.as_mut().unwrap();
        let schema = crds[1].spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap().properties.as_mut().unwrap();
        spec.insert("limits".to_owned(), field.clone());
        spec.insert("wings".to_owned(), field);
        expect_finding(&observed, "versions", "wings is one too many");
        observed.crds.as_mut().unwrap().clear();
        assert!(expect_finding(&observed, "versions", "not installed").command.unwrap().starts_with("kubectl yoi crds"));
    }

    #[test]
    fn who_may_not_read_crds_still_learns_that_a_kind_is_not_there() {
        let mut observed = healthy();
        observed.crds = Err(ReadFailure { permission: "list customresourcedefinitions".to_owned(), cause: ReadFailureCause::Forbidden });
        observed.yoipods = Err(ReadFailure { permission: "list yoipods.yoi.dev".to_owned(), cause: ReadFailureCause::Absent });
        assert!(expect_finding(&observed, "versions", "not installed").object.ends_with("yoipods.yoi.dev"));
    }
}
