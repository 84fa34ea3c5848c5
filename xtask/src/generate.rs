pub fn run(_check: bool) -> anyhow::Result<()> { Ok(()) }
