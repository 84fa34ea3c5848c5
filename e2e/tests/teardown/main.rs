//! Runs after everything else: namespaces, charts and gateways go while agents are at work; what must stay stays, and can be used again.
//!
//! Each test finds Yoi installed and leaves it so. They take turns, because each takes something away that is the whole cluster's.

mod charts;
#[path = "../explain/doctor.rs"]
mod doctor;
mod gateway;
mod installation;
mod namespace;
mod sessions;
mod uninstall;
mod values;
