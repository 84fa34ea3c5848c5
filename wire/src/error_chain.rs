use std::error::Error;

/// Returns the error and all its sources as one line, joined by `: `. A source whose text the line already holds is left out, because some
/// errors print their source themselves.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: &'static str,
        #[source]
        source: Option<Box<Failed>>,
    }

    fn failed(text: &'static str, source: Option<Failed>) -> Failed {
        Failed { text, source: source.map(Box::new) }
    }

    #[test]
    fn a_chain_names_each_source_once() {
        let root = failed("no space left", None);
        let wrapped = failed("failed to write: no space left", Some(root));
        assert_eq!(error_chain(&failed("failed to save a", Some(wrapped))), "failed to save a: failed to write: no space left");
    }
}
