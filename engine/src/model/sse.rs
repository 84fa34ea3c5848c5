//! Server-sent events, out of bytes as they come. Does no I/O.

/// Bytes of one event. The last event of a Responses stream repeats the whole answer, with its encrypted reasoning.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its `event` field; empty when there is none.
    pub name: String,
    /// Its `data` lines, joined by line feeds.
    pub data: String,
}

/// A line, or all lines of an event, are longer than an event may be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventTooLong;

/// Splits bytes into events. It holds at most one event and one line.
#[derive(Debug, Default)]
pub(crate) struct SseReader {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// The last byte was a carriage return. A line feed after it ends no further line.
    after_return: bool,
    /// A line has ended. Only before the first one can there be a byte order mark.
    begun: bool,
}

impl SseReader {
    /// Returns the events that these bytes complete.
    ///
    /// # Errors
    /// One event is too long. The reader is of no further use.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<SseEvent>, EventTooLong> {
        let mut events = Vec::new();
        if self.after_return && bytes.first() == Some(&b'\n') {
            bytes = &bytes[1..];
        }
        self.after_return &= bytes.is_empty();
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&bytes[..end])?;
            events.extend(self.end_line());
            let (ended_by, rest) = (bytes[end], &bytes[end + 1..]);
            bytes = if ended_by == b'\r' && rest.first() == Some(&b'\n') { &rest[1..] } else { rest };
            self.after_return = ended_by == b'\r' && rest.is_empty();
        }
        self.extend_line(bytes)?;
        Ok(events)
    }

    /// Returns the event that lacks only the end of its last line and the empty one after it: some servers close the connection before them.
    pub fn finish(mut self) -> Option<SseEvent> {
        if is_whole_data(&self.line) {
            self.end_line();
        }
        (self.line.is_empty() && self.has_data).then_some(self.event)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        if self.line.len() + self.event.data.len() + bytes.len() > MAX_EVENT_BYTES {
            return Err(EventTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        let line = if self.begun { &line[..] } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line) };
        self.begun = true;
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        // A line is decoded when it is complete, so that no character is split.
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // A comment, which keeps the connection alive, or a field that means nothing here.
            _ => {}
        }
        None
    }
}

/// Whether a line without its end is a field of data that is complete as it is. Half a JSON text is none.
fn is_whole_data(line: &[u8]) -> bool {
    let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii);
    data.is_some_and(|data| data == b"[DONE]" || serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        "\u{feff}event: a\r\ndata: {\"t\":\"grüße \u{1F600}\"}\r\n\r\n: ping\r\rdata:one\ndata: two\nid: 3\n\ndata: [DONE]";

    fn read(pieces: &[&[u8]]) -> (Vec<SseEvent>, Option<SseEvent>) {
        let mut reader = SseReader::default();
        let events = pieces.iter().flat_map(|piece| reader.push(piece).unwrap()).collect();
        (events, reader.finish())
    }

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_split() {
        let whole = read(&[STREAM.as_bytes()]);
        let event = |name: &str, data: &str| SseEvent { name: name.to_owned(), data: data.to_owned() };
        assert_eq!(whole.0, [event("a", "{\"t\":\"grüße \u{1F600}\"}"), event("", "one\ntwo")]);
        assert_eq!(whole.1, Some(event("", "[DONE]")));
        for at in 0..STREAM.len() {
            let (left, right) = STREAM.as_bytes().split_at(at);
            assert_eq!(read(&[left, right]), whole, "{at}");
        }
        assert_eq!(read(&STREAM.as_bytes().chunks(1).collect::<Vec<_>>()), whole);
    }

    #[test]
    fn a_last_line_without_its_end_is_read_when_it_is_whole() {
        for (text, data) in
            [("data:[DONE]", "[DONE]"), ("data: [DONE] ", "[DONE] "), ("data: {\"a\":1}", "{\"a\":1}"), ("data:{\"a\":1}\n", "{\"a\":1}")]
        {
            let event = SseEvent { name: String::new(), data: data.to_owned() };
            assert_eq!(read(&[text.as_bytes()]), (Vec::new(), Some(event)), "{text}");
        }
    }

    #[test]
    fn an_event_that_was_cut_is_none() {
        for text in ["data: {\"a\"", "data: {\"a\":1}\ndata: {", "event: a\n", ""] {
            assert_eq!(read(&[text.as_bytes()]), (Vec::new(), None), "{text}");
        }
    }

    #[test]
    fn a_line_or_an_event_without_end_fills_no_memory() {
        let piece = vec![b'x'; 1 << 20];
        let mut reader = SseReader::default();
        let taken = (0..100).take_while(|_| reader.push(&piece).is_ok()).count();
        assert_eq!(taken, MAX_EVENT_BYTES >> 20);
        let mut reader = SseReader::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert!((0..100).take_while(|_| reader.push(&line).is_ok()).count() < 17);
    }
}
