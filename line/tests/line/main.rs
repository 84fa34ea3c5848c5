//! Tests of the line over real TLS on loopback.

mod calls;
mod certificates;
mod harness;
mod one_line;
mod reconnect;
mod serving;
mod streams;
