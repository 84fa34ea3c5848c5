//! The volumes that the sets are in.

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, EmptyDirVolumeSource, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use yoi_crds::assets::Assets;

use super::{ReadBy, Set, SetSource, fetch, folder, sets};
use crate::restricted::mount;
use crate::settings::Settings;

/// What the names of their volumes begin with. No volume of the user's does.
const VOLUME: &str = "yoi-assets-";
/// Room of a set that is fetched. Who fetches it writes at most 16 MiB in 2,000 files.
const ROOM: &str = "64Mi";

pub(super) fn volume_name(place: usize) -> String {
    format!("{VOLUME}{place}")
}

/// A folder of the Pod's own.
pub(super) fn own_folder(name: &str, room: &str) -> Volume {
    let source = EmptyDirVolumeSource { size_limit: Some(Quantity(room.to_owned())), ..EmptyDirVolumeSource::default() };
    Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() }
}

/// The sets that this Pod mounts, with their places among all.
fn mounted<'a>(assets: Option<&'a Assets>, settings: &'a Settings, by: ReadBy) -> impl Iterator<Item = (usize, Set<'a>)> {
    let is_there = move |(_, set): &(usize, Set<'a>)| by == ReadBy::Agent || !set.from.is_fetched();
    sets(assets, settings).into_iter().enumerate().filter(is_there)
}

/// The volumes of the sets. A ConfigMap that is not there keeps no Pod from starting: the runtime says that it is missing.
pub(in crate::yoipod) fn volumes(assets: Option<&Assets>, settings: &Settings, by: ReadBy) -> Vec<Volume> {
    let volume = |(place, set): (usize, Set<'_>)| match set.from {
        SetSource::ConfigMap(name) => Volume {
            name: volume_name(place),
            config_map: Some(ConfigMapVolumeSource { name: name.to_owned(), optional: Some(true), ..ConfigMapVolumeSource::default() }),
            ..Volume::default()
        },
        SetSource::Git(_) | SetSource::Image(_) => own_folder(&volume_name(place), ROOM),
    };
    let of_fetching = if by == ReadBy::Agent { fetch::volumes(assets, settings) } else { Vec::new() };
    mounted(assets, settings, by).map(volume).chain(of_fetching).collect()
}

/// Where they are mounted.
pub(in crate::yoipod) fn mounts(assets: Option<&Assets>, settings: &Settings, by: ReadBy) -> Vec<VolumeMount> {
    mounted(assets, settings, by).map(|(place, _)| mount(&volume_name(place), &folder(place), true)).collect()
}

/// The name of a volume of the user's that could be that of a set. Schemas of earlier versions let it through.
pub(in crate::yoipod) fn taken_volume_name<'a>(mut users: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    users.find(|name| name.starts_with(VOLUME))
}
