//! Promise: `kubectl yoi doctor` names each fault with a command that fixes it, Events are in order, logs name their object, metrics are
//! documented, and each error says what to do next.
//!
//! The tests make a fault, wait for the finding, run its command, and wait until the finding is gone. Faults of the whole cluster are made one at
//! a time, while no other test of this target runs.

mod doctor;
mod errors;
mod events;
mod faults;
mod fix;
mod logs;
mod metrics;
mod people;

use tokio::sync::RwLock;

/// Locked for writing by tests that break the cluster, for reading by tests that need it intact.
static CLUSTER: RwLock<()> = RwLock::const_new(());

/// Starts the gateways again and waits until they serve and those of before are gone: other tests read the logs and metrics of each.
const RESTORE_GATEWAYS: &str = "set -e
    kubectl scale deployment yoi-gateway -n yoi-system --replicas=2
    kubectl rollout status deployment yoi-gateway -n yoi-system --timeout=180s
    kubectl wait apiservice v1alpha1.runtime.yoi.dev --for=condition=Available --timeout=100s
    timeout 120 sh -c 'until [ $(kubectl get pods -n yoi-system -l app.kubernetes.io/name=yoi-gateway -o name | wc -l) = 2 ]; do sleep 1; done'";
