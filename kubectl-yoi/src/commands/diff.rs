//! `diff`: what an agent changed in its tree.

use yoi_wire::node::ChangeKind;
use yoi_wire::people::Diff as Answer;

use crate::args::{Diff, Output};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn diff(cluster: &Cluster, output: Option<Output>, args: &Diff) -> Result<(), Error> {
    let answer: Answer = cluster.fetch(&args.name, "diff").await?;
    match output {
        Some(Output::Name) => answer.paths.iter().for_each(|c| println!("{}", c.path)),
        Some(form) => show::value(form, &answer)?,
        None => match (&answer.text, args.name_only) {
            (Some(text), false) => {
                print!("{text}");
                if answer.cut {
                    eprintln!("(cut at its limit; see --name-only)");
                }
            }
            _ => {
                for change in &answer.paths {
                    let letter = match change.kind {
                        ChangeKind::Added => 'A',
                        ChangeKind::Modified => 'M',
                        ChangeKind::Deleted => 'D',
                    };
                    println!("{letter}\t{}", change.path);
                }
            }
        },
    }
    Ok(())
}
