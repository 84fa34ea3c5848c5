//! Blocks that are not in the log yet: what the model is writing, and what running tools print.

use yoi_wire::control::{Delta, DeltaKind};

/// The longest text of a block that is kept, in bytes: its end.
const MAX_TEXT: usize = 64 * 1024;

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    id: u64,
    pub kind: DeltaKind,
    pub call_id: Option<String>,
    pub tool: Option<String>,
    pub text: String,
    /// Bytes of the block that have come, or were lost.
    end: u64,
    /// It is of an earlier stream. The next one may repeat it, or go on with it, or have another block under the same id.
    is_stale: bool,
}

/// The open blocks, in the order in which they began.
#[derive(Clone, Debug, Default)]
pub struct LiveBlocks(Vec<Block>);

impl LiveBlocks {
    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        self.0.iter()
    }

    /// What the running tool of this call prints.
    pub fn output_of(&self, call_id: &str) -> Option<&str> {
        let block = self.0.iter().rfind(|block| block.kind == DeltaKind::ToolOutput && block.call_id.as_deref() == Some(call_id));
        block.map(|block| block.text.as_str())
    }

    /// Adds what is new of a delta.
    pub fn apply(&mut self, delta: &Delta) {
        let Delta { block: id, kind, call_id, tool, offset, text } = delta;
        match kind {
            DeltaKind::Discarded => return self.end_answer(),
            DeltaKind::Unknown => return,
            DeltaKind::Text | DeltaKind::Reasoning | DeltaKind::ToolCall | DeltaKind::ToolOutput => {}
        }
        // The runtime may have restarted, and counts its blocks from the start again.
        self.0.retain(|block| block.id != *id || (block.kind == *kind && !(block.is_stale && *offset == 0 && !overlaps(block, text))));
        if !self.0.iter().any(|block| block.id == *id) {
            let (call_id, tool) = (call_id.clone(), tool.clone());
            self.0.push(Block { id: *id, kind: *kind, call_id, tool, text: String::new(), end: 0, is_stale: false });
        }
        let Some(block) = self.0.iter_mut().find(|block| block.id == *id) else { return };
        block.is_stale = false;
        if *offset > block.end {
            block.text.push('…');
            block.end = *offset;
        }
        let known = usize::try_from(block.end - offset).unwrap_or(usize::MAX);
        if let Some(new) = text.get(known..) {
            block.text.push_str(new);
            block.end += new.len() as u64;
        }
        if block.text.len() > MAX_TEXT {
            let cut = block.text.ceil_char_boundary(block.text.len() - MAX_TEXT / 2);
            block.text = format!("…{}", block.text.get(cut..).unwrap_or_default());
        }
    }

    /// A new stream has begun.
    pub fn greet(&mut self) {
        self.0.iter_mut().for_each(|block| block.is_stale = true);
    }

    /// The answer is in the log, or void.
    pub fn end_answer(&mut self) {
        self.0.retain(|block| block.kind == DeltaKind::ToolOutput);
    }

    /// The call's result is in the log.
    pub fn end_call(&mut self, call_id: &str) {
        self.0.retain(|block| block.kind != DeltaKind::ToolOutput || block.call_id.as_deref() != Some(call_id));
    }

    /// No run is under way.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Whether a text from the block's beginning may be of the same block.
fn overlaps(block: &Block, text: &str) -> bool {
    text.starts_with(block.text.as_str()) || block.text.starts_with(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(block: u64, kind: DeltaKind, offset: u64, text: &str) -> Delta {
        Delta { block, kind, call_id: (kind == DeltaKind::ToolOutput).then(|| "c".to_owned()), tool: None, offset, text: text.to_owned() }
    }

    fn texts(blocks: &LiveBlocks) -> Vec<&str> {
        blocks.iter().map(|block| block.text.as_str()).collect()
    }

    #[test]
    fn each_byte_of_a_block_comes_once_whatever_is_repeated() {
        let mut blocks = LiveBlocks::default();
        for (offset, text) in [(0, "grü"), (4, "n "), (0, "grün u"), (2, "ün un"), (7, "nd blau"), (3, "x")] {
            blocks.apply(&delta(1, DeltaKind::Text, offset, text));
        }
        assert_eq!(texts(&blocks), ["grün und blau"]);
    }

    #[test]
    fn a_new_stream_repeats_a_block_or_goes_on_with_it_or_has_another_of_its_number() {
        let mut blocks = LiveBlocks::default();
        blocks.apply(&delta(1, DeltaKind::Text, 0, "one tw"));
        blocks.greet();
        blocks.apply(&delta(1, DeltaKind::Text, 0, "one two th"));
        assert_eq!(texts(&blocks), ["one two th"]);
        blocks.greet();
        blocks.apply(&delta(1, DeltaKind::Text, 10, "ree"));
        assert_eq!(texts(&blocks), ["one two three"]);
        blocks.greet();
        blocks.apply(&delta(1, DeltaKind::Text, 0, "four"));
        assert_eq!(texts(&blocks), ["four"]);
    }

    #[test]
    fn a_lost_piece_is_shown_as_lost() {
        let mut blocks = LiveBlocks::default();
        blocks.apply(&delta(1, DeltaKind::Text, 0, "one"));
        blocks.apply(&delta(1, DeltaKind::Text, 8, "three"));
        blocks.apply(&delta(1, DeltaKind::Text, 13, "!"));
        assert_eq!(texts(&blocks), ["one…three!"]);
    }

    #[test]
    fn an_answer_ends_its_blocks_and_a_result_ends_the_output_of_its_call() {
        let mut blocks = LiveBlocks::default();
        blocks.apply(&delta(1, DeltaKind::Text, 0, "a"));
        blocks.apply(&delta(2, DeltaKind::ToolCall, 0, "{}"));
        blocks.apply(&delta(3, DeltaKind::ToolOutput, 0, "out"));
        assert_eq!(blocks.output_of("c"), Some("out"));
        blocks.apply(&delta(0, DeltaKind::Discarded, 0, ""));
        assert_eq!(texts(&blocks), ["out"]);
        blocks.end_call("d");
        assert_eq!(texts(&blocks), ["out"]);
        blocks.end_call("c");
        assert_eq!(blocks.iter().count(), 0);
    }

    #[test]
    fn a_long_block_keeps_its_end() {
        let mut blocks = LiveBlocks::default();
        for n in 0..300 {
            blocks.apply(&delta(1, DeltaKind::ToolOutput, n * 1000, &"é".repeat(500)));
        }
        blocks.apply(&delta(1, DeltaKind::ToolOutput, 300_000, "end"));
        let text = blocks.output_of("c").unwrap();
        assert!(text.len() < 2 * MAX_TEXT && text.ends_with("éend") && text.starts_with("…é"), "{}", text.len());
    }
}
