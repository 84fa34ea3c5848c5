//! Objects and a mounter for tests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use yoi_crds::AgentWorkspace;
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{
    ChangeBase, DataRootEntry, EntryLocation, ErrorReason, ExpectedRoot, Inventory, KernelFacts, Marker, Probe, ProviderKind,
    ProviderOffer, Record, RecordState, TreeManifest, TreeOrigin, Uid,
};

use crate::mounter::client::{Failure, Mounter};
use crate::mounter::verb::{Answer, Mounts, Refused, Shown, Verb, What};
use crate::volume::PodVolume;

pub const NODE: &str = "node-1";

pub fn uid(n: u8) -> Uid {
    Uid::from_bytes([n; 16])
}

/// A workspace with UID `uid(n)`, with these fields over the usual ones.
pub fn workspace(n: u8, over: Value) -> AgentWorkspace {
    let mut object = json!({
        "apiVersion": "yoi.dev/v1alpha1",
        "kind": "AgentWorkspace",
        "metadata": { "name": format!("ws-{n}"), "namespace": "team", "uid": uid(n), "generation": 1, "resourceVersion": "1",
            "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"] },
        "spec": { "source": { "empty": {} } },
        "status": { "nodeName": NODE, "origin": { "kind": "Empty" }, "owner": { "uid": 1000, "gid": 1000 } },
    });
    merge(&mut object, over);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, over: Value) {
    match (into, over) {
        (Value::Object(into), Value::Object(over)) => over.into_iter().for_each(|(k, v)| merge(into.entry(k).or_insert(Value::Null), v)),
        (into, over) => *into = over,
    }
}

pub fn record(n: u8, provider: ProviderKind, state: RecordState) -> Record {
    Record {
        uid: uid(n),
        provider,
        origin: TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } },
        state,
        since: ChangeBase::Nothing,
        object: Some(format!("team/ws-{n}")),
    }
}

pub fn offers(available: &[ProviderKind]) -> Vec<ProviderOffer> {
    let offer = |provider| ProviderOffer { provider, available: available.contains(&provider), reason: "as the test says".into() };
    vec![offer(ProviderKind::Btrfs), offer(ProviderKind::Copy)]
}

pub fn manifest() -> TreeManifest {
    TreeManifest { files: 3, dirs: 1, bytes: 12, git_head: Some("a".repeat(40)), digest: "d".repeat(64) }
}

/// Does what a mounter does, in memory, and remembers every verb.
#[derive(Default)]
pub struct Fake {
    pub heard: Mutex<Vec<Verb>>,
    pub trees: Mutex<BTreeMap<Uid, Marker>>,
    pub shown: Mutex<HashMap<PodVolume, Shown>>,
    /// Verbs that change something are refused for this reason.
    pub refuse: Mutex<Option<ErrorReason>>,
    /// Of the data root; None is an empty folder.
    pub name: Mutex<Option<Uid>>,
    /// To these kinds of verbs no answer comes: `publish`, `make`.
    pub deaf: Mutex<HashSet<&'static str>>,
    /// To the n-th verb from now no answer comes, whether it was done (true) or not.
    pub lose: Mutex<Option<(usize, bool)>>,
}

impl Fake {
    pub fn heard(&self) -> Vec<Verb> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    fn made(&self, uid: Uid, provider: ProviderKind, making: TreeOrigin) -> Answer {
        let marker = Marker { version: 1, uid, provider, origin: making, sealed: None };
        self.trees.lock().unwrap().insert(uid, marker.clone());
        Answer::Made(marker)
    }

    fn show(&self, volume: PodVolume, what: What, read_only: bool) -> Answer {
        self.shown.lock().unwrap().insert(volume.clone(), Shown { volume, what, read_only });
        Answer::Done
    }

    fn act(&self, verb: Verb) -> Result<Answer, Failure> {
        let changing = !matches!(verb, Verb::Open { .. } | Verb::Probe | Verb::Inventory | Verb::Mounts | Verb::Unpublish { .. });
        if let Some(reason) = self.refuse.lock().unwrap().filter(|_| changing) {
            return Err(Failure::Refused(Refused { reason, message: "as the test says".into() }));
        }
        let kind = match verb {
            Verb::Publish { .. } => "publish",
            Verb::CreateEmpty { .. } | Verb::Clone { .. } => "make",
            _ => "",
        };
        if self.deaf.lock().unwrap().contains(kind) {
            return Err(Failure::Unheard(std::io::ErrorKind::BrokenPipe.into()));
        }
        Ok(match verb {
            Verb::Open { expected } => {
                let mut name = self.name.lock().unwrap();
                let known = match expected {
                    ExpectedRoot::Any => true,
                    ExpectedRoot::Used => name.is_some(),
                    ExpectedRoot::Named(wanted) => *name == Some(wanted),
                };
                if !known {
                    return Err(Failure::Refused(Refused { reason: ErrorReason::WrongDataRoot, message: "it is another one".into() }));
                }
                Answer::Opened(*name.get_or_insert(uid(99)))
            }
            Verb::Probe => Answer::Offers(Probe {
                offers: offers(&[ProviderKind::Copy]),
                total_bytes: 100,
                free_bytes: 50,
                kernel: KernelFacts { release: "6.18".into(), mount_setattr: true },
            }),
            Verb::Inventory => {
                let trees = self.trees.lock().unwrap();
                let entry = |(uid, marker): (&Uid, &Marker)| DataRootEntry {
                    uid: *uid,
                    location: EntryLocation::Live,
                    marker: Some(marker.clone()),
                };
                Answer::Trees(Inventory { entries: trees.iter().map(entry).collect(), ..Inventory::default() })
            }
            Verb::Mounts => Answer::Mounts(Mounts { shown: self.shown.lock().unwrap().values().cloned().collect(), pods: vec![] }),
            Verb::CreateEmpty { uid, provider, owner } => self.made(uid, provider, TreeOrigin::Empty { owner }),
            Verb::Clone { uid, provider, from, access } => self.made(uid, provider, TreeOrigin::Clone { from, access }),
            Verb::Seal { .. } => Answer::Sealed(manifest()),
            Verb::Destroy { uid } => {
                self.trees.lock().unwrap().remove(&uid);
                Answer::Done
            }
            Verb::Recover { step } => {
                if let DiskStep::Destroy { uid, .. } = step {
                    self.trees.lock().unwrap().remove(&uid);
                }
                Answer::Done
            }
            Verb::Publish { tree, volume, access } => self.show(volume, What::Tree(tree), access == yoi_workspace::CloneAccess::ReadOnly),
            Verb::PublishRuntime { volume, .. } => self.show(volume, What::Runtime, true),
            Verb::Unpublish { volume } => {
                self.shown.lock().unwrap().remove(&volume);
                Answer::Done
            }
            Verb::Changes { .. } => Answer::Changes { changes: vec![], cut: false },
        })
    }
}

impl Mounter for Fake {
    fn say(&self, verb: Verb) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.heard.lock().unwrap().push(verb.clone());
        let lost = self.lose.lock().unwrap().as_mut().and_then(|(left, done)| {
            *left = left.checked_sub(1)?;
            (*left == 0).then_some(*done)
        });
        let answer = match lost {
            None => self.act(verb),
            Some(done) => {
                if done {
                    _ = self.act(verb);
                }
                Err(Failure::Unheard(std::io::ErrorKind::BrokenPipe.into()))
            }
        };
        Box::pin(std::future::ready(answer))
    }
}
