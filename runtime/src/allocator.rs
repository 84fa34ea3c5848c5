//! Settings of the C library's allocator. By default it has one arena per thread and keeps memory that was freed. A node has many agents,
//! and most of them are idle.

/// Makes all threads share one arena. Must be called before any thread is started.
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets numbers in the allocator; no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 10);
        // Larger blocks come from the kernel, and go back to it as soon as they are freed.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Gives freed memory back to the kernel. Called when the agent becomes idle.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the allocator's own locks guard it.
    unsafe {
        libc::malloc_trim(0);
    }
}
