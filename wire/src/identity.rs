//! Names that more than one process must agree on.

/// Audience of the projected tokens of agents; worthless at the API server.
pub const GATEWAY_AUDIENCE: &str = "gateway.yoi.dev";
/// Name of the CSI driver, and of the provisioner in our StorageClasses.
pub const CSI_DRIVER: &str = "csi.yoi.dev";
/// Volume attribute: which of the three kinds of inline volume this is ([`VOLUME_RUNTIME`], [`VOLUME_TREE`] or [`VOLUME_SCOPED_TREE`]).
pub const VOLUME_KIND: &str = "yoi.dev/volume";
/// The `/yoi` volume: runtime binary and the Pod's own socket.
pub const VOLUME_RUNTIME: &str = "runtime";
/// The tree of one AgentWorkspace.
pub const VOLUME_TREE: &str = "tree";
/// The tree of one AgentWorkspace, with covers. A kind of its own: a node's shim that knows no covers must not mount it without.
pub const VOLUME_SCOPED_TREE: &str = "scoped-tree";
/// Volume attribute of a scoped tree: its [`crate::cover::Cover`]s in JSON, in the order in which they are laid.
pub const VOLUME_COVERS: &str = "yoi.dev/covers";
/// Volume attribute of a tree whose agent may lend paths of it: what the agent may do there itself, JSON of the allow and deny rules of its scope. With it the
/// Pod's container has the tree mounted `HostToContainer`, so that covers reach it while it runs.
pub const VOLUME_LENDS: &str = "yoi.dev/lends";
/// Source of the mounts that hide a path of a tree, as the mount table shows it.
pub const HIDDEN_SOURCE: &str = "yoi:hidden";
/// Volume attribute of a tree: the AgentWorkspace's UID.
pub const VOLUME_WORKSPACE: &str = "yoi.dev/workspace-uid";
/// Volume attribute of a runtime volume: hex SHA-256 of the `yoi-runtime` binary that the Pod must run.
pub const VOLUME_RUNTIME_DIGEST: &str = "yoi.dev/runtime-digest";
/// Key in a token review's extra fields, and in a CSI publish context.
pub const EXTRA_POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Where the runtime volume is mounted in an agent's container.
pub const RUNTIME_MOUNT: &str = "/yoi";
/// The binary below [`RUNTIME_MOUNT`].
pub const RUNTIME_BINARY: &str = "bin/yoi-runtime";
/// The Pod's own socket to the node shim, below [`RUNTIME_MOUNT`].
pub const SHIM_SOCKET: &str = "shim.sock";
/// Where the session volume is mounted.
pub const SESSION_MOUNT: &str = "/session";
/// Folder of the manifest ConfigMap; the file is [`MANIFEST_FILE`].
pub const MANIFEST_MOUNT: &str = "/etc/yoi";
/// Name of the manifest in its folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Folder of the ConfigMap in `spec.agent.cli.presetFrom`; the file is [`PRESET_FILE`].
pub const PRESET_MOUNT: &str = "/etc/yoi-preset";
/// Name of the preset in its folder.
pub const PRESET_FILE: &str = "preset.yaml";
/// Folder of the Secret in `spec.agent.cli.credentialsSecretRef`, one file a key. Only the runtime reads it.
pub const CREDENTIALS_MOUNT: &str = "/etc/yoi-credentials";
/// Folder with a folder for each set of skills and commands that is not of the tree, by its number.
pub const ASSETS_MOUNT: &str = "/etc/yoi-assets";
/// Of a set that is fetched at the start: the folder of its folder with what was fetched.
pub const ASSET_FILES: &str = "files";
/// The file of its folder with the commit.
pub const ASSET_REVISION: &str = "revision";
/// The file of its folder with why nothing was fetched, a sentence for people.
pub const ASSET_FAILURE: &str = "failure";
/// Folder of the projected token; the file is `token`.
pub const TOKEN_MOUNT: &str = "/var/run/yoi";
/// Name of the token in its folder.
pub const TOKEN_FILE: &str = "token";

/// Name of a file in [`TOKEN_MOUNT`]: `spec.limits.tokens` as it is now, a decimal number, or nothing for no limit. A change of the spec reaches it while the
/// runtime runs. Pods of earlier versions do not have it.
pub const TOKENS_FILE: &str = "limit-tokens";

/// Name of a file in [`TOKEN_MOUNT`]: after how many seconds without anything to do the agent goes to rest, a decimal number, or nothing: it never does. A
/// change of the spec reaches it while the runtime runs. Pods of earlier versions do not have it, and never rest.
pub const REST_FILE: &str = "rest";

/// Name of a file in [`TOKEN_MOUNT`]: what calls of tools may do, JSON of [`crate::policy::ToolPolicy`] without the variables that hold secrets, which are
/// those of the manifest. A change of the spec reaches it while the runtime runs. Pods of earlier versions do not have it, and the manifest's counts.
pub const POLICY_FILE: &str = "policy";

/// Environment of the runtime's container.
pub mod env {
    /// Run generation of this Pod, a decimal number.
    pub const RUN_GENERATION: &str = "YOI_RUN_GENERATION";
    /// UID of this Pod, by the downward API.
    pub const POD_UID: &str = "YOI_POD_UID";
    /// `true` in the first Pod of an agent whose session volume stood ready before: nothing may be on it that this Pod has not written.
    pub const NEW_SESSION: &str = "YOI_NEW_SESSION";
    /// JSON of [`crate::manifest::ReaderManifest`], in the container of a reader.
    pub const READER: &str = "YOI_READER";
    /// The model endpoint's key, from the user's Secret; absent when there is none. Never handed to a tool.
    pub const MODEL_API_KEY: &str = "YOI_MODEL_API_KEY";
    /// How the names of variables begin that hold a header's value, from the user's Secret. Never handed to a tool.
    pub const MODEL_HEADER: &str = "YOI_MODEL_HEADER";
    /// Path of the runtime's socket, in the environment of a program.
    pub const PROGRAM_SOCKET: &str = "YOI_PROGRAM_SOCKET";
    /// Token of the run, in the environment of a program.
    pub const PROGRAM_TOKEN: &str = "YOI_PROGRAM_TOKEN";
    /// How the names of variables begin that hold PEM certificates, from the user's ConfigMap.
    pub const MODEL_CA: &str = "YOI_MODEL_CA";
    /// The text of the preset that a user's ConfigMap holds. The file in [`super::PRESET_MOUNT`] is what counts: a Pod starts without a file, and not without a
    /// variable.
    pub const PRESET: &str = "YOI_PRESET";
    /// The first credential of a program, from the user's Secret, for the same reason. Never handed to a tool.
    pub const CREDENTIAL: &str = "YOI_CREDENTIAL";
}
