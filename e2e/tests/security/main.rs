//! What people with bad intent try, on a real cluster, against the shipped charts and images. Each try stands beside a control: the same deed
//! by whom it is allowed, so that a refusal is the guard's and not the try's own fault.

mod abuse;
mod agent_token;
mod api;
mod forgery;
mod front_proxy;
mod gateway_client;
mod people;
mod permissions;
mod secrets;
mod shell;
mod shim_token;
mod volumes;
