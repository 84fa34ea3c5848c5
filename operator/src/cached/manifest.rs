use k8s_openapi::api::core::v1::ConfigMap;

use super::CachedMetadata;
use super::text::Text;

/// A ConfigMap with a manifest. Manifests of agents of one project differ in few of their fields.
#[derive(Clone, Debug)]
pub struct CachedManifest {
    pub(crate) metadata: CachedMetadata,
    /// The name of each file, and its text in pieces.
    files: Box<[(Text, Box<[Text]>)]>,
}

impl From<ConfigMap> for CachedManifest {
    fn from(map: ConfigMap) -> Self {
        let files = map.data.into_iter().flatten();
        let files = files.map(|(name, text)| (name.as_str().into(), fields(&text).into_iter().map(Text::from).collect()));
        CachedManifest { metadata: map.metadata.into(), files: files.collect() }
    }
}

impl CachedManifest {
    /// The ConfigMap as plans read it.
    pub(crate) fn observed(&self) -> ConfigMap {
        let files = self.files.iter().map(|(name, pieces)| (name.to_string(), pieces.iter().map(|piece| &**piece).collect()));
        let data = (!self.files.is_empty()).then(|| files.collect());
        ConfigMap { metadata: self.metadata.observed(), data, ..ConfigMap::default() }
    }
}

/// The pieces of a text, which ends a piece after each field of the outermost object if it is JSON. They make the text again, whatever it is.
fn fields(text: &str) -> Vec<&str> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let ends = |character: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '\\' if in_string => is_escaped = !was_escaped,
            '"' if !was_escaped => in_string = !in_string,
            '{' | '[' if !in_string => depth += 1,
            '}' | ']' if !in_string => depth = depth.saturating_sub(1),
            ',' if !in_string => return depth == 1,
            _ => {}
        }
        false
    };
    text.split_inclusive(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_manifest_are_its_pieces_and_other_texts_are_what_they_were() {
        let text = r#"{"a":"x,\"y\\","b":{"c":[1,2],"d":","},"e":[{"f":1},2]}"#;
        assert_eq!(fields(text), [r#"{"a":"x,\"y\\","#, r#""b":{"c":[1,2],"d":","},"#, r#""e":[{"f":1},2]}"#]);
        for text in ["", "no JSON, at all", "}}],,{\"\\", "{,", "\u{1f980},{\u{e9},\u{e9},"] {
            assert_eq!(fields(text).concat(), text);
        }
    }
}
