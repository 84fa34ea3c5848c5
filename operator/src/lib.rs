//! The operator: watches Yoi's objects, asks `yoi-plan` what should exist, applies it and writes the status.
//!
//! # Flow
//! One watch per kind (`kinds`) fills a cache (`watch_caches`). A change queues the objects that it concerns (`triggers`). A reconcile
//! (`controller`) reads the caches once (`observe`), plans (`yoi_plan`), applies the steps (`apply`) and writes the status if it changed
//! (`report`), also when a step failed.
//!
//! # Guarantees
//! - Nothing is planned before every kind is listed.
//! - A status is written with the resource version that the plan was made on; a plan of an old version is dropped and made again.
//! - Every delete names the UID. An object of the right name that was made for another owner is refused, not taken over.
//! - The process ends when a part of it ends or panics, or when the Lease is lost.
//!
//! # Permissions (verbs per resource)
//! | Group | Resource | Verbs |
//! |---|---|---|
//! | yoi.dev | yoipeers | list, watch |
//! | yoi.dev | workspacenodes | list, watch, delete (of nodes that are gone) |
//! | yoi.dev | workspacenodes/status | patch (of nodes that are not heard from) |
//! | yoi.dev | yoiprojects | list, watch, patch (finalizer) |
//! | yoi.dev | yoipods | list, watch, patch (finalizer), delete (`ttlAfterFinished`) |
//! | yoi.dev | agentworkspaces | get, list, watch, create, patch (finalizers), delete |
//! | yoi.dev | yoiprojects/status, yoipods/status, yoipeers/status, agentworkspaces/status | patch |
//! | yoi.dev | yoiprojects/finalizers, yoipods/finalizers, agentworkspaces/finalizers | update (`blockOwnerDeletion`) |
//! | core | configmaps | get, list, watch, create, delete |
//! | core | pods | get, list, watch, create, patch (the annotation with an agent's limit of tokens), delete |
//! | core | persistentvolumeclaims, persistentvolumes | get, list, watch, create, patch, delete |
//! | core | namespaces, nodes | list, watch (of namespaces only metadata) |
//! | storage.k8s.io | storageclasses | list, watch |
//! | networking.k8s.io | networkpolicies | list, watch, create, patch |
//! | events.k8s.io | events | create, patch |
//! | apiregistration.k8s.io | apiservices `v1alpha1.runtime.yoi.dev` | get, patch |
//! | coordination.k8s.io, own namespace | leases | create; get, update of `yoi-operator` |
//! | core, own namespace | secrets | create; get, update of `yoi-gateway-tls` |

pub mod api_writes;
pub mod apply;
pub mod args;
pub mod cache_key;
pub mod cached;
pub mod controller;
pub mod conversation_events;
pub mod event_recorder;
pub mod failures;
pub mod health;
mod kinds;
pub mod lease;
pub mod log_subject;
pub mod observe;
pub mod presets;
pub mod progress_delay;
pub mod report;
pub mod run;
pub mod start;
pub mod tls;
pub mod triggers;
pub mod trim;
pub mod warm_ledger;
pub mod watch_caches;
