//! `version`: of this program, of Kubernetes, and of what the charts have installed.

use std::fmt::Write;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::PodSpec;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::{ClusterOptions, OutputFormat, VersionOptions};
use crate::cluster::Cluster;
use crate::error::{Error, ErrorTarget};
use crate::show;

const PART_OF_YOI: &str = "app.kubernetes.io/part-of=yoi";
const VERSION_LABEL: &str = "app.kubernetes.io/version";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes_version: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    components: Vec<Component>,
    /// Why components are not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

/// What a chart has installed.
#[derive(Serialize)]
struct Component {
    name: String,
    namespace: String,
    version: String,
    images: Vec<String>,
}

pub async fn version(options: &ClusterOptions, output: Option<OutputFormat>, args: &VersionOptions) -> Result<(), Error> {
    let mut versions =
        Versions { client_version: env!("CARGO_PKG_VERSION"), kubernetes_version: None, components: Vec::new(), unknown: Vec::new() };
    let asked = if args.client { Ok(()) } else { ask(options, &mut versions).await };
    let text = match output {
        Some(OutputFormat::Name) => format!("{}\n", versions.client_version),
        Some(OutputFormat::Wide) | None => text(&versions),
        Some(format) => show::document(format, &versions)?,
    };
    show::print(&text)?;
    // The version of this program is told even where no cluster answers.
    asked
}

async fn ask(options: &ClusterOptions, versions: &mut Versions) -> Result<(), Error> {
    let cluster = Cluster::connect(options).await?;
    let target = ErrorTarget {
        name: "the cluster".to_owned(),
        list_command: "kubectl cluster-info".to_owned(),
        doctor_command: cluster.doctor_command(false),
    };
    let server = cluster.client.apiserver_version().await.map_err(|e| Error::api("ask the API server for its version", &target, e))?;
    versions.kubernetes_version = Some(server.git_version);
    let (deployments, daemon_sets) = tokio::join!(
        components(&cluster, |d: &Deployment| d.spec.as_ref()?.template.spec.clone()),
        components(&cluster, |d: &DaemonSet| d.spec.as_ref()?.template.spec.clone()),
    );
    for listed in [deployments, daemon_sets] {
        match listed {
            Ok(components) => versions.components.extend(components),
            Err(why) => versions.unknown.push(why),
        }
    }
    versions.components.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(())
}

async fn components<K>(cluster: &Cluster, pod: impl Fn(&K) -> Option<PodSpec>) -> Result<Vec<Component>, String>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(cluster.client.clone());
    let listed = api.list(&ListParams::default().labels(PART_OF_YOI)).await;
    let listed = listed.map_err(|e| format!("{} cannot be listed: {}", K::plural(&()), show::one_line(&yoi_wire::error_chain(&e))))?;
    let component = |object: &K| Component {
        name: object.name_any(),
        namespace: object.namespace().unwrap_or_default(),
        version: object.labels().get(VERSION_LABEL).cloned().unwrap_or_default(),
        images: pod(object).into_iter().flat_map(|spec| spec.containers).filter_map(|container| container.image).collect(),
    };
    Ok(listed.items.iter().map(component).collect())
}

fn text(versions: &Versions) -> String {
    let mut text = format!("kubectl-yoi  {}\n", versions.client_version);
    if let Some(kubernetes) = &versions.kubernetes_version {
        let _ = writeln!(text, "Kubernetes   {}", show::one_line(kubernetes));
    }
    if !versions.components.is_empty() {
        let mut table = show::table(&["component", "namespace", "version", "images"]);
        for Component { name, namespace, version, images } in &versions.components {
            table.add_row([show::cell(name), show::cell(namespace), show::cell(version), show::cell(images.join(","))]);
        }
        let _ = write!(text, "\n{}", show::lines(&table));
    } else if versions.kubernetes_version.is_some() && versions.unknown.is_empty() {
        text.push_str("\nthe charts of Yoi are not installed on this cluster\n");
    }
    for why in &versions.unknown {
        let _ = writeln!(text, "\n{why}");
    }
    text
}
