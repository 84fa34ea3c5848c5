//! The tools Read, Write and Edit.

use std::io::{BufRead, BufReader, Read as _};
use std::num::NonZeroU64;

use yoi_wire::entry::ToolOutcome;

use super::CallResult;
use super::call_args::{EditArgs, ReadArgs, WriteArgs};
use super::tree::{PathError, Tree};
use crate::error_text::without_os_error_number;

const DEFAULT_LINES: u64 = 2000;
/// Bytes of an output's limit that are kept free for the note about the rest of the file.
const RESERVED_FOR_NOTES: usize = 80;
/// The longest file that Edit reads into memory.
const MAX_EDIT_BYTES: u64 = 16 << 20;

impl From<PathError> for CallResult {
    fn from(error: PathError) -> Self {
        let outcome = match &error {
            PathError::Outside { .. } | PathError::Loop { .. } | PathError::NotAPath { .. } | PathError::Changed { .. } => {
                ToolOutcome::Refused
            }
            PathError::Io { .. } => ToolOutcome::Failed,
        };
        CallResult { outcome, output: without_os_error_number(&error.to_string()) }
    }
}

pub fn read(tree: &Tree, args: &ReadArgs, bytes: usize) -> CallResult {
    let file = match tree.read(&args.path) {
        Ok(file) => file,
        Err(error) => return error.into(),
    };
    let bytes = bytes.saturating_sub(RESERVED_FOR_NOTES);
    let (first, most) = (args.offset.map_or(1, NonZeroU64::get), args.limit.map_or(DEFAULT_LINES, NonZeroU64::get));
    let mut reader = BufReader::new(file);
    let (mut number, mut line, mut text) = (0, Vec::new(), Vec::new());
    let mut next = None;
    while next.is_none() {
        line.clear();
        match read_line_bounded(&mut reader, bytes, &mut line) {
            Ok(false) => break,
            Ok(true) => number += 1,
            Err(error) => return CallResult::failed(without_os_error_number(&format!("{:?}: {error}", args.path))),
        }
        if line.contains(&0) {
            return CallResult::failed(format!("{:?} is not a text file", args.path));
        }
        if number < first {
            continue;
        }
        if number - first == most || text.len() + line.len() > bytes {
            let too_long = text.is_empty() && number == first;
            if too_long {
                text.extend_from_slice(&line[..line.len().min(bytes)]);
            }
            next = Some(number + u64::from(too_long));
        } else {
            text.extend_from_slice(&line);
        }
    }
    if number < first && first > 1 {
        return CallResult::failed(format!("{:?} has {number} lines", args.path));
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if let Some(next) = next {
        text.push_str(&format!("\n[cut here; read on with offset {next}]"));
    }
    CallResult::succeeded(text)
}

/// Reads a line, at most `limit` + 1 bytes of it, and skips its rest, so that an endless line does not fill the memory. Returns false at
/// the end of the file.
fn read_line_bounded(reader: &mut impl BufRead, limit: usize, line: &mut Vec<u8>) -> std::io::Result<bool> {
    let read = reader.by_ref().take(limit as u64 + 1).read_until(b'\n', line)?;
    if read > limit && !line.ends_with(b"\n") {
        reader.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

pub fn write(tree: &Tree, args: &WriteArgs) -> CallResult {
    match tree.replace(&args.path, args.content.as_bytes()) {
        Ok(()) => CallResult::succeeded(format!("wrote {} bytes to {}", args.content.len(), args.path)),
        Err(error) => error.into(),
    }
}

pub fn edit(tree: &Tree, args: &EditArgs) -> CallResult {
    let file = match tree.read(&args.path) {
        Ok(file) => file,
        Err(error) => return error.into(),
    };
    let mut text = String::new();
    match file.take(MAX_EDIT_BYTES + 1).read_to_string(&mut text) {
        Ok(read) if read as u64 > MAX_EDIT_BYTES => {
            return CallResult::failed(format!("{:?} is longer than {MAX_EDIT_BYTES} bytes", args.path));
        }
        Ok(_) => {}
        Err(error) => return CallResult::failed(without_os_error_number(&format!("{:?}: {error}", args.path))),
    }
    let count = text.matches(&args.old).count();
    if count == 0 {
        return CallResult::failed(format!("{:?} does not hold the old text; read it again", args.path));
    }
    if count > 1 && !args.all {
        return CallResult::failed(format!("{:?} holds the old text {count} times; give more of its surroundings, or set all", args.path));
    }
    match tree.replace(&args.path, text.replace(&args.old, &args.new).as_bytes()) {
        Ok(()) => CallResult::succeeded(format!("replaced {count} in {}", args.path)),
        Err(error) => error.into(),
    }
}
