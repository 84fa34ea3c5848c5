use std::fs;
use std::sync::Mutex;

use tempfile::TempDir;
use yoi_test_support::in_time;

use super::*;
use crate::tools::CallResult;

const LIMIT: Duration = Duration::from_secs(60);

struct Fixture {
    folder: TempDir,
    shell: Shell,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shell = Shell::new(Arc::new(ProcessSupervisor::new(folder.path().to_owned(), "a", &[])));
        Self { folder, shell }
    }

    async fn run(&self, command: &str) -> CallResult {
        self.shell.run(command, LIMIT, 64 << 10, &LiveOutput::discard()).await
    }

    async fn output(&self, command: &str) -> String {
        self.run(command).await.output
    }

    fn root(&self) -> String {
        self.folder.path().canonicalize().unwrap().to_str().unwrap().to_owned()
    }

    /// Reads until the command has ended.
    async fn read_to_end(&self, id: &str) -> (String, String) {
        let mut text = String::new();
        loop {
            let output = self.shell.background_output(id, LIMIT, 64 << 10).await.unwrap();
            text.push_str(&output.text);
            if let Some(end) = output.end {
                return (text, end);
            }
        }
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

async fn keeps_its_directory(fixture: Fixture) {
    let root = fixture.root();
    let now = |path: &str| format!("[the working directory is now {root}/{path}]\n");
    assert_eq!(fixture.output("mkdir -p 'a b/c' d; cd 'a b'").await, now("a b") + "[exit code 0]");
    assert_eq!(fixture.output("pwd; cd c; false").await, format!("{root}/a b\n{}[exit code 1]", now("a b/c")));
    // Neither the way in which the shell ends nor what it runs changes that.
    assert_eq!(fixture.output("pwd; (cd /); cd ..; exit 3").await, format!("{root}/a b/c\n{}[exit code 3]", now("a b")));
    assert_eq!(fixture.output("set -eu; cd ../d; echo $#; false; echo never").await, format!("0\n{}[exit code 1]", now("d")));
    let traced = fixture.output("set -x; pwd").await;
    assert_eq!(traced.trim_start_matches('+'), format!(" pwd\n{root}/d\n[exit code 0]"));
    // Killed, or replaced by another program: the directory is that of before.
    assert!(fixture.output("cd ..; kill -9 $$").await.contains("[ended by signal 9]"));
    assert_eq!(fixture.output("cd ..; exec pwd").await, format!("{root}\n[exit code 0]"));
    assert_eq!(fixture.output("pwd").await, format!("{root}/d\n[exit code 0]"));
    let gone = format!("[{root}/d is gone, so this command runs in {}]\n", fixture.folder.path().display());
    assert_eq!(fixture.output("rmdir ../d").await, "[exit code 0]");
    assert_eq!(fixture.output("pwd").await, format!("{gone}{root}\n[exit code 0]"));
}

#[tokio::test]
async fn the_directory_in_which_a_command_ends_is_that_of_the_next_one() {
    keeps_its_directory(Fixture::new()).await;
}

#[tokio::test]
async fn the_directory_is_kept_by_a_small_shell_too() {
    let fixture = Fixture::new();
    keeps_its_directory(Fixture { shell: Shell { script: Script::of_sh(), ..fixture.shell }, ..fixture }).await;
}

#[tokio::test]
async fn a_report_of_the_directory_is_not_mixed_with_what_a_command_writes() {
    let fixture = Fixture::new();
    assert_eq!(fixture.output("exec >/dev/null 2>&1; cd /; echo x").await, "[the working directory is now /]\n[exit code 0]");
    // A program that writes to the descriptor can only spoil the report.
    assert_eq!(fixture.output("cd /tmp; printf 'x\\n' >&187").await, "[exit code 0]");
    assert_eq!(fixture.output("pwd").await, "/\n[exit code 0]");
}

#[tokio::test]
async fn errors_name_the_lines_of_the_command() {
    let fixture = Fixture::new();
    let output = fixture.output("true\nno-such-program").await;
    assert!(output.contains("line 2: no-such-program: command not found"), "{output}");
    let output = fixture.output("echo 'open").await;
    assert!(output.contains("line 1: unexpected EOF") && output.contains("[exit code"), "{output}");
    assert_eq!(fixture.output("cat <<'X'\n$1 \"\nX\necho \"$0\" | tail -c 5").await, "$1 \"\nbash\n[exit code 0]");
}

#[tokio::test]
async fn who_reads_too_late_still_gets_what_is_in_the_pipe_though_it_is_open() {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let pipe = Receiver::from_owned_fd(read).unwrap();
    let sent = vec![b'x'; 40_000];
    rustix::io::write(&write, &sent).unwrap();
    pipe.readable().await.unwrap();
    let mut got = Vec::new();
    read_rest(&pipe, &mut [0; 16 << 10], |bytes| got.extend_from_slice(bytes));
    assert!(got == sent, "{} bytes", got.len());
}

#[tokio::test]
async fn output_is_plain_and_what_is_not_utf_8_is_said() {
    let fixture = Fixture::new();
    let output = fixture.output(r"printf '\033[32mgreen\033[0m\n 1%%\r 99%%\r100%%\nr\374d\n'").await;
    assert_eq!(output, "green\n100%\nr\u{fffd}d\n[some of it is not UTF-8 and stands here as \u{fffd}]\n[exit code 0]");
}

#[tokio::test]
async fn p26_long_output_keeps_head_and_tail_tells_its_length_and_the_call_succeeds() {
    let fixture = Fixture::new();
    let live = Arc::new(Mutex::new(0));
    let sink = live.clone();
    let sink = LiveOutput::new(move |text| *sink.lock().unwrap() += text.len());
    let command = "echo first; yes | head -c 262145; echo last";
    let end = fixture.shell.run(command, LIMIT, 256 << 10, &sink).await;
    assert_eq!(end.outcome, ToolOutcome::Succeeded);
    assert!(end.output.len() <= 256 << 10 && end.output.starts_with("first\ny\n") && end.output.ends_with("last\n[exit code 0]"));
    assert!(end.output.contains(" of 262156 bytes left out ...]"), "{:?}", end.output.find("left out"));
    assert_eq!(*live.lock().unwrap(), 262_156);
}

#[tokio::test]
async fn output_is_seen_while_the_command_runs() {
    let fixture = Fixture::new();
    let (seen, mut first) = tokio::sync::mpsc::unbounded_channel();
    let sink = LiveOutput::new(move |text| drop(seen.send(text.to_owned())));
    let mut running = Box::pin(fixture.shell.run("mkfifo gate; echo before; read x < gate; echo $x", LIMIT, 4096, &sink));
    tokio::select! {
        text = first.recv() => assert_eq!(text.unwrap(), "before\n"),
        end = &mut running => panic!("{end:?}"),
    }
    let gate = fixture.folder.path().join("gate");
    let opened = std::thread::spawn(move || fs::write(gate, "after\n").unwrap());
    assert_eq!(running.await.output, "before\nafter\n[exit code 0]");
    opened.join().unwrap();
    assert_eq!(first.recv().await.unwrap(), "after\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_command_goes_on_after_its_call_and_is_read_and_stopped() {
    let fixture = Fixture::new();
    let shell = &fixture.shell;
    fixture.output("mkdir sub; cd sub; mkfifo gate").await;
    let id = shell.start_background("pwd; read x < gate; echo $x; sleep 600 & echo $!; wait").unwrap();
    let first = shell.background_output(&id, LIMIT, 4096).await.unwrap();
    assert_eq!(first, BackgroundOutput { text: format!("{}/sub\n", fixture.root()), end: None });
    // Another call that begins and ends meanwhile does not end it.
    assert_eq!(fixture.output("echo hello > gate").await, "[exit code 0]");
    let second = shell.background_output(&id, LIMIT, 4096).await.unwrap();
    assert!(second.text.starts_with("hello\n") && second.end.is_none(), "{second:?}");
    let mut pid = second.text["hello\n".len()..].to_owned();
    while !pid.ends_with('\n') {
        pid += &shell.background_output(&id, LIMIT, 4096).await.unwrap().text;
    }
    assert!(is_alive(&pid), "{pid}");
    let quiet = shell.background_output(&id, Duration::ZERO, 4096).await.unwrap();
    assert_eq!(quiet, BackgroundOutput { text: String::new(), end: None });
    let stopped = shell.stop_background(&id, 4096).await.unwrap();
    assert_eq!(stopped.end.as_deref(), Some("[stopped]"));
    assert!(!is_alive(&pid), "{pid}");
    let unknown = shell.background_output("sh-0", Duration::ZERO, 4096).await.unwrap_err().to_string();
    assert!(unknown.starts_with(&format!("there is no background command \"sh-0\"; there are {id}.")), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_background_command_is_told_and_ends_what_it_left_behind() {
    let fixture = Fixture::new();
    let id = fixture.shell.start_background("sleep 600 & echo $!; exit 7").unwrap();
    let (pid, end) = fixture.read_to_end(&id).await;
    assert_eq!(end, "[exit code 7]");
    assert!(!is_alive(&pid), "{pid}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_end_with_their_command_are_told() {
    let fixture = Fixture::new();
    let output = fixture.output("sleep 600 > /dev/null & echo begun").await;
    assert_eq!(
        output,
        "begun\n[1 process that the command left running ended with it; set background for what shall go on]\n[exit code 0]"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_output_is_bounded_and_what_was_dropped_is_told() {
    let fixture = Fixture::new();
    let id = fixture.shell.start_background("echo first; yes | head -c 1000000; echo last").unwrap();
    let process = fixture.shell.background.get(&id).unwrap();
    process.wait_for_end().await;
    let output = fixture.shell.background_output(&id, LIMIT, 1 << 20).await.unwrap();
    assert!(output.text.len() <= (256 << 10) + 100, "{}", output.text.len());
    let dropped = 6 + 1_000_000 + 5 - (256 << 10);
    assert!(output.text.starts_with(&format!("[{dropped} bytes before this were dropped")), "{}", &output.text[..80]);
    assert!(output.text.ends_with("y\nlast\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_eight_run_in_the_background_and_all_can_be_ended_at_once() {
    let fixture = Fixture::new();
    let mut pids = Vec::new();
    for _ in 0..MAX_BACKGROUND {
        let id = fixture.shell.start_background("echo $$; exec sleep 600").unwrap();
        pids.push(fixture.shell.background_output(&id, LIMIT, 4096).await.unwrap().text);
    }
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    assert!(matches!(fixture.shell.start_background("true"), Err(BackgroundError::Full { .. })));
    let mut count = fixture.shell.background_count();
    assert_eq!(*count.borrow(), MAX_BACKGROUND, "one that was refused does not count");
    fixture.shell.stop_all().await;
    in_time("the count of those that run", count.wait_for(|count| *count == 0)).await.unwrap();
    assert!(pids.iter().all(|pid| !is_alive(pid)), "{pids:?}");
    let id = fixture.shell.start_background("echo again").unwrap();
    assert_eq!(fixture.read_to_end(&id).await, ("again\n".to_owned(), "[exit code 0]".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_ends_its_processes_and_no_others() {
    let fixture = Fixture::new();
    let id = fixture.shell.start_background("echo $$; exec sleep 600").unwrap();
    let background = fixture.shell.background_output(&id, LIMIT, 4096).await.unwrap().text;
    let (seen, mut pid) = tokio::sync::mpsc::unbounded_channel();
    let sink = LiveOutput::new(move |text| drop(seen.send(text.to_owned())));
    let mut running = Box::pin(fixture.shell.run("sleep 600 & echo $!; wait", LIMIT, 4096, &sink));
    let pid = tokio::select! {
        text = pid.recv() => text.unwrap(),
        end = &mut running => panic!("{end:?}"),
    };
    assert!(is_alive(&pid));
    drop(running);
    assert!(!is_alive(&pid) && is_alive(&background));
    fixture.shell.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_killed_for_memory_is_told_as_that() {
    let fixture = Fixture::new();
    let events = fixture.folder.path().join("memory.events");
    fs::write(&events, "oom 0\noom_kill 3\n").unwrap();
    let shell = Shell { memory_kills: MemoryKills::in_file(events.clone()), ..fixture.shell };
    let fixture = Fixture { shell, ..fixture };
    assert_eq!(fixture.output("kill -9 $$").await, "[ended by signal 9]");
    let output = fixture.output("printf 'oom 1\\noom_kill 4\\n' > memory.events; kill -9 $$").await;
    assert!(output.starts_with("[out of memory: ") && output.ends_with("\n[ended by signal 9]"), "{output}");
    // A compiler is killed; the build says in its own way that it failed.
    let output = fixture.output("printf 'oom 2\\noom_kill 5\\n' > memory.events; exit 2").await;
    assert!(output.starts_with("[out of memory: ") && output.ends_with("\n[exit code 2]"), "{output}");
    fs::remove_file(events).unwrap();
    let output = fixture.output("kill -9 $$").await;
    assert_eq!(output, "[a process was killed; whether memory ran out is not known here]\n[ended by signal 9]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_ends_the_command_with_all_its_processes() {
    let fixture = Fixture::new();
    let live = LiveOutput::discard();
    // It ends by nothing else.
    let end = fixture.shell.run("sleep infinity & echo $!; wait", Duration::from_secs(1), 4096, &live).await;
    assert_eq!(end.outcome, ToolOutcome::TimedOut);
    let pid = end.output.lines().next().unwrap();
    assert!(
        !is_alive(pid) && end.output.ends_with("\n[the time limit of 1 s was reached; all its processes were ended]"),
        "{}",
        end.output
    );
}
