//! Objects and a mounter for tests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use yoi_crds::AgentWorkspace;
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{
    ChangeBase, ChangeList, DataRootEntry, DiskUsage, EntryLocation, ErrorReason, ExpectedRoot, Inventory, KernelFacts, Marker, Probe,
    ProviderKind, ProviderOffer, QuotaState, Record, RecordState, RootFailure, TreeManifest, TreeOrigin, Uid,
};

use yoi_agent_shim::mounter::client::{Mounter, MounterFailure};
use yoi_agent_shim::mounter::log_context::LogContext;
use yoi_agent_shim::mounter::protocol::{MountedContent, MounterRefusal, Mounts, PublishedMount, Request, Response};
use yoi_agent_shim::volume::PodVolume;

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
        quota: None,
        object: Some(format!("team/ws-{n}")),
        label: None,
    }
}

pub fn offers(available: &[ProviderKind]) -> Vec<ProviderOffer> {
    let offer = |provider| ProviderOffer { provider, available: available.contains(&provider), reason: "as the test says".into() };
    ProviderKind::ALL.into_iter().map(offer).collect()
}

pub fn manifest() -> TreeManifest {
    TreeManifest { files: 3, dirs: 1, bytes: 12, git_head: Some("a".repeat(40)), digest: "d".repeat(64) }
}

/// A mounter in memory that records each request.
#[derive(Default)]
pub struct FakeMounter {
    pub requests: Mutex<Vec<Request>>,
    /// Whom the last request was said to be for.
    pub context: Mutex<LogContext>,
    pub trees: Mutex<BTreeMap<Uid, Marker>>,
    pub shown: Mutex<HashMap<PodVolume, PublishedMount>>,
    /// Requests that change something are refused for this reason.
    pub refuse: Mutex<Option<ErrorReason>>,
    /// Requests of these kinds are refused: `publish`, `make`, `cover`.
    pub refuse_kind: Mutex<HashMap<&'static str, ErrorReason>>,
    /// Why the data root is not opened.
    pub refuse_open: Mutex<Option<MounterRefusal>>,
    /// Why the data root does not work.
    pub failure: Mutex<Option<RootFailure>>,
    /// Name of the data root. None: it is an empty directory.
    pub name: Mutex<Option<Uid>>,
    /// Requests of these kinds get no response: `publish`, `make`.
    pub unanswered: Mutex<HashSet<&'static str>>,
    /// What is answered to a quota; None: it is enforced.
    pub quota_state: Mutex<Option<QuotaState>>,
    /// What each tree takes.
    pub usages: Mutex<HashMap<Uid, DiskUsage>>,
    /// The n-th request from now gets no response. The flag says whether it is carried out.
    pub lose_response: Mutex<Option<(usize, bool)>>,
}

impl FakeMounter {
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn made(&self, uid: Uid, provider: ProviderKind, making: TreeOrigin) -> Response {
        let marker = Marker::new(uid, provider, making);
        self.trees.lock().unwrap().insert(uid, marker.clone());
        Response::Made(marker)
    }

    fn show(&self, volume: PodVolume, what: MountedContent, read_only: bool) -> Response {
        self.shown.lock().unwrap().insert(volume.clone(), PublishedMount { volume, what, read_only, covers: vec![] });
        Response::Done
    }

    fn act(&self, request: Request) -> Result<Response, MounterFailure> {
        let changing =
            !matches!(request, Request::Open { .. } | Request::Probe | Request::Inventory | Request::Mounts | Request::Unpublish { .. });
        if let Some(reason) = self.refuse.lock().unwrap().filter(|_| changing) {
            return Err(MounterFailure::Refused(MounterRefusal { reason, message: "as the test says".into() }));
        }
        let kind = match request {
            Request::Publish { .. } => "publish",
            Request::CreateEmpty { .. } | Request::Clone { .. } | Request::Capture { .. } => "make",
            Request::Cover { .. } => "cover",
            _ => "",
        };
        if let Some(reason) = self.refuse_kind.lock().unwrap().get(kind) {
            return Err(MounterFailure::Refused(MounterRefusal { reason: *reason, message: "as the test says".into() }));
        }
        if self.unanswered.lock().unwrap().contains(kind) {
            return Err(MounterFailure::Transport(std::io::ErrorKind::BrokenPipe.into()));
        }
        Ok(match request {
            Request::Open { expected } => {
                if let Some(refusal) = self.refuse_open.lock().unwrap().clone() {
                    return Err(MounterFailure::Refused(refusal));
                }
                let mut name = self.name.lock().unwrap();
                let known = match expected {
                    ExpectedRoot::Any => true,
                    ExpectedRoot::Used => name.is_some(),
                    ExpectedRoot::Named(wanted) => *name == Some(wanted),
                };
                if !known {
                    return Err(MounterFailure::Refused(MounterRefusal {
                        reason: ErrorReason::WrongDataRoot,
                        message: "it is another one".into(),
                    }));
                }
                Response::Opened(*name.get_or_insert(uid(99)))
            }
            Request::Probe => Response::Offers(Probe {
                offers: offers(&[ProviderKind::Copy]),
                total_bytes: 100,
                free_bytes: 50,
                kernel: KernelFacts { release: "6.18".into(), missing: vec![] },
                selinux: false,
                failure: self.failure.lock().unwrap().clone(),
            }),
            Request::Inventory => {
                let trees = self.trees.lock().unwrap();
                let entry = |(uid, marker): (&Uid, &Marker)| DataRootEntry {
                    uid: *uid,
                    location: EntryLocation::Live,
                    marker: Some(marker.clone()),
                    created_seconds: Some(1_700_000_000),
                };
                Response::Trees(Inventory { entries: trees.iter().map(entry).collect(), ..Inventory::default() })
            }
            Request::Mounts => Response::Mounts(Mounts { shown: self.shown.lock().unwrap().values().cloned().collect(), pods: vec![] }),
            Request::CreateEmpty { uid, provider, owner } => self.made(uid, provider, TreeOrigin::Empty { owner }),
            Request::Clone { uid, provider, from, access } => self.made(uid, provider, TreeOrigin::Clone { from, access }),
            Request::Capture { uid, provider, owner, .. } => self.made(uid, provider, TreeOrigin::Host { owner }),
            Request::HostSources => Response::HostSources(vec![]),
            Request::Seal { .. } => Response::Sealed(manifest()),
            Request::SetQuota { uid, quota } => match self.quota_state.lock().unwrap().clone() {
                Some(unsupported) => Response::Quota(unsupported),
                None => {
                    self.trees.lock().unwrap().get_mut(&uid).unwrap().quota = quota;
                    Response::Quota(QuotaState::Enforced)
                }
            },
            Request::Usage { uid } => Response::Usage(self.usages.lock().unwrap()[&uid]),
            Request::Destroy { uid } => {
                self.trees.lock().unwrap().remove(&uid);
                Response::Done
            }
            Request::Recover { step } => {
                if let DiskStep::Destroy { uid, .. } = step {
                    self.trees.lock().unwrap().remove(&uid);
                }
                Response::Done
            }
            Request::Publish { tree, volume, access, covers: _ } => {
                self.show(volume, MountedContent::Tree(tree), access == yoi_workspace::CloneAccess::ReadOnly)
            }
            Request::PublishRuntime { volume, .. } => self.show(volume, MountedContent::Runtime, true),
            Request::Unpublish { volume } => {
                self.shown.lock().unwrap().remove(&volume);
                Response::Done
            }
            Request::Changes { .. } => Response::Changes(ChangeList::default()),
            Request::Cover { .. } | Request::Uncover { .. } | Request::MountAnew | Request::Check => Response::Done,
        })
    }
}

impl Mounter for FakeMounter {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Response, MounterFailure>> {
        self.requests.lock().unwrap().push(request.clone());
        *self.context.lock().unwrap() = LogContext::current();
        let lost = self.lose_response.lock().unwrap().as_mut().and_then(|(left, done)| {
            *left = left.checked_sub(1)?;
            (*left == 0).then_some(*done)
        });
        let answer = match lost {
            None => self.act(request),
            Some(done) => {
                if done {
                    _ = self.act(request);
                }
                Err(MounterFailure::Transport(std::io::ErrorKind::BrokenPipe.into()))
            }
        };
        Box::pin(std::future::ready(answer))
    }
}
