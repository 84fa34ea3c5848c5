//! Flags of every verb that would do nothing with some. They are refused, and neither help nor completion offers them there.

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory};

use super::{Cli, Command, OutputFormat, WorkspaceCommand};

/// Which flags of every verb do nothing with one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Useless {
    Nothing,
    /// Those that say which cluster.
    Cluster,
    /// Those and `--output`.
    All,
}

/// The verbs that some flags do nothing with, whatever else is given.
const VERBS: [(&str, Useless); 5] = [
    ("completion", Useless::All),
    ("crds", Useless::All),
    ("explain", Useless::Cluster),
    ("host", Useless::Cluster),
    ("vm", Useless::Cluster),
];

impl Useless {
    fn of(verb: &str) -> Self {
        VERBS.iter().find(|(name, _)| *name == verb).map_or(Useless::Nothing, |(_, useless)| *useless)
    }

    fn holds(self, arg: &Arg) -> bool {
        match self {
            Useless::Nothing => false,
            Useless::Cluster => arg.get_id() != "output",
            Useless::All => true,
        }
    }
}

/// The flags of every verb.
pub(super) fn global_flags() -> Vec<Arg> {
    Cli::command().get_arguments().filter(|arg| arg.is_global_set()).cloned().collect()
}

/// Returns `command` without help for a flag of every verb that would do nothing with this one.
pub(super) fn without_help(command: clap::Command) -> clap::Command {
    VERBS.iter().fold(command, |command, (verb, useless)| {
        let hidden = global_flags().into_iter().filter(|arg| useless.holds(arg)).map(|arg| arg.hide(true));
        command.mut_subcommand(verb, |verb| verb.args(hidden))
    })
}

/// Refuses a flag that was given and would do nothing. clap's own conflicts see no flag of every verb that stands before the verb.
pub(super) fn reject(cli: Cli, matches: &clap::ArgMatches) -> Result<Cli, clap::Error> {
    let given: Vec<Arg> = global_flags().into_iter().filter(|arg| is_given(matches, arg.get_id().as_str())).collect();
    let Some((verb, flag)) = useless_flag(&cli, &given, matches.subcommand_name().unwrap_or_default()) else { return Ok(cli) };
    Err(Cli::command().error(ErrorKind::ArgumentConflict, format!("{flag} would do nothing with `{verb}`")))
}

/// Whether a flag was given before or behind the verb.
fn is_given(matches: &clap::ArgMatches, id: &str) -> bool {
    let here = matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
    here || matches.subcommand().is_some_and(|(_, verb)| is_given(verb, id))
}

/// The verb, as the message names it, and the flag.
fn useless_flag(cli: &Cli, given: &[Arg], name: &str) -> Option<(String, String)> {
    let first = |which: &dyn Fn(&Arg) -> bool| {
        let arg = given.iter().find(|arg| which(arg))?;
        Some(format!("--{}", arg.get_long()?))
    };
    let output = |arg: &Arg| arg.get_id() == "output";
    let verb = |name: &str, which: &dyn Fn(&Arg) -> bool| first(which).map(|flag| (name.to_owned(), flag));
    // `crds` prints YAML in any case.
    let yaml = cli.output == Some(OutputFormat::Yaml);
    // Only lists have more columns to show.
    let wide = (cli.output == Some(OutputFormat::Wide)).then(|| (name.to_owned(), "--output wide".to_owned()));
    match &cli.command {
        Command::Completion { shell: _ } => verb("completion", &|arg| Useless::of("completion").holds(arg)),
        Command::Crds => verb("crds", &|arg| Useless::of("crds").holds(arg) && !(output(arg) && yaml)),
        Command::Explain { reason: _ } => verb("explain", &|arg| Useless::of("explain").holds(arg)).or(wide),
        Command::Host(_) => verb("host", &|arg| Useless::of("host").holds(arg)).or(wide),
        Command::Vm(_) => verb("vm", &|arg| Useless::of("vm").holds(arg)).or(wide),
        // Without --apply it is told no cluster, and the namespace stands in what it prints.
        Command::Init(init) if !init.apply => {
            verb("init without --apply", &|arg| Useless::Cluster.holds(arg) && arg.get_id() != "namespace").or(wide)
        }
        Command::Init(_) => wide,
        Command::Version(version) if version.client => verb("version --client", &|arg| Useless::Cluster.holds(arg)),
        Command::Top(_)
        | Command::Assets(_)
        | Command::Approvals(_)
        | Command::Approve(_)
        | Command::Deny(_)
        | Command::Conversation(_) => wide,
        Command::Diff(diff) if diff.name_only => verb("diff --name-only", &output),
        // The answer is git's.
        Command::Patch(_) => verb("patch", &output),
        // The answer is that of a program, or text for ssh.
        Command::Ssh(_) => verb("ssh", &output),
        Command::SshConfig(_) => verb("ssh-config", &output),
        // The answer is an archive.
        Command::Export(_) => verb("export", &output),
        Command::Ls(_) | Command::Workspace(WorkspaceCommand::Ls(_)) => None,
        Command::Run(_) | Command::Log(_) | Command::Send(_) | Command::Peer(_) | Command::Stop(_) | Command::Suspend(_) => wide,
        Command::Start(_)
        | Command::Restore(_)
        | Command::Fork(_)
        | Command::Merge(_)
        | Command::Restart(_)
        | Command::Rm(_)
        | Command::Take(_)
        | Command::Refresh(_)
        | Command::Sync(_)
        | Command::Diff(_) => wide,
        Command::Workspace(WorkspaceCommand::Create(_) | WorkspaceCommand::Rm(_)) => wide,
        Command::Doctor(_) | Command::Version(_) | Command::Trees(_) | Command::Session(_) => wide,
        Command::Attach(_) | Command::Pause(_) | Command::Resume(_) | Command::Cancel(_) | Command::Compact(_) => wide,
        Command::Mode(_) | Command::Rewind(_) | Command::Pull(_) | Command::Push(_) => wide,
        Command::Events(_) | Command::Tools(_) | Command::Projection(_) | Command::Scope(_) => wide,
    }
}
