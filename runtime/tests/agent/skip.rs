//! Tests that need more of a machine than every machine gives.

/// Says that a test did not run. Where `cargo xtask test` has seen to it that all can (`YOI_MUST_RUN`), that is a failure: the test harness
/// would count it as passed.
pub fn skip(why: &str) {
    assert!(std::env::var_os("YOI_MUST_RUN").is_none(), "this test must run here, and cannot: {why}");
    println!("SKIPPED: {why}");
}
