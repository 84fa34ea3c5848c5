use yoi_wire::entry::{Assistant, ToolEnded, ToolOutcome};

use super::*;

fn entry(seq: u64, body: Body) -> Entry {
    Entry { id: seq.to_string(), seq, run: 1, at: String::new(), body }
}

fn tool_end(seq: u64, call_id: &str) -> Entry {
    let end = ToolEnded {
        call_id: call_id.to_owned(),
        outcome: ToolOutcome::Succeeded,
        output: String::new(),
        images: Vec::new(),
        millis: None,
        decision: None,
        read: None,
    };
    entry(seq, Body::ToolEnded(end))
}

fn texts(blocks: &[Delta]) -> Vec<(u64, &str)> {
    blocks.iter().map(|delta| (delta.offset, delta.text.as_str())).collect()
}

#[test]
fn f8_a_block_is_in_the_snapshot_up_to_the_subscription_and_comes_live_after_it() {
    let feed = LiveFeed::new(3);
    feed.add(DeltaKind::Text, None, "one ");
    feed.add(DeltaKind::ToolOutput, Some(("c", "Shell")), "out");
    let mut subscription = feed.subscribe().unwrap();
    assert_eq!((subscription.last_seq, texts(&subscription.blocks)), (3, vec![(0, "one "), (0, "out")]));
    feed.add(DeltaKind::Text, None, "two");
    let Ok(FeedEvent::Delta(delta)) = subscription.events.try_recv() else { panic!() };
    assert_eq!((delta.block, delta.offset, delta.text.as_str()), (subscription.blocks[0].block, 4, "two"));
    feed.logged(&[entry(4, Body::Assistant(Assistant::default()))]);
    assert!(matches!(subscription.events.try_recv(), Ok(FeedEvent::Logged(4))));
    let later = feed.subscribe().unwrap();
    assert_eq!((later.last_seq, texts(&later.blocks)), (4, vec![(0, "out")]));
    feed.logged(&[tool_end(5, "other"), tool_end(6, "c")]);
    assert!(feed.subscribe().unwrap().blocks.is_empty());
}

#[test]
fn a_failed_call_voids_its_blocks_and_leaves_those_of_tools() {
    let feed = LiveFeed::new(0);
    feed.add(DeltaKind::Reasoning, None, "hm");
    feed.add(DeltaKind::ToolOutput, Some(("c", "Shell")), "out");
    let mut subscription = feed.subscribe().unwrap();
    feed.discard_answer();
    let Ok(FeedEvent::Delta(delta)) = subscription.events.try_recv() else { panic!() };
    assert_eq!(delta.kind, DeltaKind::Discarded);
    assert_eq!(texts(&feed.subscribe().unwrap().blocks), [(0, "out")]);
    feed.add(DeltaKind::Reasoning, None, "again");
    assert_eq!(feed.subscribe().unwrap().blocks[1].offset, 0, "a new block");
}

#[test]
fn a_long_block_keeps_its_end_and_the_offset_says_what_is_missing() {
    let feed = LiveFeed::new(0);
    for _ in 0..100 {
        feed.add(DeltaKind::ToolOutput, Some(("c", "Shell")), &"é".repeat(8 << 10));
    }
    let blocks = feed.subscribe().unwrap().blocks;
    assert!(blocks[0].text.len() <= 2 * MAX_BLOCK_BYTES);
    assert_eq!(blocks[0].offset + blocks[0].text.len() as u64, 100 * (16 << 10));
}

#[test]
fn f9_a_receiver_that_is_too_far_behind_learns_it() {
    let feed = LiveFeed::new(0);
    let mut subscription = feed.subscribe().unwrap();
    for _ in 0..=MAX_UNREAD_DELTAS {
        feed.add(DeltaKind::Text, None, "x");
    }
    assert!(matches!(subscription.events.try_recv(), Err(broadcast::error::TryRecvError::Lagged(_))));
}
