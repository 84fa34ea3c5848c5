//! What a clone remembers of its project: a small file in the folder of its repository, written by `init --apply`. Of a folder without git it is in the
//! repository that stands for it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::args::{ClusterOptions, RunOptions, namespace_name, object_name};
use crate::cluster::has_context;
use crate::error::{Error, RefusalKind};
use crate::folder_tree::FolderTree;
use crate::git::{self, CloneRefusal, no_repository, refusal};

const FILE: &str = "yoi/project.json";
/// Bytes of the longest file that is read.
const MAX_FILE: u64 = 16 << 10;

/// The project of a clone, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloneProject {
    pub project: String,
    pub namespace: String,
    /// Context of the kubeconfig; the current one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The program that is the agent where `run` does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

impl CloneProject {
    /// Adds context and namespace to a command line that does not name them, and returns the project when the line is about its namespace. Outside of a
    /// clone with a project it adds nothing, and neither to a line about another cluster, or where the kubeconfig does not have the context.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub async fn add_to(options: &mut ClusterOptions) -> Result<Option<Self>, Error> {
        if is_elsewhere(options) || !is_in_repository() {
            return Ok(None);
        }
        match file().await {
            // git says of a repository that it is none, or somebody else's: what it holds counts for nothing then.
            Err(_) => Ok(None),
            Ok(file) => {
                let there = |project: &Self| project.context.as_ref().is_none_or(|context| has_context(options, context));
                let project = read(&file)?.filter(there);
                Ok(project.and_then(|project| project.added(options)))
            }
        }
    }

    fn added(self, options: &mut ClusterOptions) -> Option<Self> {
        if options.context.as_ref().is_some_and(|context| Some(context) != self.context.as_ref()) {
            return None;
        }
        options.context.clone_from(&self.context);
        let namespace = options.namespace.get_or_insert_with(|| self.namespace.clone());
        (*namespace == self.namespace).then_some(self)
    }

    /// The project of a line that names none, and its program where the line does not say what the agent is.
    pub fn fill(self, run: &mut RunOptions) {
        run.of_clone = run.project.as_ref().is_none_or(|project| *project == self.project);
        if run.project.is_some() {
            return;
        }
        run.project = Some(self.project);
        let program = &mut run.program;
        if run.instruction.is_empty() && program.preset_from.is_none() && !program.command && program.program.is_none() {
            program.program = self.program;
        }
    }

    /// What to say of a line to which [`CloneProject::add_to`] has added something.
    pub fn sentence(context: Option<&str>, namespace: &str) -> String {
        let context = context.map_or(String::new(), |context| format!("context {context}, "));
        match FolderTree::find() {
            Some(tree) => {
                format!("{context}namespace {namespace}: as is remembered of this folder ({})", tree.repository.join(FILE).display())
            }
            None => format!("{context}namespace {namespace}: as this clone remembers (.git/{FILE})"),
        }
    }

    /// Writes the file of the clone at hand.
    ///
    /// # Errors
    /// There is no clone, or the disk does not take it.
    pub async fn write(&self) -> Result<(), Error> {
        const NEXT: &str = "look at the folder's owner and room, and say it again";
        let path = file().await.map_err(|why| Error::refused_error("remember the project", why.message, why.next, RefusalKind::Other))?;
        let failed = |error| Error::local(format!("write {}", path.display()), error, NEXT);
        let text = crate::show::document(crate::args::OutputFormat::Json, self)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        // Whole or not at all: a verb may read it meanwhile.
        let new = path.with_extension(format!("json.{}", std::process::id()));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).map_err(failed)
    }
}

/// Whether a line names a cluster by its address.
fn is_elsewhere(options: &ClusterOptions) -> bool {
    options.cluster.is_some() || options.server.is_some()
}

/// Whether a folder above has a repository, as far as a look at names tells: most lines are typed elsewhere, and start no git.
fn is_in_repository() -> bool {
    let has_git = |here: PathBuf| here.ancestors().any(|folder| folder.join(".git").exists());
    std::env::current_dir().is_ok_and(has_git) || FolderTree::find().is_some()
}

/// The file of the clone at hand. All work trees of a clone have one.
async fn file() -> Result<PathBuf, CloneRefusal> {
    let answer = git::answer(git::command(&["rev-parse", "--path-format=absolute", "--git-common-dir"])).await?;
    if !answer.success {
        return Err(no_repository(&answer));
    }
    match answer.line() {
        "" => Err(refusal("git names no folder of this repository", "look at it: git rev-parse --git-common-dir")),
        folder => Ok(PathBuf::from(folder).join(FILE)),
    }
}

fn read(path: &std::path::Path) -> Result<Option<CloneProject>, Error> {
    const NEXT: &str = "write it anew: kubectl yoi init --apply; or delete it";
    let failed = |why: String| {
        Error::refused_error(format!("read {}, which says what this clone's project is", path.display()), why, NEXT, RefusalKind::Other)
    };
    let length = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory].contains(&error.kind()) => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    if length > MAX_FILE {
        return Err(failed("it is too long".to_owned()));
    }
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    parse(&text).map(Some).map_err(failed)
}

/// A name that no object can have would change the path of a request.
fn parse(text: &[u8]) -> Result<CloneProject, String> {
    let read: CloneProject = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    object_name(&read.project)?;
    namespace_name(&read.namespace)?;
    if let Some(program) = &read.program {
        object_name(program)?;
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};

    fn remembered() -> CloneProject {
        CloneProject { project: "p".into(), namespace: "ns".into(), context: Some("c".into()), program: None }
    }

    fn options(context: Option<&str>, namespace: Option<&str>) -> ClusterOptions {
        ClusterOptions { context: context.map(str::to_owned), namespace: namespace.map(str::to_owned), ..ClusterOptions::default() }
    }

    #[test]
    fn a_clone_adds_what_the_line_does_not_say_and_nothing_to_a_line_about_another_cluster() {
        for (before, after, is_about_it) in [
            (options(None, None), (Some("c"), Some("ns")), true),
            (options(Some("c"), None), (Some("c"), Some("ns")), true),
            (options(None, Some("ns")), (Some("c"), Some("ns")), true),
            (options(None, Some("other")), (Some("c"), Some("other")), false),
            (options(Some("other"), None), (Some("other"), None), false),
            (options(Some("other"), Some("ns")), (Some("other"), Some("ns")), false),
        ] {
            let mut given = before.clone();
            let project = remembered().added(&mut given);
            assert_eq!((given.context.as_deref(), given.namespace.as_deref()), after, "{before:?}");
            assert_eq!(project.is_some(), is_about_it, "{before:?}");
        }
        assert!(is_elsewhere(&ClusterOptions { server: Some("https://h".into()), ..ClusterOptions::default() }));
    }

    #[test]
    fn a_run_gets_project_and_program_when_it_names_no_project() {
        let with_program = || CloneProject { program: Some("claude".into()), ..remembered() };
        for (line, project, program) in [
            ("run a -t x", "p", Some("claude")),
            ("run a --program codex", "p", Some("codex")),
            ("run a -i briefly", "p", None),
            ("run a --command -- true", "p", None),
            ("run a -p other", "other", None),
        ] {
            let cli = Cli::from_words(["kubectl-yoi"].into_iter().chain(line.split(' '))).unwrap();
            let Command::Run(mut run) = cli.command else { panic!("{line}") };
            with_program().fill(&mut run);
            assert_eq!((run.project.as_deref(), run.program.program.as_deref()), (Some(project), program), "{line}");
        }
    }

    #[test]
    fn a_file_with_a_name_that_no_object_has_is_refused() {
        assert_eq!(parse(br#"{"project":"p","namespace":"ns","context":"c","later":1}"#), Ok(remembered()));
        for wrong in [
            r#"{"project":"../x","namespace":"ns"}"#,
            r#"{"project":"p","namespace":"a/b"}"#,
            "{}",
            "",
            r#"{"project":"p","namespace":"n","program":"/x"}"#,
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
