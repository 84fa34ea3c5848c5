//! How the C library keeps memory: by its own rule an arena for each thread, and what was once used for ever. A node has many agents, and most
//! of them wait.

/// Threads share their memory. Called before there are any.
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets numbers in the allocator; no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 10);
        // Above this size memory comes from the system and goes back to it at once.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Gives back what is free, when there is nothing to do for a while.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the allocator's own locks guard it.
    unsafe {
        libc::malloc_trim(0);
    }
}
