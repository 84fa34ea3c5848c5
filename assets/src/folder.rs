//! Where assets are looked for, and how much of it.

use serde::Serialize;

/// How deep below a folder of [`FOLDERS`] assets are looked for.
pub const MAX_DEPTH: usize = 6;
/// How many folders are looked into, all of [`FOLDERS`] together.
pub const MAX_FOLDERS: usize = 2_000;
/// The size of the largest file that is read as an asset.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Files of instructions, of the root and of the folder that a call works in. No asset of a snapshot: they are told to the model as they are.
pub const INSTRUCTIONS: [&str; 3] = ["AGENTS.md", "CLAUDE.md", "GEMINI.md"];

/// Whose folder an asset comes from, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Source {
    /// `.jido`.
    #[serde(rename = ".jido")]
    Jido,
    /// `.agents`.
    #[serde(rename = ".agents")]
    Agents,
    /// `.claude`.
    #[serde(rename = ".claude")]
    Claude,
    /// `.github`.
    #[serde(rename = ".github")]
    GitHub,
    /// `.gemini`.
    #[serde(rename = ".gemini")]
    Gemini,
    /// `.jido_code`.
    #[serde(rename = ".jido_code")]
    JidoCode,
    /// A set that a cluster's or project's administrators give to all agents: not of the tree, and below all that is.
    #[serde(rename = "team")]
    Team,
}

impl Source {
    /// The folder's name of an asset of the tree; kind and name of the set, such as `configmap/team`, of one that is in none.
    #[must_use]
    pub fn name_of(self, path: &str) -> &str {
        match self {
            Self::Team => below_set(path).map_or(path, |below| &path[..path.len() - below.len() - 1]),
            Self::Jido | Self::Agents | Self::Claude | Self::GitHub | Self::Gemini | Self::JidoCode => self.as_str(),
        }
    }

    /// As people know it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jido => ".jido",
            Self::Agents => ".agents",
            Self::Claude => ".claude",
            Self::GitHub => ".github",
            Self::Gemini => ".gemini",
            Self::JidoCode => ".jido_code",
            Self::Team => "team",
        }
    }

    /// Whether its files have the keys, parameters and links of jido.
    #[must_use]
    pub const fn is_jido(self) -> bool {
        matches!(self, Self::Jido | Self::JidoCode)
    }
}

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    /// Folders with a `SKILL.md`.
    Skills,
    /// Commands: `.md`, of Gemini `.toml`.
    Commands,
    /// Workflows: `.md`, and `triggers.json`.
    Workflows,
    /// The skill graph: `.md` and `graph.yml`.
    Graph,
}

/// A folder below the root in which assets are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Relative to the root, with `/`.
    pub path: &'static str,
    /// Whose it is.
    pub source: Source,
    /// What it holds.
    pub kind: Kind,
}

/// The file of [`Kind::Workflows`] with triggers that stand in no workflow.
pub(crate) const TRIGGERS: &str = "triggers.json";

const fn folder(path: &'static str, source: Source, kind: Kind) -> Folder {
    Folder { path, source, kind }
}

/// The folders of a tree, in order of precedence: of two assets of one name the first wins.
pub const FOLDERS: &[Folder] = &[
    folder(".jido/skills", Source::Jido, Kind::Skills),
    folder(".jido/commands", Source::Jido, Kind::Commands),
    folder(".jido/workflows", Source::Jido, Kind::Workflows),
    folder(".jido/skill_graph", Source::Jido, Kind::Graph),
    folder(".agents/skills", Source::Agents, Kind::Skills),
    folder(".claude/skills", Source::Claude, Kind::Skills),
    folder(".claude/commands", Source::Claude, Kind::Commands),
    folder(".github/skills", Source::GitHub, Kind::Skills),
    folder(".gemini/skills", Source::Gemini, Kind::Skills),
    folder(".gemini/commands", Source::Gemini, Kind::Commands),
    folder(".jido_code/skills", Source::JidoCode, Kind::Skills),
    folder(".jido_code/commands", Source::JidoCode, Kind::Commands),
    folder(".jido_code/workflows", Source::JidoCode, Kind::Workflows),
    folder(".jido_code/skill_graph", Source::JidoCode, Kind::Graph),
];

/// The file of instructions of a set that is not of the tree. No asset, either.
pub const TEAM_INSTRUCTIONS: &str = "AGENTS.md";

/// The folders of a set that is not of the tree, relative to the set.
pub const TEAM_FOLDERS: &[Folder] = &[
    folder("skills", Source::Team, Kind::Skills),
    folder("commands", Source::Team, Kind::Commands),
    folder("workflows", Source::Team, Kind::Workflows),
    folder("skill_graph", Source::Team, Kind::Graph),
];

/// Whether a file is read as an asset; `below` is its path relative to the folder, with `/`. Other files of a skill's folder are read by the model, by path.
#[must_use]
pub fn is_asset(folder: &Folder, below: &str) -> bool {
    let name = below.rsplit('/').next().unwrap_or(below);
    let ends_with = |end: &str| name.len() > end.len() && name.ends_with(end);
    match folder.kind {
        Kind::Skills => matches!(name, "SKILL.md" | "skill.md"),
        Kind::Commands if folder.source == Source::Gemini => ends_with(".toml"),
        Kind::Commands => ends_with(".md"),
        Kind::Workflows => ends_with(".md") || below == TRIGGERS,
        Kind::Graph => ends_with(".md") || matches!(below, "graph.yml" | "graph.yaml"),
    }
}

/// The folder that a path lies in, its place in the order of precedence, and the rest of the path. `set`: of a set that is not of the tree.
pub(crate) fn folder_of(path: &str, set: Option<u16>) -> Option<(usize, &'static Folder, &str)> {
    let (folders, path) = if set.is_some() { (TEAM_FOLDERS, below_set(path)?) } else { (FOLDERS, path) };
    let below = |folder: &Folder| path.strip_prefix(folder.path)?.strip_prefix('/');
    folders.iter().enumerate().find_map(|(place, folder)| Some((place, folder, below(folder)?)))
}

/// What follows kind and name of a set.
fn below_set(path: &str) -> Option<&str> {
    path.splitn(3, '/').nth(2)
}
