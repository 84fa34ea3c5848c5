//! Bodies of requests and answers out of streams, in all four formats.

use std::sync::{Arc, Mutex};

use serde_json::json;
use yoi_wire::entry::{AnswerPart, Assistant, Image, ModelConfig, OfferedTool, PromptToolResult, StopReason, ToolCall};

use super::*;
use crate::model::deltas::{DeltaSink, ModelDelta};
use crate::model::sse::SseReader;

mod bodies;
mod orders;
mod streams;

const FORMATS: [WireFormat; 4] = [WireFormat::Responses, WireFormat::ChatCompletions, WireFormat::Anthropic, WireFormat::Gemini];

fn server(kind: ServerKind) -> Server {
    Server { kind, takes_encrypted_reasoning: true, strict_order: false }
}

fn call(id: &str, tool: &str, args: Value) -> ToolCall {
    ToolCall { call_id: id.to_owned(), tool: tool.to_owned(), args }
}

/// Reads a stream that comes in these pieces.
fn read_pieces<'a>(format: WireFormat, pieces: impl Iterator<Item = &'a [u8]>) -> Result<(Assistant, Vec<ModelDelta>), StreamError> {
    let deltas: Arc<Mutex<Vec<ModelDelta>>> = Arc::default();
    let seen = deltas.clone();
    let mut answer = AnswerBuilder::new(DeltaSink::new(move |delta| seen.lock().unwrap().push(delta)));
    let (mut events, mut reader) = (SseReader::default(), format.reader());
    let mut done = false;
    for piece in pieces {
        for event in events.push(piece).unwrap() {
            done |= reader.read(&event, &mut answer)? == Progress::Done;
        }
    }
    if let Some(event) = events.finish() {
        done |= reader.read(&event, &mut answer)? == Progress::Done;
    }
    assert!(done || reader.is_complete(), "the stream does not end the answer");
    reader.finish(&mut answer)?;
    let answer = answer.finish(format.name(), "m");
    Ok((answer, deltas.lock().unwrap().clone()))
}

/// Reads a stream, whole and split at every byte, and checks that both give the same.
fn read(format: WireFormat, stream: &str) -> (Assistant, Vec<ModelDelta>) {
    let whole = read_pieces(format, std::iter::once(stream.as_bytes())).unwrap();
    assert_eq!(read_pieces(format, stream.as_bytes().chunks(1)).unwrap(), whole);
    whole
}
