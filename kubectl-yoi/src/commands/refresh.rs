//! `refresh`: looks now whether the branch of a project has moved.

use yoi_crds::YoiProject;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::name::annotation;
use yoi_crds::reason::condition;

use crate::args::{OutputFormat, RefreshOptions};
use crate::cluster::{Cluster, Wait, blocked};
use crate::error::{Error, RefusalKind};
use crate::show;

/// Returns when trees are made from the commit that the look has found. Agents that have a tree keep it.
pub async fn refresh(cluster: &Cluster, output: Option<OutputFormat>, args: &RefreshOptions) -> Result<(), Error> {
    let name = &args.project;
    let project: YoiProject = cluster.get(name).await?;
    if project.spec.source.git.is_none() {
        let next = cluster.plugin_command(&format!("take {name}"));
        let next = match &project.spec.source {
            source if source.host.is_some() => format!("take its folder anew: {next}"),
            source if source.takes_trees() => format!("send a tree anew: {}", cluster.plugin_command(&format!("sync {name}"))),
            _ => "leave it".to_owned(),
        };
        return Err(cluster.refused_error::<YoiProject>("refresh", name, "its source is no git repository", next));
    }
    let synced = project.status.as_ref().and_then(|status| status.sync.as_ref()?.last.as_ref());
    if let Some(last) = synced.filter(|_| project.spec.source.git.as_ref().is_some_and(|git| git.sync.is_some())) {
        let message = format!("its trees are made from what {} has synced of {}, wherever its branch is", last.person, last.machine);
        let next = format!(
            "sync another tree: {}; or let the branch count again: kubectl patch yoiproject {name} -n {} --type merge -p '{{\"spec\":{{\"source\":{{\"git\":{{\"sync\":null}}}}}}}}'",
            cluster.plugin_command(&format!("sync {name}")),
            cluster.namespace
        );
        return Err(cluster.refused_error::<YoiProject>("refresh", name, show::one_line(&message), next));
    }
    let before = held(&project);
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string();
    let patch = serde_json::json!({ "metadata": { "annotations": { annotation::LOOK: now } } });
    let asked: YoiProject = cluster.patch(name, &patch).await?;
    let title = format!("yoiproject.yoi.dev/{name}");
    if cluster.dry_run.is_some() {
        return show::object(output, &asked, &title, &format!("{title} would be looked at{}", cluster.dry_run_mark()));
    }
    let refreshed = wait(cluster, args, &now).await?;
    let after = held(&refreshed).unwrap_or_default();
    let done = match before {
        Some(before) if before == after => format!("is at commit {after}, as before"),
        Some(before) => format!("has moved from commit {before} to {after}; agents that have a tree keep it"),
        None => format!("is at commit {after}"),
    };
    show::object(output, &refreshed, &title, &format!("{title} {done}"))
}

/// The commit that trees are made from.
fn held(project: &YoiProject) -> Option<String> {
    project.status.as_ref()?.generation.as_ref()?.revision.clone()
}

async fn wait(cluster: &Cluster, args: &RefreshOptions, request: &str) -> Result<YoiProject, Error> {
    let name = &args.project;
    cluster
        .wait(name, args.timeout, "refreshed", |project: Option<&YoiProject>| {
            let Some(project) = project else { return Err(cluster.gone_error::<YoiProject>(name)) };
            let status = project.status.clone().unwrap_or_default();
            let refresh = status.refresh.as_deref().filter(|refresh| refresh.request.as_deref() == Some(request));
            let Some(refresh) = refresh else {
                // The first look comes after the first fetch. A source that cannot be fetched would keep this waiting for ever.
                let source = find(&status.conditions, condition::SOURCE_READY).filter(|source| source.status != ConditionStatus::True);
                return Ok(match source {
                    Some(source) => blocked(cluster, project, "refreshed", Some(source), |_| None),
                    None => Wait::Pending("its git repository is being looked at".to_owned()),
                });
            };
            if let Some(failure) = &refresh.failure {
                let next = format!("kubectl describe yoiproject {name} -n {}", cluster.namespace);
                let operation = format!("refresh {}", cluster.display_name::<YoiProject>(name));
                return Err(Error::refused_error(operation, show::one_line(failure), next, RefusalKind::Other));
            }
            if refresh.revision.is_some() && held(project) == refresh.revision {
                return Ok(Wait::Done(project.clone()));
            }
            Ok(blocked(cluster, project, "refreshed", find(&status.conditions, condition::REFRESHED), |_| None))
        })
        .await
}
