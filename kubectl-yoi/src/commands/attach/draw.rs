//! The screen of an attached terminal: a function of its state.

mod items;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use unicode_width::UnicodeWidthChar;
use yoi_wire::control::DeltaKind;
use yoi_wire::entry_text::tokens;

use super::command::HELP;
use super::state::{AttachState, Connection, Panel};
use super::wrap::{clipped, columns_of};

/// Lines of the input that are seen at once.
const MAX_INPUT_LINES: usize = 6;
const PROMPT: &str = "> ";
pub(super) const QUIET: Style = Style::new().fg(Color::DarkGray);
pub(super) const WARNING: Style = Style::new().fg(Color::Yellow);

/// Draws the state. Returns how many lines it is really scrolled back, which is less than asked for at the top.
pub fn draw(state: &AttachState, frame: &mut Frame<'_>) -> usize {
    let area = frame.area();
    let (input, cursor) = input_lines(state, usize::from(area.width).saturating_sub(PROMPT.len()));
    let shown = input.len().min(MAX_INPUT_LINES);
    let heights = [Constraint::Min(1), Constraint::Length(1), Constraint::Length(shown as u16), Constraint::Length(1)];
    let [transcript, notice, prompt, status] = Layout::vertical(heights).areas(area);
    let scroll = draw_transcript(state, frame, transcript);
    if let Some(text) = &state.notice {
        let style = if text.is_warning { WARNING } else { Style::new().fg(Color::Green) };
        frame.render_widget(Line::styled(clipped(&text.text, usize::from(notice.width)), style), notice);
    } else {
        frame.render_widget(Line::styled("─".repeat(usize::from(notice.width)), QUIET), notice);
    }
    draw_input(frame, prompt, &input, cursor);
    frame.render_widget(status_line(state, usize::from(status.width)), status);
    match &state.panel {
        None => {}
        Some(Panel::Help) => {
            let lines = HELP.iter().map(|(key, what)| Line::raw(format!("{key:>14}  {what}"))).collect();
            draw_panel(frame, transcript, "keys and commands; any key closes this", lines, 0);
        }
        Some(Panel::Rewind { targets, chosen }) => {
            let width = usize::from(transcript.width).saturating_sub(12);
            let line = |(at, input): (usize, &yoi_wire::control::RewindTarget)| {
                let style = if at == *chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
                Line::styled(format!("{:>8}  {}", input.seq, clipped(&input.text, width)), style)
            };
            let lines = targets.inputs.iter().enumerate().map(line).collect();
            draw_panel(frame, transcript, "turn back to before which input? Enter does, Esc does not", lines, *chosen);
        }
    }
    scroll
}

/// Draws the end of what happened, or `scroll` lines before it. Only as much as is seen becomes lines.
fn draw_transcript(state: &AttachState, frame: &mut Frame<'_>, area: Rect) -> usize {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    // From the newest part to the oldest.
    let mut parts: Vec<Vec<Line<'static>>> = vec![block_lines(state, width)];
    let mut count = parts[0].len();
    for item in state.transcript.newest_first() {
        if count >= height + state.scroll {
            break;
        }
        let lines = items::lines(item, state, width);
        count += lines.len();
        parts.push(lines);
    }
    let scroll = state.scroll.min(count.saturating_sub(height));
    let lines: Vec<Line<'static>> = parts.into_iter().rev().flatten().collect();
    let end = lines.len() - scroll;
    let begin = end.saturating_sub(height);
    let seen: Vec<Line<'static>> = lines.into_iter().skip(begin).take(end - begin).collect();
    frame.render_widget(Paragraph::new(seen), area);
    scroll
}

/// What is not in the log yet. The output of tools stands with their calls.
fn block_lines(state: &AttachState, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for block in state.blocks.iter() {
        match block.kind {
            DeltaKind::Text => lines.extend(items::labelled("agent", &block.text, Style::new().fg(Color::Green), Style::new(), width)),
            DeltaKind::Reasoning => {
                let all = items::labelled("thinks", &block.text, QUIET, QUIET, width);
                let hidden = if state.tools_open { 0 } else { all.len().saturating_sub(items::FOLDED_OUTPUT) };
                lines.extend(all.into_iter().skip(hidden));
            }
            DeltaKind::ToolCall => {
                let text = format!("▸ {} {}", block.tool.as_deref().unwrap_or("?"), block.text);
                lines.extend(items::labelled("tool", &clipped(&text, width.saturating_sub(items::LABEL)), QUIET, QUIET, width));
            }
            DeltaKind::ToolOutput | DeltaKind::Discarded | DeltaKind::Unknown => {}
        }
    }
    lines
}

/// The input as lines of at most `width` columns, and the place of the cursor in them.
fn input_lines(state: &AttachState, width: usize) -> (Vec<String>, (usize, usize)) {
    let width = width.max(2);
    let (mut lines, mut columns) = (vec![String::new()], 0);
    let mut cursor = (0, 0);
    let before = state.input.before().len();
    for (at, c) in state.input.text().char_indices().chain([(state.input.text().len(), '\n')]) {
        let wide = if c == '\t' { 4 } else { c.width().unwrap_or(0) };
        // The cursor stands on the letter after it, which may be on the next line.
        let is_full = columns + wide.max(1) > width;
        if is_full {
            lines.push(String::new());
            columns = 0;
        }
        if at == before {
            cursor = (lines.len() - 1, columns);
        }
        if at == state.input.text().len() {
            break;
        }
        if c == '\n' {
            lines.push(String::new());
            columns = 0;
        } else if let Some(line) = lines.last_mut() {
            if c == '\t' {
                line.push_str("    ")
            } else {
                line.push(c)
            }
            columns += wide;
        }
    }
    (lines, cursor)
}

fn draw_input(frame: &mut Frame<'_>, area: Rect, input: &[String], (row, column): (usize, usize)) {
    if area.is_empty() {
        return;
    }
    // The lines around the cursor.
    let first = (row + 1).saturating_sub(usize::from(area.height));
    let line = |(at, text): (usize, &String)| {
        let prompt = if at == 0 { PROMPT } else { "  " };
        Line::from(vec![Span::styled(prompt, QUIET), Span::raw(text.clone())])
    };
    let lines: Vec<Line<'static>> = input.iter().enumerate().skip(first).take(usize::from(area.height)).map(line).collect();
    frame.render_widget(Paragraph::new(lines), area);
    let x = area.x.saturating_add((PROMPT.len() + column) as u16).min(area.right().saturating_sub(1));
    frame.set_cursor_position(Position { x, y: area.y + (row - first) as u16 });
}

fn status_line(state: &AttachState, width: usize) -> Line<'static> {
    let activity = state.activity.map_or("…", |activity| activity.as_str());
    let left = format!(" {}  {activity}  {}", state.agent, tokens(state.tokens));
    let (right, style) = match &state.connection {
        Connection::Attached => (" :help ".to_owned(), QUIET),
        Connection::Opening => (" attaching ".to_owned(), WARNING),
        Connection::Stopped => (" it has stopped; Ctrl-D leaves ".to_owned(), WARNING),
        Connection::Broken(why) => {
            let room = width.saturating_sub(columns_of(&left)).max(width / 2);
            (clipped(&format!(" attaching again: {}", first_line(why)), room), WARNING)
        }
    };
    let left = clipped(&left, width.saturating_sub(columns_of(&right)));
    let gap = " ".repeat(width.saturating_sub(columns_of(&left) + columns_of(&right)));
    let bar = Style::new().add_modifier(Modifier::REVERSED);
    Line::from(vec![Span::styled(left, bar), Span::styled(gap, bar), Span::styled(right, style.add_modifier(Modifier::REVERSED))])
}

/// An error has its next step on a line of its own.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn draw_panel(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'static>>, chosen: usize) {
    let height = (lines.len() as u16).saturating_add(2).min(area.height);
    let place = Rect { y: area.bottom().saturating_sub(height), height, ..area };
    let block = Block::bordered().title(clipped(title, usize::from(area.width).saturating_sub(2)));
    let inner = block.inner(place);
    let first = (chosen + 1).saturating_sub(usize::from(inner.height));
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    frame.render_widget(Paragraph::new(lines.into_iter().skip(first).collect::<Vec<_>>()), inner);
}

#[cfg(test)]
mod tests;
