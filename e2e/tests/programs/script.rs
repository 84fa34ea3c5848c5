//! What the scripted model lets each program do. The model decides by the conversation alone, so a call that is made twice was asked for twice.

use serde_json::{Value, json};

/// A part of the words by which a run goes on that was interrupted.
const INTERRUPTED: &str = "Your work was interrupted in the middle";

/// A program, its model, and the names and arguments of its tools.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of its preset.
    pub name: &'static str,
    /// Its package in the recipe of the images.
    pub package: &'static str,
    pub provider: &'static str,
    pub model: &'static str,
    /// Version segment of the endpoint's URL.
    pub version: &'static str,
    /// It knows what it was asked before.
    pub resumes: bool,
    read: &'static str,
    path: &'static str,
    edit: Option<Edit>,
    run: &'static str,
    command: &'static str,
    send: &'static str,
    /// Codex knows tools of MCP by a namespace and a name.
    namespace: Option<&'static str>,
}

/// Names of the tool that edits, and of its arguments.
#[derive(Clone, Copy, Debug)]
struct Edit {
    tool: &'static str,
    old: &'static str,
    new: &'static str,
}

const PLAIN: Program = Program {
    name: "",
    package: "",
    provider: "OpenAI",
    model: "gpt-4.1",
    version: "v1",
    resumes: true,
    read: "read",
    path: "path",
    edit: None,
    run: "bash",
    command: "command",
    send: "SendToPeerPod",
    namespace: None,
};

pub const CLAUDE: Program = Program {
    name: "claude",
    package: "@anthropic-ai/claude-code",
    provider: "Anthropic",
    model: "claude-sonnet-4-5",
    read: "Read",
    path: "file_path",
    edit: Some(Edit { tool: "Edit", old: "old_string", new: "new_string" }),
    run: "Bash",
    send: "mcp__yoi__SendToPeerPod",
    ..PLAIN
};
pub const CODEX: Program = Program {
    name: "codex",
    package: "@openai/codex",
    model: "gpt-5.1-codex",
    run: "exec_command",
    command: "cmd",
    namespace: Some("mcp__yoi"),
    ..PLAIN
};
pub const GEMINI: Program = Program {
    name: "gemini",
    package: "@google/gemini-cli",
    provider: "Gemini",
    model: "gemini-2.5-pro",
    version: "v1beta",
    resumes: false,
    read: "read_file",
    path: "file_path",
    edit: Some(Edit { tool: "replace", old: "old_string", new: "new_string" }),
    run: "run_shell_command",
    send: "mcp_yoi_SendToPeerPod",
    ..PLAIN
};
pub const COPILOT: Program = Program {
    name: "copilot",
    package: "@github/copilot",
    read: "view",
    edit: Some(Edit { tool: "edit", old: "old_str", new: "new_str" }),
    send: "yoi-SendToPeerPod",
    ..PLAIN
};
pub const OPENCODE: Program = Program {
    name: "opencode",
    package: "opencode-ai",
    path: "filePath",
    edit: Some(Edit { tool: "edit", old: "oldString", new: "newString" }),
    send: "yoi_SendToPeerPod",
    ..PLAIN
};

impl Program {
    fn shell(&self, command: &str) -> Value {
        let mut args = json!({ self.command: command });
        if self.namespace.is_none() {
            args["description"] = "A step of the work".into();
        }
        json!({ "tool": self.run, "args": args })
    }

    /// Codex reads and writes files by commands.
    fn reads(&self, file: &str) -> Value {
        match self.edit {
            Some(_) => json!({ "tool": self.read, "args": { self.path: file } }),
            None => self.shell(&format!("cat {file}")),
        }
    }

    fn edits(&self, file: &str, old: &str, new: &str) -> Value {
        let Some(edit) = self.edit else { return self.shell(&format!("sed -i 's/{old}/{new}/' {file}")) };
        let mut args = json!({ self.path: file, edit.old: old, edit.new: new });
        if edit.tool == "replace" {
            args["instruction"] = "Change the title".into();
        }
        json!({ "tool": edit.tool, "args": args })
    }

    fn sends(&self, words: &str) -> Value {
        let mut call = json!({ "tool": self.send, "args": { "to": "boss", "message": words } });
        if let Some(namespace) = self.namespace {
            call["namespace"] = namespace.into();
        }
        call
    }

    /// The rules by which it works.
    pub fn rules(&self, tree: &str) -> Vec<Value> {
        let (name, readme) = (self.name, format!("{tree}/README.md"));
        let asked = |words: &str| json!({ "lastUserContains": format!("{words} as {name}") });
        let knows = if self.resumes { json!([format!("work as {name}")]) } else { json!([]) };
        vec![
            json!({ "name": "interrupted", "when": { "lastUserContains": INTERRUPTED }, "steps": [
                { "text": "I look first.", "toolCalls": [self.shell("cat begun.txt")] },
                { "text": "It had begun.", "expect": ["once"] },
            ] }),
            json!({ "name": "work", "when": asked("work"), "steps": [
                { "text": "I read it first.", "toolCalls": [self.reads(&readme)] },
                { "toolCalls": [self.edits(&readme, "Fixture", &format!("Changed by {name}"))], "expect": ["# Fixture"] },
                { "toolCalls": [self.shell(&format!("git add -A && git commit -qm 'By {name}' && git log -1 --format=%s"))] },
                { "toolCalls": [self.sends(&format!("the words of {name}"))], "expect": [format!("By {name}")] },
                { "text": "The work is done." },
            ] }),
            json!({ "name": "again", "when": asked("go on"), "steps": [{ "text": "Here I am.", "expect": knows }] }),
            json!({ "name": "slow", "when": asked("be slow"), "steps": [
                { "toolCalls": [self.shell("echo once >> begun.txt; sleep 100; echo ended >> ended.txt")] },
                { "text": "It has run." },
            ] }),
            // Shorter than what Codex waits for a command.
            json!({ "name": "while", "when": asked("take a while"), "steps": [
                { "toolCalls": [self.shell("sleep 6")] },
                { "text": "That was a while." },
            ] }),
            json!({ "name": "errand", "when": { "lastUserContains": format!("an errand for {name}") }, "steps": [
                { "toolCalls": [self.sends(&format!("the words of {name}"))] },
                { "text": "Told." },
            ] }),
        ]
    }
}

/// The script of these programs, and of the built-in agent that is their peer.
pub fn script(programs: &[Program], tree: &str) -> String {
    let errand = |program: &Program| {
        let message = format!("an errand for {}", program.name);
        json!({ "tool": "SendToPeerPod", "args": { "to": program.name, "message": message } })
    };
    let errands: Vec<Value> = programs.iter().map(errand).collect();
    let mut rules: Vec<Value> = programs.iter().flat_map(|program| program.rules(tree)).collect();
    rules.push(json!({ "name": "hear", "when": { "lastUserContains": "the words of" }, "steps": [{ "text": "I heard you." }] }));
    rules.push(json!({ "name": "send", "when": { "lastUserContains": "send them on errands" }, "steps": [
        { "toolCalls": errands },
        { "text": "Sent." },
    ] }));
    json!({ "rules": rules }).to_string()
}
