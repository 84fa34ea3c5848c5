//! What Anthropic demands of marks for its cache.

use super::blocks;
use super::content_rules::each_block;
use crate::endpoint::json::list;
use crate::endpoint::rule::{Refusal, Rule, demand};

pub const RULES: &[Rule] = &[
    Rule {
        name: "there are at most 4 marks for the cache",
        source: "https://github.com/tghamm/Anthropic.SDK/issues/50",
        check: |request| {
            let body = request.body;
            let contents: Vec<_> = list(&body["messages"]).iter().flat_map(blocks).collect();
            let all = list(&body["tools"]).iter().chain(list(&body["system"])).chain(&contents).chain([body]);
            let found = all.filter(|part| !part["cache_control"].is_null()).count();
            demand(found <= 4, || Refusal::invalid(format!("A maximum of 4 blocks with cache_control may be provided. Found {found}.")))
        },
    },
    Rule {
        name: "a thinking block is not marked for the cache",
        source: "https://platform.claude.com/docs/en/build-with-claude/prompt-caching (what cannot be cached)",
        check: |request| {
            each_block(request, &mut |path, _, block| {
                let kind = block["type"].as_str().unwrap_or_default();
                demand(!kind.ends_with("thinking") || block["cache_control"].is_null(), || {
                    Refusal::invalid(format!("{path}.{kind}.cache_control: Extra inputs are not permitted"))
                })
            })
        },
    },
];
