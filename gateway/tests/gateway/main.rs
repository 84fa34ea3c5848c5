//! The whole gateway in process, with real TLS and real lines, against an API server that remembers.

mod agents;
mod api;
mod harness;
mod messages;
mod people;
mod replicas;
mod unauthenticated;
