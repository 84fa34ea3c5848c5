//! How an agent reads its team's skills and commands: its project's word, the sets in its Pod, and what its runtime says of them.

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, Volume, VolumeMount};
use yoi_crds::assets::{AssetSource, Assets, AssetsStatus};
use yoi_crds::condition::ConditionValue;
use yoi_crds::reason;
use yoi_wire::assets::{AssetSet, AssetSettings};
use yoi_wire::identity::ASSETS_MOUNT;

use crate::restricted::mount;
use crate::settings::Settings;

/// What the names of their volumes begin with. No volume of the user's does.
const VOLUME: &str = "yoi-assets-";

/// A ConfigMap that holds a set.
struct Set<'a> {
    config_map: &'a str,
    /// It is the chart's, and namespaces may do without.
    optional: bool,
}

/// The project's sets, then that of the chart.
fn sets<'a>(assets: Option<&'a Assets>, settings: &'a Settings) -> Vec<Set<'a>> {
    let of_project = assets.into_iter().flat_map(|assets| &assets.from).filter_map(|AssetSource { config_map }| config_map.as_ref());
    let of_project: Vec<Set<'a>> = of_project.map(|map| Set { config_map: &map.name, optional: false }).collect();
    let of_all = settings.assets_config_map.as_deref().filter(|name| of_project.iter().all(|set| set.config_map != *name));
    of_project.into_iter().chain(of_all.map(|config_map| Set { config_map, optional: true })).collect()
}

/// How the runtime reads them.
pub(super) fn wire(assets: Option<&Assets>, settings: &Settings) -> AssetSettings {
    let folders = sets(assets, settings).into_iter().enumerate().map(|(place, set)| AssetSet {
        name: format!("configmap/{}", set.config_map),
        folder: folder(place),
        optional: set.optional,
    });
    AssetSettings {
        dirs: assets.and_then(|assets| assets.dirs.clone()),
        strict: assets.is_some_and(|assets| assets.strict),
        watch: assets.is_some_and(|assets| assets.watch),
        sets: folders.collect(),
    }
}

fn folder(place: usize) -> String {
    format!("{ASSETS_MOUNT}/{place}")
}

/// The volumes of the sets. A ConfigMap that is not there keeps no Pod from starting: the runtime says that it is missing.
pub(super) fn volumes(assets: Option<&Assets>, settings: &Settings) -> Vec<Volume> {
    let volume = |(place, set): (usize, Set<'_>)| Volume {
        name: format!("{VOLUME}{place}"),
        config_map: Some(ConfigMapVolumeSource {
            name: set.config_map.to_owned(),
            optional: Some(true),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    sets(assets, settings).into_iter().enumerate().map(volume).collect()
}

/// The name of a volume of the user's that could be that of a set. Schemas of earlier versions let it through.
pub(super) fn taken_volume_name<'a>(mut users: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    users.find(|name| name.starts_with(VOLUME))
}

/// Where they are mounted.
pub(super) fn mounts(assets: Option<&Assets>, settings: &Settings) -> Vec<VolumeMount> {
    (0..sets(assets, settings).len()).map(|place| mount(&format!("{VOLUME}{place}"), &folder(place), true)).collect()
}

/// The condition AssetsLoaded, by what the runtime has last said.
pub(super) fn condition(project: &str, status: &AssetsStatus) -> ConditionValue {
    let AssetsStatus { generation: _, skills, commands, workflows, nodes, errors, refused, first_errors } = status;
    let counts = format!("{skills} skills, {commands} commands, {workflows} workflows and {nodes} nodes of the graph count");
    let more = usize::try_from(*errors).unwrap_or_default().saturating_sub(first_errors.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let told = format!("{}{more}", first_errors.join("; "));
    match (refused, errors) {
        (true, _) => ConditionValue::no(
            reason::INVALID_ASSETS,
            format!("refused, as YoiProject {project} reads them strictly, and what was loaded before counts on ({counts}): {told}"),
        ),
        (false, 0) => ConditionValue::yes(reason::ASSETS_READ, counts),
        (false, _) => ConditionValue::yes(reason::ASSETS_PARTLY_READ, format!("{counts}; what does not: {told}")),
    }
}
