//! What stands before the pack of a git bundle. Nothing in it is trusted: whoever made the bundle may have written any byte of it.

use std::io::{self, BufRead, Read};

/// Bytes of the longest header. It has a line for each commit that must be there.
const MAX_HEADER: u64 = 4 << 20;

/// Why the header of a bundle is refused.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file cannot be read.
    #[error("failed to read the bundle")]
    Read(#[from] io::Error),
    /// It is something else.
    #[error("it is no git bundle: {0}")]
    NoBundle(&'static str),
    /// It leaves objects out, or what it needs is of a later git.
    #[error("it needs `{}`, which this version does not know", .0.escape_debug())]
    Capability(String),
}

/// What stands before the pack.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BundleHeader {
    /// Commits that must be in the repository that takes the bundle.
    pub prerequisites: Vec<String>,
    /// Hash and full name of each ref.
    pub refs: Vec<(String, String)>,
    /// Where the pack begins.
    pub pack_offset: u64,
}

impl BundleHeader {
    /// Reads the header, and no byte behind it.
    ///
    /// # Errors
    /// It is none, or one of a kind that is not known.
    pub fn read(from: &mut impl BufRead) -> Result<Self, HeaderError> {
        let mut header = BundleHeader::default();
        let mut from = from.take(MAX_HEADER);
        let mut line = |header: &mut BundleHeader| -> Result<String, HeaderError> {
            let mut bytes = Vec::new();
            header.pack_offset += from.read_until(b'\n', &mut bytes)? as u64;
            if bytes.pop() != Some(b'\n') {
                return Err(HeaderError::NoBundle("its header is too long or has no end"));
            }
            String::from_utf8(bytes).map_err(|_| HeaderError::NoBundle("its header is no text"))
        };
        let first = line(&mut header)?;
        if first != "# v2 git bundle" && first != "# v3 git bundle" {
            return Err(HeaderError::NoBundle("its first line is another"));
        }
        loop {
            let text = line(&mut header)?;
            if text.is_empty() {
                return Ok(header);
            }
            if let Some(capability) = text.strip_prefix('@') {
                if !capability.starts_with("object-format=") {
                    return Err(HeaderError::Capability(capability.to_owned()));
                }
                continue;
            }
            let (commit, is_prerequisite) = text.strip_prefix('-').map_or((text.as_str(), false), |rest| (rest, true));
            let (hash, name) = commit.split_once(' ').unwrap_or((commit, ""));
            if !is_hash(hash) {
                return Err(HeaderError::NoBundle("a line of its header has no hash"));
            }
            if is_prerequisite {
                header.prerequisites.push(hash.to_owned());
            } else {
                header.refs.push((hash.to_owned(), name.to_owned()));
            }
        }
    }
}

/// Whether this is the full hash of an object: SHA-1 or SHA-256.
#[must_use]
pub fn is_hash(text: &str) -> bool {
    [40, 64].contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: impl AsRef<[u8]>) -> Result<BundleHeader, HeaderError> {
        BundleHeader::read(&mut text.as_ref())
    }

    #[test]
    fn the_header_says_which_refs_and_commits_a_bundle_has_and_where_its_pack_begins() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let text = format!("# v2 git bundle\n-{one} the base\n{two} refs/heads/../x\n\nPACK\n");
        let header = read(&text).unwrap();
        assert_eq!(header.prerequisites, [one]);
        assert_eq!(header.refs, [(two, "refs/heads/../x".to_owned())]);
        assert_eq!(&text[usize::try_from(header.pack_offset).unwrap()..], "PACK\n");
        let newer = format!("# v3 git bundle\n@object-format=sha256\n{} HEAD\n\n", "a".repeat(64));
        assert_eq!(read(&newer).unwrap().refs.len(), 1);
    }

    #[test]
    fn what_is_no_bundle_or_one_with_objects_left_out_is_refused() {
        for text in ["", "# v2 git bundle\n", "# v4 git bundle\n\n", "# v2 git bundle\nHEAD\n\n", "{\"token\":\"a\"}\n\n"] {
            assert!(matches!(read(text), Err(HeaderError::NoBundle(_))), "{text:?}");
        }
        assert!(matches!(
            read([b"# v2 git bundle\n".as_slice(), &[0xff, b'\n', b'\n']].concat()),
            Err(HeaderError::NoBundle("its header is no text"))
        ));
        assert!(matches!(read("# v3 git bundle\n@filter=blob:none\n\n"), Err(HeaderError::Capability(_))));
        let endless = format!("# v2 git bundle\n{}", "x".repeat(usize::try_from(MAX_HEADER).unwrap()));
        assert!(matches!(read(&endless), Err(HeaderError::NoBundle(_))));
    }
}
