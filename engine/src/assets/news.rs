//! What the log of the conversation `main` says of the assets: that they were loaded, were loaded again, or were refused.
//!
//! It is an entry that changes nothing. A project that has no assets, and of which nobody has said how they are read, has none of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use yoi_wire::assets::AssetsReport;
use yoi_wire::entry::{Body, Extension};

use super::{LoadedAssets, report};

/// The entry's name.
const ASSETS: &str = "yoi/assets";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AssetNews {
    outcome: Outcome,
    /// Strict, and refused, also where only the asker was strict.
    #[serde(flatten)]
    report: AssetsReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Outcome {
    Loaded,
    Reloaded,
    Refused,
}

impl AssetNews {
    /// `None`: there is nothing to say. `was_told`: something was said before.
    pub(crate) fn new(loaded: &LoadedAssets, was_told: bool) -> Option<Self> {
        let outcome = match (&loaded.last_refused, loaded.snapshot.generation) {
            (Some(_), _) => Outcome::Refused,
            (None, 0) => return None,
            (None, 1) => Outcome::Loaded,
            (None, _) => Outcome::Reloaded,
        };
        // What the asker was refused is news, too.
        let seen = LoadedAssets { refused: loaded.last_refused.clone(), ..loaded.clone() };
        let report = report(&seen).or_else(|| was_told.then(AssetsReport::default))?;
        Some(Self { outcome, report })
    }

    /// The entry.
    pub(crate) fn body(&self) -> Body {
        // It serializes without fail: its keys are strings and its values plain data.
        Body::Extension(Extension { name: ASSETS.to_owned(), data: serde_json::to_value(self).unwrap_or_default() })
    }
}

/// The type of the signal that an entry is, if it is about assets.
pub(crate) fn signal_of(Extension { name, data }: &Extension) -> Option<&'static str> {
    let outcome = data.get("outcome").filter(|_| name == ASSETS).and_then(Value::as_str)?;
    match outcome {
        "Loaded" => Some("project.assets_loaded"),
        "Reloaded" => Some("project.assets_reloaded"),
        "Refused" => Some("project.assets_reload_failed"),
        _ => None,
    }
}
