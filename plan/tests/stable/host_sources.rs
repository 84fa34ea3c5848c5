//! Folders of the nodes that trees are taken from: the administrator's list, what becomes of the folders, and what shims say of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::condition::{find, is_true};
use yoi_crds::node::OfferedHostSource;
use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::source::{DEFAULT_PATH, HostSource};
use yoi_crds::{AgentWorkspace, WorkspaceNode};
use yoi_plan::meta::{controlled_by, deleting, uid};

use crate::cluster::{Cluster, Machine, NS, Violation};
use crate::users::Random;

/// The source that this namespace's objects may name, as long as the administrator lists it for them.
const CLONE: &str = "clone";
/// One that is listed for another namespace.
const PRIVATE: &str = "private";
const ANOTHER_NAMESPACE: &str = "another";

/// What is there under the path of [`CLONE`] on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Folder {
    #[default]
    Missing,
    Fine,
    /// Somebody writes to it all the time.
    Changing,
    /// It belongs to root.
    OfRoot,
    /// A part of it is a volume of its own.
    Nested,
}

/// A source that a user writes into a spec, known or not.
pub fn any(random: &mut Random) -> HostSource {
    let name = (*random.pick(&[CLONE, CLONE, CLONE, CLONE, PRIVATE, "unknown"]).expect("names")).to_owned();
    HostSource { name, take: random.pick(&[None, Some("t1"), Some("t2")]).copied().flatten().map(str::to_owned) }
}

/// What a node's shim publishes.
pub fn offered(c: &Cluster, node: &str) -> Vec<OfferedHostSource> {
    let source = |name: &str, namespace: &str, available| OfferedHostSource {
        name: name.to_owned(),
        path: if c.moved { "/srv/clone" } else { "/home/me/clone" }.to_owned(),
        namespaces: vec![namespace.to_owned()],
        available,
    };
    let is_there = c.get::<Machine>(node).is_some_and(|m| m.folder != Folder::Missing);
    vec![source(CLONE, if c.unlisted { ANOTHER_NAMESPACE } else { NS }, is_there), source(PRIVATE, ANOTHER_NAMESPACE, true)]
}

/// The shims of living nodes publish what has changed: all of them, or, with `random`, some.
pub fn publish(c: &mut Cluster, mut random: Option<&mut Random>) {
    for node in c.names::<WorkspaceNode>() {
        let offered = offered(c, &node);
        let differs = c.get::<WorkspaceNode>(&node).and_then(|o| o.status.as_ref()).is_some_and(|s| s.host_sources != offered);
        if differs && c.alive(&node) && random.as_mut().is_none_or(|random| random.one_in(3)) {
            c.change::<WorkspaceNode>(&node, |o| o.status.get_or_insert_default().host_sources = offered);
        }
    }
}

/// What keeps the node's shim from taking the folder.
pub fn refusal(c: &Cluster, node: &str, source: &HostSource) -> Option<(Reason, &'static str)> {
    if !is_listed(c, source) {
        return Some((reason::SOURCE_FORBIDDEN, "this node does not list it for this namespace"));
    }
    match c.get::<Machine>(node)?.folder {
        Folder::Fine => None,
        Folder::Missing => Some((reason::SOURCE_NOT_FOUND, "there is no such folder")),
        Folder::Changing => Some((reason::SOURCE_CHANGING, "it changed each time that it was copied")),
        Folder::OfRoot => Some((reason::SOURCE_FORBIDDEN, "it belongs to root")),
        Folder::Nested => Some((reason::NESTED_VOLUME, "it holds another volume")),
    }
}

/// Something happens to the folder of a node, or to the list.
pub fn fail(c: &mut Cluster, random: &mut Random) {
    if random.one_in(12) {
        c.moved = !c.moved;
        return c.coverage.feature("host source: listed at another path");
    }
    if random.one_in(6) {
        c.unlisted = !c.unlisted;
        return c.coverage.feature(if c.unlisted { "host source: listed no more" } else { "host source: listed again" });
    }
    let Some(title) = random.pick(&c.names::<Machine>()).cloned() else { return };
    let (folder, feature) = match random.roll(8) {
        0..=3 => (Folder::Fine, "host source: is well"),
        4 => (Folder::Missing, "host source: vanishes"),
        5 => (Folder::Changing, "host source: is written to"),
        6 => (Folder::OfRoot, "host source: belongs to root"),
        _ => (Folder::Nested, "host source: holds a volume"),
    };
    c.coverage.feature(feature);
    c.change::<Machine>(&title, |m| m.folder = folder);
}

/// What somebody repairs. What is still broken stays so.
pub fn repair(c: &mut Cluster, random: &mut Random) {
    c.unlisted &= random.one_in(4);
    for title in c.names::<Machine>() {
        if random.one_in(2) {
            c.change::<Machine>(&title, |m| m.folder = Folder::Fine);
        }
    }
}

/// The node that holds, or is to take, what the object of this UID asks for.
pub fn pinned(c: &Cluster, parent: &str, source: &HostSource) -> Option<String> {
    let is_base = |w: &AgentWorkspace| {
        let of = w.spec.base.is_some() && w.spec.source.host.as_ref() == Some(source);
        of && controlled_by(&w.metadata, parent) && !deleting(&w.metadata)
    };
    let base = c.now.workspaces.values().find(|w| is_base(w))?;
    Some(base.spec.base.as_ref()?.node.clone())
}

/// What the node's shim has published of the folder for this namespace.
pub fn published<'a>(c: &'a Cluster, node: &str, source: &HostSource) -> Option<&'a OfferedHostSource> {
    let offer = c.get::<WorkspaceNode>(node)?.status.as_ref()?;
    offer.host_sources.iter().find(|offered| offered.name == source.name && offered.is_for(NS))
}

/// Whether a base of the folder shows where its project or workspace says, else where the folder lies on its node.
pub fn shows_where_it_lies(c: &Cluster, base: &AgentWorkspace, node: &str, source: &HostSource) -> bool {
    let is_parent = |meta: &ObjectMeta| controlled_by(&base.metadata, uid(meta));
    let project = c.now.projects.values().find(|p| is_parent(&p.metadata)).map(|p| &p.spec.path);
    let parent = project.or_else(|| c.now.workspaces.values().find(|w| is_parent(&w.metadata)).map(|w| &w.spec.path));
    match parent {
        Some(Some(named)) => base.spec.path.as_ref() == Some(named),
        _ => base.spec.path.is_some() && base.spec.path.as_ref() == published(c, node, source).map(|offered| &offered.path),
    }
}

/// Once nothing changes any more, each tree shows where its spec says, else where that shows which it was made from.
pub fn check_path(c: &Cluster, title: &str, w: &AgentWorkspace) -> Result<(), Violation> {
    let Some(status) = w.status.as_ref().filter(|s| w.spec.base.is_none() && is_true(&s.conditions, condition::PROVISIONED)) else {
        return Ok(());
    };
    let origin = status.origin.as_ref().and_then(|origin| origin.workspace_uid.as_deref());
    let made_from = origin.and_then(|origin| c.now.workspaces.values().find(|w| uid(&w.metadata) == origin));
    let wanted = match (&w.spec.path, origin, made_from) {
        (Some(named), _, _) => Some(named.as_str()),
        (None, None, _) => Some(DEFAULT_PATH),
        (None, Some(_), Some(other)) => other.tree_path(),
        // What it was made from is gone.
        (None, Some(_), None) => status.path.as_deref(),
    };
    let is_shown = wanted.is_some() && status.path.as_deref() == wanted;
    if is_shown { Ok(()) } else { Err(Violation(format!("workspace {title} shows at {:?}, and its source at {wanted:?}", status.path))) }
}

/// The node with a base of this generation that trees can be cloned from, now or later.
pub fn taken_on<'a>(c: &'a Cluster, parent: &str, generation: &str) -> Option<&'a String> {
    let lives = |w: &AgentWorkspace| {
        let conditions = w.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let is_lost = find(conditions, condition::PROVISIONED).is_some_and(|p| p.reason == *reason::TREE_LOST);
        controlled_by(&w.metadata, parent) && !deleting(&w.metadata) && !is_lost
    };
    let bases = c.now.workspaces.values().filter(|w| lives(w)).filter_map(|w| w.spec.base.as_ref());
    bases.filter(|base| base.generation == generation && c.exists(&base.node)).map(|base| &base.node).next()
}

/// Whether the administrator lists the folder for this namespace.
pub fn is_listed(c: &Cluster, source: &HostSource) -> bool {
    source.name == CLONE && !c.unlisted
}

/// Whether a base of the folder may begin there: Pods can start there, and its shim says that the folder is there.
fn is_open(c: &Cluster, (node, m): (&String, &Machine)) -> bool {
    m.alive && !m.cordoned && !m.tainted && c.now.offers.contains_key(node) && m.folder != Folder::Missing
}

/// Whether an object may rest for this reason that asks for the source, whose base is on `node`; or that has no base.
pub fn excuses(c: &Cluster, why: Reason, source: &HostSource, node: Option<&str>) -> bool {
    let refused = node.and_then(|node| refusal(c, node, source));
    let another_has_it = c.now.machines.iter().any(|(title, m)| Some(title.as_str()) != node && is_open(c, (title, m)));
    match (why, refused) {
        // Somebody has to put the folder there, unless another node has it.
        (reason::SOURCE_NOT_FOUND, Some((why, _))) => why == reason::SOURCE_NOT_FOUND && !another_has_it,
        (why, Some((refused, _))) if why == refused => true,
        // A node was chosen for the tree, which waits for the base there.
        (reason::POPULATING, Some(_)) => true,
        (reason::SOURCE_FORBIDDEN, None) => node.is_none() && !is_listed(c, source),
        (reason::NO_ELIGIBLE_NODE, _) => node.is_none() && !another_has_it,
        _ => false,
    }
}
