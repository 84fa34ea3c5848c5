//! The schemas are structural and carry their rules.

use yoi_crds::reason::Reason;
use yoi_wire::hub::ReportReason;
use yoi_wire::open::NamedValue as _;

#[test]
fn every_kind_has_a_crd_with_status_and_print_columns() {
    let all = yoi_crds::all();
    assert_eq!(all.len(), 5);
    for crd in all {
        let version = &crd.spec.versions[0];
        assert!(version.subresources.as_ref().is_some_and(|s| s.status.is_some()), "{:?}", crd.metadata.name);
        let columns: Vec<_> = version.additional_printer_columns.iter().flatten().map(|c| c.name.as_str()).collect();
        assert!(columns.starts_with(&["Ready", "Reason"]) && columns.ends_with(&["Age"]), "{:?}: {columns:?}", crd.metadata.name);
        let text = serde_json::to_string(&version.schema).expect("schemas are JSON");
        assert!(text.len() < 200_000, "{:?} has {} bytes", crd.metadata.name, text.len());
    }
}

#[test]
fn reasons_are_camel_case_unique_and_say_what_they_mean() {
    let mut seen = std::collections::BTreeSet::new();
    for reason in yoi_crds::reason::ALL {
        assert!(reason.chars().next().is_some_and(char::is_uppercase) && reason.chars().all(char::is_alphanumeric), "{reason}");
        assert!(reason.meaning().ends_with('.'), "{reason}: {}", reason.meaning());
        assert!(reason.advice().is_none_or(|advice| advice.ends_with(['.', '?'])), "{reason}: {:?}", reason.advice());
        assert!(!reason.warns() || reason.advice().is_some(), "{reason} warns and says not what to do");
        assert_eq!(yoi_crds::reason::Reason::from_name(reason), Some(*reason));
        assert!(seen.insert(reason.as_str()), "{reason} twice");
    }
}

#[test]
fn a_reason_that_ends_a_wait_comes_with_advice_and_a_command() {
    use yoi_crds::reason::{self, Recovery};
    let ends = |reason: &&Reason| reason.recovery() != Recovery::Itself;
    for reason in reason::ALL.iter().filter(ends) {
        assert!(reason.warns() && reason.advice().is_some() && reason.command().is_some(), "{reason}");
    }
    // What passes by itself ends no wait.
    for reason in [reason::STARTING, reason::POPULATING, reason::PROJECT_NOT_READY, reason::SESSION_LOCKED, reason::POD_PENDING] {
        assert_eq!(reason.recovery(), Recovery::Itself, "{reason}");
    }
    for reason in [reason::SECRET_MISSING, reason::INVALID_SPEC, reason::SOURCE_NOT_FOUND] {
        assert_eq!(reason.recovery(), Recovery::Person, "{reason}");
    }
}

#[test]
fn every_reason_that_a_runtime_reports_is_a_reason_of_a_condition() {
    for reported in ReportReason::ALL {
        assert!(Reason::from_name(reported.as_str()).is_some(), "{reported:?}");
    }
}

#[test]
fn every_kind_has_its_conditions_and_each_of_them_stands_once() {
    let mut seen = std::collections::BTreeSet::new();
    for c in yoi_crds::reason::condition::ALL {
        assert!(seen.insert((c.kind, c.type_)), "{} of {} twice", c.type_, c.kind);
        assert!(c.when_true.ends_with('.'), "{}", c.when_true);
    }
    for crd in yoi_crds::all() {
        assert!(seen.contains(&(crd.spec.names.kind.as_str(), "Ready")), "{}", crd.spec.names.kind);
    }
}

/// The API server writes a default into every object that it stores or reads, so a default that depends on the source cannot be one of the schema.
#[test]
fn a_path_has_no_default_and_one_that_a_former_version_wrote_stays() {
    for crd in yoi_crds::all().iter().filter(|crd| ["YoiProject", "AgentWorkspace"].contains(&crd.spec.names.kind.as_str())) {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).expect("schemas are JSON");
        let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
        let path = &spec["properties"]["path"];
        assert!(path["type"] == "string" && path.get("default").is_none(), "{:?}: {path}", crd.metadata.name);
        let required = spec["required"].as_array().expect("fields that are required");
        assert!(!required.contains(&"path".into()), "{:?}: {required:?}", crd.metadata.name);
    }
    let stored = |spec: serde_json::Value| {
        let project = serde_json::json!({"metadata": {"name": "p"}, "spec": spec});
        let project: yoi_crds::YoiProject = serde_json::from_value(project).expect("a stored project");
        project.spec.path
    };
    let host = serde_json::json!({"host": {"name": "clone"}});
    assert_eq!(stored(serde_json::json!({"source": host, "path": "/workspace"})).as_deref(), Some("/workspace"));
    assert_eq!(stored(serde_json::json!({"source": host})), None);
}

#[test]
fn whatever_a_user_may_write_has_a_bound() {
    fn unbound(node: &serde_json::Value, at: &str, found: &mut Vec<String>) {
        let lacks = |bound: &str| node[bound].is_null();
        match node["type"].as_str() {
            Some("string") if lacks("maxLength") && lacks("enum") => found.push(at.to_owned()),
            Some("array") if lacks("maxItems") => found.push(at.to_owned()),
            Some("object") if node["additionalProperties"].is_object() && lacks("maxProperties") => found.push(at.to_owned()),
            _ => {}
        }
        for (name, inner) in node["properties"].as_object().into_iter().flatten() {
            unbound(inner, &format!("{at}.{name}"), found);
        }
        for inner in ["items", "additionalProperties"].map(|name| &node[name]).into_iter().filter(|inner| inner.is_object()) {
            unbound(inner, &format!("{at}[]"), found);
        }
    }
    let mut found = Vec::new();
    for crd in yoi_crds::all() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).expect("schemas are JSON");
        unbound(&schema["openAPIV3Schema"]["properties"]["spec"], &crd.spec.names.kind, &mut found);
    }
    assert!(found.is_empty(), "without a bound: {found:?}");
}

#[test]
fn every_reason_that_a_log_or_a_runtime_gives_is_explained() {
    use yoi_crds::reason::Reason;
    use yoi_wire::entry::{NOTICE_REASONS, RUN_END_REASONS};
    use yoi_wire::hub::ReportReason;
    use yoi_wire::open::NamedValue;
    let reported = ReportReason::ALL.iter().map(|reason| reason.as_str());
    let unknown: Vec<_> =
        RUN_END_REASONS.into_iter().chain(NOTICE_REASONS).chain(reported).filter(|name| Reason::from_name(name).is_none()).collect();
    assert!(unknown.is_empty(), "`kubectl yoi explain` knows nothing of {unknown:?}");
}
