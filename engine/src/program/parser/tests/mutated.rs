use yoi_test_support::Share;

use super::{MAX_OTHER_BYTES, PROGRAMS, Program, may_be_silent, parser_of};
use crate::program::event::ProgramEvent;

/// For each program, in a thorough run. A landing tries one in ten.
const VARIANTS: u64 = 10_000;

struct Xorshift(u64);

impl Xorshift {
    /// The same numbers for the same seed.
    fn new(seed: u64) -> Self {
        let mut random = Xorshift((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Seeds beside each other begin with numbers beside each other.
        (0..8).for_each(|_| _ = random.next());
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).expect("a length fits")).expect("below a length")
    }
}

/// All recorded lines of a program.
fn lines_of(program: &Program) -> Vec<&'static str> {
    program.runs.iter().flat_map(|(_, run)| run.lines()).collect()
}

/// Some recorded lines, of this program or any other, cut, doubled, swapped or with other bytes in them.
fn variant(own: &[&str], all: &[&str], random: &mut Xorshift) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for _ in 0..=random.below(6) {
        let from = if random.below(4) == 0 { all } else { own };
        lines.push(from[random.below(from.len())].as_bytes().to_vec());
    }
    for _ in 0..=random.below(5) {
        let at = random.below(lines.len());
        let place = random.below(lines[at].len());
        match random.below(8) {
            0 => lines[at].truncate(place),
            1 => drop(lines[at].drain(..place)),
            2 => {
                let whole = lines[at].clone();
                lines.push(whole);
            }
            3 => {
                let other = random.below(lines.len());
                let tail = lines[other].clone();
                lines[at].truncate(place);
                lines[at].extend(tail);
            }
            4 if place < lines[at].len() => lines[at][place] = random.next().to_le_bytes()[0],
            5 => lines[at].insert(place, b"\"{}[],:0\\n\xff"[random.below(11)]),
            // Another value for a field: a text becomes a number, null, a list, an object.
            6 | 7 => {
                if let Ok(mut value) = serde_json::from_slice(&lines[at]) {
                    replace_one(&mut value, random);
                    lines[at] = value.to_string().into_bytes();
                }
            }
            _ => {}
        }
    }
    lines.iter().flat_map(|line| line.split(|byte| *byte == b'\n').map(<[u8]>::to_vec)).collect()
}

fn replace_one(value: &mut serde_json::Value, random: &mut Xorshift) {
    use serde_json::{Value, json};
    let inner = match value {
        Value::Object(fields) if !fields.is_empty() && random.below(5) > 0 => {
            let at = random.below(fields.len());
            fields.values_mut().nth(at)
        }
        Value::Array(items) if !items.is_empty() && random.below(5) > 0 => {
            let at = random.below(items.len());
            items.get_mut(at)
        }
        _ => None,
    };
    match inner {
        Some(inner) => replace_one(inner, random),
        None => {
            *value = [Value::Null, json!(-1), json!(u64::MAX), json!("text"), json!([]), json!([{"type": "text"}]), json!({}), json!(true)]
                [random.below(8)]
            .clone();
        }
    }
}

fn bytes_of(event: &ProgramEvent) -> usize {
    format!("{event:?}").len()
}

#[test]
fn cut_mixed_and_mutated_outputs_of_each_program_neither_panic_nor_lose_a_line() {
    let all: Vec<&str> = PROGRAMS.iter().flat_map(lines_of).collect();
    for program in PROGRAMS {
        let own = lines_of(program);
        let (mut others, mut share) = (0, Share::one_in(10));
        for seed in 0..VARIANTS {
            if !share.takes_next() {
                continue;
            }
            let mut parser = parser_of(program.parser).expect("a program with a parser");
            for line in variant(&own, &all, &mut Xorshift::new(seed)) {
                let events = parser.push_line(&line);
                others += events.iter().filter(|event| matches!(event, ProgramEvent::Other { .. })).count() as u64;
                assert!(
                    !events.is_empty() || may_be_silent(program, &line),
                    "{:?} lost a line of variant {seed}: {}",
                    program.parser,
                    String::from_utf8_lossy(&line)
                );
            }
            parser.finish();
        }
        println!("{:?}: {share}, {others} lines that no parser knows", program.parser);
        assert!(others > share.tried() / 10, "{:?}: the variants hold lines that no parser knows, and {others} were told", program.parser);
    }
}

#[test]
fn a_parser_gathers_no_more_than_a_bounded_text_and_passes_on_all_of_it() {
    let piece = "x".repeat(1000);
    let line = format!(r#"{{"type":"message","role":"assistant","content":"{piece}","delta":true}}"#);
    let mut parser = parser_of(yoi_wire::preset::ParserName::Gemini).expect("a program with a parser");
    let mut answered = 0;
    let mut events: Vec<ProgramEvent> = (0..5000).flat_map(|_| parser.push_line(line.as_bytes())).collect();
    events.extend(parser.finish());
    for event in &events {
        if let ProgramEvent::Answer(answer) = event {
            assert!(answer.text.len() <= super::super::MAX_GATHERED_BYTES + piece.len());
            answered += answer.text.len();
        }
    }
    assert_eq!(answered, 5_000_000, "no text is lost");
}

#[test]
fn a_line_that_no_parser_knows_is_kept_up_to_its_bound_and_says_how_much_is_missing() {
    for program in PROGRAMS {
        let mut parser = parser_of(program.parser).expect("a program with a parser");
        let events = parser.push_line(&vec![b'['; 1 << 20]);
        let [ProgramEvent::Other { line }] = events.as_slice() else { panic!("{:?}: {} events", program.parser, events.len()) };
        assert!(line.ends_with(&format!("[{} more bytes]", (1 << 20) - MAX_OTHER_BYTES)));
        assert!(bytes_of(&events[0]) < 2 * MAX_OTHER_BYTES);
    }
}

#[test]
fn calls_that_codex_never_ends_take_bounded_memory() {
    let mut parser = parser_of(yoi_wire::preset::ParserName::Codex).expect("a program with a parser");
    let mut started = 0;
    for number in 0..10_000 {
        let item = format!(r#"{{"id":"item_{number}","type":"command_execution","command":"sleep 1"}}"#);
        let events = parser.push_line(format!(r#"{{"type":"item.started","item":{item}}}"#).as_bytes());
        assert!(!events.is_empty(), "the line is told in some form");
        started += events.iter().filter(|event| matches!(event, ProgramEvent::CallStarted { .. })).count();
    }
    assert_eq!(started, 256, "the others are kept as lines");
}
