//! `yoi-host`, the program of a bundle: a Kubernetes with Yoi on the machine that it is unpacked on, as a service, and away again.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use yoi_host::bundle::Bundle;
use yoi_host::cluster::{self, Shape};
use yoi_host::install::{self, InstallTarget};
use yoi_host::instance::{Instance, ROOT};
use yoi_host::{command, packages, progress, service};

#[derive(Parser)]
#[command(name = "yoi-host", version, about = "A Kubernetes of one node with Yoi, from the bundle that this program is in")]
struct Args {
    #[command(subcommand)]
    action: Action,
    /// Another cluster than the one of this machine, for tests
    #[arg(long, value_enum, default_value_t = Instance::YoiHost, global = true, hide = true)]
    name: Instance,
}

#[derive(Subcommand)]
enum Action {
    /// Start it and install Yoi on it, or bring what is there to what this bundle has. Once more is the same as once
    Up {
        /// GiB for the trees of agents, taken from the disk at once; half of what is free, and at most 64, when absent. It stays as it was made
        #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=16_384))]
        trees: Option<u64>,
    },
    /// Remove it with all that it has put on this machine, agents and their trees included
    Down,
    /// What runs, and where its files are
    Status,
    /// Start the node from what is on the disk; what the service runs
    Start,
    /// End the node; its disk stays
    Stop,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args.action, args.name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::failure(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// One `yoi-host` at a time changes the machine: a helm that is killed leaves its own lock behind.
fn lock() -> Result<fs::File> {
    let folder = Path::new(ROOT);
    fs::create_dir_all(folder)?;
    let file = fs::File::open(folder)?;
    command::wait("the end of another `yoi-host` on this machine", Duration::from_secs(1200), || {
        Ok(rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok())
    })?;
    Ok(file)
}

fn run(action: &Action, instance: Instance) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a node needs root: run this again with sudo");
    }
    // When this program is killed, its children end too. kubectl and helm write nothing to the person's home.
    command::contain_children(Path::new(ROOT).join(HOME));
    match action {
        Action::Up { trees } => up(instance, *trees),
        Action::Down => down(instance),
        Action::Status => cluster::status(instance, || Ok(Bundle::of_this_program()?.programs().kubernetes)),
        Action::Start => start(&Bundle::of_this_program()?, instance),
        Action::Stop => cluster::stop(instance),
    }
}

fn up(instance: Instance, trees: Option<u64>) -> Result<()> {
    let _lock = lock()?;
    let bundle = Bundle::of_this_program()?;
    packages::check_for_cluster()?;
    let step = progress::start("Read the bundle");
    bundle.verify()?;
    step.done(format!("Yoi {}", bundle.version()));
    start(&bundle, instance)?;
    install::set_size_of_trees(instance, trees)?;
    let programs = bundle.programs();
    cluster::import(instance, &bundle.archives())?;
    install::charts(&programs.helm, bundle.folder(), &InstallTarget::local(instance, &programs), &bundle.references())?;
    service::enable(instance, &bundle)?;
    remove_others(&bundle)?;
    println!("kubeconfig={}", instance.kubeconfig().display());
    Ok(())
}

fn start(bundle: &Bundle, instance: Instance) -> Result<()> {
    cluster::up(instance, Shape::default(), &bundle.programs(), &bundle.archives())
}

fn down(instance: Instance) -> Result<()> {
    let _lock = lock()?;
    service::remove(instance)?;
    cluster::down(instance)?;
    for folder in [BUNDLES, INCOMING, HOME] {
        let folder = Path::new(ROOT).join(folder);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
    }
    // Another cluster of this machine may be in it.
    let _ = fs::remove_dir(ROOT);
    Ok(())
}

/// Where bundles are unpacked, each in a folder of its own.
const BUNDLES: &str = "bundles";
/// Where the parts of a bundle arrive.
const INCOMING: &str = "incoming";

/// `HOME` of kubectl, helm and the other programs that this one starts.
const HOME: &str = "home";

/// Removes the bundles of former versions.
fn remove_others(bundle: &Bundle) -> Result<()> {
    let bundles = Path::new(ROOT).join(BUNDLES);
    if bundle.folder().parent() != Some(&bundles) {
        return Ok(());
    }
    for entry in fs::read_dir(&bundles)? {
        let path = entry?.path();
        if path != bundle.folder() {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}
