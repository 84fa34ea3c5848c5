//! Names of tools in rules. A tool of Yoi's and the tools of programs that do the same have one name.

/// What the pattern of a rule for a tool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternKind {
    /// A command of a shell.
    Command,
    /// A path of the tree.
    Path,
    /// A host.
    Host,
    /// There are none.
    None,
}

/// The name of a tool: Yoi's where Yoi has one that does the same, else the program's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolName(String);

/// Yoi's name of a tool, and how Claude Code, Gemini CLI and Copilot CLI call theirs.
const TOOLS: [(&str, PatternKind, &[&str]); 26] = [
    ("Shell", PatternKind::Command, &["Bash", "bash", "shell", "run_shell_command", "write_bash"]),
    ("ShellOutput", PatternKind::None, &["BashOutput", "TaskOutput", "read_bash"]),
    ("ShellStop", PatternKind::None, &["KillShell", "KillBash", "TaskStop", "stop_bash"]),
    ("Read", PatternKind::Path, &["NotebookRead", "read_file", "read_many_files", "view"]),
    ("Write", PatternKind::Path, &["write_file", "create"]),
    ("Edit", PatternKind::Path, &["MultiEdit", "NotebookEdit", "replace", "edit", "str_replace_editor", "apply_patch"]),
    ("Grep", PatternKind::Path, &["search_file_content", "grep_search", "grep", "rg"]),
    ("Glob", PatternKind::Path, &["glob"]),
    ("List", PatternKind::Path, &["LS", "list_directory"]),
    ("ListPods", PatternKind::None, &[]),
    ("SendToPeerPod", PatternKind::None, &[]),
    ("RestorePod", PatternKind::None, &[]),
    ("SpawnPod", PatternKind::None, &[]),
    ("SendToPod", PatternKind::None, &[]),
    ("ReadPodOutput", PatternKind::None, &[]),
    ("PodLog", PatternKind::None, &[]),
    ("PodState", PatternKind::None, &[]),
    ("DiffPod", PatternKind::None, &[]),
    ("MergePod", PatternKind::None, &[]),
    ("WaitPods", PatternKind::None, &[]),
    ("StopPod", PatternKind::None, &[]),
    ("Skill", PatternKind::None, &["activate_skill"]),
    ("Graph", PatternKind::None, &[]),
    ("Command", PatternKind::None, &[]),
    ("WebFetch", PatternKind::Host, &["web_fetch"]),
    ("WebSearch", PatternKind::None, &["web_search", "google_web_search"]),
];
/// Tools that only programs have.
const OF_PROGRAMS: [&str; 17] = [
    "Agent",
    "Task",
    "task",
    "TodoWrite",
    "write_todos",
    "update_todo",
    "SlashCommand",
    "ToolSearch",
    "EnterPlanMode",
    "ExitPlanMode",
    "AskUserQuestion",
    "save_memory",
    "report_intent",
    "store_memory",
    "ScheduleWakeup",
    "CronCreate",
    "LSP",
];
/// How programs name a tool of an MCP server.
const OF_MCP: &str = "mcp__";
/// How programs name the tools of Yoi's, which they have by MCP.
const OF_YOI: [&str; 4] = ["mcp__yoi__", "mcp_yoi_", "yoi__", "yoi-"];

impl ToolName {
    /// The tool of a call. Every name is one.
    #[must_use]
    pub fn of_call(name: &str) -> Self {
        let name = OF_YOI.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        let yois = TOOLS.iter().find(|(yois, _, others)| *yois == name || others.contains(&name));
        Self(yois.map_or(name, |(yois, ..)| yois).to_owned())
    }

    /// The tool that a rule names; `None`: no tool that Yoi knows has this name, so that the rule would do nothing.
    #[must_use]
    pub fn of_rule(name: &str) -> Option<Self> {
        let tool = Self::of_call(name);
        let is_known = TOOLS.iter().any(|(yois, ..)| *yois == tool.0) || OF_PROGRAMS.contains(&name) || name.starts_with(OF_MCP);
        is_known.then_some(tool)
    }

    /// The names that rules may have, without those of MCP servers and those that programs have for the same.
    #[must_use]
    pub fn known() -> Vec<&'static str> {
        TOOLS.iter().map(|(yois, ..)| *yois).chain(OF_PROGRAMS).collect()
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What the pattern of a rule for it is.
    #[must_use]
    pub fn pattern_kind(&self) -> PatternKind {
        TOOLS.iter().find(|(yois, ..)| *yois == self.0).map_or(PatternKind::None, |(_, kind, _)| *kind)
    }

    /// Whether it changes files.
    #[must_use]
    pub fn writes_files(&self) -> bool {
        matches!(self.as_str(), "Write" | "Edit")
    }

    /// Whether both read files, or both write files: a pattern for one is a pattern for the other.
    #[must_use]
    pub fn same_files(&self, other: &Self) -> bool {
        let both_files = self.pattern_kind() == PatternKind::Path && other.pattern_kind() == PatternKind::Path;
        both_files && self.writes_files() == other.writes_files()
    }

    /// Whether it reaches hosts that nothing in its arguments needs to name.
    #[must_use]
    pub fn uses_network(&self) -> bool {
        matches!(self.as_str(), "WebFetch" | "WebSearch")
    }
}
