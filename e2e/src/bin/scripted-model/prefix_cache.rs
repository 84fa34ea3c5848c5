//! The cache of prompts: how much of a prompt begins as an earlier one did.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::digest::Digest;
use super::tokens::{BYTES_PER_TOKEN, count};

/// One part of a prompt, in the order in which the endpoint reads them.
#[derive(Clone, Debug)]
pub struct PromptPart {
    pub text: String,
    /// The request marks this part with `cache_control` or `prompt_cache_breakpoint`.
    pub breakpoint: bool,
}

/// How an endpoint caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// By itself, in units of so many tokens.
    Automatic { unit: u64 },
    /// Up to the breakpoints that the request sets. From each, the cache looks for what earlier requests wrote so many parts back.
    Breakpoints { lookback: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Tokens of the prompt, all of them.
    pub prompt: u64,
    /// Those that were read from the cache.
    pub read: u64,
    /// Those that were written to it. Only with breakpoints.
    pub written: u64,
}

/// Digests of all beginnings of prompts that were sent, by model. Nothing is ever forgotten: tests are shorter than any cache's life.
#[derive(Debug, Default)]
pub struct PrefixCache {
    beginnings: Mutex<HashSet<u64>>,
}

impl PrefixCache {
    /// Looks the prompt up, and adds it. Beginnings shorter than `min` tokens are not cached.
    pub fn look_up(&self, model: &str, parts: &[PromptPart], policy: CachePolicy, min: u64) -> CacheUse {
        let mut beginnings = self.beginnings.lock().unwrap_or_else(PoisonError::into_inner);
        let prompt = count(parts.iter().map(|part| part.text.len()).sum());
        match policy {
            CachePolicy::Automatic { unit } => {
                let text: String = parts.iter().map(|part| part.text.as_str()).collect();
                let mut digest = Digest::of(model);
                let (mut read, mut missed) = (0, false);
                for (index, bytes) in text.as_bytes().chunks_exact(unit as usize * BYTES_PER_TOKEN).enumerate() {
                    digest = digest.with(bytes);
                    missed |= beginnings.insert(digest.value());
                    if !missed {
                        read = (index as u64 + 1) * unit;
                    }
                }
                CacheUse { prompt, read: if read < min { 0 } else { read }, written: 0 }
            }
            CachePolicy::Breakpoints { lookback } => {
                let mut digest = Digest::of(model);
                let mut bytes = 0;
                // Digest and length of the beginning that ends with each part.
                let ends: Vec<(u64, u64)> = parts
                    .iter()
                    .map(|part| {
                        digest = digest.with(part.text.as_bytes());
                        bytes += part.text.len();
                        (digest.value(), count(bytes))
                    })
                    .collect();
                let breakpoints: Vec<usize> = (0..parts.len()).filter(|at| parts[*at].breakpoint && ends[*at].1 >= min).collect();
                let found = breakpoints.iter().flat_map(|at| at.saturating_sub(lookback)..=*at);
                let read = found.filter(|at| ends[*at].1 >= min && beginnings.contains(&ends[*at].0)).map(|at| ends[at].1).max();
                let read = read.unwrap_or_default();
                let longest = breakpoints.iter().map(|at| ends[*at].1).max().unwrap_or_default();
                beginnings.extend(breakpoints.iter().map(|at| ends[*at].0));
                CacheUse { prompt, read, written: longest.saturating_sub(read) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, breakpoint: bool) -> PromptPart {
        PromptPart { text: text.repeat(100), breakpoint }
    }

    #[test]
    fn a_prompt_that_begins_as_an_earlier_one_is_read_from_the_cache_in_whole_units() {
        let cache = PrefixCache::default();
        let unit = CachePolicy::Automatic { unit: 128 };
        let first = [part("tools and system ", false), part("question ", false)];
        assert_eq!(cache.look_up("m", &first, unit, 256), CacheUse { prompt: 650, read: 0, written: 0 });
        let longer: Vec<_> = first.iter().cloned().chain([part("answer ", false)]).collect();
        // 650 tokens are 5 whole units.
        assert_eq!(cache.look_up("m", &longer, unit, 256), CacheUse { prompt: 825, read: 640, written: 0 });
        assert_eq!(cache.look_up("m", &longer, unit, 1024).read, 0, "less than the least is not cached");
        assert_eq!(cache.look_up("other", &longer, unit, 256).read, 0, "each model has its own cache");
        let changed = [part("Tools and system ", false), part("question ", false)];
        assert_eq!(cache.look_up("m", &changed, unit, 256).read, 0, "a changed beginning is not cached");
    }

    #[test]
    fn anthropic_caches_up_to_the_breakpoints_and_no_further() {
        let cache = PrefixCache::default();
        let by_mark = CachePolicy::Breakpoints { lookback: 20 };
        let first = [part("system ", true), part("question ", false)];
        assert_eq!(cache.look_up("m", &first, by_mark, 100), CacheUse { prompt: 400, read: 0, written: 175 });
        assert_eq!(cache.look_up("m", &first, by_mark, 100), CacheUse { prompt: 400, read: 175, written: 0 });
        let moved = [part("system ", false), part("question ", false), part("answer ", true)];
        // No mark is at the system prompt any more, but the lookback from the last mark finds what was written there.
        assert_eq!(cache.look_up("m", &moved, by_mark, 100), CacheUse { prompt: 575, read: 175, written: 400 });
        let unmarked = [part("system ", false), part("question ", false)];
        assert_eq!(cache.look_up("m", &unmarked, by_mark, 100), CacheUse { prompt: 400, read: 0, written: 0 });
        let far: Vec<_> = [part("system ", false)].into_iter().chain((0..21).map(|n| part("x", n == 20))).collect();
        assert_eq!(cache.look_up("m", &far, by_mark, 100).read, 0, "an entry 21 parts before the mark is not found");
    }
}
