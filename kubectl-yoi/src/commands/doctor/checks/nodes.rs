//! What each node offers, and how much of its data root is free.

mod ready;

use kube::ResourceExt;
use yoi_crds::WorkspaceNode;
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::node::OfferedProvider;
use yoi_crds::reason::{JOURNAL_DAMAGED, PROVIDER_UNAVAILABLE, Reason, condition};
use yoi_crds::source::ProviderName;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed};
use super::or_ok;
use crate::remedy::fix_command;
use crate::show;

const GIB: i64 = 1 << 30;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found: Vec<Finding> = listed(&observed.workspace_nodes).iter().flat_map(|node| node_findings(observed, node)).collect();
    found.extend(ready::findings(observed));
    if let (Ok(nodes), Ok(offers)) = (&observed.nodes, &observed.workspace_nodes) {
        for offer in offers.iter().filter(|o| !nodes.iter().any(|n| n.name_any() == o.name_any())) {
            let command = format!("kubectl delete workspacenode {}", offer.name_any());
            found.push(Finding::warning(display_name(offer), "its Node is gone; trees that were on it are lost", command));
        }
        for node in nodes.iter().filter(|n| !offers.iter().any(|o| o.name_any() == n.name_any())) {
            let command =
                format!("kubectl get pods -A -l app.kubernetes.io/name=yoi-agent-shim --field-selector spec.nodeName={}", node.name_any());
            found.push(Finding::warning(
                display_name(node),
                "it has no WorkspaceNode: its shim never reported, so no agent can run there",
                command,
            ));
        }
        if let Ok(csi) = &observed.csi_nodes {
            for offer in offers {
                let Some(csi) = csi.iter().find(|c| c.name_any() == offer.name_any()) else { continue };
                if !csi.spec.drivers.iter().any(|d| d.name == "csi.yoi.dev") {
                    let command = format!("kubectl rollout restart daemonset yoi-agent-shim -n {}", shim_namespace(observed));
                    let what = "its kubelet does not know the driver csi.yoi.dev: no tree can be mounted there";
                    found.push(Finding::error(display_name(offer), what, command));
                }
            }
        }
    }
    or_ok(found, observed.nodes.is_ok() && observed.workspace_nodes.is_ok() && observed.csi_nodes.is_ok(), "nodes", || {
        let all: Vec<_> = listed(&observed.workspace_nodes).iter().map(|n| node_summary(observed, n)).collect();
        all.join("; ")
    })
}

fn shim_namespace(observed: &ObservedCluster) -> String {
    let shim = listed(&observed.daemon_sets).iter().find(|d| d.name_any() == "yoi-agent-shim");
    shim.and_then(ResourceExt::namespace).unwrap_or_else(|| "yoi-node".to_owned())
}

/// The value of a flag of the shim or its mounter.
fn shim_flag<'a>(observed: &'a ObservedCluster, flag: &str) -> Option<&'a str> {
    let shims = listed(&observed.daemon_sets).iter().filter(|d| d.name_any() == "yoi-agent-shim");
    let containers = shims.flat_map(|d| d.spec.iter().flat_map(|s| s.template.spec.iter().flat_map(|p| &p.containers)));
    containers.flat_map(|c| c.args.iter().flatten()).find_map(|arg| arg.strip_prefix(flag)?.strip_prefix('='))
}

/// In GiB, cut to one digit behind the point if that is not 0.
fn gib(bytes: i64) -> String {
    match (bytes / GIB, bytes % GIB * 10 / GIB) {
        (whole, 0) => whole.to_string(),
        (whole, tenth) => format!("{whole}.{tenth}"),
    }
}

fn node_summary(observed: &ObservedCluster, node: &WorkspaceNode) -> String {
    let status = node.status.clone().unwrap_or_default();
    let offers: Vec<_> = status.providers.iter().filter(|p| p.available).map(|p| show::provider(p.name)).collect();
    let offers = match offers.split_first() {
        None => "no provider".to_owned(),
        Some((taken, [])) => (*taken).to_owned(),
        Some((taken, others)) => format!("{taken} (also {})", others.join(", ")),
    };
    let kernel = status.kernel.as_deref().unwrap_or("?");
    let room = status
        .capacity
        .as_ref()
        .map_or_else(|| "room unknown".to_owned(), |c| format!("{} of {} GiB free", gib(c.free_bytes), gib(c.total_bytes)));
    let digest = status.runtime_digests.first().map_or_else(String::new, |d| format!(", runtime {}", d.get(..12).unwrap_or(d)));
    let age = node.creation_timestamp().map(|t| format!(", known for {}", show::duration(observed.age(t.0)))).unwrap_or_default();
    let file = if shim_flag(observed, "--loop-size").is_some() { " in a loop-backed file" } else { "" };
    format!("{}: {offers}, kernel {kernel}, {room}{file}{digest}{age}", node.name_any())
}

fn node_findings(observed: &ObservedCluster, node: &WorkspaceNode) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(status) = &node.status else {
        let command = format!("kubectl logs -n {} -l app.kubernetes.io/name=yoi-agent-shim -c shim --tail=20", shim_namespace(observed));
        return vec![Finding::error(display_name(node), "its shim has reported nothing", command)];
    };
    let mounter = format!("kubectl logs -n {} -l app.kubernetes.io/name=yoi-agent-shim -c mounter --tail=20", shim_namespace(observed));
    let ready = find(&status.conditions, condition::READY);
    if let Some(c) = ready.filter(|c| c.status != ConditionStatus::True) {
        found.push(not_ready(node, &status.providers, c, &mounter));
    } else {
        found.extend(better_provider(observed, node, &status.providers));
        found.extend(lacking_dataset(observed, node, &status.providers));
    }
    if let Some(c) = find(&status.conditions, condition::JOURNAL_READABLE).filter(|c| c.status == ConditionStatus::False) {
        let advice = JOURNAL_DAMAGED.advice().unwrap_or_default();
        // The journal ignores a record that was moved. The user chooses which one, and knows whether there is a backup.
        let command =
            format!("kubectl debug node/{} -it --profile=sysadmin --image=busybox -- mv /host/FILE /host/FILE.aside", node.name_any());
        found.push(Finding::error(display_name(node), format!("{}: {}. {advice}", c.reason, c.message.trim_end_matches('.')), command));
    }
    if let Some(c) = status.capacity.as_ref().filter(|c| c.total_bytes > 0) {
        let percent = c.free_bytes * 100 / c.total_bytes;
        let what = format!("{percent} % of its data root is free ({} of {} MiB)", c.free_bytes >> 20, c.total_bytes >> 20);
        let command = "kubectl yoi ls workspaces -A";
        match percent {
            ..3 => found.push(Finding::error(display_name(node), what, command)),
            3..10 => found.push(Finding::warning(display_name(node), what, command)),
            _ => {}
        }
    }
    if status.runtime_digests.is_empty() {
        found.push(Finding::error(display_name(node), "it has no yoi-runtime to give to agents", mounter));
    }
    found
}

/// What the provider that Auto takes on a node cannot do, why the better ones are passed over, and the command that gives the node a better one.
fn better_provider(observed: &ObservedCluster, node: &WorkspaceNode, providers: &[OfferedProvider]) -> Option<Finding> {
    let offer = |name| providers.iter().find(|p| p.name == name);
    let taken = ProviderName::OFFERED.into_iter().find(|name| offer(*name).is_some_and(|p| p.available))?;
    let lacks = match taken {
        ProviderName::Zfs | ProviderName::Btrfs | ProviderName::Auto | ProviderName::Unknown => return None,
        ProviderName::Overlay => "trees are overlays, and the tree of an agent that runs cannot be forked",
        ProviderName::Reflink => "trees are made by visiting each file, and the tree of an agent that runs cannot be forked",
        ProviderName::Copy => {
            "trees are copied, which takes time and room by their size, and the tree of an agent that runs cannot be forked"
        }
    };
    let better = ProviderName::OFFERED.into_iter().take_while(|name| *name != taken);
    let why: Vec<_> = better.filter_map(|name| Some(format!("{}: {}", show::provider(name), offer(name)?.reason))).collect();
    let command = format!(
        "helm upgrade yoi-operator charts/yoi-operator -n {} --reuse-values --set shim.loopBtrfs.enabled=true",
        observed.operator_namespace
    );
    let what = format!("its provider is {}: {lacks}. Not taken are {}", show::provider(taken), why.join("; "));
    Some(Finding::note(display_name(node), what, command))
}

/// Why a node makes no trees in the dataset that the chart names, and the command that shows what its `zfs` says of it.
fn lacking_dataset(observed: &ObservedCluster, node: &WorkspaceNode, providers: &[OfferedProvider]) -> Option<Finding> {
    let dataset = shim_flag(observed, "--zfs-dataset")?;
    let offer = providers.iter().find(|p| p.name == ProviderName::Zfs && !p.available)?;
    let what = format!("shim.zfs.dataset names {dataset}, and this node makes no trees there: {}", offer.reason);
    let command =
        format!("kubectl debug node/{} -it --profile=sysadmin --image=busybox -- chroot /host zfs list {dataset}", node.name_any());
    Some(Finding::note(display_name(node), what, command))
}

/// The finding about a node whose condition Ready is `ready`. `mounter` is the command that shows what the mounter logged.
fn not_ready(node: &WorkspaceNode, providers: &[OfferedProvider], ready: &Condition, mounter: &str) -> Finding {
    let what = format!("{}: {}", ready.reason, ready.message.trim_end_matches('.'));
    let known = Reason::from_name(&ready.reason).filter(|reason| *reason != PROVIDER_UNAVAILABLE);
    if let Some((reason, advice)) = known.and_then(|reason| Some((reason, reason.advice()?))) {
        let command = fix_command(node, reason).replace("spec.nodeName=NODE", &format!("spec.nodeName={}", node.name_any()));
        return Finding::error(display_name(node), format!("{what}. {advice}"), command);
    }
    let why: Vec<_> = providers.iter().filter(|p| !p.available).map(|p| format!("{}: {}", show::provider(p.name), p.reason)).collect();
    Finding::error(display_name(node), format!("{what} ({})", why.join("; ")), mounter)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy};
    use super::super::{Severity, check_named};
    use yoi_crds::source::ProviderName;

    #[test]
    fn a_data_root_that_fills_up_is_a_warning_and_then_an_error() {
        for (free, severity) in [(9, Severity::Warning), (2, Severity::Error)] {
            let mut observed = healthy();
            let status = observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap();
            status.capacity = Some(yoi_crds::node::Capacity::new(100 << 20, free << 20));
            assert_eq!(expect_finding(&observed, "nodes", "of its data root is free").severity, severity);
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_on_a_node_that_is_ready() {
        let mut observed = healthy();
        let conditions = &mut observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap().conditions;
        let mut readable = yoi_crds::Condition { type_: "JournalReadable".to_owned(), ..conditions[0].clone() };
        conditions.push(readable.clone());
        assert_eq!(check_named(&observed, "nodes")[0].severity, Severity::Ok, "every record can be read");
        (readable.status, readable.reason) = (yoi_crds::ConditionStatus::False, "JournalDamaged".to_owned());
        readable.message = "failed to understand the record /var/lib/yoi/journal/x.json: EOF (and 1 more)".to_owned();
        observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap().conditions[1] = readable;
        let finding = expect_finding(&observed, "nodes", "JournalDamaged: failed to understand the record /var/lib/yoi/journal/x.json");
        assert_eq!((finding.object.as_str(), finding.severity), ("WorkspaceNode n", Severity::Error));
        assert!(finding.message.contains("move it away") && finding.command.unwrap().starts_with("kubectl debug node/n "));
    }

    #[test]
    fn a_read_only_data_root_and_a_node_that_is_not_heard_of_come_with_the_command_that_helps() {
        let finding = |status, reason: &str, message: &str| {
            let mut observed = healthy();
            let ready = &mut observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap().conditions[0];
            (ready.status, ready.reason, ready.message) = (status, reason.to_owned(), message.to_owned());
            expect_finding(&observed, "nodes", message)
        };
        let read_only = finding(yoi_crds::ConditionStatus::False, "ReadOnlyFilesystem", "the file system has become read-only");
        assert_eq!(read_only.command.unwrap(), "kubectl delete pods -A --field-selector spec.nodeName=n -l yoi.dev/yoipod");
        assert!(read_only.message.contains("the node mounts it anew within a minute"), "{}", read_only.message);
        let silent = finding(yoi_crds::ConditionStatus::Unknown, "NodeStatusUnknown", "Pod shim-a of its shim is not ready");
        assert_eq!((silent.object.as_str(), silent.severity), ("WorkspaceNode n", Severity::Error));
        assert!(silent.command.unwrap().ends_with("--field-selector spec.nodeName=n"));
        let other = finding(yoi_crds::ConditionStatus::False, "OfALaterVersion", "what nobody knows");
        assert!(other.command.unwrap().starts_with("kubectl logs"), "a reason that this version does not know");
    }

    #[test]
    fn nodes_without_a_shim_and_offers_without_a_node_are_told() {
        let mut observed = healthy();
        observed.workspace_nodes.as_mut().unwrap().clear();
        expect_finding(&observed, "nodes", "no WorkspaceNode");
        let mut observed = healthy();
        observed.nodes.as_mut().unwrap().clear();
        assert_eq!(expect_finding(&observed, "nodes", "its Node is gone").command.unwrap(), "kubectl delete workspacenode n");
    }

    #[test]
    fn a_kubelet_without_our_driver_and_a_node_without_a_provider_are_told() {
        let mut observed = healthy();
        observed.csi_nodes.as_mut().unwrap()[0].spec.drivers.clear();
        expect_finding(&observed, "nodes", "does not know the driver");
        let mut observed = healthy();
        let status = observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap();
        status.conditions[0].status = yoi_crds::ConditionStatus::False;
        status.providers[0].available = false;
        assert!(expect_finding(&observed, "nodes", "Btrfs").message.contains("no btrfs here"));
        let status = observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap();
        status.conditions[0].status = yoi_crds::ConditionStatus::True;
        let copies = expect_finding(&observed, "nodes", "its provider is Copy: trees are copied");
        assert!(copies.message.ends_with("Not taken are Btrfs: no btrfs here"), "{}", copies.message);
        assert_eq!(copies.severity, Severity::Note);
    }

    #[test]
    fn a_node_says_why_it_has_no_better_provider_and_which_command_gives_it_one() {
        let with = |available: &[ProviderName]| {
            let mut observed = healthy();
            let status = observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap();
            let offer = |name: &ProviderName| yoi_crds::node::OfferedProvider {
                name: *name,
                available: available.contains(name),
                reason: format!("because of {name}"),
            };
            status.providers = ProviderName::OFFERED.iter().map(offer).collect();
            observed
        };
        let overlays = with(&[ProviderName::Overlay, ProviderName::Copy]);
        let finding = expect_finding(&overlays, "nodes", "its provider is Overlay");
        assert!(finding.message.ends_with("Not taken are Zfs: because of Zfs; Btrfs: because of Btrfs"), "{}", finding.message);
        assert!(finding.command.unwrap().ends_with("--reuse-values --set shim.loopBtrfs.enabled=true"));
        let best = check_named(&with(&[ProviderName::Btrfs, ProviderName::Overlay, ProviderName::Copy]), "nodes");
        assert!(best[0].message.contains("Btrfs (also Overlay, Copy), kernel"), "{best:?}");
    }

    #[test]
    fn a_node_without_the_dataset_that_the_chart_names_says_why() {
        let mut observed = healthy();
        let status = observed.workspace_nodes.as_mut().unwrap()[0].status.as_mut().unwrap();
        let reason = "failed to find the dataset for trees: there is no dataset tank/yoi".to_owned();
        status.providers.push(yoi_crds::node::OfferedProvider { name: ProviderName::Zfs, available: false, reason });
        assert!(check_named(&observed, "nodes").iter().all(|f| !f.message.contains("tank/yoi")), "no value names a dataset");
        let shims = observed.daemon_sets.as_mut().unwrap();
        let shim = shims.iter_mut().find(|d| d.metadata.name.as_deref() == Some("yoi-agent-shim")).unwrap();
        let containers = &mut shim.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers;
        containers.push(k8s_openapi::api::core::v1::Container {
            name: "mounter".to_owned(),
            args: Some(vec!["--zfs-dataset=tank/yoi".to_owned()]),
            ..Default::default()
        });
        let finding =
            expect_finding(&observed, "nodes", "shim.zfs.dataset names tank/yoi, and this node makes no trees there: failed to find");
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.command.unwrap().ends_with("chroot /host zfs list tank/yoi"));
    }

    #[test]
    fn a_small_data_root_has_no_more_free_than_in_all() {
        assert_eq!([1 << 30, (1 << 30) + (1 << 29), 1 << 29, 0].map(super::gib), ["1", "1.5", "0.5", "0"]);
    }

    #[test]
    fn the_ok_finding_lists_what_each_node_offers() {
        let findings = check_named(&healthy(), "nodes");
        assert!(findings[0].message.contains("Btrfs (also Copy), kernel 6.18, 0.5 of 1 GiB free"), "{findings:?}");
    }
}
