//! The assets as people and programs are shown them.

use yoi_assets::{AssetSnapshot, AssetState, Found, FoundKind, Level};
use yoi_wire::assets::{Asset, AssetDiagnostic, AssetsResponse, FoundAsset, ReloadedAssets};

/// The most assets, and the most diagnostics, of one answer.
const MAX_LISTED: usize = 2_000;
/// Bytes of a text of one of them.
const MAX_TEXT_BYTES: usize = 1024;

/// Lists all assets, those that do not count with the reason.
#[must_use]
pub fn listing(snapshot: &AssetSnapshot) -> AssetsResponse {
    let AssetSnapshot { generation, digest, skills, commands, workflows, diagnostics, .. } = snapshot;
    let skills = skills.iter().map(|skill| Asset {
        allowed_tools: skill.allowed_tools.clone().unwrap_or_default(),
        for_model: skill.for_model,
        for_people: skill.for_people,
        ..asset("Skill", &skill.name, &skill.description, &skill.path, skill.source.as_str(), &skill.state)
    });
    let commands = commands.iter().map(|command| Asset {
        allowed_tools: command.allowed_tools.clone().unwrap_or_default(),
        argument_hint: command.argument_hint.as_deref().map(bounded),
        for_people: true,
        ..asset("Command", &command.name, &command.description, &command.path, command.source.as_str(), &command.state)
    });
    let workflows = workflows.iter().map(|workflow| {
        asset("Workflow", &workflow.name, &workflow.description, &workflow.path, workflow.source.as_str(), &workflow.state)
    });
    let mut assets: Vec<Asset> = skills.chain(commands).chain(workflows).collect();
    let left_out = assets.len().saturating_sub(MAX_LISTED) + diagnostics.len().saturating_sub(MAX_LISTED);
    assets.truncate(MAX_LISTED);
    let diagnostics = diagnostics.iter().take(MAX_LISTED).map(|one| AssetDiagnostic {
        path: one.path.clone(),
        line: one.line,
        level: match one.level {
            Level::Error => "Error",
            Level::Warning => "Warning",
            Level::Note => "Note",
        }
        .to_owned(),
        message: bounded(&one.message),
    });
    AssetsResponse {
        generation: *generation,
        digest: digest.clone(),
        assets,
        diagnostics: diagnostics.collect(),
        found: None,
        left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    }
}

/// Those that count and have the text.
#[must_use]
pub fn found(snapshot: &AssetSnapshot, text: &str) -> AssetsResponse {
    let found = snapshot.search(text).into_iter().map(|Found { kind, name, path, excerpt }| {
        let kind = match kind {
            FoundKind::Skill => "Skill",
            FoundKind::Command => "Command",
            FoundKind::Workflow => "Workflow",
            FoundKind::Node => "Node",
        };
        FoundAsset { kind: kind.to_owned(), name, path, excerpt: bounded(&excerpt) }
    });
    let AssetSnapshot { generation, digest, .. } = snapshot;
    AssetsResponse { generation: *generation, digest: digest.clone(), found: Some(found.collect()), ..AssetsResponse::default() }
}

/// How many count.
#[must_use]
pub fn counts(snapshot: &AssetSnapshot) -> ReloadedAssets {
    let AssetSnapshot { generation, digest, skills, commands, workflows, graph, diagnostics } = snapshot;
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    ReloadedAssets {
        generation: *generation,
        digest: digest.clone(),
        skills: count(skills.iter().filter(|skill| skill.state.is_valid()).count()),
        commands: count(commands.iter().filter(|command| command.state.is_valid()).count()),
        workflows: count(workflows.iter().filter(|workflow| workflow.state.is_valid()).count()),
        nodes: count(graph.nodes.len()),
        errors: count(diagnostics.iter().filter(|one| one.level == Level::Error).count()),
    }
}

fn asset(kind: &str, name: &str, description: &str, path: &str, source: &str, state: &AssetState) -> Asset {
    let (reason, line) = match state {
        AssetState::Valid => (None, None),
        AssetState::Disabled => (Some("its file says so".to_owned()), None),
        AssetState::Shadowed { by } => (Some(format!("{by} has the same name, and comes first")), None),
        AssetState::Invalid { reason, line } => (Some(bounded(reason)), *line),
    };
    Asset {
        kind: kind.to_owned(),
        name: name.to_owned(),
        description: bounded(description),
        path: path.to_owned(),
        source: source.to_owned(),
        state: state.as_str().to_owned(),
        reason,
        line,
        ..Asset::default()
    }
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}
