//! `assets`: what of an agent's tree counts as skills, commands and workflows, and why the rest does not.

use std::fmt::Write as _;

use yoi_crds::YoiPod;
use yoi_wire::assets::{Asset, AssetDiagnostic, AssetsQuery, AssetsResponse, FetchedSet, FoundAsset, ReloadAssets, ReloadedAssets};

use crate::args::{AssetsCommand, AssetsOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

/// Letters of a reason in the table.
const REASON_CHARS: usize = 80;

pub async fn assets(cluster: &Cluster, output: Option<OutputFormat>, args: &AssetsOptions) -> Result<(), Error> {
    let agent = &args.name;
    match &args.command {
        None => list(output, agent, &cluster.fetch(agent, "assets", "").await?),
        Some(AssetsCommand::Show { asset }) => show_one(output, agent, &cluster.fetch(agent, "assets", "").await?, asset),
        Some(AssetsCommand::Search { words }) => {
            let text = words.join(" ");
            let query = AssetsQuery { search: Some(text.clone()) };
            let response: AssetsResponse = cluster.fetch(agent, "assets", &query.to_url()).await?;
            let Some(found) = response.found else {
                let why = "its runtime is of an earlier version, which cannot search";
                let next = format!("let it begin with this version: {}", cluster.plugin_command(&format!("restart {agent}")));
                return Err(cluster.refused_error::<YoiPod>("search the assets of", agent, why, next));
            };
            show::objects(output, &found, |asset| show::one_line(&asset.name), || found_table(agent, &text, &found))
        }
        Some(AssetsCommand::Reload { strict }) => {
            let reloaded = cluster.reload_assets(agent, &ReloadAssets { strict: *strict }).await?;
            let sentence = reloaded_sentence(cluster, agent, &reloaded);
            show::object(output, &reloaded, agent, &sentence)
        }
    }
}

fn found_table(agent: &str, text: &str, found: &[FoundAsset]) -> String {
    if found.is_empty() {
        return format!("nothing in the tree of {agent} that counts has {:?}\n", show::one_line(text));
    }
    let mut table = show::table(&["name", "kind", "file", "text"]);
    for FoundAsset { kind, name, path, excerpt } in found {
        table.add_row([name, kind, path, &show::shortened(&show::one_line(excerpt), REASON_CHARS)].map(show::cell));
    }
    show::lines(&table)
}

fn reloaded_sentence(cluster: &Cluster, agent: &str, reloaded: &ReloadedAssets) -> String {
    let ReloadedAssets { generation, digest: _, skills, commands, workflows, nodes, errors } = reloaded;
    let display = cluster.display_name::<YoiPod>(agent);
    let mut sentence = format!(
        "{display} has read them, generation {generation}: {skills} skills, {commands} commands, {workflows} workflows and {nodes} nodes of the graph count"
    );
    if *errors > 0 {
        let next = cluster.plugin_command(&format!("assets {agent}"));
        let _ = write!(sentence, "; {errors} errors: {next}");
    }
    sentence
}

fn list(output: Option<OutputFormat>, agent: &str, response: &AssetsResponse) -> Result<(), Error> {
    match output {
        None | Some(OutputFormat::Wide) => show::print(&table(agent, response)),
        Some(OutputFormat::Name) => {
            show::print(&response.assets.iter().map(|asset| show::one_line(&asset.name) + "\n").collect::<String>())
        }
        Some(format) => show::print_as(format, response),
    }
}

fn table(agent: &str, response: &AssetsResponse) -> String {
    let AssetsResponse { generation: _, digest: _, assets, sets, diagnostics, refused, found: _, left_out } = response;
    let mut text = if assets.is_empty() {
        format!("no skills, commands or workflows in the tree of {agent}\n")
    } else {
        let mut table = show::table(&["name", "kind", "from", "state", "reason"]);
        for Asset { kind, name, source, state, reason, path, line, .. } in assets {
            let at = line.map(|line| format!("{path}:{line}: ")).unwrap_or_default();
            let reason = reason.as_ref().map(|reason| show::shortened(&show::one_line(&format!("{at}{reason}")), REASON_CHARS));
            table.add_row([name, kind, source, state, &reason.unwrap_or_default()].map(show::cell));
        }
        show::lines(&table)
    };
    for FetchedSet { name, revision, missing } in sets {
        match (revision, missing) {
            (Some(commit), None) => text.push_str(&(show::one_line(&format!("{name} is of commit {commit}")) + "\n")),
            // Else it stands among the errors.
            (_, Some(why)) if diagnostics.iter().all(|one| one.path != *name) => {
                text.push_str(&(show::one_line(&format!("{name} {why}")) + "\n"));
            }
            (_, Some(_)) | (None, None) => {}
        }
    }
    // Why an asset does not count stands beside it.
    let listed = |one: &&AssetDiagnostic| !assets.iter().any(|asset| asset.path == one.path && asset.reason.is_some());
    for one in diagnostics.iter().filter(|one| one.level != "Note").filter(listed) {
        let _ = writeln!(text, "{}", sentence(one));
    }
    if *left_out > 0 {
        let _ = writeln!(text, "{left_out} more are not shown");
    }
    if !refused.is_empty() {
        text.push_str("the files as they are now are refused, as the project reads them strictly; what was loaded before counts on:\n");
    }
    for one in refused {
        let _ = writeln!(text, "{}", sentence(one));
    }
    text
}

fn sentence(AssetDiagnostic { path, line, level, message }: &AssetDiagnostic) -> String {
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    show::one_line(&format!("{}: {path}{line}: {message}", level.to_lowercase()))
}

fn show_one(output: Option<OutputFormat>, agent: &str, response: &AssetsResponse, name: &str) -> Result<(), Error> {
    let named: Vec<&Asset> = response.assets.iter().filter(|asset| asset.name == name).collect();
    if named.is_empty() {
        let why = std::io::Error::other("its tree has none of that name");
        return Err(Error::local(format!("show {name} of {agent}"), why, "list what there is: the same command without `show`"));
    }
    show::objects(output, &named, |asset| asset.name.clone(), || named.iter().map(|asset| details(asset, &response.diagnostics)).collect())
}

fn details(asset: &Asset, diagnostics: &[AssetDiagnostic]) -> String {
    let Asset { kind, name, description, path, source, state, reason, line, argument_hint, allowed_tools, for_model, for_people } = asset;
    let mut text = String::new();
    let mut row = |key: &str, value: &str| {
        if !value.is_empty() {
            let key = format!("{key}:");
            let _ = writeln!(text, "{key:<14} {}", show::one_line(value));
        }
    };
    row("Name", name);
    row("Kind", kind);
    row("File", &line.map_or_else(|| path.clone(), |line| format!("{path}:{line}")));
    row("From", source);
    row("State", state);
    row("Reason", reason.as_deref().unwrap_or_default());
    row("Description", description);
    row("Takes", argument_hint.as_deref().unwrap_or_default());
    row("Allowed tools", &allowed_tools.join(", "));
    let users = [(*for_model, "the model"), (*for_people, "people")];
    row("For", &users.iter().filter(|(may, _)| *may).map(|(_, who)| *who).collect::<Vec<_>>().join(", "));
    for one in diagnostics.iter().filter(|one| one.path == *path) {
        let _ = writeln!(text, "{}", sentence(one));
    }
    text
}
