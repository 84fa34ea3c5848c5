//! `diff`: prints what an agent changed in its tree. An agent chooses names and contents, so neither reaches the terminal as it is.

use std::fmt::Write;

use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_wire::bundle::{InnerRepository, MAX_SENTENCE_PATH, shortened_path};
use yoi_wire::node::{ChangeType, ChangedPath};
use yoi_wire::people::{DiffResponse, DiffSince};

use crate::args::{DiffOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn diff(cluster: &Cluster, output: Option<OutputFormat>, args: &DiffOptions) -> Result<(), Error> {
    let since = if args.since_commit { DiffSince::Commit } else { DiffSince::Base };
    let response: DiffResponse = cluster.fetch(&args.name, "diff", &format!("since={}", since.as_str())).await?;
    let text_cut = response.text_cut.unwrap_or(response.cut);
    let paths_cut = response.paths_cut.unwrap_or(response.cut);
    let is_cut = match (output, &response.text) {
        (Some(OutputFormat::Name), _) => {
            show::print(&response.paths.iter().map(|c| quoted(c) + "\n").collect::<String>())?;
            paths_cut
        }
        (Some(format), _) => {
            show::print_as(format, &response)?;
            response.cut
        }
        (None, Some(text)) if !args.name_only => {
            print_text(text, text_cut)?;
            text_cut
        }
        (None, _) => {
            print_paths(&response, args.zero, paths_cut)?;
            paths_cut
        }
    };
    if !args.since_commit && !args.name_only && is_without_base(&response) {
        eprintln!("the tree's repository does not have the base's commit any more, so this is only what is not committed");
    }
    if let Some(why) = response.no_text.as_ref().filter(|_| !args.name_only) {
        eprintln!("only the paths, without text: {}", show::one_line(why));
    }
    if !args.name_only {
        tell_inner(&response.inner_repositories);
    }
    for directory in &response.too_deep {
        // A path of 300 names can have some 76,000 letters.
        eprintln!("left out, because it is too deep: what is in {}", show::quoted_path(&shortened_path(directory, MAX_SENTENCE_PATH)));
    }
    // The text is against the last commit then, and there are no paths.
    if let Some(why) = response.no_base.as_ref().filter(|_| !args.since_commit) {
        return Err(Error::Cut {
            what: cluster.display_name::<YoiPod>(&args.name),
            why: format!("{}; what is committed is not in it", show::one_line(why)),
            next: cluster.plugin_command(&format!("diff {} --since-commit", args.name)),
        });
    }
    if is_cut { Err(cut_error(cluster, &args.name, &response).await) } else { Ok(()) }
}

/// Names repositories in folders of the tree that what is shown or taken does not have whole.
pub fn tell_inner(inner: &[InnerRepository]) {
    for inner in inner {
        eprintln!("left out: {}", show::one_line(&inner.sentence()));
    }
}

/// Whether the text is against the last commit, though the node knows the base's.
fn is_without_base(response: &DiffResponse) -> bool {
    response.text.is_some() && response.base.is_some() && response.base != response.compared_with
}

fn print_text(text: &str, is_cut: bool) -> Result<(), Error> {
    let visible = show::visible(text);
    let newline = if visible.is_empty() || visible.ends_with('\n') { "" } else { "\n" };
    let mark = if is_cut { format!("{newline}# cut here: the diff goes on\n") } else { String::new() };
    show::print(&format!("{visible}{mark}"))?;
    if visible != *text {
        eprintln!("control characters are shown as ^X and <U+XXXX>; the text as it is: -o json");
    }
    Ok(())
}

fn print_paths(response: &DiffResponse, zero: bool, is_cut: bool) -> Result<(), Error> {
    if zero {
        let bytes: Vec<u8> =
            response.paths.iter().flat_map(|change| [&[letter(change) as u8, b'\t'][..], &path_bytes(change), b"\0"].concat()).collect();
        return show::write_bytes(&bytes).map(drop);
    }
    let mut lines = String::new();
    for change in &response.paths {
        let _ = writeln!(lines, "{}\t{}", letter(change), quoted(change));
    }
    if is_cut {
        let _ = writeln!(lines, "# cut here, after {} paths: there are more", response.paths.len());
    }
    show::print(&lines)
}

/// The path's own bytes. The node's shim of an earlier version tells only what of them is UTF-8.
fn path_bytes(change: &ChangedPath) -> Vec<u8> {
    let decode = |hex: &String| {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
        hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()
    };
    change.path_hex.as_ref().and_then(decode).unwrap_or_else(|| change.path.as_bytes().to_vec())
}

/// As git quotes it: bytes that are not UTF-8 in octal.
fn quoted(change: &ChangedPath) -> String {
    show::quoted_path_bytes(&path_bytes(change))
}

fn letter(change: &ChangedPath) -> char {
    match change.kind {
        ChangeType::Added => 'A',
        ChangeType::Modified => 'M',
        ChangeType::Deleted => 'D',
    }
}

/// The error for an answer that is cut, with the way to the rest: git itself, in the agent's Pod.
async fn cut_error(cluster: &Cluster, name: &str, response: &DiffResponse) -> Error {
    let why = format!("it is cut at its limit, {} paths or {} of text", response.paths.len(), text_bytes(response));
    let what = cluster.display_name::<YoiPod>(name);
    let found = async {
        let status = cluster.get::<YoiPod>(name).await.ok()?.status?;
        let tree: AgentWorkspace = cluster.get(&status.workspace?.name).await.ok()?;
        // The reader of a stopped agent has the tree, too.
        let pod = status.pod.or_else(|| status.reader?.pod)?;
        Some((pod.name, tree.tree_path()?.to_owned()))
    };
    let next = match found.await {
        Some((pod, path)) => format!("kubectl exec {pod} -n {} -- git -C {path} diff HEAD", cluster.namespace),
        None => "read it in the agent's Pod with `git diff HEAD`".to_owned(),
    };
    Error::Cut { what, why, next }
}

fn text_bytes(response: &DiffResponse) -> String {
    show::bytes(response.text.as_ref().map_or(0, |text| text.len() as u64))
}
