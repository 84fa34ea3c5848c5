//! Responses of a broken endpoint.

use std::time::Duration;

use axum::response::{Html, IntoResponse, Response};
use futures::future::{BoxFuture, FutureExt};
use futures::stream;
use tokio::time::sleep;

use super::answer::Answer;
use super::script::BrokenResponse;
use super::server::event_stream;

const WORD: &str = "#word#";

/// Returns the response, or `None` where it is made from the step's own stream.
pub fn respond(show: BrokenResponse) -> Option<BoxFuture<'static, Response>> {
    let response = async move {
        match show {
            BrokenResponse::Html => Html("<!DOCTYPE html><html><body>Welcome to nginx!</body></html>\n").into_response(),
            BrokenResponse::Noise => {
                event_stream(stream::iter(vec![Ok("data: {\"choices\": [{]\n\nevent: content_block_start\ndata: {]\n\n".to_owned())]))
            }
            BrokenResponse::Trickle => event_stream(stream::unfold(": wait\n".chars().cycle(), async |mut letters| {
                sleep(Duration::from_secs(1)).await;
                letters.next().map(|letter| (Ok(letter.to_string()), letters))
            })),
            BrokenResponse::EndlessLine => event_stream(stream::unfold(0, async |n| {
                Some((Ok(if n == 0 { "data: {\"x\": \"".to_owned() } else { "a".repeat(64 << 10) }), n + 1))
            })),
            BrokenResponse::Hang
            | BrokenResponse::Endless
            | BrokenResponse::CutCall
            | BrokenResponse::CutEnd
            | BrokenResponse::Empty
            | BrokenResponse::ErrorEvent => std::future::pending().await,
        }
    };
    let of_the_step =
        [BrokenResponse::Endless, BrokenResponse::CutCall, BrokenResponse::CutEnd, BrokenResponse::Empty, BrokenResponse::ErrorEvent];
    (!of_the_step.contains(&show)).then(|| response.boxed())
}

/// The same answer with one word as its text and without calls.
pub fn with_one_word(mut answer: Answer) -> Answer {
    WORD.clone_into(&mut answer.scripted.step.text);
    answer.scripted.calls.clear();
    answer
}

/// The same answer without text and calls.
pub fn without_output(mut answer: Answer) -> Answer {
    answer.scripted.step.text.clear();
    answer.scripted.calls.clear();
    answer
}

/// Sends the events up to the one with the word, and then that event with a long text, without end.
pub fn endless_stream(events: Vec<String>) -> Response {
    let head: Vec<String> = events.iter().take_while(|event| !event.contains(WORD)).cloned().collect();
    let long = events.get(head.len()).map(|event| event.replace(WORD, &"endless ".repeat(2 << 10))).unwrap_or_default();
    event_stream(stream::unfold(0, move |n| {
        let event = head.get(n).unwrap_or(&long).clone();
        async move { Some((Ok(event), n + 1)) }
    }))
}

/// Cuts the events after the first piece of a call's arguments.
pub fn until_arguments(mut events: Vec<String>) -> Vec<String> {
    let begun = |event: &String| {
        let of_chat = event.contains("\"tool_calls\":") && event.contains("\"arguments\":") && !event.contains("\"arguments\":\"\"");
        of_chat || event.contains("partial_json") || event.contains("function_call_arguments.delta") || event.contains("functionCall")
    };
    if let Some(first) = events.iter().position(begun) {
        events.truncate(first + 1);
    }
    events
}
