use yoi_wire::preset::ParserName;

use super::{event_lines, program};

fn of(parser: ParserName, run: &str) -> Vec<String> {
    let program = program(parser);
    event_lines(&program.events_of(program.run(run).as_bytes()))
}

#[test]
fn a_task_of_claude_is_told_block_by_block_with_the_tokens_of_each_answer() {
    assert_eq!(
        of(ParserName::Claude, "claude-first"),
        [
            r##"session cef21737-bb54-4c76-b2d6-f7d3e66fbe2a"##,
            r##"answer "I read the file first.""##,
            r##"answer "" call-claude-task-0-0-0=Read{"file_path":"/home/tree/greeting.txt"}"##,
            r##"started call-claude-task-0-0-0 Read"##,
            r##"usage 28816 read, 0 of them cached, 28816 written to the cache; 28 written"##,
            r##"ended call-claude-task-0-0-0 Succeeded "1\thello world""##,
            r##"answer "I change it.""##,
            r##"answer "" call-claude-task-0-1-0=Edit{"replace_all":false,"file_path":"/home/tree/greeting.txt","old_string":"hello","new_string":"good morning"}"##,
            r##"started call-claude-task-0-1-0 Edit"##,
            r##"usage 28913 read, 28816 of them cached, 97 written to the cache; 37 written"##,
            r##"ended call-claude-task-0-1-0 Succeeded "The file /home/tree/greeting.txt has been updated successful""##,
            r##"answer "" call-claude-task-0-2-0=Bash{"command":"cat greeting.txt; test -f missing.txt","description":"Look at the file"}"##,
            r##"started call-claude-task-0-2-0 Bash"##,
            r##"answer "" call-claude-task-0-2-1=Bash{"command":"echo $YOI_CANARY; git status --short","description":"State"}"##,
            r##"started call-claude-task-0-2-1 Bash"##,
            r##"usage 29057 read, 28913 of them cached, 144 written to the cache; 55 written"##,
            r##"ended call-claude-task-0-2-0 Succeeded "good morning world""##,
            r##"ended call-claude-task-0-2-1 Succeeded " M greeting.txt""##,
            r##"answer "The greeting is changed.""##,
            r##"usage 29218 read, 29057 of them cached, 161 written to the cache; 6 written"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn a_resumed_run_of_claude_has_the_session_of_the_first_one() {
    assert_eq!(
        of(ParserName::Claude, "claude-resumed"),
        [
            r##"session cef21737-bb54-4c76-b2d6-f7d3e66fbe2a"##,
            r##"answer "It was changed before.""##,
            r##"usage 29270 read, 20315 of them cached, 8955 written to the cache; 6 written"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn claude_tells_calls_over_mcp_and_calls_that_fail() {
    assert_eq!(
        of(ParserName::Claude, "claude-pods"),
        [
            r##"session 8d8efff2-9493-4163-996a-75f3af4a3d34"##,
            r##"answer "" call-pods-claude-0-0-0=mcp__yoi__ListPods{}"##,
            r##"started call-pods-claude-0-0-0 mcp__yoi__ListPods"##,
            r##"usage 28846 read, 0 of them cached, 28846 written to the cache; 9 written"##,
            r##"ended call-pods-claude-0-0-0 Succeeded "pod-one Ready""##,
            r##"answer "" call-pods-claude-0-1-0=Read{"file_path":"/nowhere"}"##,
            r##"started call-pods-claude-0-1-0 Read"##,
            r##"answer "" call-pods-claude-0-1-1=Bash{"command":"exit 3","description":"Fail"}"##,
            r##"started call-pods-claude-0-1-1 Bash"##,
            r##"usage 28925 read, 28846 of them cached, 79 written to the cache; 33 written"##,
            r##"ended call-pods-claude-0-1-0 Failed "File does not exist. Note: your current working directory is""##,
            r##"ended call-pods-claude-0-1-1 Failed "Exit code 3""##,
            r##"answer "There is one.""##,
            r##"usage 29079 read, 28925 of them cached, 154 written to the cache; 4 written"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn a_task_of_codex_is_told_item_by_item_and_its_tokens_are_not_counted() {
    assert_eq!(
        of(ParserName::Codex, "codex-first"),
        [
            r##"session 01a20fb8-1953-7052-a138-e51a5525191e"##,
            r##"other {"type":"item.completed","item":{"id":"item_0","type":"error"##,
            r##"answer "I read the file first.""##,
            r##"answer "" item_2=command_execution{"command":"/bin/bash -lc 'cat greeting.txt'"}"##,
            r##"started item_2 command_execution"##,
            r##"ended item_2 Succeeded "hello world""##,
            r##"answer "I change it.""##,
            r##"answer "" item_4=command_execution{"command":"/bin/bash -lc \"sed -i 's/hello/good morning/' greeting.txt\""}"##,
            r##"started item_4 command_execution"##,
            r##"ended item_4 Succeeded """##,
            r##"answer "" item_5=command_execution{"command":"/bin/bash -lc 'echo $YOI_CANARY; git status --short'"}"##,
            r##"started item_5 command_execution"##,
            r##"ended item_5 Succeeded """##,
            r##"answer "" item_6=command_execution{"command":"/bin/bash -lc 'cat greeting.txt; test -f missing.txt'"}"##,
            r##"started item_6 command_execution"##,
            r##"ended item_6 Failed "good morning world""##,
            r##"answer "The greeting is changed.""##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn a_resumed_run_of_codex_has_the_session_of_the_first_one() {
    assert_eq!(
        of(ParserName::Codex, "codex-resumed"),
        [
            r##"session 01a20fb8-1953-7052-a138-e51a5525191e"##,
            r##"other {"type":"item.completed","item":{"id":"item_0","type":"error"##,
            r##"answer "It was changed before.""##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn codex_tells_calls_over_mcp() {
    assert_eq!(
        of(ParserName::Codex, "codex-pods"),
        [
            r##"session 01a20fb8-2474-7d63-b962-eefea64f188d"##,
            r##"other {"type":"item.completed","item":{"id":"item_0","type":"error"##,
            r##"answer "" item_1=mcp__yoi__ListPods{}"##,
            r##"started item_1 mcp__yoi__ListPods"##,
            r##"ended item_1 Succeeded "pod-one Ready""##,
            r##"answer "There is one.""##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn a_task_of_gemini_gathers_the_pieces_of_each_text() {
    assert_eq!(
        of(ParserName::Gemini, "gemini-first"),
        [
            r##"session ac84514e-8fca-4780-a8c9-98a65868a6e6"##,
            r##"answer "I read the file first." read_file__call-gemini-task-0-0-0=read_file{"file_path":"greeting.txt"}"##,
            r##"started read_file__call-gemini-task-0-0-0 read_file"##,
            r##"ended read_file__call-gemini-task-0-0-0 Succeeded """##,
            r##"answer "I change it." replace__call-gemini-task-0-1-0=replace{"file_path":"greeting.txt","instruction":"Change hello to good morning","new_string":"good morning","old_string":"hello"}"##,
            r##"started replace__call-gemini-task-0-1-0 replace"##,
            r##"ended replace__call-gemini-task-0-1-0 Succeeded """##,
            r##"answer "" run_shell_command__call-gemini-task-0-2-0=run_shell_command{"command":"cat greeting.txt; test -f missing.txt","description":"Look at the file"}"##,
            r##"started run_shell_command__call-gemini-task-0-2-0 run_shell_command"##,
            r##"answer "" run_shell_command__call-gemini-task-0-2-1=run_shell_command{"command":"echo $YOI_CANARY; git status --short","description":"State"}"##,
            r##"started run_shell_command__call-gemini-task-0-2-1 run_shell_command"##,
            r##"ended run_shell_command__call-gemini-task-0-2-0 Succeeded "good morning world""##,
            r##"ended run_shell_command__call-gemini-task-0-2-1 Succeeded "M greeting.txt""##,
            r##"answer "The greeting is changed.""##,
            r##"usage 49728 read, 49280 of them cached, 0 written to the cache; 124 written"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn gemini_tells_calls_over_mcp() {
    assert_eq!(
        of(ParserName::Gemini, "gemini-pods"),
        [
            r##"session 621eef81-7155-414b-a095-d26dbef7ae14"##,
            r##"answer "" mcp_yoi_ListPods__call-pods-gemini-0-0-0=mcp_yoi_ListPods{}"##,
            r##"started mcp_yoi_ListPods__call-pods-gemini-0-0-0 mcp_yoi_ListPods"##,
            r##"ended mcp_yoi_ListPods__call-pods-gemini-0-0-0 Succeeded "pod-one Ready""##,
            r##"answer "There is one.""##,
            r##"usage 24586 read, 24320 of them cached, 0 written to the cache; 13 written"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn a_task_of_copilot_is_told_with_two_calls_in_one_answer() {
    assert_eq!(
        of(ParserName::Copilot, "copilot-first"),
        [
            r##"answer "I read the file first." call-copilot-task-0-0-0=view{"path":"/home/tree/greeting.txt"}"##,
            r##"started call-copilot-task-0-0-0 view"##,
            r##"ended call-copilot-task-0-0-0 Succeeded "hello world""##,
            r##"answer "I change it." call-copilot-task-0-1-0=edit{"new_str":"good morning","old_str":"hello","path":"/home/tree/greeting.txt"}"##,
            r##"started call-copilot-task-0-1-0 edit"##,
            r##"ended call-copilot-task-0-1-0 Succeeded "File /home/tree/greeting.txt updated with changes.""##,
            r##"answer "" call-copilot-task-0-2-0=bash{"command":"cat greeting.txt; test -f missing.txt","description":"Look at the file"} call-copilot-task-0-2-1=bash{"command":"echo $YOI_CANARY; git status --short","description":"State"}"##,
            r##"started call-copilot-task-0-2-0 bash"##,
            r##"started call-copilot-task-0-2-1 bash"##,
            r##"ended call-copilot-task-0-2-1 Succeeded "M greeting.txt""##,
            r##"ended call-copilot-task-0-2-0 Failed "good morning world""##,
            r##"answer "The greeting is changed.""##,
            r##"session 6d0b0a4e-9a51-4c0f-8a3b-0d2f6b7c9e10"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn a_resumed_run_of_copilot_has_the_session_that_the_preset_names() {
    assert_eq!(
        of(ParserName::Copilot, "copilot-resumed"),
        [r##"answer "It was changed before.""##, r##"session 6d0b0a4e-9a51-4c0f-8a3b-0d2f6b7c9e10"##, r##"result true None"##,]
    );
}

#[test]
fn copilot_tells_calls_over_mcp() {
    assert_eq!(
        of(ParserName::Copilot, "copilot-pods"),
        [
            r##"answer "" call-pods-copilot-0-0-0=yoi-ListPods{}"##,
            r##"started call-pods-copilot-0-0-0 yoi-ListPods"##,
            r##"ended call-pods-copilot-0-0-0 Succeeded "pod-one Ready""##,
            r##"answer "There is one.""##,
            r##"session 7eedb7c1-d78a-409a-b46b-49c120dd98c3"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn a_task_of_opencode_is_told_call_by_call_and_its_last_step_is_the_result() {
    assert_eq!(
        of(ParserName::Opencode, "opencode-first"),
        [
            r##"session ses_df061c39dffeqsj2r0pTelGB1q"##,
            r##"answer "I read the file first.""##,
            r##"answer "" call-opencode-task-0-0-0=read{"filePath":"/home/tree/greeting.txt"}"##,
            r##"started call-opencode-task-0-0-0 read"##,
            r##"ended call-opencode-task-0-0-0 Succeeded "<path>/home/tree/greeting.txt</path>""##,
            r##"usage 8340 read, 0 of them cached, 0 written to the cache; 28 written"##,
            r##"answer "I change it.""##,
            r##"answer "" call-opencode-task-0-1-0=edit{"filePath":"/home/tree/greeting.txt","newString":"good morning","oldString":"hello"}"##,
            r##"started call-opencode-task-0-1-0 edit"##,
            r##"ended call-opencode-task-0-1-0 Succeeded "Edit applied successfully.""##,
            r##"usage 8449 read, 8320 of them cached, 0 written to the cache; 37 written"##,
            r##"answer "" call-opencode-task-0-2-0=bash{"command":"cat greeting.txt; test -f missing.txt","description":"Look at the file"}"##,
            r##"started call-opencode-task-0-2-0 bash"##,
            r##"ended call-opencode-task-0-2-0 Failed "good morning world""##,
            r##"answer "" call-opencode-task-0-2-1=bash{"command":"echo $YOI_CANARY; git status --short","description":"State"}"##,
            r##"started call-opencode-task-0-2-1 bash"##,
            r##"ended call-opencode-task-0-2-1 Succeeded """##,
            r##"usage 8540 read, 8448 of them cached, 0 written to the cache; 55 written"##,
            r##"answer "The greeting is changed.""##,
            r##"usage 8687 read, 8448 of them cached, 0 written to the cache; 6 written"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn a_resumed_run_of_opencode_has_the_session_of_the_first_one() {
    assert_eq!(
        of(ParserName::Opencode, "opencode-resumed"),
        [
            r##"session ses_df061c39dffeqsj2r0pTelGB1q"##,
            r##"answer "It was changed before.""##,
            r##"usage 8712 read, 8576 of them cached, 0 written to the cache; 6 written"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn opencode_tells_calls_over_mcp() {
    assert_eq!(
        of(ParserName::Opencode, "opencode-pods"),
        [
            r##"session ses_df060f530ffeVmzxdr06uT8yZJ"##,
            r##"answer "" call-pods-others-0-0-0=yoi_ListPods{}"##,
            r##"started call-pods-others-0-0-0 yoi_ListPods"##,
            r##"ended call-pods-others-0-0-0 Succeeded "pod-one Ready""##,
            r##"usage 8342 read, 8320 of them cached, 0 written to the cache; 9 written"##,
            r##"answer "There is one.""##,
            r##"usage 8399 read, 8320 of them cached, 0 written to the cache; 4 written"##,
            r##"result true None"##,
        ]
    );
}

#[test]
fn goose_is_read_as_its_source_writes_it() {
    assert_eq!(
        of(ParserName::Goose, "goose-by-its-source"),
        [
            r##"answer "I read it." c1=developer__shell{"command":"cat greeting.txt"}"##,
            r##"started c1 developer__shell"##,
            r##"ended c1 Succeeded "hello world""##,
            r##"answer "Done.""##,
            r##"result true None"##,
        ]
    );
}
