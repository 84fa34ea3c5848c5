//! `patch`: prints an agent's commits for git.

use std::io::IsTerminal;

use futures::AsyncReadExt;
use yoi_crds::YoiPod;
use yoi_wire::people::PatchFormat;

use crate::args::PatchOptions;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

/// Prints nothing and says so when the agent has committed nothing.
pub async fn patch(cluster: &Cluster, args: &PatchOptions) -> Result<(), Error> {
    let agent = cluster.display_name::<YoiPod>(&args.name);
    let in_terminal = std::io::stdout().is_terminal();
    if args.bundle && in_terminal {
        let why = std::io::Error::other("a bundle is not text");
        return Err(Error::local(format!("show the commits of {agent}"), why, "write it to a file: add `> FILE`"));
    }
    let format = if args.bundle { PatchFormat::Bundle } else { PatchFormat::Mail };
    let mut answer = Box::pin(cluster.stream(&args.name, "patch", &format!("format={}", format.as_str())).await?);
    // Whole before it is written: half a patch applies, and looks like all of it.
    let mut commits = Vec::new();
    answer.read_to_end(&mut commits).await.map_err(|error| Error::local(format!("read the commits of {agent}"), error, "try again"))?;
    if commits.is_empty() {
        eprintln!("{agent} has committed nothing since the base of its tree; what is not committed: kubectl yoi diff {}", args.name);
        return Ok(());
    }
    // A terminal obeys control characters, and the agent chose these bytes. git gets them as they are.
    let written = if in_terminal { show::write(&show::visible(&String::from_utf8_lossy(&commits))) } else { show::write_bytes(&commits) };
    written.map(drop)
}
