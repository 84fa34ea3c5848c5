//! Counts that are left out in JSON.

pub(crate) fn is_zero(count: &u32) -> bool {
    *count == 0
}
