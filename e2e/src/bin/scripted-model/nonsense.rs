//! What a broken endpoint sends.

use std::time::Duration;

use axum::response::{Html, IntoResponse, Response};
use futures::future::{BoxFuture, FutureExt};
use futures::stream;
use tokio::time::sleep;

use crate::script::{Found, Show};
use crate::server::streamed;

const WORD: &str = "#word#";

/// `None` where the step's own stream is a part of it.
pub fn answer(show: Show) -> Option<BoxFuture<'static, Response>> {
    let answer = async move {
        match show {
            Show::Html => Html("<!DOCTYPE html><html><body>Welcome to nginx!</body></html>\n").into_response(),
            Show::Noise => {
                streamed(stream::iter(vec![Ok("data: {\"choices\": [{]\n\nevent: content_block_start\ndata: {]\n\n".to_owned())]))
            }
            Show::Trickle => streamed(stream::unfold(": wait\n".chars().cycle(), async |mut letters| {
                sleep(Duration::from_secs(1)).await;
                letters.next().map(|letter| (Ok(letter.to_string()), letters))
            })),
            Show::EndlessLine => streamed(stream::unfold(0, async |n| {
                Some((Ok(if n == 0 { "data: {\"x\": \"".to_owned() } else { "a".repeat(64 << 10) }), n + 1))
            })),
            Show::Hang | Show::Endless | Show::CutCall | Show::CutEnd | Show::Empty => std::future::pending().await,
        }
    };
    (!matches!(show, Show::Endless | Show::CutCall | Show::CutEnd | Show::Empty)).then(|| answer.boxed())
}

/// The same with one word to say.
pub fn one_word(mut found: Found) -> Found {
    WORD.clone_into(&mut found.step.text);
    found.calls.clear();
    found
}

/// The same with nothing to say.
pub fn speechless(mut found: Found) -> Found {
    found.step.text.clear();
    found.calls.clear();
    found
}

/// The events up to the word, and then the word in many times its size, without end.
pub fn endless(events: Vec<String>) -> Response {
    let head: Vec<String> = events.iter().take_while(|event| !event.contains(WORD)).cloned().collect();
    let long = events.get(head.len()).map(|event| event.replace(WORD, &"endless ".repeat(2 << 10))).unwrap_or_default();
    streamed(stream::unfold(0, move |n| {
        let event = head.get(n).unwrap_or(&long).clone();
        async move { Some((Ok(event), n + 1)) }
    }))
}

/// The events up to the first piece of arguments.
pub fn until_arguments(mut events: Vec<String>) -> Vec<String> {
    let begun =
        |event: &String| event.contains("partial_json") || (event.contains("\"arguments\":") && !event.contains("\"arguments\":\"\""));
    if let Some(first) = events.iter().position(begun) {
        events.truncate(first + 1);
    }
    events
}
