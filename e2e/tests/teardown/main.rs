//! Promise: namespaces, charts and gateways can be deleted while agents work. Every deletion ends, nothing that must go is left, and what must
//! stay (sessions, CRDs, objects, running agents) can be used again.
//!
//! The tests compare agents, trees on the node, mounts and volumes before and after. They run after all others and one at a time, because each
//! removes something that the whole cluster uses. Each test finds Yoi installed and leaves it installed.

mod charts;
#[path = "../explain/doctor.rs"]
mod doctor;
mod gateway;
mod installation;
mod namespace;
mod sessions;
mod uninstall;
mod values;
