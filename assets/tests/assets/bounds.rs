//! Files as large as they may be, made so that a careless reader takes a time or a memory that grows with the square of their size, or its whole stack.

use yoi_test_support::thorough;

use crate::{file, lenient, skill};

/// A quarter of the largest file, unless the run takes its time.
fn size() -> usize {
    if thorough() { 1 << 20 } else { 1 << 18 }
}
const HEADER: usize = 64 << 10;

fn filled(head: &str, piece: &str, tail: &str, size: usize) -> String {
    let times = (size - head.len() - tail.len()) / piece.len();
    format!("{head}{}{tail}", piece.repeat(times))
}

/// Pieces with a number each, so that all differ.
fn numbered(head: &str, piece: impl Fn(usize) -> String, tail: &str, size: usize) -> String {
    let mut text = head.to_owned();
    let mut at = 0;
    while text.len() + tail.len() + 32 < size {
        text.push_str(&piece(at));
        at += 1;
    }
    text + tail
}

#[test]
fn files_that_are_made_to_be_slow_are_read_in_the_time_of_their_size() {
    let in_header = |piece: &str| filled("---\nname: x\ndescription: y\n", piece, "\n---\n", HEADER);
    let skills = [
        in_header("k: [\n"),
        in_header("- "),
        in_header("? "),
        in_header("\"]\" [ "),
        filled("---\nname: x\ndescription: y\nk: [", "\"]\",[", "\n---\n", HEADER),
        filled("---\nname: x\ndescription: y\nk: ", "!a ", "\n---\n", HEADER),
        filled("---\nname: x\ndescription: y\nk: ", "&a ", "\n---\n", HEADER),
        in_header("a: b: c\n"),
        numbered("---\nname: x\ndescription: y\n", |at| format!("k{at}: &a{at} 1\n"), "---\n", HEADER),
        numbered("---\nname: x\ndescription: y\njido:\n", |at| format!("  k{at}: 1\n"), "---\n", HEADER),
        numbered("---\nname: x\ndescription: y\nmetadata:\n", |at| format!("  k{at}: [1]\n"), "---\n", HEADER),
        filled("---\nname: x\ndescription: y\nallowed-tools: ", "Foo( ", "\n---\n", HEADER),
        filled("---\nname: x\ndescription: y\n---\n", "[[", "", size()),
        filled("---\nname: x\ndescription: y\n---\n", "[[a ]", "]]", size()),
        filled("---\nname: x\ndescription: y\n---\n", "`", "", size()),
        filled("---\nname: x\n", "a\n", "", size()),
    ];
    let commands = [
        filled("", "$ARGUMENTS[", "", size()),
        filled("", "$ARGUMENTS[9", "", size()),
        filled("", " !`a", "", size()),
        filled("", "!`", "", size()),
        filled("", "$1$", "", size()),
        filled("---\nname: x\ndescription: y\n---\n", "{{", "", size()),
        numbered("---\nname: x\ndescription: y\n---\n", |at| format!("{{{{a{at}}}}}"), "", size()),
    ];
    let tables = [
        filled("prompt = '''", "!{", "'''", size()),
        filled("prompt = '''", "@{a", "'''", size()),
        filled("prompt = '''", "{{args}}", "'''", size()),
        filled("prompt = 'x'\na = ", "[", "", size()),
        filled("prompt = 'x'\na = ", "{a=", "", size()),
        filled("prompt = 'x'\na", ".a", " = 1", size()),
        filled("prompt = 'x'\n[a", ".a", "]\n", size()),
        numbered("prompt = 'x'\n", |at| format!("k{at} = 1\n"), "", size()),
        numbered("prompt = 'x'\n", |at| format!("[[a.b{at}]]\n"), "", size()),
    ];
    let workflows = [
        filled("---\nname: x\nversion: 1.0.0\n---\n## Steps\n### a\n", "- **a**: b\n", "", size()),
        filled("---\nname: x\nversion: 1.0.0\n---\n## Steps\n### a\n- **inputs**:\n", "  - a: result:b result:c\n", "", size()),
        filled("---\nname: x\nversion: 1.0.0\n---\n## Steps\n", "### a\n", "", size()),
    ];
    let mut files = vec![file(".agents/skills/good/SKILL.md", skill("good", "Is good."))];
    let (mut of_jido, mut listed) = (0, 0);
    for (number, text) in skills.iter().enumerate() {
        files.push(file(&format!(".jido/skills/s{number}/SKILL.md"), text));
        files.push(file(&format!(".jido/skill_graph/s{number}.md"), text));
        of_jido += 1;
    }
    for (number, text) in commands.iter().enumerate() {
        files.push(file(&format!(".claude/commands/c{number}.md"), text));
        files.push(file(&format!(".jido/commands/c{number}.md"), text));
        listed += 2;
    }
    for (number, text) in tables.iter().enumerate() {
        files.push(file(&format!(".gemini/commands/t{number}.toml"), text));
        listed += 1;
    }
    for (number, text) in workflows.iter().enumerate() {
        files.push(file(&format!(".jido/workflows/w{number}.md"), text));
    }
    let snapshot = lenient(&files);
    assert_eq!((snapshot.skills.len(), snapshot.commands.len()), (of_jido + 1, listed));
    assert!(snapshot.skill("good").unwrap().state.is_valid());
    for command in &snapshot.commands {
        drop(command.render("a \"b c\" d"));
    }
    assert!(snapshot.diagnostics.len() < 1_500);
}
