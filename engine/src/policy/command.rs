//! Reads a line of shell into its simple commands, for the rules of a policy.
//!
//! It reads each byte once and no deeper than a bound, because the line is the model's, and the process that reads it holds the agent. What it does not
//! know (`case`, functions, arithmetic commands, arrays) it does not guess: then the whole line cannot be read. Where it is in doubt it finds more commands
//! than the shell runs, never fewer. It sees what stands in the line, and not what a program does that the line starts (`sh -c`, `xargs`, `eval`).

/// A command without pipes, lists and redirections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Its words without their quotes, with one space between them. An expansion stands as it was written.
    pub text: String,
    /// It sets no variable and writes to no file, and its name is no expansion: a rule that allows its text allows all of it.
    pub is_plain: bool,
}

/// How deep commands may stand in commands.
const MAX_DEPTH: usize = 16;
/// Bytes of a line that is read.
const MAX_BYTES: usize = 256 << 10;

/// All simple commands of the line, those of substitutions included; `None`: the line cannot be read.
#[must_use]
pub fn simple_commands(line: &str) -> Option<Vec<SimpleCommand>> {
    if line.len() > MAX_BYTES {
        return None;
    }
    let mut reader = Reader { line, at: 0, depth: 0, found: Vec::new(), heredocs: Vec::new() };
    reader.list(End::Input)?;
    Some(reader.found)
}

/// What ends a list of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Input,
    Parenthesis,
}

struct Reader<'a> {
    line: &'a str,
    at: usize,
    depth: usize,
    found: Vec<SimpleCommand>,
    /// Texts that follow the line that is read now.
    heredocs: Vec<Heredoc>,
}

struct Heredoc {
    end: String,
    strips_tabs: bool,
    expands: bool,
}

/// A word without its quotes.
#[derive(Default)]
struct Word {
    text: String,
    quoted: bool,
    /// Its value is not its text.
    expands: bool,
}

/// The command that is being read.
#[derive(Default)]
struct Current {
    words: Vec<String>,
    assigns: bool,
    writes: bool,
    expanded_name: bool,
    /// A group or a loop has ended: only redirections may follow.
    closed: bool,
    /// The words of `for NAME in`, which are no command.
    is_for: bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &str {
        self.line.get(self.at..).unwrap_or_default()
    }

    /// Takes the text if it comes next.
    fn take(&mut self, text: &str) -> bool {
        let comes = self.rest().starts_with(text);
        if comes {
            self.at += text.len();
        }
        comes
    }

    fn nested(&mut self, end: End) -> Option<()> {
        self.depth += 1;
        let read = (self.depth <= MAX_DEPTH).then_some(()).and_then(|()| self.list(end));
        self.depth -= 1;
        read
    }

    fn list(&mut self, end: End) -> Option<()> {
        let mut current = Current::default();
        loop {
            match self.peek() {
                None => {
                    self.finish(&mut current);
                    return (end == End::Input && self.heredocs.is_empty()).then_some(());
                }
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b'\\') if self.rest().starts_with("\\\n") => self.at += 2,
                Some(b'\n') => {
                    self.at += 1;
                    self.finish(&mut current);
                    self.skip_heredocs()?;
                }
                Some(b'#') => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                Some(b';') => {
                    self.at += 1;
                    if self.peek() == Some(b';') {
                        return None;
                    }
                    self.finish(&mut current);
                }
                Some(b'&') if self.take("&>>") || self.take("&>") => self.write_to_file(&mut current)?,
                Some(b'&') => {
                    let _ = self.take("&&") || self.take("&");
                    self.finish(&mut current);
                }
                Some(b'|') => {
                    let _ = self.take("||") || self.take("|&") || self.take("|");
                    self.finish(&mut current);
                }
                Some(b'(') => {
                    // A function, an array, or arithmetic.
                    if current.is_begun() || self.rest().starts_with("((") {
                        return None;
                    }
                    self.at += 1;
                    self.nested(End::Parenthesis)?;
                    current.closed = true;
                }
                Some(b')') if end == End::Parenthesis => {
                    self.at += 1;
                    self.finish(&mut current);
                    return self.heredocs.is_empty().then_some(());
                }
                Some(b')') => return None,
                Some(b'<' | b'>') if !self.rest().starts_with("<(") && !self.rest().starts_with(">(") => self.redirect(&mut current)?,
                Some(_) => {
                    let word = self.word()?;
                    self.add(&mut current, word)?;
                }
            }
        }
    }

    fn add(&mut self, current: &mut Current, word: Word) -> Option<()> {
        let is_descriptor = matches!(self.peek(), Some(b'<' | b'>')) && !word.quoted && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if is_descriptor {
            return Some(());
        }
        if current.closed {
            return None;
        }
        if current.is_for {
            return Some(());
        }
        if current.words.is_empty() && !word.quoted {
            match word.text.as_str() {
                "if" | "then" | "elif" | "else" | "do" | "while" | "until" | "!" | "{" | "time" | "-p" if !current.assigns => {
                    return Some(());
                }
                "fi" | "done" | "}" if !current.assigns => {
                    current.closed = true;
                    return Some(());
                }
                "for" if !current.assigns => {
                    current.is_for = true;
                    return Some(());
                }
                "case" | "esac" | "select" | "function" | "coproc" => return None,
                _ => {}
            }
        }
        if current.words.is_empty() && is_assignment(&word.text) {
            current.assigns = true;
            return Some(());
        }
        if current.words.is_empty() {
            current.expanded_name = word.expands;
        }
        current.words.push(word.text);
        Some(())
    }

    fn finish(&mut self, current: &mut Current) {
        let Current { words, assigns, writes, expanded_name, .. } = std::mem::take(current);
        if !words.is_empty() || assigns || writes {
            self.found.push(SimpleCommand { text: words.join(" "), is_plain: !words.is_empty() && !assigns && !writes && !expanded_name });
        }
    }

    fn redirect(&mut self, current: &mut Current) -> Option<()> {
        if self.take("<<<") {
            self.target()?;
        } else if self.take("<<") {
            let strips_tabs = self.take("-");
            let end = self.target()?;
            self.heredocs.push(Heredoc { end: end.text, strips_tabs, expands: !end.quoted });
        } else if self.take("<&") || self.take(">&") {
            let to = self.target()?;
            current.writes |= !to.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        } else if self.take("<>") || self.take(">>") || self.take(">|") || self.take(">") {
            self.write_to_file(current)?;
        } else {
            self.take("<");
            self.target()?;
        }
        Some(())
    }

    fn write_to_file(&mut self, current: &mut Current) -> Option<()> {
        current.writes |= self.target()?.text != "/dev/null";
        Some(())
    }

    fn target(&mut self) -> Option<Word> {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let begin = self.at;
        let word = self.word()?;
        (self.at > begin).then_some(word)
    }

    fn skip_heredocs(&mut self) -> Option<()> {
        for Heredoc { end, strips_tabs, expands } in std::mem::take(&mut self.heredocs) {
            loop {
                let rest = self.rest();
                if rest.is_empty() {
                    return None;
                }
                let line = rest.split_once('\n').map_or(rest, |(line, _)| line);
                let content = if strips_tabs { line.trim_start_matches('\t') } else { line };
                let (is_end, substitutes) = (content == end, expands && (line.contains("$(") || line.contains('`')));
                self.at += (line.len() + 1).min(rest.len());
                if is_end {
                    break;
                }
                if substitutes {
                    return None;
                }
            }
        }
        Some(())
    }

    fn word(&mut self) -> Option<Word> {
        let mut word = Word::default();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' => break,
                b'<' | b'>' => {
                    let begin = self.at;
                    if !word.text.is_empty() || !(self.take("<(") || self.take(">(")) {
                        break;
                    }
                    self.nested(End::Parenthesis)?;
                    self.keep(begin, &mut word);
                }
                b'\\' => {
                    self.at += 1;
                    word.quoted = true;
                    match self.rest().chars().next() {
                        Some('\n') => self.at += 1,
                        Some(letter) => self.push(letter, &mut word),
                        None => return None,
                    }
                }
                b'\'' => {
                    let length = self.rest().get(1..)?.find('\'')?;
                    word.text.push_str(self.rest().get(1..=length)?);
                    word.quoted = true;
                    self.at += length + 2;
                }
                b'"' => {
                    self.at += 1;
                    self.double_quoted(&mut word)?;
                }
                b'$' => self.expansion(&mut word)?,
                b'`' => self.backquoted(&mut word)?,
                b'*' | b'?' | b'[' | b'~' | b'{' | b'}' => {
                    // Names of files, or several words.
                    word.expands |= self.rest().len() > 1 || !word.text.is_empty();
                    self.push(char::from(byte), &mut word);
                }
                _ => {
                    let letter = self.rest().chars().next()?;
                    self.push(letter, &mut word);
                }
            }
        }
        Some(word)
    }

    fn push(&mut self, letter: char, word: &mut Word) {
        word.text.push(letter);
        self.at += letter.len_utf8();
    }

    /// Adds what was read since `begin` as it stands in the line.
    fn keep(&self, begin: usize, word: &mut Word) {
        word.text.push_str(self.line.get(begin..self.at).unwrap_or_default());
        word.expands = true;
    }

    fn double_quoted(&mut self, word: &mut Word) -> Option<()> {
        word.quoted = true;
        loop {
            match self.rest().chars().next()? {
                '"' => {
                    self.at += 1;
                    return Some(());
                }
                '\\' => {
                    self.at += 1;
                    match self.rest().chars().next()? {
                        '\n' => self.at += 1,
                        letter @ ('$' | '`' | '"' | '\\') => self.push(letter, word),
                        _ => word.text.push('\\'),
                    }
                }
                '$' => self.expansion(word)?,
                '`' => self.backquoted(word)?,
                letter => self.push(letter, word),
            }
        }
    }

    /// At a `$`.
    fn expansion(&mut self, word: &mut Word) -> Option<()> {
        let begin = self.at;
        if self.take("$((") {
            let length = self.rest().find("))")?;
            let inside = self.rest().get(..length)?;
            if inside.contains("$(") || inside.contains('`') {
                return None;
            }
            self.at += length + 2;
        } else if self.take("$(") {
            self.nested(End::Parenthesis)?;
        } else if self.take("${") {
            let length = self.rest().find('}')?;
            if self.rest().get(..length)?.contains(['`', '$', '(', '\'', '"', '\\', '{']) {
                return None;
            }
            self.at += length + 1;
        } else if self.take("$'") {
            let length = self.rest().find('\'')?;
            if self.rest().get(..length)?.contains('\\') {
                return None;
            }
            word.quoted = true;
            self.at += length + 1;
        } else {
            self.at += 1;
            let name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
            let length = self.rest().chars().take_while(name).count();
            let special = self.rest().starts_with(['?', '#', '@', '*', '!', '$', '-']);
            if length == 0 && !special {
                word.text.push('$');
                return Some(());
            }
            self.at += length.max(1);
        }
        self.keep(begin, word);
        Some(())
    }

    /// At a backquote.
    fn backquoted(&mut self, word: &mut Word) -> Option<()> {
        let begin = self.at;
        let length = self.rest().get(1..)?.find('`')?;
        let inside = self.rest().get(1..=length)?;
        if inside.contains('\\') || self.depth >= MAX_DEPTH {
            return None;
        }
        let mut reader = Reader { line: inside, at: 0, depth: self.depth + 1, found: Vec::new(), heredocs: Vec::new() };
        reader.list(End::Input)?;
        self.found.extend(reader.found);
        self.at += length + 2;
        self.keep(begin, word);
        Some(())
    }
}

impl Current {
    fn is_begun(&self) -> bool {
        !self.words.is_empty() || self.assigns || self.closed || self.is_for
    }
}

/// `NAME=` or `NAME+=` at the begin of a word.
fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.split('[').next().unwrap_or_default();
    let name = name.strip_suffix('+').unwrap_or(name);
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests;
