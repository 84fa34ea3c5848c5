//! `cargo xtask`: a local Kubernetes, images, charts, generated files and the checks, from a fresh clone.

mod args;
mod bench;
mod build;
mod cluster;
mod command;
mod generate;
mod images;
mod install;
mod instance;
mod lanes;
mod law;
mod packages;
mod planted;
mod progress;
mod test_environment;
mod tree;

use anyhow::Result;
use args::{ClusterCommand, XtaskCommand};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(args::Args::parse().action) {
        Ok(code) => code,
        Err(error) => {
            progress::failure(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(action: XtaskCommand) -> Result<ExitCode> {
    match action {
        XtaskCommand::Up { context: None, name, .. } => install::local(name)?,
        XtaskCommand::Up { context: Some(context), registry, plain_http, set, .. } => {
            let registry = registry.map(|prefix| images::Registry { prefix, plain_http });
            install::existing(install::ExistingCluster { context, registry, settings: set })?;
        }
        XtaskCommand::Down { name } => cluster::down(name)?,
        XtaskCommand::Cluster { action: ClusterCommand::Up { name } } => {
            cluster::up(name)?;
            cluster::explain(name);
        }
        XtaskCommand::Cluster { action: ClusterCommand::Down { name } } => cluster::down(name)?,
        XtaskCommand::Cluster { action: ClusterCommand::Status { name } } => cluster::status(name)?,
        XtaskCommand::Cluster { action: ClusterCommand::Reboot { name } } => cluster::reboot(name)?,
        XtaskCommand::Cluster { action: ClusterCommand::Exec { name, command } } => return cluster::exec(name, &command),
        XtaskCommand::Images { name } => {
            images::build_and_import(name)?;
        }
        XtaskCommand::Generate { check } => generate::run(check)?,
        XtaskCommand::Law => law::run()?,
        XtaskCommand::Bench { keep, wanted } => bench::run(&wanted, keep)?,
        XtaskCommand::Planted { name } => planted::run(name.as_deref())?,
        XtaskCommand::Test { all, filter } => return lanes::run(all, filter.as_deref()),
    }
    Ok(ExitCode::SUCCESS)
}
