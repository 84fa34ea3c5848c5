//! How an agent reads its team's skills and commands: its project's word, the sets in its Pod, and what its runtime says of them.

use yoi_crds::assets::{AssetGit, AssetImage, AssetSource, Assets, AssetsStatus};
use yoi_crds::condition::ConditionValue;
use yoi_crds::reason;
use yoi_wire::assets::{AssetSet, AssetSettings};
use yoi_wire::identity::ASSETS_MOUNT;

use crate::settings::Settings;

pub mod fetch;
mod fetched;
mod volumes;

pub(super) use fetched::{FetchedSet, fetched, keeps_from_starting, leave_out};
pub(super) use volumes::{mounts, taken_volume_name, volumes};

/// A set that is not of the tree.
struct Set<'a> {
    /// Kind and name, as people are shown it. No two sets of an agent have the same.
    name: String,
    from: SetSource<'a>,
    /// It is the chart's, and namespaces may do without.
    optional: bool,
}

#[derive(Clone, Copy)]
enum SetSource<'a> {
    ConfigMap(&'a str),
    Git(&'a AssetGit),
    Image(&'a AssetImage),
}

impl SetSource<'_> {
    fn is_fetched(self) -> bool {
        match self {
            SetSource::ConfigMap(_) => false,
            SetSource::Git(_) | SetSource::Image(_) => true,
        }
    }
}

/// `None` for one of another version.
fn set(source: &AssetSource, optional: bool) -> Option<Set<'_>> {
    let (kind, name, from) = match source {
        AssetSource { config_map: Some(map), .. } => ("configmap", &map.name, SetSource::ConfigMap(&map.name)),
        AssetSource { git: Some(git), name: Some(name), .. } => ("git", name, SetSource::Git(git)),
        AssetSource { image: Some(image), name: Some(name), .. } => ("image", name, SetSource::Image(image)),
        _ => return None,
    };
    Some(Set { name: format!("{kind}/{name}"), from, optional })
}

/// The project's sets, then those of the chart.
fn sets<'a>(assets: Option<&'a Assets>, settings: &'a Settings) -> Vec<Set<'a>> {
    let mut all: Vec<Set<'a>> = assets.into_iter().flat_map(|assets| &assets.from).filter_map(|source| set(source, false)).collect();
    for of_chart in settings.assets_from.iter().filter_map(|source| set(source, true)) {
        if all.iter().all(|set| set.name != of_chart.name) {
            all.push(of_chart);
        }
    }
    all
}

/// Who reads the sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadBy {
    /// The agent, whose Pod fetches those of git and images.
    Agent,
    /// Whoever reads a stopped agent. That Pod has no credentials, and fetches nothing.
    Reader,
}

/// How the runtime reads them.
pub(super) fn wire(assets: Option<&Assets>, settings: &Settings, by: ReadBy) -> AssetSettings {
    let folders = sets(assets, settings).into_iter().enumerate().map(|(place, set)| {
        let (name, fetched) = (set.name, set.from.is_fetched());
        let folder = if fetched && by == ReadBy::Reader { String::new() } else { folder(place) };
        AssetSet { name, folder, fetched, optional: set.optional }
    });
    AssetSettings {
        dirs: assets.and_then(|assets| assets.dirs.clone()),
        strict: assets.is_some_and(|assets| assets.strict),
        watch: assets.is_some_and(|assets| assets.watch),
        sets: folders.collect(),
    }
}

/// Where the agent sees the set.
fn folder(place: usize) -> String {
    format!("{ASSETS_MOUNT}/{place}")
}

/// The condition AssetsLoaded, by what the runtime has last said, and what has become of the sets that were fetched.
pub(super) fn condition(project: &str, status: &AssetsStatus, fetched: &[FetchedSet]) -> ConditionValue {
    let AssetsStatus { generation: _, skills, commands, workflows, nodes, errors, refused, first_errors } = status;
    let mut counts = format!("{skills} skills, {commands} commands, {workflows} workflows and {nodes} nodes of the graph count");
    for (set, revision) in fetched.iter().filter_map(FetchedSet::revision) {
        counts.push_str(&format!("; {set} is of {revision}"));
    }
    let more = usize::try_from(*errors).unwrap_or_default().saturating_sub(first_errors.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let told = format!("{}{more}", first_errors.join("; "));
    match (refused, errors) {
        _ if let Some(failure) = fetched::failures(fetched) => {
            ConditionValue::no(reason::ASSETS_NOT_FETCHED, format!("the agent works without them: {failure}; {counts}"))
        }
        (true, _) => ConditionValue::no(
            reason::INVALID_ASSETS,
            format!("refused, as YoiProject {project} reads them strictly, and what was loaded before counts on ({counts}): {told}"),
        ),
        (false, 0) => ConditionValue::yes(reason::ASSETS_READ, counts),
        (false, _) => ConditionValue::yes(reason::ASSETS_PARTLY_READ, format!("{counts}; what does not: {told}")),
    }
}
