//! `doctor`: what is wrong, and the command that mends it. It gathers the world once ([`gather`]), and judges it without hands ([`checks`]).

mod checks;
mod finding;
mod gather;
mod world;

use std::fmt::Write;
use std::io::IsTerminal;

use crate::args::{Doctor, Output};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;
use finding::{Finding, Severity};

const API_SERVICE: &str = "v1alpha1.runtime.yoi.dev";
/// Where the README installs the charts: for who may not see where they are.
const HOME: &str = "yoi-system";

pub async fn doctor(cluster: &Cluster, output: Option<Output>, args: &Doctor) -> Result<(), Error> {
    let world = gather::gather(cluster, args.all_namespaces).await?;
    let findings = checks::all(&world);
    let count = |severity: Severity| findings.iter().filter(|f| f.severity == severity).count();
    match output {
        None => show::print(&told(&findings, world.scope.as_deref(), std::io::stdout().is_terminal()))?,
        Some(Output::Name) => {
            show::print(&findings.iter().filter(|f| f.severity > Severity::Note).map(|f| format!("{}\n", f.object)).collect::<String>())?;
        }
        Some(form) => show::value(
            form,
            &serde_json::json!({ "findings": findings, "counts": {
                "ok": count(Severity::Ok), "note": count(Severity::Note), "unknown": count(Severity::Unknown),
                "warning": count(Severity::Warning), "error": count(Severity::Error),
            } }),
        )?,
    }
    match (count(Severity::Error), count(Severity::Warning), count(Severity::Unknown)) {
        (0, 0, 0) => Ok(()),
        (errors, warnings, unknown) => Err(Error::Unhealthy { errors, warnings, unknown, again: cluster.doctor(args.all_namespaces) }),
    }
}

/// For people: the worst last, where the eye is.
fn told(findings: &[Finding], scope: Option<&str>, color: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let Finding { severity, check, object, message, command } = finding;
        let code = match severity {
            Severity::Ok => 32,
            Severity::Note => 90,
            Severity::Unknown => 35,
            Severity::Warning => 33,
            Severity::Error => 31,
        };
        let word = format!("{:<8}", severity.word());
        let word = if color { format!("\x1b[{code}m{word}\x1b[0m") } else { word };
        // What is well needs no name but its check's.
        let said = if *severity == Severity::Ok { message.clone() } else { format!("{object}: {message}") };
        let said = show::harmless(&said).replace('\n', " ");
        let _ = writeln!(text, "{word} {check:<12} {said}");
        if let Some(command) = command {
            let _ = writeln!(text, "{:22}$ {}", "", show::harmless(command));
        }
    }
    let counted = [Severity::Ok, Severity::Note, Severity::Unknown, Severity::Warning, Severity::Error]
        .map(|severity| format!("{} {}", findings.iter().filter(|f| f.severity == severity).count(), severity.word()));
    let place = scope.map_or_else(|| "every namespace".to_owned(), |n| format!("namespace {n} (-A: every namespace)"));
    let _ = writeln!(text, "\n{}; objects of {place}", counted.join(", "));
    text
}
