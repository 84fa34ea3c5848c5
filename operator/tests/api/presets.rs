//! The folder of presets that the chart mounts.

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};

use yoi_operator::presets::read;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("yoi-presets-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a file");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PRESET: &str = "name: mine\nprogram: mine\nfirstArgs: [-p]\nspeaks: [Anthropic]\nparser: Text\n";

#[test]
fn every_preset_of_the_chart_can_be_used() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/yoi-operator/files/presets");
    let files = fs::read_dir(&folder).expect("the chart lies beside this crate").count();
    let presets = read(&folder).expect("they are read");
    assert!(files > 0 && presets.len() == files, "{files} files, {:?}", presets.keys());
}

#[test]
fn a_mounted_config_map_has_its_files_as_links_beside_hidden_folders() {
    let folder = Folder::new("mounted");
    fs::create_dir(folder.0.join("..data")).expect("a folder");
    folder.write("..data/mine.yaml", PRESET);
    std::os::unix::fs::symlink("..data/mine.yaml", folder.0.join("mine.yaml")).expect("a link");
    folder.write(".mine.yaml.swp.yaml", "nonsense");
    assert_eq!(read(&folder.0).expect("it is read").keys().collect::<Vec<_>>(), ["mine"]);
}

#[test]
fn nonsense_is_refused_by_the_name_of_its_file() {
    let unknown_field = format!("{PRESET}tomorrow: 1\n");
    let table = [
        ("mine.yaml", "[", "failed to understand preset"),
        ("mine.yaml", &unknown_field, "unknown field `tomorrow`"),
        ("mine.yaml", "name: mine\n", "missing field `program`"),
        ("mine.yaml", &PRESET.replace("[Anthropic]", "[Tomorrow]"), "unknown variant `Tomorrow`"),
        ("mine.yaml", &PRESET.replace("[-p]", "[\"${key}\"]"), "firstArgs holds ${key}"),
        ("yours.yaml", PRESET, "its file must be called mine.yaml"),
    ];
    for (n, (file, text, words)) in table.into_iter().enumerate() {
        let folder = Folder::new(&format!("nonsense-{n}"));
        folder.write(file, text);
        let error = read(&folder.0).expect_err(words).to_string();
        assert!(error.contains(words) && error.contains(file), "{error}");
    }
    let error = read(Path::new("/nowhere/at-all")).expect_err("there is no such folder");
    assert!(error.to_string().contains("/nowhere/at-all") && error.source().is_some(), "{error}");
}
