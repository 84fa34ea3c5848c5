//! Promise: `kubectl yoi doctor` names each fault with a command that fixes it, Events are in order, logs name their object, metrics are
//! documented, and each error says what to do next.
//!
//! The tests make a fault, wait for the finding, run its command, and wait until the finding is gone. Faults of the whole cluster are made one at
//! a time, while no other test runs on it.

mod doctor;
mod errors;
mod events;
mod faults;
mod fix;
mod logs;
mod metrics;
mod people;

/// Starts the gateways again and waits until they serve.
const RESTORE_GATEWAYS: &str = "set -e
    kubectl scale deployment yoi-gateway -n yoi-system --replicas=2
    kubectl rollout status deployment yoi-gateway -n yoi-system --timeout=180s
    kubectl wait apiservice v1alpha1.runtime.yoi.dev --for=condition=Available --timeout=100s";
