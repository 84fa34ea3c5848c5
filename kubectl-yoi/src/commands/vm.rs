//! `vm`: a Linux machine on a computer that has none, by the program that drives machines there. Only machines whose name is `yoi` or begins with `yoi-` are touched.

mod driver;

use serde::Serialize;

use crate::args::{OutputFormat, VmCommand, VmDownOptions, VmDriver, VmMachine, VmUpOptions};
use crate::error::{Error, RefusalKind};
use crate::show;
use driver::{Driver, Machine};

const ALL: [VmDriver; 3] = [VmDriver::Lima, VmDriver::Colima, VmDriver::Wsl];

/// A machine in answers.
#[derive(Debug, Serialize)]
struct VmResult<'a> {
    name: &'a str,
    driver: &'a str,
    state: &'a str,
}

pub async fn vm(output: Option<OutputFormat>, command: &VmCommand) -> Result<(), Error> {
    match command {
        VmCommand::Up(args) => up(output, args).await,
        VmCommand::Down(args) => down(output, args).await,
        VmCommand::Ls => ls(output).await,
    }
}

async fn up(output: Option<OutputFormat>, args: &VmUpOptions) -> Result<(), Error> {
    let name = args.machine.full_name();
    let (driver, there) = find(&args.machine).await?;
    match there {
        Some(machine) if machine.is_running() => {}
        there => driver.start(&name, there.is_some(), args).await?,
    }
    let sentence = format!("{name} runs with {}\n{}", driver.title(), driver.next(&name));
    show::object(output, &VmResult { name: &name, driver: driver.title(), state: "Running" }, &name, &sentence)
}

async fn down(output: Option<OutputFormat>, args: &VmDownOptions) -> Result<(), Error> {
    let name = args.machine.full_name();
    let (driver, there) = find(&args.machine).await?;
    let Some(machine) = there else {
        return Err(Error::Missing { what: format!("the machine {name}"), next: "see which there are: kubectl yoi vm ls".to_owned() });
    };
    let (state, sentence) = if args.delete {
        driver.delete(&name).await?;
        ("Deleted", format!("{name} is deleted, with all that was on it"))
    } else {
        if machine.is_running() {
            driver.stop(&name).await?;
        }
        (
            "Stopped",
            format!(
                "{name} is stopped; start it again: kubectl yoi vm up{}",
                args.machine.name.as_ref().map_or(String::new(), |name| format!(" {name}"))
            ),
        )
    };
    show::object(output, &VmResult { name: &name, driver: driver.title(), state }, &name, &sentence)
}

async fn ls(output: Option<OutputFormat>) -> Result<(), Error> {
    let mut machines: Vec<(&'static str, Machine)> = Vec::new();
    for driver in installed().await {
        machines.extend(driver.machines().await?.into_iter().map(|machine| (driver.title(), machine)));
    }
    let rows: Vec<VmResult<'_>> =
        machines.iter().map(|(driver, machine)| VmResult { name: &machine.name, driver, state: &machine.state }).collect();
    show::objects(
        output,
        &rows,
        |row| row.name.to_owned(),
        || {
            let mut table = show::table(&["name", "driver", "state"]);
            for row in &rows {
                table.add_row([row.name, row.driver, row.state].map(show::cell));
            }
            show::lines(&table)
        },
    )
}

async fn installed() -> Vec<Driver> {
    let mut found = Vec::new();
    for driver in ALL.map(Driver) {
        if driver.is_installed().await {
            found.push(driver);
        }
    }
    found
}

/// What drives the machine, and the machine if it is there.
async fn find(machine: &VmMachine) -> Result<(Driver, Option<Machine>), Error> {
    let name = machine.full_name();
    let drivers: Vec<Driver> = installed().await.into_iter().filter(|driver| machine.with.is_none_or(|with| driver.0 == with)).collect();
    for driver in &drivers {
        if let Some(found) = driver.machines().await?.into_iter().find(|found| found.name == name) {
            return Ok((*driver, Some(found)));
        }
    }
    match drivers.first() {
        Some(driver) => Ok((*driver, None)),
        None => {
            let what = machine.with.map_or("a program that drives machines", |with| Driver(with).title());
            let next = "install one: Lima on macOS and Linux (brew install lima), Colima (brew install colima), or WSL on Windows (wsl --install); on Linux no machine \
                        is needed: kubectl yoi host check USER@HOST looks at any that you reach by SSH"
                .to_owned();
            Err(Error::refused_error(format!("find {what}"), "it is not installed here", next, RefusalKind::Other))
        }
    }
}
