use crate::instance::Instance;
pub fn local(_: Instance) -> anyhow::Result<()> { Ok(()) }
pub fn existing(_: &str) -> anyhow::Result<()> { Ok(()) }
