//! Promise: agents, tokens, foreign Pods, people with few rights and unauthenticated clients can do no more than they are allowed to.
//!
//! Each test attacks the shipped charts and images on a real cluster. Each attempt has a control: the same request by someone who is allowed to
//! make it. The control must succeed, so that a refusal proves the protection and not a mistake in the request.

mod abuse;
mod agent_token;
mod api;
mod forgery;
mod front_proxy;
mod gateway_client;
mod ownership;
mod people;
mod permissions;
mod secrets;
mod shell;
mod shim_token;
mod volumes;
