//! `diff`: prints what an agent changed in its tree.

use yoi_wire::node::ChangeType;
use yoi_wire::people::DiffResponse;

use crate::args::{DiffOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn diff(cluster: &Cluster, output: Option<OutputFormat>, args: &DiffOptions) -> Result<(), Error> {
    let response: DiffResponse = cluster.fetch(&args.name, "diff").await?;
    match output {
        Some(OutputFormat::Name) => show::print(&response.paths.iter().map(|c| format!("{}\n", c.path)).collect::<String>())?,
        Some(format) => show::print_as(format, &response)?,
        None => match (&response.text, args.name_only) {
            (Some(text), false) => {
                show::print(text)?;
                if response.cut {
                    eprintln!("(cut at its limit; see --name-only)");
                }
            }
            _ => {
                let mut lines = String::new();
                for change in &response.paths {
                    let letter = match change.kind {
                        ChangeType::Added => 'A',
                        ChangeType::Modified => 'M',
                        ChangeType::Deleted => 'D',
                    };
                    lines.push_str(&format!("{letter}\t{}\n", change.path));
                }
                show::print(&lines)?;
                if let Some(why) = &response.no_base {
                    eprintln!("no paths: {why}");
                }
                if response.cut {
                    eprintln!("(cut at its limit)");
                }
            }
        },
    }
    Ok(())
}
