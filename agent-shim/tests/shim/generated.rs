//! The committed gRPC code is what the committed interface definitions say.

use std::path::Path;

#[test]
fn the_generated_code_is_current() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().unwrap();
    let definitions = protox::compile(["csi.proto", "pluginregistration.proto"], [here.join("proto")]).unwrap();
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
