//! The cluster rim: watches Yoi's objects, asks `yoi-plan` what should exist, carries it out and says what is true.
//!
//! # Flow
//! One watch per kind fills a cache; every change wakes the objects that it concerns. A round reads the caches once (`observe`), decides
//! (`yoi_plan`), carries the steps out (`apply`) and writes the status if it says something new (`report`), also when a step failed.
//!
//! # Guarantees
//! - Nothing is decided before every cache has listed.
//! - A status is written with the resource version that the decision was made on; a decision of an old view is dropped and made again.
//! - Every removal names the UID that it means; an object of ours that somebody else made is refused, not taken over.
//! - A part that ends, or panics, ends the process. So does a lost Lease.
//!
//! # Powers (verbs per resource)
//! | Group | Resource | Verbs |
//! |---|---|---|
//! | yoi.dev | yoiprojects, yoipeers | list, watch |
//! | yoi.dev | workspacenodes | list, watch, delete (of nodes that are gone) |
//! | yoi.dev | yoipods | list, watch, patch (finalizer) |
//! | yoi.dev | agentworkspaces | get, list, watch, create, patch (finalizers), delete |
//! | yoi.dev | yoiprojects/status, yoipods/status, yoipeers/status, agentworkspaces/status | patch |
//! | yoi.dev | yoiprojects/finalizers, yoipods/finalizers, agentworkspaces/finalizers | update (`blockOwnerDeletion`) |
//! | core | pods, configmaps | get, list, watch, create, delete |
//! | core | persistentvolumeclaims, persistentvolumes | get, list, watch, create, patch, delete |
//! | core | namespaces, nodes | list, watch (metadata only) |
//! | networking.k8s.io | networkpolicies | list, watch, create, patch |
//! | events.k8s.io | events | create, patch |
//! | apiregistration.k8s.io | apiservices `v1alpha1.runtime.yoi.dev` | get, patch |
//! | coordination.k8s.io, own namespace | leases | create; get, update of `yoi-operator` |
//! | core, own namespace | secrets | create; get, update of `yoi-gateway-tls` |

pub mod api_writes;
pub mod apply;
pub mod args;
pub mod cache;
pub mod controller;
pub mod failures;
pub mod health;
pub mod lease;
pub mod log_subject;
pub mod observe;
pub mod report;
pub mod run;
pub mod tls;
pub mod trim;
pub mod watch_caches;
