//! `host`: machines that are reached by SSH. Only `up` and `down` change something on them.

mod bundle;
mod connection;
mod context;
mod findings;
mod list;
mod node;
mod ssh;

use std::time::Duration;

use serde::Serialize;

use self::findings::{Facts, Finding, State};
use self::list::KnownHost;
use self::ssh::Ssh;
use crate::args::{HostAddOptions, HostCheckOptions, HostCommand, HostsFile, OutputFormat, SshTarget, object_name};
use crate::error::{Error, RefusalKind};
use crate::progress::Progress;
use crate::show;

const SCRIPT: &str = include_str!("host/look.sh");

/// What a look has found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Looked {
    host: String,
    system: String,
    findings: Vec<Finding>,
    #[serde(skip)]
    facts: Facts,
}

impl Looked {
    fn missing(&self) -> Vec<String> {
        self.findings.iter().filter(|finding| finding.state == State::Missing).map(|finding| finding.what.to_owned()).collect()
    }

    fn text(&self) -> String {
        let line = |finding: &Finding| {
            let command = finding.command.as_ref().map_or(String::new(), |command| format!("\n         on that machine: {command}"));
            format!("{:<8} {:<10} {}{command}\n", finding.state.word(), finding.what, finding.message)
        };
        let lines: String = self.findings.iter().map(line).collect();
        format!("{}: {}\n{lines}", self.host, self.system).trim_end().to_owned()
    }
}

pub async fn host(output: Option<OutputFormat>, command: &HostCommand) -> Result<(), Error> {
    match command {
        HostCommand::Check(args) => check(output, args).await,
        HostCommand::Add(args) => add(output, args).await,
        HostCommand::Ls(file) => ls(output, file),
        HostCommand::Up(args) => node::up(output, args).await,
        HostCommand::Down(args) => node::down(output, args).await,
        HostCommand::Connect(args) => connection::connect(args).await,
        HostCommand::Rm(args) => {
            let mut hosts = list::read(&args.file)?;
            let Some(known) = hosts.remove(&args.name) else {
                return Err(Error::Missing { what: format!("a machine {}", args.name), next: "kubectl yoi host ls".to_owned() });
            };
            node::forget(&args.file, &args.name, &known).await?;
            list::write(&args.file, &hosts)?;
            show::object(output, &serde_json::json!({ "name": args.name }), &args.name, &format!("{} is forgotten", args.name))
        }
    }
}

async fn check(output: Option<OutputFormat>, args: &HostCheckOptions) -> Result<(), Error> {
    let mut hosts = list::read(&args.file)?;
    // A name that is remembered comes first; what it stands for is in the list.
    let name = args.host.to_string();
    let known = hosts.get(&name).map(KnownHost::target).transpose()?;
    let looked = look(known.as_ref().unwrap_or(&args.host), args.timeout).await?;
    if let Some(known) = hosts.get_mut(&name) {
        *known = KnownHost { node: known.node.take(), ..looked.known() };
        list::write(&args.file, &hosts)?;
    }
    show::object(output, &looked, &looked.host, &looked.text())?;
    looked.result(&name)
}

async fn add(output: Option<OutputFormat>, args: &HostAddOptions) -> Result<(), Error> {
    let HostCheckOptions { host, file, .. } = &args.check;
    let mut hosts = list::read(file)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => default_name(host)?,
    };
    if let Some(other) = hosts.get(&name).filter(|known| known.host != host.to_string()) {
        return Err(is_another(&name, &other.host));
    }
    // One that nobody reaches is not remembered.
    let looked = look(host, args.check.timeout).await?;
    let node = hosts.remove(&name).and_then(|known| known.node);
    hosts.insert(name.clone(), KnownHost { node, ..looked.known() });
    list::write(file, &hosts)?;
    show::object(output, &looked, &name, &format!("{}\nremembered as {name}", looked.text()))?;
    looked.result(&name)
}

fn is_another(name: &str, host: &str) -> Error {
    Error::Usage {
        message: format!("{name} is {} already", show::one_line(host)),
        next: format!("take another name: --name NAME; or forget that one: kubectl yoi host rm {name}"),
    }
}

fn default_name(host: &SshTarget) -> Result<String, Error> {
    let first = host.host.split('.').next().unwrap_or_default().to_ascii_lowercase();
    object_name(&first).map_err(|why| Error::Usage {
        message: format!("{host} has no name that can be remembered: {why}"),
        next: "give one: --name NAME".to_owned(),
    })
}

fn ls(output: Option<OutputFormat>, file: &HostsFile) -> Result<(), Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        name: &'a str,
        #[serde(flatten)]
        known: &'a KnownHost,
    }
    let hosts = list::read(file)?;
    let named: Vec<Named<'_>> = hosts.iter().map(|(name, known)| Named { name, known }).collect();
    show::objects(
        output,
        &named,
        |host| host.name.to_owned(),
        || {
            let mut table = show::table(&["name", "host", "system", "yoi", "missing", "looked at"]);
            for (name, known) in &hosts {
                let version = known.node.as_ref().map_or("", |node| &node.version);
                table.add_row([name, &known.host, &known.system, version, &known.missing.join(", "), &known.looked_at].map(show::cell));
            }
            show::lines(&table)
        },
    )
}

async fn look(target: &SshTarget, timeout: Duration) -> Result<Looked, Error> {
    let mut progress = Progress::start();
    progress.set(&format!("asking {target}"));
    let script = format!("PROGRAMS='{}'\n{SCRIPT}", findings::programs());
    let ssh = Ssh { target, control: None, operation: format!("look at {target}") };
    let answer = ssh.run("sh", &script, timeout, |_| {}).await?;
    let facts = Facts::parse(&answer).ok_or_else(|| {
        let next = format!("look at its shell: {} sh", ssh::by_hand(target));
        Error::refused_error(format!("look at {target}"), "its answer is not whole", next, RefusalKind::Other)
    })?;
    Ok(Looked { host: target.to_string(), system: facts.system(), findings: findings::findings(&facts), facts })
}

impl Looked {
    fn known(&self) -> KnownHost {
        let looked_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        KnownHost { host: self.host.clone(), system: self.system.clone(), looked_at, missing: self.missing(), node: None }
    }

    /// An error where something is missing: it was printed.
    fn result(&self, name: &str) -> Result<(), Error> {
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let next = format!("mend that as it says above, and look again: kubectl yoi host check {name}");
        Err(Error::refused_error(
            format!("take {} as it is", self.host),
            format!("it lacks {}", missing.join(", ")),
            next,
            RefusalKind::Other,
        ))
    }
}
