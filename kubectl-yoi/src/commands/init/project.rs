//! The YoiProject of a clone, from what was read of it. Nothing is read here.

use yoi_crds::pod::{EnvVar, Model, PodSettings, SecretRef};
use yoi_crds::prepare::{Prepare, PrepareEgress};
use yoi_crds::project::PodDefaults;
use yoi_crds::source::{EmptySource, GitSource, ProjectSource, ProviderName, SyncSource, TreeOwner, is_tree_path};
use yoi_crds::{YoiProject, YoiProjectSpec};

use super::devcontainer::DevContainer;
use super::remote::https_form;
use crate::git::{CloneRefusal, refusal};
use crate::show::quoted_path;

/// Where agents get the tree from.
pub enum Origin {
    /// A branch on a server.
    Git { url: String, branch: String, secret: Option<String>, sync: bool },
    /// Only this machine has it, and sends it.
    Folder,
}

/// What a project is made of.
pub struct Inputs {
    pub name: String,
    /// Of the objects and of the commands that are told; `None` leaves it to whoever applies it.
    pub namespace: Option<String>,
    pub origin: Origin,
    /// Where the tree is on this machine, or shall show.
    pub path: String,
    /// The owner that was asked for.
    pub owner: Option<TreeOwner>,
    /// The owner of the folder on this machine.
    pub folder_owner: Option<TreeOwner>,
    /// The image that was asked for.
    pub image: Option<String>,
    pub model: Option<Model>,
    pub devcontainer: DevContainer,
}

/// Returns the project, and what a person should know of it.
///
/// # Errors
/// The API server would refuse it.
pub fn build(inputs: Inputs) -> Result<(YoiProject, Vec<String>), CloneRefusal> {
    let Inputs { name, namespace, origin, path, owner, folder_owner, image, model, devcontainer } = inputs;
    if !is_tree_path(&path) {
        let message = format!(
            "agents cannot see a tree at {}: the path may hold letters, digits and `._+@-`, and must lie in no system folder",
            quoted_path(&path)
        );
        return Err(refusal(message, "say where they see it, e.g. --path /workspace"));
    }
    let source = source(origin, namespace.as_deref())?;
    let DevContainer { image: its_image, uid, env, prepare, mut notes } = devcontainer;
    let image = image.or(its_image);
    let of_folder = folder_owner.filter(|owner| owner.uid > 0 && owner.gid > 0);
    let of_user = uid.map(|uid| TreeOwner { uid, gid: of_folder.filter(|owner| owner.uid == uid).map_or(uid, |owner| owner.gid) });
    if owner.is_none() && of_user.is_none() && of_folder.is_none() && folder_owner.is_some() {
        let TreeOwner { uid, gid } = TreeOwner::default();
        notes.push(format!(
            "the folder belongs to root here, and agents never run as root: they run as {uid}:{gid}; others: --owner UID:GID"
        ));
    }
    let prepare = match (prepare, &image) {
        (Some(command), Some(image)) => Some(Box::new(Prepare {
            image: image.clone(),
            command,
            egress: PrepareEgress::default(),
            resources: Default::default(),
            timeout: None,
        })),
        (Some(_), None) => {
            notes.push("postCreateCommand: it needs an image to run in: name one by --image".to_owned());
            None
        }
        (None, _) => None,
    };
    let env: Vec<EnvVar> = env.into_iter().map(|(name, value)| EnvVar { name, value, value_from: None }).collect();
    let pod = (image.is_some() || !env.is_empty()).then(|| PodSettings { image, env, ..PodSettings::default() });
    let spec = YoiProjectSpec {
        source,
        path: Some(path),
        owner: owner.or(of_user).or(of_folder).unwrap_or_default(),
        provider: ProviderName::default(),
        prepare,
        assets: None,
        defaults: PodDefaults { model, pod, quota: None, rest: None },
        policy: None,
        warm: None,
    };
    let mut project = YoiProject::new(&name, spec);
    project.metadata.namespace = namespace;
    Ok((project, notes))
}

fn source(origin: Origin, namespace: Option<&str>) -> Result<ProjectSource, CloneRefusal> {
    let (url, branch, secret, sync) = match origin {
        Origin::Git { url, branch, secret, sync } => (url, branch, secret, sync.then_some(SyncSource {})),
        Origin::Folder => {
            let empty = EmptySource { sync: Some(SyncSource {}) };
            return Ok(ProjectSource { empty: Some(empty), ..ProjectSource::default() });
        }
    };
    let is_ssh = !["https://", "http://", "git://"].iter().any(|scheme| url.starts_with(scheme));
    if is_ssh && secret.is_none() {
        return Err(needs_key(&url, namespace));
    }
    if secret.is_some() && (url.starts_with("http://") || url.starts_with("git://")) {
        let message = "the address begins with http:// or git://, where credentials would go in the clear";
        return Err(refusal(message, "give its https:// or ssh:// address: --url URL; or leave --git-secret out"));
    }
    let git =
        GitSource { url, ref_: Some(branch), credentials_secret_ref: secret.map(|name| SecretRef { name }), sync, ..GitSource::default() };
    Ok(ProjectSource { git: Some(Box::new(git)), ..ProjectSource::default() })
}

fn needs_key(url: &str, namespace: Option<&str>) -> CloneRefusal {
    let namespace = namespace.map_or(String::new(), |name| format!(" -n {name}"));
    let public = https_form(url).map_or(String::new(), |url| format!("\n  or:   if everybody may read it: --url {url}"));
    refusal(
        format!("{url} is an address of ssh, and whoever fetches it needs a key"),
        format!(
            "make a Secret of a key that may read it, and name it: --git-secret clone-key\n        \
             kubectl create secret generic clone-key{namespace} --from-file=ssh-privatekey=KEY_FILE --from-file=known_hosts=KNOWN_HOSTS_FILE{public}"
        ),
    )
}

/// The fields of a project that say something else than those of the project that was made here.
pub fn differences(there: &YoiProjectSpec, made: &YoiProjectSpec) -> Vec<&'static str> {
    // A clone says nothing of the policy and of warm claims.
    let YoiProjectSpec { source, path, owner, provider, prepare, assets: _, defaults, policy: _, warm: _ } = there;
    let fields = [
        ("spec.source", *source != made.source),
        ("spec.path", *path != made.path),
        ("spec.owner", *owner != made.owner),
        ("spec.provider", *provider != made.provider),
        ("spec.prepare", *prepare != made.prepare),
        ("spec.defaults", *defaults != made.defaults),
    ];
    fields.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str, branch: &str, secret: Option<&str>) -> Origin {
        Origin::Git { url: url.to_owned(), branch: branch.to_owned(), secret: secret.map(str::to_owned), sync: false }
    }

    fn inputs() -> Inputs {
        Inputs {
            name: "p".to_owned(),
            namespace: None,
            origin: origin("https://git.example/p.git", "main", None),
            path: "/home/me/p".to_owned(),
            owner: None,
            folder_owner: Some(TreeOwner { uid: 1001, gid: 100 }),
            image: None,
            model: None,
            devcontainer: DevContainer::default(),
        }
    }

    fn refused(inputs: Inputs) -> String {
        let refused = build(inputs).unwrap_err();
        format!("{}\n{}", refused.message, refused.next)
    }

    #[test]
    fn a_project_says_where_the_clone_comes_from_where_it_is_and_whose() {
        let (project, notes) = build(inputs()).unwrap();
        let wanted = serde_json::json!({
            "source": { "git": { "url": "https://git.example/p.git", "ref": "main" } }, "path": "/home/me/p",
            "owner": { "uid": 1001, "gid": 100 }, "provider": "Auto", "defaults": {},
        });
        assert_eq!(serde_json::to_value(&project.spec).unwrap(), wanted);
        assert!(notes.is_empty() && differences(&project.spec, &project.spec).is_empty());
        let (other, _) =
            build(Inputs { path: "/p".to_owned(), origin: origin("https://git.example/p.git", "x", None), ..inputs() }).unwrap();
        assert_eq!(differences(&other.spec, &project.spec), ["spec.source", "spec.path"]);
    }

    #[test]
    fn the_owner_is_the_one_asked_for_or_the_dev_containers_or_the_folders() {
        let (asked, root) = (TreeOwner { uid: 7, gid: 8 }, TreeOwner { uid: 0, gid: 0 });
        let folder = TreeOwner { uid: 1001, gid: 100 };
        for (owner, uid, folder_owner, wanted, told) in [
            (Some(asked), Some(5), Some(folder), asked, 0),
            (None, Some(5), Some(folder), TreeOwner { uid: 5, gid: 5 }, 0),
            (None, Some(1001), Some(folder), folder, 0),
            (None, None, Some(folder), folder, 0),
            (None, None, Some(root), TreeOwner::default(), 1),
            (None, None, None, TreeOwner::default(), 0),
        ] {
            let devcontainer = DevContainer { uid, ..DevContainer::default() };
            let (project, notes) = build(Inputs { owner, folder_owner, devcontainer, ..inputs() }).unwrap();
            assert_eq!((project.spec.owner, notes.len()), (wanted, told), "{uid:?} {folder_owner:?}");
        }
    }

    #[test]
    fn what_the_api_server_would_refuse_is_refused_with_the_way() {
        for path in ["/tmp", "/home/me/my project", "/usr/src/p", "/"] {
            let text = refused(Inputs { path: path.to_owned(), ..inputs() });
            assert!(text.contains(path) && text.contains("--path /workspace"), "{text}");
        }
        let ssh = Inputs { origin: origin("git@git.example:t/p.git", "main", None), namespace: Some("ns".to_owned()), ..inputs() };
        let text = refused(ssh);
        for words in ["--git-secret clone-key", "secret generic clone-key -n ns", "--url https://git.example/t/p.git"] {
            assert!(text.contains(words), "{text}");
        }
        let clear = Inputs { origin: origin("http://h/p", "main", Some("s")), ..inputs() };
        assert!(refused(clear).contains("in the clear"));
        let with_key = Inputs { origin: origin("git@h:p", "main", Some("s")), ..inputs() };
        let git = build(with_key).unwrap().0.spec.source.git.unwrap();
        assert_eq!(git.credentials_secret_ref.map(|secret| secret.name).as_deref(), Some("s"));
    }

    #[test]
    fn a_command_is_prepared_in_the_agents_image_and_told_without_one() {
        let devcontainer =
            || DevContainer { prepare: Some(vec!["make".to_owned()]), image: Some("own:1".to_owned()), ..DevContainer::default() };
        let (project, _) = build(Inputs { image: Some("asked:2".to_owned()), devcontainer: devcontainer(), ..inputs() }).unwrap();
        let prepare = project.spec.prepare.unwrap();
        assert_eq!((prepare.image.as_str(), project.spec.defaults.pod.unwrap().image.as_deref()), ("asked:2", Some("asked:2")));
        let (project, notes) = build(Inputs { devcontainer: DevContainer { image: None, ..devcontainer() }, ..inputs() }).unwrap();
        assert!(project.spec.prepare.is_none() && notes[0].contains("needs an image"), "{notes:?}");
    }
}
