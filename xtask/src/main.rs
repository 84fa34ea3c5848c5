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
use args::{Action, ClusterAction};
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

fn run(action: Action) -> Result<ExitCode> {
    match action {
        Action::Up { context: None, name, .. } => install::local(name)?,
        Action::Up { context: Some(context), registry, plain_http, set, .. } => {
            let registry = registry.map(|prefix| images::Registry { prefix, plain_http });
            install::existing(install::ExistingCluster { context, registry, settings: set })?;
        }
        Action::Down { name } => cluster::down(name)?,
        Action::Cluster { action: ClusterAction::Up { name } } => {
            cluster::up(name)?;
            cluster::explain(name);
        }
        Action::Cluster { action: ClusterAction::Down { name } } => cluster::down(name)?,
        Action::Cluster { action: ClusterAction::Status { name } } => cluster::status(name)?,
        Action::Cluster { action: ClusterAction::Reboot { name } } => cluster::reboot(name)?,
        Action::Cluster { action: ClusterAction::Exec { name, command } } => return cluster::exec(name, &command),
        Action::Images { name } => {
            images::build_and_import(name)?;
        }
        Action::Generate { check } => generate::run(check)?,
        Action::Law => law::run()?,
        Action::Bench { keep, wanted } => bench::run(&wanted, keep)?,
        Action::Planted { name } => planted::run(name.as_deref())?,
        Action::Test { all, filter } => return lanes::run(all, filter.as_deref()),
    }
    Ok(ExitCode::SUCCESS)
}
