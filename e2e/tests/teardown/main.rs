//! Promise: namespaces, charts and gateways can be deleted while agents work. Every deletion ends, nothing that must go is left, and what must
//! stay (sessions, CRDs, objects, running agents) can be used again.
//!
//! The tests compare agents, trees on the node, mounts and volumes before and after. Most run alone on their cluster, because each removes something that
//! all tests use. Each test finds Yoi installed and leaves it installed.

mod charts;
mod gateway;
mod installation;
mod namespace;
mod sessions;
mod uninstall;
mod values;
