use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use tokio::sync::OnceCell;
use yoi_test_support::in_time;

use super::*;
use crate::processes::ProcessSupervisor;
use crate::program::access::NoAccess;
use crate::program::agent::command_preset;

/// Remembers what was said, and lets a script that waits for the file `go` go on when a word has come.
struct Said {
    events: Mutex<Vec<ProgramEvent>>,
    folder: std::path::PathBuf,
    go_at: &'static str,
}

impl ProgramLog for Said {
    fn say(&self, said: Vec<ProgramEvent>) -> BoxFuture<'_, ()> {
        let mut events = self.events.lock().unwrap();
        events.extend(said);
        if format!("{events:?}").contains(self.go_at) {
            std::fs::write(self.folder.join("go"), "").unwrap();
        }
        async {}.boxed()
    }

    fn show(&self, _text: &str) {}
}

/// A script as a program with this parser.
fn agent(folder: &Path, parser: ParserName, script: &str) -> ProgramAgent {
    let words = ["sh", "-c", script].map(str::to_owned);
    ProgramAgent {
        preset: yoi_wire::preset::Preset { parser, ..command_preset(&words).unwrap() },
        literal: true,
        args: Vec::new(),
        credentials: None,
        home: folder.to_owned(),
        home_bytes: None,
        model: String::new(),
        runtime: "yoi-runtime".into(),
        processes: Arc::new(ProcessSupervisor::new(folder.to_owned(), "a", &[])),
        access: Arc::new(NoAccess),
        version: OnceCell::new(),
        result_grace: Duration::from_millis(200),
        silence: None,
        noted: AtomicBool::new(false),
    }
}

/// Runs a script as a program with this parser, and returns its end and what it said.
async fn run_script(folder: &Path, parser: ParserName, script: &str, input: &str, go_at: &'static str) -> (ProgramEnd, Vec<ProgramEvent>) {
    run_agent(&agent(folder, parser, script), folder, input, go_at).await
}

async fn run_agent(agent: &ProgramAgent, folder: &Path, input: &str, go_at: &'static str) -> (ProgramEnd, Vec<ProgramEvent>) {
    let log = Said { events: Mutex::default(), folder: folder.to_owned(), go_at };
    let access = RunAccess { proxy: None, socket: None, guard: Box::new(()) };
    let used_up = Notify::new();
    let given = RunInput { input, session: None, token: "t", access: &access, used_up: &used_up };
    let end = in_time("the end of the run", run(agent, given, &log)).await;
    (end, log.events.into_inner().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_end_after_its_result_is_ended_with_all_its_processes() {
    let folder = tempfile::tempdir().unwrap();
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;
    let script = format!("setsid sleep 600 & echo '{result}'; exec sleep 600");
    let (end, said) = run_script(folder.path(), ParserName::Claude, &script, "go", "no word").await;
    assert_eq!(said, [ProgramEvent::Result { succeeded: true, message: None }]);
    assert_eq!(end.exit, ProgramExit::Signal(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_goes_on_after_its_result_is_not_ended() {
    let folder = tempfile::tempdir().unwrap();
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;
    let answer = r#"{"type":"assistant","parent_tool_use_id":null,"message":{"content":[{"type":"text","text":"more"}]}}"#;
    let script = format!("echo '{result}'; echo '{answer}'; sleep 1; echo '{answer}'; echo '{result}'");
    let (end, said) = run_script(folder.path(), ParserName::Claude, &script, "go", "no word").await;
    assert_eq!((end.exit, said.len()), (ProgramExit::Code(0), 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_writes_nothing_for_too_long_is_ended_with_all_its_processes() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo begun >&2; setsid sleep 600 & exec sleep 600";
    let silent = ProgramAgent { silence: Some(Duration::from_secs(1)), ..agent(folder.path(), ParserName::Claude, script) };
    let (end, _) = run_agent(&silent, folder.path(), "go", "no word").await;
    assert_eq!(end.exit, ProgramExit::Silent);
    assert_eq!(end.last_words, "command was ended, because it wrote nothing for 1 s (spec.limits.silenceSeconds); its last words: begun");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_tree_that_ends_each_run_is_named_with_what_to_do_and_no_other_file_is() {
    let folder = tempfile::tempdir().unwrap();
    for (file, is_told) in [("$PWD/.gemini/settings.json", true), ("/home/of/.gemini/settings.json", false), ("$PWD/other.json", false)] {
        let script = format!("echo \"Error in {file}: Unexpected token\" >&2; exit 52");
        let (end, _) = run_script(folder.path(), ParserName::Gemini, &script, "go", "no word").await;
        assert_eq!(end.exit, ProgramExit::Code(52));
        let told = end.last_words.contains("mend or remove that file there, or in the project's repository");
        assert!(told == is_told && end.last_words.starts_with("Error in "), "{}", end.last_words);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_streams_of_a_command_are_logged_line_by_line_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo out; echo WARNING >&2; until [ -e go ]; do sleep 0.05; done; echo last; printf 'one\ntwo\n' >&2; exit 3";
    let (end, said) = run_script(folder.path(), ParserName::Text, script, "go", "WARNING").await;
    let of = |wanted: OutputStream| {
        let texts = said.iter().filter_map(|event| match event {
            ProgramEvent::Output { stream, text } if *stream == wanted => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<String>()
    };
    assert_eq!((of(OutputStream::Stdout), of(OutputStream::Stderr)), ("out\nlast\n".to_owned(), "WARNING\none\ntwo\n".to_owned()));
    assert!(matches!(said.last(), Some(ProgramEvent::Answer(answer)) if answer.text == "out\nlast"), "{said:?}");
    assert_eq!((end.exit, end.last_words.as_str()), (ProgramExit::Code(3), "WARNING\none\ntwo"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_begins_with_a_slash_is_no_command_of_a_program() {
    for (parser, input, given) in [
        (ParserName::Claude, " /compact now", format!("{NO_COMMAND}\n /compact now")),
        (ParserName::Claude, "look at /etc", "look at /etc".to_owned()),
        (ParserName::Text, "/as it is", "/as it is".to_owned()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        run_script(folder.path(), parser, "cat > given", input, "no word").await;
        assert_eq!(std::fs::read_to_string(folder.path().join("given")).unwrap(), given);
    }
}
