//! The schemas are structural and carry their rules.

#[test]
fn every_kind_has_a_crd_with_status_and_print_columns() {
    let all = yoi_crds::all();
    assert_eq!(all.len(), 5);
    for crd in all {
        let version = &crd.spec.versions[0];
        assert!(version.subresources.as_ref().is_some_and(|s| s.status.is_some()), "{:?}", crd.metadata.name);
        assert!(version.additional_printer_columns.as_ref().is_some_and(|c| c.len() >= 3), "{:?}", crd.metadata.name);
        let text = serde_json::to_string(&version.schema).expect("schemas are JSON");
        assert!(text.len() < 200_000, "{:?} has {} bytes", crd.metadata.name, text.len());
    }
}

#[test]
fn reasons_are_camel_case_and_unique() {
    let mut seen = std::collections::BTreeSet::new();
    for (reason, meaning) in yoi_crds::reason::ALL {
        assert!(reason.chars().next().is_some_and(char::is_uppercase) && reason.chars().all(char::is_alphanumeric), "{reason}");
        assert!(meaning.trim().ends_with('.'), "{reason}: {meaning}");
        assert!(seen.insert(reason), "{reason} twice");
    }
}
