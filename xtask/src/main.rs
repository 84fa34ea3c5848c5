//! `cargo xtask`: a local Kubernetes, images, charts, generated files and the checks, from a fresh clone.

mod args;
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
mod say;
mod tree;

use anyhow::Result;
use args::{Action, ClusterAction};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(args::Args::parse().action) {
        Ok(code) => code,
        Err(error) => {
            say::failure(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> Result<ExitCode> {
    match action {
        Action::Up { context: None, name } => install::local(name)?,
        Action::Up { context: Some(context), .. } => install::existing(&context)?,
        Action::Down { name } => cluster::down(name)?,
        Action::Cluster { action: ClusterAction::Up { name } } => {
            cluster::up(name)?;
            cluster::explain(name);
        }
        Action::Cluster { action: ClusterAction::Down { name } } => cluster::down(name)?,
        Action::Cluster { action: ClusterAction::Status { name } } => cluster::status(name)?,
        Action::Cluster { action: ClusterAction::Exec { name, command } } => return cluster::exec(name, &command),
        Action::Images { name } => {
            images::build_and_import(name)?;
        }
        Action::Generate { check } => generate::run(check)?,
        Action::Law => law::run()?,
        Action::Test { all, filter } => return lanes::run(all, filter.as_deref()),
    }
    Ok(ExitCode::SUCCESS)
}
