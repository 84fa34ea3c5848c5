//! What a person types behind a colon.

use yoi_plan::visibility::is_agent_name;

/// One command of the input line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Help,
    Pause,
    Resume,
    Cancel,
    Compact,
    /// To the input of this number, or a list of all.
    Rewind(Option<u64>),
    Peer(String),
    Quit,
}

/// What there is, for people.
pub const HELP: [(&str, &str); 16] = [
    ("Enter", "send: starts a run, or is read by the run under way"),
    ("Alt-Enter", "begin a new line"),
    ("y, a, n WHY", "answer the call that waits: yes, yes to all like it, no"),
    ("Ctrl-C", "pause the run"),
    ("Ctrl-X", "cancel the run"),
    ("Ctrl-D", "leave; the agent goes on"),
    ("Tab", "show and hide what tools did"),
    ("PgUp PgDn", "look back and forth; Esc goes to the end"),
    (":pause", "as Ctrl-C"),
    (":resume", "let the paused run go on"),
    (":cancel", "as Ctrl-X"),
    (":compact", "replace the older part of the conversation by a summary"),
    (":rewind [SEQ]", "turn the conversation back to before an input"),
    (":peer AGENT", "let this agent and another see and message each other"),
    (":help", "show this"),
    (":quit", "as Ctrl-D"),
];

/// Parses the words behind the colon. A name that no other agent can have is refused here.
pub fn parse(text: &str, agent: &str) -> Result<Command, String> {
    let mut words = text.split_whitespace();
    let (verb, argument) = (words.next().unwrap_or_default(), words.next());
    if words.next().is_some() {
        return Err(format!(":{verb} takes one word at most"));
    }
    let command = match verb {
        "help" => Command::Help,
        "pause" => Command::Pause,
        "resume" => Command::Resume,
        "cancel" => Command::Cancel,
        "compact" => Command::Compact,
        "quit" => Command::Quit,
        "rewind" => {
            let seq = argument.map(|seq| seq.parse().map_err(|_| format!("{seq} is not the number of an input; :rewind lists them")));
            return Ok(Command::Rewind(seq.transpose()?));
        }
        "peer" => {
            return match argument {
                None => Err("name the other agent: :peer AGENT".to_owned()),
                Some(name) if !is_agent_name(name) => {
                    Err(format!("{name} is not an agent's name: lower-case letters, digits and dashes, at most 50"))
                }
                Some(name) if name == agent => Err(format!("{name} cannot be its own peer")),
                Some(name) => Ok(Command::Peer(name.to_owned())),
            };
        }
        other => return Err(format!("there is no :{other}; see :help, and to send a text that begins with a colon, write two")),
    };
    if let Some(argument) = argument {
        return Err(format!(":{verb} takes no word, and {argument} is one"));
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_help_is_one() {
        let commands: Vec<&str> = HELP.iter().filter_map(|(key, _)| key.strip_prefix(':')).collect();
        assert_eq!(commands.len(), 8);
        for line in commands {
            let line = line.replace("AGENT", "bob").replace("[SEQ]", "12");
            assert!(parse(&line, "alice").is_ok(), "{line}");
        }
        assert_eq!(parse("rewind", "alice"), Ok(Command::Rewind(None)));
    }

    #[test]
    fn a27_a_missing_or_invalid_name_is_answered_here() {
        for (line, words) in [
            ("peer", "name the other agent"),
            ("peer x/y", "not an agent's name"),
            ("peer alice", "its own peer"),
            ("peer bob carol", "one word at most"),
            ("rewind soon", "not the number"),
            ("dance", "there is no :dance"),
            ("", "there is no :;"),
            ("quit now", "takes no word"),
        ] {
            let refused = parse(line, "alice").unwrap_err();
            assert!(refused.contains(words), "{line}: {refused}");
        }
    }
}
