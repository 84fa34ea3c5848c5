use std::os::unix::fs::symlink;

use yoi_wire::mode::Mode;
use yoi_wire::policy::NetworkPolicy;

use super::*;

fn policy(deny: &[&str], allow: &[&str]) -> ToolPolicy {
    let rules = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>();
    let allow = if allow.is_empty() { Vec::new() } else { vec![rules(allow)] };
    ToolPolicy { deny: rules(deny), allow, ..ToolPolicy::default() }
}

impl Fixture {
    fn class(&self, tool: &str, args: Value, from: CallFrom) -> Option<RefusalClass> {
        match self.gate.begin(&call(tool, args), from) {
            Decision::Allow | Decision::Ask(_) => None,
            Decision::Refuse(refusal) => Some(refusal.class),
        }
    }

    /// The rules that have a person asked about the call, and whether it cannot be read.
    fn question(&self, tool: &str, args: Value) -> Option<(Vec<String>, bool)> {
        match self.gate.begin(&call(tool, args), CallFrom::Model) {
            Decision::Ask(question) => Some((question.rules, question.unreadable)),
            Decision::Allow | Decision::Refuse(_) => None,
        }
    }

    fn offered(&self) -> Vec<String> {
        self.gate.offered(CallFrom::Model).into_iter().map(|tool| tool.name).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p18_a_file_that_may_hold_secrets_is_read_only_where_the_policy_excepts_it() {
    let denied = Some(RefusalClass::SensitivePathDenied);
    let fixture = Fixture::new();
    fixture.write(".env", "KEY=secret-value");
    fixture.write("config/.env.local", "KEY=secret-value");
    fixture.write("plain", "no secret-value");
    symlink(".env", fixture.path("innocent")).unwrap();
    for path in [".env", "./config/../.env", "config/.env.local", "innocent", "new.pem"] {
        assert_eq!(fixture.class("Read", json!({"path": path}), CallFrom::Model), denied, "{path}");
        assert_eq!(fixture.class("Write", json!({"path": path, "content": "x"}), CallFrom::Model), denied, "{path}");
    }
    assert!(!fixture.refuse("Read", json!({"path": ".env"})).message.contains("secret-value"));
    let found = fixture.succeed("Grep", json!({"pattern": "secret-value"})).await;
    assert!(found.contains("plain") && !found.contains(".env"), "{found}");
    let excepted = Fixture::with_policy(&ToolPolicy { not_sensitive: vec![".env".to_owned()], ..ToolPolicy::default() });
    excepted.write(".env", "KEY=secret-value");
    assert!(excepted.succeed("Read", json!({"path": ".env"})).await.contains("secret-value"));
    assert_eq!(excepted.class("Read", json!({"path": ".env.local"}), CallFrom::Model), denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn p29_in_planning_what_changes_something_is_not_exposed_and_does_not_run_and_other_conversations_are_as_they_were() {
    let fixture = Fixture::new();
    let other = fixture.gate.for_another_conversation();
    let shell = call("Shell", json!({"command": "touch made"}));
    fixture.gate.set_mode(Some(Mode::Planning));
    let refusal = fixture.refuse("Shell", json!({"command": "touch made"}));
    assert_eq!(refusal.class, RefusalClass::ToolNotExposed);
    assert!(refusal.message.starts_with("tool_not_exposed: in mode planning") && refusal.message.contains("Read"), "{}", refusal.message);
    let end = fixture.gate.run(&shell, CallFrom::Model, &LiveOutput::discard()).await;
    assert_eq!((end.refused, fixture.path("made").exists()), (Some(RefusalClass::ToolNotExposed), false));
    fixture.write("plain", "text");
    assert_eq!(fixture.class("Read", json!({"path": "plain"}), CallFrom::Model), None);
    let now: Vec<String> = fixture.gate.offered_now(CallFrom::Model).into_iter().map(|tool| tool.name).collect();
    assert!(now.contains(&"Read".to_owned()) && !now.contains(&"Shell".to_owned()) && !now.contains(&"Write".to_owned()), "{now:?}");
    // The log's configuration has the tools of all modes.
    assert!(fixture.offered().contains(&"Shell".to_owned()));
    assert_eq!(other.begin(&shell, CallFrom::Model), Decision::Allow);
    fixture.gate.set_mode(Some(Mode::Engineering));
    assert_eq!(fixture.class("Shell", json!({"command": "touch made"}), CallFrom::Model), None);
}

#[test]
fn p28_a_denied_tool_is_neither_listed_nor_run_although_another_rule_allows_it() {
    let fixture = Fixture::with_policy(&policy(&["Write", "SendToPeerPod"], &["Write", "Read", "ListPods", "SendToPeerPod"]));
    assert_eq!(fixture.offered(), ["Read", "ListPods"]);
    let refusal = fixture.refuse("Write", json!({"path": "a", "content": "x"}));
    assert_eq!((refusal.class, refusal.rule.as_deref()), (RefusalClass::ToolDenied, Some("Write")));
    assert_eq!(fixture.class("Shell", json!({"command": "ls"}), CallFrom::Model), Some(RefusalClass::ToolNotExposed));
    assert_eq!(fixture.class("Read", json!({"path": "a"}), CallFrom::Model), None);
    // The same for a program, by its hook and by its MCP client.
    assert_eq!(fixture.class("Write", json!({"file_path": "a"}), CallFrom::Hook), Some(RefusalClass::ToolDenied));
    assert_eq!(fixture.class("Bash", json!({"command": "ls"}), CallFrom::Hook), Some(RefusalClass::ToolNotExposed));
    assert_eq!(fixture.class("SendToPeerPod", json!({"to": "b", "message": "m"}), CallFrom::Mcp), Some(RefusalClass::ToolDenied));
    assert_eq!(fixture.gate.offered(CallFrom::Mcp).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_policy_refuses_has_done_nothing() {
    let fixture = Fixture::with_policy(&policy(&["Edit(locked/**)"], &[]));
    let end = fixture.run("Write", json!({"path": "locked/new", "content": "x"})).await;
    assert_eq!((end.outcome, end.refused), (ToolOutcome::Refused, Some(RefusalClass::ToolDenied)));
    assert!(!fixture.path("locked").exists());
    // A link is judged by where it leads.
    fs::create_dir(fixture.path("locked")).unwrap();
    symlink("locked", fixture.path("open")).unwrap();
    assert_eq!(fixture.class("Write", json!({"path": "open/new", "content": "x"}), CallFrom::Model), Some(RefusalClass::ToolDenied));
    assert_eq!(fixture.class("Read", json!({"path": "locked/new"}), CallFrom::Model), None);
}

#[test]
fn p16_a_path_is_found_at_any_depth_under_any_name_in_text_of_json_and_after_path_equals() {
    let fixture = Fixture::new();
    let root = fixture.path("");
    let absolute = root.join(".env");
    for args in [
        json!({"file_path": absolute}),
        json!({"file": ".env"}),
        json!({"cwd": ".env"}),
        json!({"dir": ".env"}),
        json!({"target": ".env"}),
        json!({"someNewPath": ".env"}),
        json!({"a": {"b": [{"path": ".env"}]}}),
        json!({"paths": ["a", ".env"]}),
        json!({"input": "{\"deep\": {\"path\": \".env\"}}"}),
        json!({"options": "mode=r path=.env depth=1"}),
    ] {
        assert_eq!(fixture.class("mcp__files__open", args.clone(), CallFrom::Hook), Some(RefusalClass::SensitivePathDenied), "{args}");
    }
    // What is written, looked for or run is no path.
    for args in [json!({"file_path": "a", "content": "path=.env"}), json!({"pattern": ".env"}), json!({"command": "cat .env"})] {
        assert_eq!(fixture.class("mcp__files__open", args.clone(), CallFrom::Hook), None, "{args}");
    }
}

#[test]
fn rules_for_commands_are_for_each_simple_command() {
    let deny = Fixture::with_policy(&policy(&["Bash(git push:*)", "Shell(rm *)"], &[]));
    let class = |fixture: &Fixture, command: &str| fixture.class("Shell", json!({"command": command}), CallFrom::Model);
    for command in
        ["git push", "git push origin", "cd a && git push", "echo $(git push)", "/usr/bin/git push", "\"git\" push", "f() { rm x; }"]
    {
        assert_eq!(class(&deny, command), Some(RefusalClass::ToolDenied), "{command}");
    }
    for command in ["git pushed", "git log", "echo 'git push'", "cat <<'E'\ngit push\nE"] {
        assert_eq!(class(&deny, command), None, "{command}");
    }
    let allow = Fixture::with_policy(&policy(&[], &["Shell(cargo *)", "Shell(ls)", "Read"]));
    for command in ["cargo test", "cargo", "cargo build 2>&1; ls", "RUST_LOG=x; ls"] {
        let expected = command.starts_with("RUST").then_some(RefusalClass::ToolDenied);
        assert_eq!(class(&allow, command), expected, "{command}");
    }
    for command in
        ["ls -a", "cargo test; rm x", "cargo test > x", "PATH=. cargo test", "cargo $(rm x)", "case a in a) ls;; esac", "# nothing"]
    {
        assert_eq!(class(&allow, command), Some(RefusalClass::ToolDenied), "{command}");
    }
    assert_eq!(allow.offered(), ["Shell", "Read"]);
}

#[test]
fn deny_beats_ask_and_ask_beats_allow_for_each_part_of_a_call() {
    let rules = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>();
    let ask = rules(&["Shell(git push *)", "Shell(rm *)", "Edit(docs/**)", "SendToPeerPod"]);
    let allow = vec![[rules(&["Shell(git *)", "Shell(ls)"]), ask.clone()].concat()];
    let deny = rules(&["Shell(rm -rf *)"]);
    let fixture = Fixture::with_policy(&ToolPolicy { deny, ask, allow, ..ToolPolicy::default() });
    let shell = |command: &str| fixture.question("Shell", json!({"command": command}));
    assert_eq!(shell("git push origin"), Some((rules(&["Shell(git push *)"]), false)));
    assert_eq!(shell("ls; git push && /bin/rm x"), None, "no rule allows /bin/rm");
    assert_eq!(shell("ls; git push && rm x"), Some((rules(&["Shell(git push *)", "Shell(rm *)"]), false)));
    assert_eq!(shell("git log"), None);
    assert_eq!(fixture.class("Shell", json!({"command": "git push; rm -rf x"}), CallFrom::Model), Some(RefusalClass::ToolDenied));
    assert_eq!(fixture.class("Shell", json!({"command": "make"}), CallFrom::Model), Some(RefusalClass::ToolDenied));
    assert_eq!(fixture.question("Write", json!({"path": "docs/a", "content": ""})).unwrap().0, ["Edit(docs/**)"]);
    assert_eq!(fixture.class("Write", json!({"path": "src/a", "content": ""}), CallFrom::Model), Some(RefusalClass::ToolDenied));
    assert_eq!(fixture.offered(), ["Shell", "Write", "Edit", "SendToPeerPod"]);
    // A command that cannot be read may be any of them, and a secret is refused before anybody is asked.
    let asked = Fixture::with_policy(&ToolPolicy { ask: rules(&["Shell(rm *)", "Read"]), ..ToolPolicy::default() });
    assert_eq!(asked.question("Shell", json!({"command": "case a in a) rm x;; esac"})), Some((rules(&["Shell(rm *)"]), true)));
    assert_eq!(asked.class("Read", json!({"path": ".env"}), CallFrom::Model), Some(RefusalClass::SensitivePathDenied));
}

#[test]
fn p20_hosts_and_schemes_of_a_call_are_those_that_the_policy_allows() {
    let network = Some(NetworkPolicy { hosts: vec!["example.org".to_owned()], schemes: vec!["https".to_owned()] });
    let fixture = Fixture::with_policy(&ToolPolicy { network, ..ToolPolicy::default() });
    let denied = Some(RefusalClass::NetworkDenied);
    for (tool, args, class) in [
        ("WebFetch", json!({"url": "https://example.org/a"}), None),
        ("WebFetch", json!({"url": "https://sub.Example.org:8443/"}), None),
        ("WebFetch", json!({"url": "https://evil-example.org/"}), denied),
        ("WebFetch", json!({"url": "https://example.org@evil.test/"}), denied),
        ("WebFetch", json!({"url": "ftp://example.org/"}), denied),
        ("WebFetch", json!({"url": "file:///etc/passwd"}), denied),
        ("WebFetch", json!({}), denied),
        ("web_fetch", json!({"prompt": "sum up https://example.org/a and https://evil.test/b"}), denied),
        ("WebSearch", json!({"query": "x"}), denied),
        ("mcp__db__open", json!({"options": {"hostname": "evil.test:5432"}}), denied),
        ("mcp__db__open", json!({"options": {"hostname": "db.example.org"}}), None),
        ("Edit", json!({"file_path": "a", "new_string": "https://evil.test"}), None),
    ] {
        assert_eq!(fixture.class(tool, args.clone(), CallFrom::Hook), class, "{tool} {args}");
    }
}

#[test]
fn p19_without_a_host_the_tools_of_the_network_are_closed() {
    let network = Some(NetworkPolicy::default());
    let policy = Policy::new(&ToolPolicy { network, ..ToolPolicy::default() }).unwrap();
    assert!(!policy.exposes("WebFetch") && !policy.exposes("WebSearch") && policy.exposes("Read"));
}

#[test]
fn p74_every_list_of_allowed_calls_counts() {
    let project = vec!["Shell(git *)".to_owned(), "Read".to_owned()];
    let own = vec!["Shell(git log *)".to_owned(), "Write".to_owned()];
    let fixture = Fixture::with_policy(&ToolPolicy { allow: vec![project, own], ..ToolPolicy::default() });
    assert_eq!(fixture.offered(), ["Shell"]);
    assert_eq!(fixture.class("Shell", json!({"command": "git log"}), CallFrom::Model), None);
    assert_eq!(fixture.class("Shell", json!({"command": "git push"}), CallFrom::Model), Some(RefusalClass::ToolDenied));
    assert_eq!(fixture.class("Write", json!({"path": "a", "content": ""}), CallFrom::Model), Some(RefusalClass::ToolNotExposed));
}

#[tokio::test(flavor = "multi_thread")]
async fn p17_a_folder_outside_that_the_policy_excepts_is_read_and_recorded_with_its_reason_and_its_secrets_stay_closed() {
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().canonicalize().unwrap();
    for (name, text) in [("shared/header.h", "int shared;"), ("shared/.env", "KEY=x"), ("other/file", "other")] {
        std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::fs::write(root.join(name), text).unwrap();
    }
    symlink(root.join("other"), root.join("shared/link")).unwrap();
    symlink(".env", root.join("shared/innocent")).unwrap();
    let exception =
        yoi_wire::policy::OutsideException { path: root.join("shared").display().to_string(), reason: "SharedHeaders".to_owned() };
    let fixture = Fixture::with_policy(&ToolPolicy { outside: vec![exception], ..ToolPolicy::default() });
    let at = |name: &str| json!({"path": root.join(name)});
    assert!(fixture.succeed("Read", at("shared/header.h")).await.contains("int shared;"));
    assert!(fixture.succeed("List", at("shared")).await.contains("header.h"));
    let used = fixture.gate.runner().exceptions_of(&call("Read", at("shared/header.h")));
    let used = serde_json::to_value(&used).unwrap();
    assert_eq!((&used[0]["body"]["name"], &used[0]["body"]["data"]["reason"]), (&json!("yoi/sandbox-exception"), &json!("SharedHeaders")));
    fixture.write("plain", "text");
    assert!(fixture.gate.runner().exceptions_of(&call("Read", json!({"path": "plain"}))).is_empty());
    let (sensitive, violation) = (Some(RefusalClass::SensitivePathDenied), Some(RefusalClass::SandboxViolation));
    for (tool, name, class) in [
        ("Read", "shared/.env", sensitive),
        ("Read", "shared/innocent", sensitive),
        ("Read", "shared/link/file", violation),
        ("Read", "shared/../other/file", violation),
        ("Read", "other/file", violation),
        ("List", "", violation),
        // It is for those that look alone.
        ("Write", "shared/new", violation),
        ("Grep", "shared", violation),
    ] {
        let more = json!({"path": root.join(name), "content": "x", "pattern": "x"});
        let args: Value = match tool {
            "Write" => json!({"path": more["path"], "content": "x"}),
            "Grep" => json!({"path": more["path"], "pattern": "x"}),
            _ => json!({"path": more["path"]}),
        };
        assert_eq!(fixture.class(tool, args, CallFrom::Model), class, "{tool} {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p21_a_command_gets_the_variables_that_the_policy_names_and_a_call_with_others_is_refused_by_their_names() {
    let fixture = Fixture::with_policy(&ToolPolicy { environment: vec!["CI".to_owned(), "LEVEL".to_owned()], ..ToolPolicy::default() });
    let command = |env: &[&str]| json!({"command": "echo [$CI] [$LEVEL] [$OTHER]", "env": env});
    let output = fixture.succeed("Shell", command(&["CI=yes", "LEVEL=a b=c"])).await;
    assert!(output.starts_with("[yes] [a b=c] []\n"), "{output}");
    assert!(fixture.succeed("Shell", command(&[])).await.starts_with("[] [] []\n"), "they are those of one command");
    let refusal = fixture.refuse("Shell", command(&["CI=1", "OTHER=x", "LD_PRELOAD=y"]));
    assert_eq!(refusal.class, RefusalClass::EnvDenied);
    assert!(refusal.message.ends_with("lets calls set the variables CI, LEVEL, and not OTHER, LD_PRELOAD"), "{}", refusal.message);
    let none = Fixture::new();
    assert_eq!(none.class("Shell", command(&["CI=1"]), CallFrom::Model), Some(RefusalClass::EnvDenied));
    // As other programs and servers write it, at any depth.
    for args in [json!({"command": "ls", "env": {"PATH": "."}}), json!({"server": {"environment": {"PATH": "."}}})] {
        assert_eq!(fixture.class("mcp__run__start", args.clone(), CallFrom::Hook), Some(RefusalClass::EnvDenied), "{args}");
    }
    for bad in ["CI", "1A=x", "=x"] {
        assert_eq!(fixture.class("Shell", command(&[bad]), CallFrom::Model), Some(RefusalClass::InvalidArgs), "{bad}");
    }
}
