//! Processes as `/proc` shows them.

use rustix::process::Pid;

use super::CALL_ID_ENV;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    /// A zombie, or about to be removed.
    pub ended: bool,
    /// Clock ticks between the start of the machine and that of the process.
    pub start_ticks: u64,
}

pub(super) fn to_pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

pub(super) fn read_process(pid: u32) -> Option<Process> {
    parse_stat(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

pub(super) fn list_processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(read_process).collect()
}

/// `pid (name) state parent group session ... starttime ...`; the name may hold anything, also parentheses.
fn parse_stat(pid: u32, stat: &str) -> Option<Process> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    // starttime is field 22 of proc_pid_stat(5).
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, group, session, ended: matches!(state, "Z" | "X"), start_ticks })
}

/// The values of [`CALL_ID_ENV`] in the environment of a process.
fn call_ids(pid: u32) -> Vec<Vec<u8>> {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return Vec::new() };
    let name = format!("{CALL_ID_ENV}=");
    environment.split(|byte| *byte == 0).filter_map(|variable| Some(variable.strip_prefix(name.as_bytes())?.to_owned())).collect()
}

pub(super) fn has_call_id(pid: u32, call_id: &str) -> bool {
    call_ids(pid).iter().any(|found| found == call_id.as_bytes())
}

/// Whether a process has the id of another call, and not this one's.
pub(super) fn belongs_to_other_call(pid: u32, call_id: &str) -> bool {
    let found = call_ids(pid);
    !found.is_empty() && found.iter().all(|found| found != call_id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_read() {
        let rest = "0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        let stat = format!("42 (a) b (c)) S 7 40 39 {rest}");
        let expected = Process { pid: 42, parent: 7, group: 40, session: 39, ended: false, start_ticks: 4711 };
        assert_eq!(parse_stat(42, &stat), Some(expected));
        assert_eq!(parse_stat(42, &format!("42 (x) Z 7 40 39 {rest}")).map(|process| process.ended), Some(true));
        assert!(read_process(std::process::id()).is_some_and(|process| process.start_ticks > 0 && !process.ended));
        assert_eq!(parse_stat(42, "42 (x"), None);
    }
}
