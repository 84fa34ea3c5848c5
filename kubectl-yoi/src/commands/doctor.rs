//! `doctor`: finds what is wrong with Yoi on a cluster, and the command that fixes it. [`gather`] reads the cluster once, and [`checks`] are pure
//! functions of what it read.

mod checks;
mod finding;
mod gather;
mod observed;

use std::fmt::Write;
use std::io::IsTerminal;

use crate::args::{DoctorOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;
use finding::{Finding, Severity};

const API_SERVICE: &str = "v1alpha1.runtime.yoi.dev";
/// Where the README installs the charts, for a user who may not read where they are installed.
const DEFAULT_NAMESPACE: &str = "yoi-system";

pub async fn doctor(cluster: &Cluster, output: Option<OutputFormat>, args: &DoctorOptions) -> Result<(), Error> {
    let observed = gather::gather(cluster, args.all_namespaces).await?;
    let findings = checks::all(&observed);
    let count = |severity: Severity| findings.iter().filter(|f| f.severity == severity).count();
    match output {
        None | Some(OutputFormat::Wide) => show::print(&render(&findings, observed.scope.as_deref(), std::io::stdout().is_terminal()))?,
        Some(OutputFormat::Name) => {
            show::print(&findings.iter().filter(|f| f.severity > Severity::Note).map(|f| format!("{}\n", f.object)).collect::<String>())?;
        }
        Some(format) => show::print_as(
            format,
            &serde_json::json!({ "findings": findings, "counts": {
                "ok": count(Severity::Ok), "note": count(Severity::Note), "unknown": count(Severity::Unknown),
                "warning": count(Severity::Warning), "error": count(Severity::Error),
            } }),
        )?,
    }
    match (count(Severity::Error), count(Severity::Warning), count(Severity::Unknown)) {
        (0, 0, 0) => Ok(()),
        (errors, warnings, unknown) => {
            Err(Error::Unhealthy { errors, warnings, unknown, again: cluster.doctor_command(args.all_namespaces) })
        }
    }
}

/// Returns the findings as text, in the given order.
fn render(findings: &[Finding], scope: Option<&str>, color: bool) -> String {
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
        let label = format!("{:<8}", severity.as_str());
        let label = if color { format!("\x1b[{code}m{label}\x1b[0m") } else { label };
        // A finding that is ok needs no name but that of its check.
        let sentence = if *severity == Severity::Ok { message.clone() } else { format!("{object}: {message}") };
        let sentence = show::one_line(&sentence);
        let _ = writeln!(text, "{label} {check:<12} {sentence}");
        if let Some(command) = command {
            let _ = writeln!(text, "{:22}$ {}", "", show::one_line(command));
        }
    }
    let counted = [Severity::Ok, Severity::Note, Severity::Unknown, Severity::Warning, Severity::Error]
        .map(|severity| format!("{} {}", findings.iter().filter(|f| f.severity == severity).count(), severity.as_str()));
    let scope = scope.map_or_else(|| "every namespace".to_owned(), |n| format!("namespace {n} (-A: every namespace)"));
    let _ = writeln!(text, "\n{}; objects of {scope}", counted.join(", "));
    text
}
