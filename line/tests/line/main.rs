//! Sentences about the line, over real TLS on loopback.

mod calls;
mod house;
mod keeping;
mod one_line;
mod serving;
mod streams;
