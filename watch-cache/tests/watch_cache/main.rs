//! The cache as a program uses it: over a scripted API server, and its client over a loopback port.

#[cfg(target_os = "linux")]
mod connection;
/// The example of the crate's documentation.
mod example;
mod watch;
