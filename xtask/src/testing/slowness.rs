//! How slow this machine is now, measured before the tests: what they wait for may take that much longer.

use crate::command::command;
use anyhow::{Context, Result};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

/// What the three measurements take on a quiet machine of two cores.
const COMPUTE: Duration = Duration::from_millis(320);
const PROCESSES: Duration = Duration::from_millis(100);
const FLUSHES: Duration = Duration::from_millis(120);

/// The environment variable that tests read, as `test-support` names it.
pub const VARIABLE: &str = "YOI_TEST_SLOWNESS";

const MOST: f64 = 10.0;

/// How many times longer than there things take here: the worst of computing, starting processes and flushing a file. At least 1.
pub fn measure() -> Result<f64> {
    let measured = [(compute(), COMPUTE), (processes()?, PROCESSES), (flushes()?, FLUSHES)];
    let worst = measured.iter().map(|(took, usual)| took.as_secs_f64() / usual.as_secs_f64()).fold(1.0, f64::max);
    Ok((worst.min(MOST) * 10.0).round() / 10.0)
}

fn compute() -> Duration {
    let began = Instant::now();
    let sum = (0..20_000_000_u64).fold(0_u64, |sum, n| black_box(sum.rotate_left(5) ^ n));
    black_box(sum);
    began.elapsed()
}

fn processes() -> Result<Duration> {
    let began = Instant::now();
    for _ in 0..100 {
        command("true", [""; 0]).status().context("failed to start true")?;
    }
    Ok(began.elapsed())
}

fn flushes() -> Result<Duration> {
    let folder = tempfile::tempdir_in(crate::instance::repository().join("target")).or_else(|_| tempfile::tempdir())?;
    let mut file = File::create(folder.path().join("flushed"))?;
    let began = Instant::now();
    for _ in 0..50 {
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
    }
    Ok(began.elapsed())
}
