//! The committed gRPC code is what the committed interface definitions say.

use std::collections::BTreeSet;
use std::path::Path;

use prost_types::FileDescriptorProto;

/// The services of the interface definitions that the shim serves. No code is generated for others, nor for what only they send.
const SERVED: [&str; 3] = ["Identity", "Node", "Registration"];

/// Takes everything out of a file that nothing served refers to.
fn keep_served(file: &mut FileDescriptorProto) {
    file.service.retain(|service| SERVED.contains(&service.name()));
    let package = format!(".{}.", file.package());
    // A message that lies in another one stays and goes with it.
    let outermost = |name: &str| name.strip_prefix(&package).and_then(|name| name.split('.').next()).map(str::to_owned);
    let methods = file.service.iter().flat_map(|service| &service.method);
    let mut open: Vec<String> = methods.flat_map(|method| [method.input_type(), method.output_type()]).filter_map(outermost).collect();
    let mut kept = BTreeSet::new();
    while let Some(name) = open.pop() {
        let mut inside: Vec<_> = file.message_type.iter().filter(|message| message.name() == name).collect();
        if kept.insert(name) {
            while let Some(message) = inside.pop() {
                open.extend(message.field.iter().filter_map(|field| outermost(field.type_name())));
                inside.extend(&message.nested_type);
            }
        }
    }
    file.message_type.retain(|message| kept.contains(message.name()));
    file.enum_type.retain(|values| kept.contains(values.name()));
    // It counts messages, and no comment is generated.
    file.source_code_info = None;
}

#[test]
fn the_generated_code_is_current() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().unwrap();
    let mut definitions = protox::compile(["csi.proto", "pluginregistration.proto"], [here.join("proto")]).unwrap();
    definitions.file.iter_mut().filter(|file| !file.package().starts_with("google.")).for_each(keep_served);
    tonic_prost_build::configure().disable_comments(["."]).out_dir(fresh.path()).compile_fds(definitions).unwrap();
    for file in ["csi.v1.rs", "pluginregistration.rs"] {
        let made = std::fs::read_to_string(fresh.path().join(file)).unwrap();
        let committed = here.join("src/proto").join(file);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&committed, &made).unwrap();
        }
        let committed_text = std::fs::read_to_string(&committed).unwrap_or_default();
        assert!(committed_text == made, "{file} is stale: run this test again with UPDATE=1");
    }
}
