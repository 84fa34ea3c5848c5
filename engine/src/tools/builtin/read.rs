//! The tool Read.

use std::io::{BufRead, BufReader, Read as _, Seek, SeekFrom};
use std::num::NonZeroU64;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::entry::Image;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::error_text::without_os_error_number;
use crate::tools::arguments::not_null;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};
use crate::tools::tree::Tree;

const DEFAULT_LINES: u64 = 2000;
/// Bytes of an output's limit that are kept free for the notes about the file.
const RESERVED_FOR_NOTES: usize = 160;
/// The longest picture that the model is shown.
const MAX_IMAGE_BYTES: u64 = 1 << 20;
/// The longest side of a picture in pixels. Anthropic refuses a longer one, and the others scale pictures down far below it.
const MAX_IMAGE_SIDE: usize = 8000;
/// Bytes at the beginning of a file by which a picture or another binary file is recognised.
const PROBE_BYTES: usize = 8 << 10;
/// Bytes of a line's number and the tab after it.
const NUMBER_BYTES: usize = 8;

/// Reads a file.
pub struct Read;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Path relative to the root of the tree.
    path: String,
    /// First line, from 1.
    #[serde(default, deserialize_with = "not_null")]
    offset: Option<NonZeroU64>,
    /// Number of lines, 2000 by default.
    #[serde(default, deserialize_with = "not_null")]
    limit: Option<NonZeroU64>,
}

impl TypedTool for Read {
    type Args = Args;
    const NAME: &'static str = "Read";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Read a text file, or look at a picture (PNG, JPEG, GIF, WebP). Each line comes with its number and a tab, which are not part of the \
         file."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        context.check_readable(&args.path)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let bytes = context.output_bytes();
        let path = args.path.clone();
        context.read_tree(&path, move |tree| read(tree, &args, bytes)).await
    }
}

fn read(tree: &Tree, args: &Args, bytes: usize) -> CallResult {
    let path = &args.path;
    if tree.kind(path).is_ok_and(|kind| kind.is_dir()) {
        return CallResult::failed(format!("{path:?} is a folder; use List"));
    }
    let failed = |error: std::io::Error| CallResult::failed(without_os_error_number(&format!("{path:?}: {error}")));
    let mut file = match tree.read(path) {
        Ok(file) => file,
        Err(error) => return error.into(),
    };
    let mut probe = Vec::new();
    if let Err(error) = (&mut file).take(PROBE_BYTES as u64).read_to_end(&mut probe).and_then(|_| file.seek(SeekFrom::Start(0))) {
        return failed(error);
    }
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    if let Some(media_type) = image_type(&probe) {
        if length > MAX_IMAGE_BYTES {
            return CallResult::failed(format!("{path:?} is a picture of {length} bytes; at most {MAX_IMAGE_BYTES} can be shown"));
        }
        let mut content = Vec::new();
        return match file.take(MAX_IMAGE_BYTES).read_to_end(&mut content) {
            // A picture that no model takes would be refused in every later request, too.
            Ok(_) if let Some(fault) = image_fault(&content) => CallResult::failed(format!("{path:?} {fault}")),
            Ok(_) => CallResult {
                images: vec![Image { media_type: media_type.to_owned(), data: BASE64_STANDARD.encode(&content) }],
                ..CallResult::succeeded(format!("{path}: {media_type}, {} bytes", content.len()))
            },
            Err(error) => failed(error),
        };
    }
    let binary = || CallResult::failed(format!("{path:?} is a binary file of {length} bytes, so it cannot be read as text"));
    if probe.contains(&0) {
        return binary();
    }
    match number_lines(BufReader::new(file), args, bytes.saturating_sub(RESERVED_FOR_NOTES)) {
        Ok(Lines::Text(text)) => CallResult::succeeded(text),
        Ok(Lines::TooFew(lines)) => CallResult::failed(format!("{path:?} has {lines} lines")),
        Ok(Lines::Binary) => binary(),
        Err(error) => failed(error),
    }
}

/// The kind of picture that begins with these bytes.
fn image_type(begin: &[u8]) -> Option<&'static str> {
    match begin {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Why no model takes a picture; `None`: its header says nothing against it.
fn image_fault(content: &[u8]) -> Option<String> {
    match imagesize::blob_size(content) {
        Ok(size) if size.width == 0 || size.height == 0 => Some("is a picture without a pixel".to_owned()),
        Ok(size) if size.width.max(size.height) > MAX_IMAGE_SIDE => Some(format!(
            "is a picture of {}x{} pixels; models take at most {MAX_IMAGE_SIDE} on a side, so scale it down or cut a part out",
            size.width, size.height
        )),
        Ok(_) => None,
        Err(_) => Some("begins like a picture, and its header cannot be read".to_owned()),
    }
}

enum Lines {
    Text(String),
    /// The file has only this many, fewer than the first that is wanted.
    TooFew(u64),
    Binary,
}

fn number_lines(mut reader: impl BufRead, args: &Args, bytes: usize) -> std::io::Result<Lines> {
    let (first, most) = (args.offset.map_or(1, NonZeroU64::get), args.limit.map_or(DEFAULT_LINES, NonZeroU64::get));
    let (mut number, mut line, mut text) = (0, Vec::new(), String::new());
    let (mut next, mut not_utf8) = (None, false);
    while next.is_none() {
        line.clear();
        if !read_line_bounded(&mut reader, bytes, &mut line)? {
            break;
        }
        number += 1;
        if line.contains(&0) {
            return Ok(Lines::Binary);
        }
        if number < first {
            continue;
        }
        let too_long = text.is_empty() && line.len() + NUMBER_BYTES > bytes;
        if !too_long && (number - first == most || text.len() + line.len() + NUMBER_BYTES > bytes) {
            next = Some(number);
            break;
        }
        if too_long {
            line.truncate(bytes.saturating_sub(NUMBER_BYTES));
            next = Some(number + 1);
        }
        let line = String::from_utf8_lossy(&line);
        not_utf8 |= line.contains(char::REPLACEMENT_CHARACTER);
        text.push_str(&format!("{number:>6}\t{line}"));
    }
    if number < first && first > 1 {
        return Ok(Lines::TooFew(number));
    }
    if not_utf8 {
        text.push_str("\n[some of it is not UTF-8 and stands here as \u{fffd}]");
    }
    if let Some(next) = next {
        text.push_str(&format!("\n[cut here; read on with offset {next}]"));
    }
    Ok(Lines::Text(text))
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
