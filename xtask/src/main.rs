//! `cargo xtask`: a local Kubernetes, images, charts, generated files and the checks, from a fresh clone.

mod affected;
mod args;
mod bench;
mod build;
mod bundle;
mod cache;
mod cargo;
#[cfg(test)]
mod cases;
mod cluster;
mod generate;
mod guest;
mod images;
mod install;
mod instance;
mod law;
mod module_circles;
#[cfg(test)]
mod namespaces;
mod packages;
mod planted;
mod portable;
#[cfg(test)]
mod presets;
mod test_environment;
mod testing;
mod tree;
#[cfg(test)]
mod waits;

use anyhow::Result;
use args::{ClusterCommand, NodeCommand, XtaskCommand};
use clap::Parser;
use instance::Node;
use std::process::ExitCode;
use std::time::Duration;
use yoi_host::{command, progress};

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
        XtaskCommand::Up { context: None, name, shape, .. } => install::local(name, shape)?,
        XtaskCommand::Up { context: Some(context), registry, plain_http, profile, set, .. } => {
            let registry = registry.map(|prefix| images::Registry { prefix, plain_http });
            install::existing(install::ExistingCluster { context, registry, profile, settings: set })?;
        }
        XtaskCommand::Down { name } => cluster::down(name)?,
        XtaskCommand::Cluster { action } => return run_on_cluster(action),
        XtaskCommand::Images { name, programs: true } => images::build_and_import_programs(name)?,
        XtaskCommand::Images { name, programs: false } => {
            images::build_and_import(name)?;
        }
        XtaskCommand::Bundle { profile, out } => bundle::run(profile, out)?,
        XtaskCommand::Generate { check } => generate::run(check)?,
        XtaskCommand::Guest { files, disks, limit, command } => {
            return guest::exec(&files, &disks, Duration::from_secs(limit), &command);
        }
        XtaskCommand::Law => law::run()?,
        XtaskCommand::Bench { keep, wanted } => bench::run(&wanted, keep)?,
        XtaskCommand::Planted { names } => planted::run(&names)?,
        XtaskCommand::Test { list: true, .. } => testing::list()?,
        XtaskCommand::Test { all, keep, record, since, filters, .. } => {
            let tier = if all { testing::Tier::All } else { testing::Tier::Test };
            return testing::run(&testing::Request { tier, filters, keep, record, since });
        }
        XtaskCommand::Soak { parts } => return testing::soak(&parts),
    }
    Ok(ExitCode::SUCCESS)
}

fn run_on_cluster(action: ClusterCommand) -> Result<ExitCode> {
    match action {
        ClusterCommand::Up { name, shape } => {
            cluster::up(name, shape)?;
            cluster::explain(name);
        }
        ClusterCommand::Down { name } => cluster::down(name)?,
        ClusterCommand::Status { name } => cluster::status(name)?,
        ClusterCommand::Reboot { name, node } => cluster::nodes::reboot(node.unwrap_or_else(|| Node::first(name)))?,
        ClusterCommand::Exec { name, node, command } => return cluster::exec(node.unwrap_or_else(|| Node::first(name)), &command),
        ClusterCommand::Node { action } => match action {
            NodeCommand::Add { name, data_root } => cluster::nodes::add(name, data_root)?,
            NodeCommand::Remove { node } => cluster::nodes::remove(node)?,
            NodeCommand::Stop { node } => cluster::nodes::stop(node)?,
            NodeCommand::Start { node } => cluster::nodes::start(node)?,
            NodeCommand::Lose { node } => cluster::nodes::lose(node)?,
            NodeCommand::Restore { node } => cluster::nodes::restore(node)?,
            NodeCommand::Taint { node, taint, remove } => cluster::nodes::taint(node, &taint, remove)?,
        },
    }
    Ok(ExitCode::SUCCESS)
}
