//! The assets as people and programs are shown them.

use yoi_assets::{AssetSnapshot, AssetState, Diagnostic, Found, FoundKind, Level};
use yoi_wire::assets::{
    Asset, AssetDiagnostic, AssetsReport, AssetsResponse, FoundAsset, MAX_ERROR_CHARS, MAX_REPORTED_ERRORS, ReloadedAssets,
};

use super::LoadedAssets;

/// The most assets, and the most diagnostics, of one answer.
const MAX_LISTED: usize = 2_000;
/// Bytes of a text of one of them.
const MAX_TEXT_BYTES: usize = 1024;

/// Lists all assets, those that do not count with the reason.
#[must_use]
pub fn listing(loaded: &LoadedAssets) -> AssetsResponse {
    let AssetSnapshot { generation, digest, skills, commands, workflows, triggers, graph: _, diagnostics } = &*loaded.snapshot;
    let skills = skills.iter().map(|skill| Asset {
        allowed_tools: skill.allowed_tools.clone().unwrap_or_default(),
        for_model: skill.for_model,
        for_people: skill.for_people,
        ..asset("Skill", &skill.name, &skill.description, &skill.path, skill.source.name_of(&skill.path), &skill.state)
    });
    let commands = commands.iter().map(|command| Asset {
        allowed_tools: command.allowed_tools.clone().unwrap_or_default(),
        argument_hint: command.argument_hint.as_deref().map(bounded),
        for_people: true,
        ..asset("Command", &command.name, &command.description, &command.path, command.source.name_of(&command.path), &command.state)
    });
    let workflows = workflows.iter().map(|workflow| {
        asset("Workflow", &workflow.name, &workflow.description, &workflow.path, workflow.source.name_of(&workflow.path), &workflow.state)
    });
    let triggers = triggers.iter().map(|trigger| {
        let kind = trigger.trigger.as_ref().map(|trigger| format!("{} of ", trigger.kind())).unwrap_or_default();
        let description = format!("{kind}the workflow {}", trigger.workflow);
        asset("Trigger", &trigger.id, &description, &trigger.path, trigger.source.name_of(&trigger.path), &trigger.state)
    });
    let mut assets: Vec<Asset> = skills.chain(commands).chain(workflows).chain(triggers).collect();
    let left_out = assets.len().saturating_sub(MAX_LISTED) + diagnostics.len().saturating_sub(MAX_LISTED);
    assets.truncate(MAX_LISTED);
    let refused = loaded.refused.as_ref().map(|refused| refused.diagnostics.as_slice()).unwrap_or_default();
    AssetsResponse {
        generation: *generation,
        digest: digest.clone(),
        assets,
        sets: loaded.sets.clone(),
        diagnostics: diagnostics.iter().take(MAX_LISTED).map(diagnostic).collect(),
        refused: refused.iter().take(MAX_LISTED).map(diagnostic).collect(),
        found: None,
        left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    }
}

fn diagnostic(one: &Diagnostic) -> AssetDiagnostic {
    let level = match one.level {
        Level::Error => "Error",
        Level::Warning => "Warning",
        Level::Note => "Note",
    };
    AssetDiagnostic { path: one.path.clone(), line: one.line, level: level.to_owned(), message: bounded(&one.message) }
}

/// What is reported of them; `None`: there are none, and nobody has said how they are read.
#[must_use]
pub fn report(loaded: &LoadedAssets) -> Option<AssetsReport> {
    let AssetSnapshot { generation: _, digest: _, skills, commands, workflows, triggers, graph, diagnostics } = &*loaded.snapshot;
    let is_empty = skills.is_empty() && commands.is_empty() && workflows.is_empty() && triggers.is_empty() && graph.is_empty();
    if is_empty && diagnostics.is_empty() && loaded.refused.is_none() && !loaded.has_settings {
        return None;
    }
    let errors: Vec<&Diagnostic> = match &loaded.refused {
        Some(refused) => refused.diagnostics.iter().collect(),
        None => diagnostics.iter().filter(|one| one.level == Level::Error).collect(),
    };
    let shortened = |error: &&Diagnostic| error.to_string().chars().take(MAX_ERROR_CHARS).collect();
    Some(AssetsReport {
        counts: ReloadedAssets { errors: u32::try_from(errors.len()).unwrap_or(u32::MAX), ..counts(&loaded.snapshot) },
        refused: loaded.refused.is_some(),
        first_errors: errors.iter().take(MAX_REPORTED_ERRORS).map(shortened).collect(),
    })
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
    let AssetSnapshot { generation, digest, skills, commands, workflows, triggers: _, graph, diagnostics } = snapshot;
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
