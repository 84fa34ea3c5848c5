use std::os::unix::fs::{PermissionsExt, symlink};

use base64::Engine as _;

use super::*;

#[tokio::test]
async fn read_numbers_lines_and_tells_where_to_go_on() {
    let fixture = Fixture::new();
    fixture.write("file", "one\ntwo\nthree\nfour");
    let read = async |args: Value| fixture.succeed("Read", args).await;
    assert_eq!(read(json!({"path": "file"})).await, "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour");
    assert_eq!(read(json!({"path": "file", "offset": 2, "limit": 1})).await, "     2\ttwo\n\n[cut here; read on with offset 3]");
    assert_eq!(read(json!({"path": "file", "offset": 4, "limit": 1})).await, "     4\tfour");
    assert_eq!(fixture.fail("Read", json!({"path": "file", "offset": 5})).await, "\"file\" has 4 lines");
    fixture.write("empty", "");
    assert_eq!(read(json!({"path": "empty"})).await, "");
    fixture.write("latin-1", b"gr\xfcn\n");
    assert_eq!(read(json!({"path": "latin-1"})).await, "     1\tgr\u{fffd}n\n\n[some of it is not UTF-8 and stands here as \u{fffd}]");
}

#[tokio::test]
async fn read_says_what_a_folder_and_a_binary_file_are() {
    let fixture = Fixture::new();
    fixture.write("dir/late", [b"text\n".repeat(4000), vec![0]].concat());
    fixture.write("binary", b"\x7fELF\0\0");
    assert_eq!(fixture.fail("Read", json!({"path": "dir"})).await, "\"dir\" is a folder; use List");
    let binary = "\"binary\" is a binary file of 6 bytes, so it cannot be read as text";
    assert_eq!(fixture.fail("Read", json!({"path": "binary"})).await, binary);
    assert!(fixture.succeed("Read", json!({"path": "dir/late", "limit": 3999})).await.contains("  3999\ttext"));
    assert!(fixture.fail("Read", json!({"path": "dir/late", "offset": 4000})).await.contains("is a binary file of 20001 bytes"));
}

#[tokio::test]
async fn read_keeps_within_its_limit_and_shows_the_begin_of_an_endless_line() {
    let fixture = Fixture::with_limits(RunLimits { tool_output_bytes: 1000, ..RunLimits::default() });
    fixture.write("wide", "x".repeat(100_000) + "\nsecond\n");
    let end = fixture.succeed("Read", json!({"path": "wide"})).await;
    assert!(end.len() <= 1000 && end.starts_with("     1\txxx") && end.ends_with("[cut here; read on with offset 2]"), "{end}");
    assert_eq!(fixture.succeed("Read", json!({"path": "wide", "offset": 2})).await, "     2\tsecond\n");
    fixture.write("long", "line\n".repeat(500));
    let (mut next, mut lines) = (1, 0);
    loop {
        let end = fixture.succeed("Read", json!({"path": "long", "offset": next})).await;
        assert!(end.len() <= 1000);
        lines += end.matches("\tline").count();
        let Some((_, rest)) = end.split_once("offset ") else { break };
        next = rest.trim_end_matches(']').parse().unwrap();
    }
    assert_eq!(lines, 500);
}

#[tokio::test]
async fn pictures_are_recognised_by_their_content_and_returned_to_be_seen() {
    let fixture = Fixture::new();
    for (begin, media_type) in [
        (&b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x1f\x40\0\0\0\x01\x08\x02\0\0\0"[..], "image/png"),
        (b"\xff\xd8\xff\xc0\0\x11\x08\0\x02\0\x03\x03\x01\x11\0\x02\x11\0\x03\x11\0", "image/jpeg"),
        (b"GIF89a\x03\0\x02\0\0\0\0", "image/gif"),
        (b"RIFF\x24\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x02\0\0\x01\0\0", "image/webp"),
    ] {
        let content = [begin, &[0, 1, 2, 255]].concat();
        fixture.write("picture.txt", &content);
        let end = fixture.run("Read", json!({"path": "picture.txt"})).await;
        assert_eq!((end.outcome, end.output), (ToolOutcome::Succeeded, format!("picture.txt: {media_type}, {} bytes", content.len())));
        assert_eq!(end.images.len(), 1);
        assert_eq!(end.images[0].media_type, media_type);
        assert_eq!(base64::prelude::BASE64_STANDARD.decode(&end.images[0].data).unwrap(), content);
    }
    for (name, content, why) in [
        ("wide.png", &b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x1f\x41\0\0\0\x01\x08\x02\0\0\0"[..], "8001x1 pixels"),
        ("tall.gif", b"GIF89a\x01\0\xff\xff\0\0\0", "1x65535 pixels"),
        ("empty.gif", b"GIF89a\0\0\x01\0\0\0\0", "without a pixel"),
        ("cut.png", b"\x89PNG\r\n\x1a\n\0\0", "its header cannot be read"),
    ] {
        fixture.write(name, content);
        let output = fixture.fail("Read", json!({"path": name})).await;
        assert!(output.contains(why), "{name}: {output}");
    }
    fixture.write("no-picture.png", "RIFF is a word\n");
    let end = fixture.run("Read", json!({"path": "no-picture.png"})).await;
    assert_eq!((end.output.as_str(), end.images.len()), ("     1\tRIFF is a word\n", 0));
    fixture.write("large.gif", [&b"GIF89a"[..], &vec![7; 1 << 20]].concat());
    let large = fixture.fail("Read", json!({"path": "large.gif"})).await;
    assert_eq!(large, "\"large.gif\" is a picture of 1048582 bytes; at most 1048576 can be shown");
}

#[tokio::test]
async fn edit_makes_several_replacements_or_none() {
    let fixture = Fixture::new();
    fixture.write("file", "a b c b\n");
    let edits = json!([{"old": "a", "new": "b"}, {"old": "b", "new": "x", "all": true}, {"old": "x c", "new": "done"}]);
    assert_eq!(fixture.succeed("Edit", json!({"path": "file", "edits": edits})).await, "replaced 5 in file");
    assert_eq!(fs::read_to_string(fixture.path("file")).unwrap(), "x done x\n");
    let edits = json!([{"old": "done", "new": "undone"}, {"old": "x", "new": "y"}]);
    let failed = fixture.fail("Edit", json!({"path": "file", "edits": edits})).await;
    assert!(failed.starts_with("/edits/1: \"file\" holds the old text 2 times;") && failed.ends_with("nothing was changed"), "{failed}");
    let missing = fixture.fail("Edit", json!({"path": "file", "old": "nothing", "new": "y"})).await;
    assert_eq!(missing, "\"file\" does not hold the old text; read it again");
    assert_eq!(fs::read_to_string(fixture.path("file")).unwrap(), "x done x\n");
    fixture.write("latin-1", b"gr\xfcn\n");
    assert!(fixture.fail("Edit", json!({"path": "latin-1", "old": "gr", "new": "y"})).await.contains("is not UTF-8 text"));
}

#[tokio::test]
async fn edit_keeps_line_endings_and_the_mode_of_the_file() {
    let fixture = Fixture::new();
    fixture.write("dos", "one\r\ntwo\r\nthree\r\n");
    fs::set_permissions(fixture.path("dos"), fs::Permissions::from_mode(0o751)).unwrap();
    let content = || fs::read_to_string(fixture.path("dos")).unwrap();
    fixture.succeed("Edit", json!({"path": "dos", "old": "one\ntwo\n", "new": "1\n2\n"})).await;
    assert_eq!(content(), "1\r\n2\r\nthree\r\n");
    // The old text has no line end, the new one has.
    fixture.succeed("Edit", json!({"path": "dos", "old": "three", "new": "3\n4"})).await;
    assert_eq!(content(), "1\r\n2\r\n3\r\n4\r\n");
    fixture.succeed("Edit", json!({"path": "dos", "old": "1\r\n2", "new": "1\r\ntwo"})).await;
    assert_eq!(content(), "1\r\ntwo\r\n3\r\n4\r\n");
    assert_eq!(fs::metadata(fixture.path("dos")).unwrap().permissions().mode() & 0o777, 0o751);
    fixture.write("unix", "one\ntwo\n");
    fixture.succeed("Edit", json!({"path": "unix", "old": "one\ntwo", "new": "1\n2"})).await;
    assert_eq!(fs::read_to_string(fixture.path("unix")).unwrap(), "1\n2\n");
    fixture.write("mixed", "one\ntwo\r\nthree\n");
    fixture.succeed("Edit", json!({"path": "mixed", "old": "one", "new": "0\n1"})).await;
    assert_eq!(fs::read_to_string(fixture.path("mixed")).unwrap(), "0\n1\ntwo\r\nthree\n");
}

#[tokio::test]
async fn list_shows_one_level_with_types_and_sizes() {
    let fixture = Fixture::new();
    fixture.write("src/deep/file", "x");
    fixture.write("src/main.rs", "12345");
    fixture.write("src/.hidden", "");
    symlink("main.rs", fixture.path("src/link")).unwrap();
    let expected = ".hidden  0\ndeep/\nlink -> main.rs\nmain.rs  5";
    assert_eq!(fixture.succeed("List", json!({"path": "src"})).await, expected);
    assert_eq!(fixture.succeed("List", Value::Null).await, "src/");
    fs::create_dir(fixture.path("empty")).unwrap();
    assert_eq!(fixture.succeed("List", json!({"path": "empty"})).await, "[the folder is empty]");
    symlink("src", fixture.path("folder")).unwrap();
    assert_eq!(fixture.succeed("List", json!({"path": "folder"})).await, expected);
    assert!(fixture.fail("List", json!({"path": "src/main.rs"})).await.contains("Not a directory"));
    for n in 0..2001 {
        fixture.write(&format!("many/{n:04}"), "");
    }
    let many = fixture.succeed("List", json!({"path": "many"})).await;
    assert!(many.starts_with("0000  0\n") && many.ends_with("1999  0\n[2000 of 2001 entries]"), "{}", &many[many.len() - 60..]);
}
