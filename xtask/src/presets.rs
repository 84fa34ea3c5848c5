//! The presets of the chart are data of the type that the runtime reads.

use crate::instance::repository;
use std::collections::BTreeSet;
use std::fs;
use yoi_wire::preset::{ParserName, Preset, PresetInput};

const PLACEHOLDERS: [&str; 8] = ["input", "session", "model", "proxy", "token", "runtime", "home", "tree"];

fn presets() -> Vec<(String, Preset)> {
    let folder = repository().join("charts/yoi-operator/files/presets");
    let files = fs::read_dir(folder).expect("the chart has presets").map(|entry| entry.expect("an entry").path());
    let parsed = files.map(|file| {
        let text = fs::read_to_string(&file).expect("a preset is a text");
        let preset = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (file.file_stem().unwrap_or_default().to_string_lossy().into_owned(), preset)
    });
    parsed.collect()
}

/// Every text of a preset that may hold placeholders.
fn texts(preset: &Preset) -> Vec<&String> {
    let resumed = preset.resumed_args.iter().flatten();
    let files = preset.files.iter().map(|file| &file.content);
    preset.first_args.iter().chain(resumed).chain(preset.env.values()).chain(files).collect()
}

#[test]
fn each_preset_of_the_chart_is_one_and_bears_the_name_of_its_file() {
    let names: BTreeSet<_> = presets()
        .into_iter()
        .map(|(file, preset)| {
            assert_eq!(file, preset.name);
            preset.name
        })
        .collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["claude", "codex", "copilot", "gemini", "goose", "opencode"]);
}

#[test]
fn a_preset_has_only_placeholders_that_the_runtime_fills_in() {
    for (name, preset) in presets() {
        for text in texts(&preset) {
            for piece in text.split("${").skip(1) {
                let placeholder = piece.split('}').next().unwrap_or_default();
                assert!(PLACEHOLDERS.contains(&placeholder), "{name}: ${{{placeholder}}}");
            }
        }
        let first = preset.first_args.iter().any(|arg| arg.contains("${session}"));
        assert!(!first, "{name}: a first run has no session");
        let in_arguments = preset.first_args.iter().any(|arg| arg.contains("${input}"));
        assert_eq!(in_arguments, preset.input == PresetInput::Argument, "{name}: the input is given once");
    }
}

#[test]
fn a_preset_gives_the_program_the_proxy_and_no_key_but_the_token_of_the_run() {
    for (name, preset) in presets() {
        let holds = |placeholder: &str| texts(&preset).iter().any(|text| text.contains(placeholder));
        for needed in ["${proxy}", "${token}", "${model}", "${runtime}"] {
            assert!(holds(needed), "{name}: {needed} is missing");
        }
        for (variable, value) in &preset.env {
            let secret = ["KEY", "TOKEN", "SECRET"].iter().any(|word| variable.ends_with(word));
            assert!(!secret || value == "${token}", "{name}: {variable}");
        }
    }
}

#[test]
fn the_files_of_a_preset_that_end_with_json_are_json() {
    for (name, preset) in presets() {
        for file in preset.files.iter().filter(|file| file.path.ends_with(".json")) {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(&file.content);
            assert!(parsed.is_ok(), "{name}: {}: {parsed:?}", file.path);
        }
        for path in preset.files.iter().map(|file| &file.path).chain(preset.credentials.iter().map(|credential| &credential.path)) {
            assert!(!path.starts_with('/') && path.split('/').all(|part| !part.is_empty() && part != ".."), "{name}: {path}");
        }
    }
}

#[test]
fn a_program_with_a_login_of_its_own_is_told_nothing_of_the_proxy() {
    for (name, preset) in presets() {
        assert_eq!(preset.login.is_some(), !preset.credentials.is_empty(), "{name}");
        if preset.login.is_none() {
            continue;
        }
        let with_login = preset.with_login();
        assert_eq!(with_login.check(), Ok(()), "{name}");
        for text in texts(&with_login) {
            assert!(!text.contains("${proxy}") && !text.contains("${token}"), "{name}: {text}");
        }
        let settings = |file: &yoi_wire::preset::PresetFile| file.path.ends_with(".json");
        for file in with_login.files.iter().filter(|file| settings(file)) {
            assert!(serde_json::from_str::<serde_json::Value>(&file.content).is_ok(), "{name}: {}", file.path);
        }
        assert!(with_login.files.iter().any(|file| file.content.contains("${runtime}")), "{name}: it has Yoi's tools all the same");
    }
}

#[test]
fn a_preset_that_promises_hooks_seeds_a_file_that_calls_them() {
    for (name, preset) in presets() {
        let calls = |which: &str| preset.files.iter().any(|file| file.content.contains(&format!("${{runtime}} hook {which}")));
        assert_eq!(calls("before") && calls("after"), preset.hooks, "{name}");
        assert_ne!(preset.parser, ParserName::Text, "{name}: a preset knows what its program prints");
    }
}

#[test]
fn settings_of_the_tree_turn_neither_hooks_nor_the_endpoint_off() {
    let presets: std::collections::BTreeMap<_, _> = presets().into_iter().collect();
    let json = |preset: &Preset, path: &str| -> serde_json::Value {
        let file = preset.files.iter().find(|file| file.path == path).expect("the file is seeded");
        serde_json::from_str(&file.content).expect("it is JSON")
    };
    let claude = json(&presets["claude"], ".claude/yoi-settings.json");
    assert_eq!(claude["disableAllHooks"], false);
    assert_eq!((&claude["env"]["ANTHROPIC_BASE_URL"], &claude["env"]["ANTHROPIC_AUTH_TOKEN"]), (&"${proxy}".into(), &"${token}".into()));
    let with_login = json(&presets["claude"].clone().with_login(), ".claude/yoi-settings.json");
    assert_eq!((&with_login["disableAllHooks"], &with_login["hooks"]), (&false.into(), &claude["hooks"]));
    // It reads no settings of the tree, and so not AGENTS.md by itself.
    assert_eq!(presets["opencode"].env["OPENCODE_DISABLE_PROJECT_CONFIG"], "1");
    assert_eq!(json(&presets["opencode"], ".config/opencode/opencode.json")["instructions"][0], "${tree}/AGENTS.md");
    // Its folder counts as one that nobody trusts, so that the tree's settings do not count.
    for gemini in [presets["gemini"].clone(), presets["gemini"].clone().with_login()] {
        let settings = json(&gemini, ".gemini/settings.json");
        assert_eq!(
            (&settings["security"]["folderTrust"]["enabled"], &settings["advanced"]["ignoreLocalEnv"]),
            (&true.into(), &true.into())
        );
        assert!(gemini.first_args.contains(&"--skip-trust".to_owned()) && !gemini.env.contains_key("GEMINI_CLI_TRUST_WORKSPACE"));
    }
    // These take no settings of a tree that they were not told to trust.
    for (name, words) in [("codex", ["trust_level", "--trust"]), ("copilot", ["trustedFolders", "--trust-folder"])] {
        for preset in [presets[name].clone(), presets[name].clone().with_login()] {
            assert!(texts(&preset).iter().all(|text| words.iter().all(|word| !text.contains(word))), "{name}");
        }
    }
}

#[test]
fn the_recipe_of_the_images_locks_versions_that_the_presets_know_and_names_no_host_of_a_registry() {
    let text = fs::read_to_string(repository().join("xtask/programs/package-lock.json")).expect("the recipe has a lock");
    assert!(!text.contains("\"resolved\""), "npm config set omit-lockfile-registry-resolved true, and write it anew");
    let lock: serde_json::Value = serde_json::from_str(&text).expect("the lock is JSON");
    let packages = [
        ("claude", "@anthropic-ai/claude-code"),
        ("codex", "@openai/codex"),
        ("copilot", "@github/copilot"),
        ("gemini", "@google/gemini-cli"),
        ("opencode", "opencode-ai"),
    ];
    for (name, package) in packages {
        let locked = lock["packages"][format!("node_modules/{package}")]["version"].as_str().expect("a version is locked").to_owned();
        let (_, preset) = presets().into_iter().find(|(file, _)| file == name).expect("the preset is there");
        assert!(preset.versions.iter().any(|known| locked.starts_with(known.as_str())), "{name}: {locked}");
    }
}
