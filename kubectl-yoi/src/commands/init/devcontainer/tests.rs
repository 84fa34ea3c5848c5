use super::*;

fn read(text: &str) -> DevContainer {
    parse(text, "/home/me/p").unwrap()
}

#[test]
fn image_user_environment_and_command_are_taken_and_comments_are_none() {
    let text = r#"// As editors write it.
    {
        "$schema": "x", "name": "p",
        "image": "registry.example/dev:1", /* the image */
        "remoteUser": "1001",
        "containerEnv": { "A": "1", "B": "${containerWorkspaceFolder}/b", "N": "${localWorkspaceFolderBasename}", },
        "remoteEnv": { "A": "2", "PATH": "${PATH}:/x" },
        "postCreateCommand": "make deps",
    }"#;
    let env =
        [("A", "2"), ("B", "/home/me/p/b"), ("N", "p"), ("PATH", "${PATH}:/x")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let wanted = DevContainer {
        image: Some("registry.example/dev:1".to_owned()),
        uid: Some(1001),
        env: env.into(),
        prepare: Some(["/bin/sh", "-c", "make deps"].map(str::to_owned).to_vec()),
        notes: Vec::new(),
    };
    assert_eq!(read(text), wanted);
}

#[test]
fn each_key_that_is_not_taken_is_named_with_the_reason() {
    for (text, key, reason) in [
        (r#"{"build":{"dockerfile":"Dockerfile"}}"#, "build: ", "devcontainer build"),
        (r#"{"features":{"ghcr.io/x/y:1":{}}}"#, "features: ", "devcontainer build"),
        (r#"{"forwardPorts":[80]}"#, "forwardPorts: ", "for editors"),
        (r#"{"tomorrow":1}"#, "tomorrow: ", "does not know"),
        (r#"{"image":"a b"}"#, "image: ", "no name of an image"),
        (r#"{"image":"x:${localEnv:TAG}"}"#, "image: ", "${localEnv:TAG}"),
        (r#"{"image":7}"#, "image: ", "no name of an image"),
        (r#"{"remoteUser":"root"}"#, "remoteUser: ", "never run as root"),
        (r#"{"containerUser":"0"}"#, "containerUser: ", "never run as root"),
        (r#"{"remoteUser":"vscode"}"#, "remoteUser: ", "--owner UID:GID"),
        (r#"{"remoteUser":"1000","containerUser":"root"}"#, "containerUser: ", "means nothing"),
        (r#"{"containerEnv":{"T":"${localEnv:TOKEN}"}}"#, "containerEnv.T: ", "${localEnv:TOKEN} is not read"),
        (r#"{"containerEnv":{"YOI_X":"1"}}"#, "containerEnv.YOI_X: ", "reserved"),
        (r#"{"containerEnv":{"A=B":"1"}}"#, "containerEnv.A=B: ", "not the name"),
        (r#"{"containerEnv":{"a-b":"1"}}"#, "containerEnv.a-b: ", "not the name"),
        (r#"{"remoteEnv":{"A":null}}"#, "remoteEnv.A: ", "no text"),
        (r#"{"remoteEnv":[]}"#, "remoteEnv: ", "no object"),
        (r#"{"postCreateCommand":7}"#, "postCreateCommand: ", "no command"),
        (r#"{"postCreateCommand":["a",1]}"#, "postCreateCommand: ", "no command"),
        (r#"{"postCreateCommand":"x ${localEnv:HOME}"}"#, "postCreateCommand: ", "${localEnv:HOME}"),
    ] {
        let DevContainer { notes, image, env, prepare, .. } = read(text);
        assert_eq!(notes.len(), 1, "{text}: {notes:?}");
        assert!(notes[0].starts_with(key) && notes[0].contains(reason), "{text}: {notes:?}");
        assert_eq!((image, env.len(), prepare), (None, 0, None), "{text}");
    }
    assert_eq!(read(r#"{"init":true,"mounts":[],"x":1}"#).notes.len(), 3);
}

#[test]
fn a_list_of_words_runs_as_it_is_and_several_commands_one_after_another() {
    assert_eq!(read(r#"{"postCreateCommand":["npm","ci"]}"#).prepare, Some(vec!["npm".to_owned(), "ci".to_owned()]));
    let several = read(r#"{"postCreateCommand":{"a":"echo ${X:-1} # all","b":["touch","it's"]}}"#);
    assert!(several.prepare.is_none() && several.notes.iter().any(|note| note.contains("${X:-1}")), "{several:?}");
    let several = read(r#"{"postCreateCommand":{"a":"echo $X # all","b":["touch","it's"]}}"#);
    assert_eq!(several.prepare.unwrap()[2], "(\necho $X # all\n) &&\n'touch' 'it'\\''s'");
    assert!(several.notes[0].starts_with("postCreateCommand: its commands run one after another"), "{:?}", several.notes);
    for nothing in [r#"{"postCreateCommand":""}"#, r#"{"postCreateCommand":[]}"#, r#"{"postCreateCommand":{}}"#] {
        assert_eq!(read(nothing), DevContainer::default(), "{nothing}");
    }
}

#[test]
fn what_is_no_such_file_is_an_error_with_the_place() {
    let deep = "[".repeat(100_000);
    for (text, words) in [("{", "line 1"), ("[]", "no object"), ("", "no object"), ("{'a': 1}", "line 1"), (deep.as_str(), "depth")] {
        let error = parse(text, "/p").unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_pod_has_no_more_variables_than_the_schema_takes() {
    let many: Vec<String> = (0..70).map(|n| format!(r#""V{n:02}":"x""#)).collect();
    let read = read(&format!(r#"{{"containerEnv":{{{}}}}}"#, many.join(",")));
    assert_eq!((read.env.len(), read.notes.len()), (64, 6));
}
