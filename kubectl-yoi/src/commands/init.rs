//! `init`: the YoiProject of the clone or folder at hand.

mod devcontainer;
mod project;
mod remote;
mod repository;

use std::path::Path;

use kube::ResourceExt;
use yoi_crds::YoiProject;
use yoi_crds::source::TreeOwner;

use self::devcontainer::DevContainer;
use self::project::{Inputs, Origin};
use self::repository::Repository;
use crate::args::{ClusterOptions, InitOptions, OutputFormat, object_name};
use crate::clone_project::CloneProject;
use crate::cluster::{Cluster, context_name};
use crate::error::{Error, RefusalKind};
use crate::folder_tree::FolderTree;
use crate::git::{self, CloneRefusal, refusal};
use crate::show;

const OPERATION: &str = "make a project of this clone";
/// Where editors look, relative to the root of the work tree.
const DEVCONTAINERS: [&str; 2] = [".devcontainer/devcontainer.json", ".devcontainer.json"];
/// Bytes of the longest file that is read.
const MAX_DEVCONTAINER: u64 = 1 << 20;

/// Prints the project, or applies it with `--apply`. What of the clone it does not hold goes to standard error.
pub async fn init(options: &ClusterOptions, output: Option<OutputFormat>, args: &InitOptions) -> Result<(), Error> {
    let namespace = options.namespace.clone();
    let folder = folder_without_git(args).await.map_err(refused)?;
    let (project, notes) = made(args, namespace, folder.as_ref()).await.map_err(refused)?;
    for note in notes {
        eprintln!("note: {}", show::one_line(&note));
    }
    if !args.apply {
        return match output {
            None | Some(OutputFormat::Wide) => show::print_as(OutputFormat::Yaml, &project),
            Some(OutputFormat::Name) => show::print(&format!("{}\n", title(&project))),
            Some(format) => show::print_as(format, &project),
        };
    }
    let cluster = Cluster::connect(options).await?;
    let (stored, state) = apply(&cluster, &project).await?;
    if let Some(folder) = &folder {
        folder.make().map_err(refused)?;
    }
    let remembered = CloneProject {
        project: stored.name_any(),
        namespace: cluster.namespace.clone(),
        context: context_name(options),
        program: args.program.clone(),
    };
    remembered.write().await?;
    let run = cluster.plugin_command("run NAME --task TASK --wait");
    let what = if folder.is_some() { "it is remembered of this folder" } else { "this clone remembers it" };
    let sentence = format!("{} {state}\n{what}: {run}", title(&stored));
    show::object(output, &stored, &title(&stored), &sentence)
}

fn title(project: &YoiProject) -> String {
    format!("yoiproject.yoi.dev/{}", project.name_any())
}

fn refused(why: CloneRefusal) -> Error {
    Error::refused_error(OPERATION, why.message, why.next, RefusalKind::Other)
}

/// Makes what is not there. One of the same repository is left as it is: it may be a colleague's.
async fn apply(cluster: &Cluster, project: &YoiProject) -> Result<(YoiProject, String), Error> {
    let name = project.name_any();
    let Some(there) = cluster.get_opt::<YoiProject>(&name).await? else {
        return Ok((cluster.create(project).await?, "created".to_owned()));
    };
    let origin = |project: &YoiProject| {
        let source = &project.spec.source;
        (source.git.as_ref().map(|git| git.url.clone()), source.empty.is_some())
    };
    if origin(&there) != origin(project) {
        let next = format!("take another name: --name NAME; those there are: {}", cluster.list_command::<YoiProject>());
        return Err(cluster.refused_error::<YoiProject>("make", &name, "there is one of this name, of another source", next));
    }
    let differences = project::differences(&there.spec, &project.spec);
    if differences.is_empty() {
        return Ok((there, "unchanged".to_owned()));
    }
    let state = format!(
        "exists, and is left as it is: it says something else in {}\nto change it: kubectl yoi init -n {} | kubectl apply -f -",
        differences.join(", "),
        cluster.namespace
    );
    Ok((there, state))
}

/// The folder at hand, where it is in no repository and the line names none.
async fn folder_without_git(args: &InitOptions) -> Result<Option<FolderTree>, CloneRefusal> {
    let InitOptions { remote, url, branch, git_secret, .. } = args;
    if [remote, url, branch, git_secret].into_iter().any(Option::is_some) {
        return Ok(None);
    }
    if let Some(tree) = FolderTree::find() {
        return Ok(Some(tree));
    }
    let answer = git::answer(git::command(&["rev-parse", "--git-dir"])).await?;
    let has_git = std::env::current_dir().is_ok_and(|here| here.ancestors().any(|folder| folder.join(".git").exists()));
    // One that git does not open is a repository all the same.
    if answer.success || has_git { Ok(None) } else { FolderTree::of_here().map(Some) }
}

async fn made(
    args: &InitOptions,
    namespace: Option<String>,
    folder: Option<&FolderTree>,
) -> Result<(YoiProject, Vec<String>), CloneRefusal> {
    let (origin, url, tree_root, mut notes) = match folder {
        Some(tree) => (Origin::Folder, String::new(), tree.root.clone(), Vec::new()),
        None => {
            let Repository { root, url, branch, notes } = repository::read(args).await?;
            (Origin::Git { url: url.clone(), branch, secret: args.git_secret.clone(), sync: args.sync }, url, root, notes)
        }
    };
    let root = tree_root.to_str().map(str::to_owned).unwrap_or_else(|| tree_root.to_string_lossy().into_owned());
    let path = args.path.clone().unwrap_or_else(|| root.clone());
    let folder = root.rsplit('/').next().unwrap_or_default();
    let name = match &args.name {
        Some(name) => name.clone(),
        None => remote::project_name(&url, folder)
            .filter(|name| object_name(name).is_ok())
            .ok_or_else(|| refusal("neither the repository nor its folder has a name that a project can have", "give one: --name NAME"))?,
    };
    let devcontainer = devcontainer(args, &tree_root, &path)?;
    let inputs = Inputs {
        name,
        namespace,
        origin,
        path,
        owner: args.owner,
        folder_owner: folder_owner(&tree_root),
        image: args.image.clone(),
        model: super::run::model(&args.model),
        devcontainer,
    };
    let (project, of_project) = project::build(inputs)?;
    notes.extend(of_project);
    Ok((project, notes))
}

/// What the file says that is named, or that editors would take.
fn devcontainer(args: &InitOptions, root: &Path, path: &str) -> Result<DevContainer, CloneRefusal> {
    let file = match &args.devcontainer {
        Some(file) => Some(file.clone()),
        None => DEVCONTAINERS.map(|name| root.join(name)).into_iter().find(|file| file.is_file()),
    };
    let Some(file) = file else { return Ok(DevContainer::default()) };
    let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
    let read = |why: String| {
        let next = "mend it, or take another file: --devcontainer FILE; an empty object, {}, says nothing";
        refusal(format!("{shown} cannot be read: {why}"), next)
    };
    let length = std::fs::metadata(&file).map_err(|error| read(error.to_string()))?.len();
    if length > MAX_DEVCONTAINER {
        return Err(read(format!("it is longer than {}", show::bytes(MAX_DEVCONTAINER))));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| read(error.to_string()))?;
    let mut devcontainer = devcontainer::parse(&text, path).map_err(read)?;
    for note in &mut devcontainer.notes {
        note.insert_str(0, &format!("{shown}: "));
    }
    Ok(devcontainer)
}

/// Whose the folder is on this machine; `None` where files have no owner in numbers.
#[cfg(unix)]
fn folder_owner(root: &Path) -> Option<TreeOwner> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(root).ok()?;
    Some(TreeOwner { uid: metadata.uid().into(), gid: metadata.gid().into() })
}

#[cfg(not(unix))]
fn folder_owner(_root: &Path) -> Option<TreeOwner> {
    None
}
