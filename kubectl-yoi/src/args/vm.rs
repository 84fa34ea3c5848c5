//! The verbs about a Linux machine on one's own: for macOS and Windows.

use clap::{Args, Subcommand, ValueEnum};

use super::values::object_name;

#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Make and start a Linux machine for Yoi with Lima, Colima or WSL, with a Btrfs for trees, and say how Yoi gets onto it.
    #[command(after_help = super::examples::VM_UP)]
    Up(VmUpOptions),
    /// Stop a machine. Its disk stays, unless --delete is given.
    #[command(after_help = super::examples::VM_DOWN)]
    Down(VmDownOptions),
    /// List the machines.
    #[command(after_help = super::examples::VM_LS)]
    Ls,
}

/// What drives machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VmDriver {
    Lima,
    Colima,
    Wsl,
}

#[derive(Debug, Args)]
pub struct VmUpOptions {
    #[command(flatten)]
    pub machine: VmMachine,
    /// Processors.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "NUMBER")]
    pub cpus: u16,
    /// Memory in GiB.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=1024), value_name = "GIB")]
    pub memory: u16,
    /// Room for trees in GiB; the file that holds them grows to this.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(5..=4096), value_name = "GIB")]
    pub disk: u16,
}

#[derive(Debug, Args)]
pub struct VmDownOptions {
    #[command(flatten)]
    pub machine: VmMachine,
    /// Delete it with all that is on it.
    #[arg(long)]
    pub delete: bool,
}

#[derive(Debug, Args)]
pub struct VmMachine {
    /// Which machine, where there are several: it is called yoi-NAME.
    #[arg(value_name = "NAME", value_parser = object_name)]
    pub name: Option<String>,
    /// What drives it; the first of these that is installed when absent, or that has it.
    #[arg(long, value_enum, value_name = "PROGRAM")]
    pub with: Option<VmDriver>,
}

impl VmMachine {
    /// Its name at its driver: no other machine there is ever touched.
    pub fn full_name(&self) -> String {
        self.name.as_ref().map_or_else(|| "yoi".to_owned(), |name| format!("yoi-{name}"))
    }
}
