//! The lines of one thing that happened.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use yoi_wire::entry::ToolOutcome;
use yoi_wire::entry_text::{EntryText, Tone, tool_outcome};

use super::super::edit_diff::{DiffKind, DiffLine};
use super::super::state::AttachState;
use super::super::transcript::{Call, CallState, Content, Item};
use super::super::wrap::{clipped, columns_of, wrap};
use super::{QUIET, WARNING};

/// Columns before the text: who did it, and a space.
pub const LABEL: usize = 9;
/// Lines of output that are shown of a folded tool while it runs.
pub const FOLDED_OUTPUT: usize = 3;
/// Lines of a difference that are shown of a folded tool.
const FOLDED_DIFF: usize = 10;

/// Returns the lines of an item.
pub fn lines(item: &Item, state: &AttachState, width: usize) -> Vec<Line<'static>> {
    let lines = match &item.content {
        Content::Text(EntryText { who, text, tone }) => {
            let label = tone_style(*tone);
            let body = match tone {
                Tone::Quiet => QUIET,
                Tone::Warning => WARNING,
                Tone::Person | Tone::Peer | Tone::Agent => Style::new(),
            };
            labelled(who, text, label, body, width)
        }
        Content::Call(call) => call_lines(call, state, width),
    };
    if !item.is_hidden {
        return lines;
    }
    let crossed = Style::new().add_modifier(Modifier::DIM | Modifier::CROSSED_OUT);
    lines.into_iter().map(|line| line.patch_style(crossed)).collect()
}

/// Returns a text behind who said it.
pub fn labelled(who: &str, text: &str, label: Style, body: Style, width: usize) -> Vec<Line<'static>> {
    let line = |(at, text): (usize, String)| {
        let who = if at == 0 { who } else { "" };
        Line::from(vec![Span::styled(format!("{who:>8} "), label), Span::styled(text, body)])
    };
    wrap(text, width.saturating_sub(LABEL)).into_iter().enumerate().map(line).collect()
}

fn tone_style(tone: Tone) -> Style {
    match tone {
        Tone::Quiet => QUIET,
        Tone::Warning => WARNING,
        Tone::Person => Style::new().fg(Color::Cyan),
        Tone::Peer => Style::new().fg(Color::Magenta),
        Tone::Agent => Style::new().fg(Color::Green),
    }
}

fn call_lines(call: &Call, state: &AttachState, width: usize) -> Vec<Line<'static>> {
    let Call { id, tool, summary, args, diff, state: progress } = call;
    let room = width.saturating_sub(LABEL);
    let (end, style) = match progress {
        CallState::Waiting => ("waits".to_owned(), QUIET),
        CallState::Running => ("runs".to_owned(), Style::new().fg(Color::Cyan)),
        CallState::Ended { outcome, millis, output: _ } => {
            let millis = millis.map(|millis| format!(" in {millis} ms")).unwrap_or_default();
            let style = if *outcome == ToolOutcome::Succeeded { QUIET } else { WARNING };
            (format!("{}{millis}", tool_outcome(*outcome)), style)
        }
    };
    let mark = if state.tools_open { "▾" } else { "▸" };
    let head = clipped(&format!("{mark} {tool} {summary}"), room.saturating_sub(columns_of(&end) + 2));
    let mut lines = vec![Line::from(vec![
        Span::styled(format!("{:>8} ", "tool"), QUIET),
        Span::raw(head),
        Span::styled(format!("  {}", clipped(&end, room)), style),
    ])];
    let shown = if state.tools_open { diff.len() } else { FOLDED_DIFF };
    lines.extend(diff.iter().take(shown).map(|line| diff_line(line, room)));
    if diff.len() > shown {
        lines.push(indented(&format!("… {} more lines", diff.len() - shown), QUIET));
    }
    if state.tools_open && diff.is_empty() {
        lines.extend(wrap(args, room).iter().map(|text| indented(text, QUIET)));
    }
    let is_live = matches!(progress, CallState::Waiting | CallState::Running);
    let output = match progress {
        CallState::Ended { output, .. } if state.tools_open => output.as_str(),
        CallState::Ended { .. } => "",
        CallState::Waiting | CallState::Running => state.blocks.output_of(id).unwrap_or_default(),
    };
    if !output.is_empty() {
        let all = wrap(output.trim_end(), room);
        let hidden = if is_live && !state.tools_open { all.len().saturating_sub(FOLDED_OUTPUT) } else { 0 };
        lines.extend(all.iter().skip(hidden).map(|text| indented(text, Style::new())));
    }
    lines
}

fn diff_line(line: &DiffLine, room: usize) -> Line<'static> {
    let (mark, style) = match line.kind {
        DiffKind::Removed => ('-', Style::new().fg(Color::Red)),
        DiffKind::Added => ('+', Style::new().fg(Color::Green)),
        DiffKind::Kept => (' ', QUIET),
    };
    let text = wrap(&line.text, room.saturating_sub(1)).into_iter().next().unwrap_or_default();
    indented(&format!("{mark}{text}"), style)
}

fn indented(text: &str, style: Style) -> Line<'static> {
    Line::from(vec![Span::raw(" ".repeat(LABEL)), Span::styled(text.to_owned(), style)])
}
