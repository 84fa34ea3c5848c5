//! Which requests are passed on, and where to.

use hyper::Method;
use reqwest::Url;

use crate::model::format::WireFormat;

/// A request that is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The path below the endpoint's base URL.
    path: String,
    /// Whether it makes the model answer, which costs tokens.
    pub asks_model: bool,
}

impl Route {
    /// The route of a request; `None` when no request of this format is like this.
    pub fn of(format: WireFormat, method: &Method, path: &str) -> Option<Self> {
        let version = if format == WireFormat::Gemini { "/v1beta/" } else { "/v1/" };
        let path = path.strip_prefix(version)?;
        let asks_model = match (format, method, path) {
            (WireFormat::Anthropic, &Method::POST, "messages")
            | (WireFormat::Responses, &Method::POST, "responses")
            | (WireFormat::ChatCompletions, &Method::POST, "chat/completions") => true,
            (WireFormat::Anthropic, &Method::POST, "messages/count_tokens")
            | (WireFormat::Responses | WireFormat::ChatCompletions, &Method::GET, "models") => false,
            (WireFormat::Gemini, &Method::POST, _) => gemini(path)?,
            (WireFormat::Anthropic | WireFormat::Responses | WireFormat::ChatCompletions | WireFormat::Gemini, _, _) => return None,
        };
        Some(Self { path: path.to_owned(), asks_model })
    }

    /// The URL at the endpoint. Its base URL's query stays, and so does the request's, but for a key in it and for names that the base URL has: of
    /// two values, servers may take the last one.
    pub fn url(&self, base: &Url, query: Option<&str>) -> Url {
        let mut url = base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(self.path.split('/'));
        }
        let own: Vec<String> = base.query_pairs().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let passed = |name: &str| name != "key" && !own.contains(&name.to_ascii_lowercase());
        for (name, value) in query_pairs(query).iter().filter(|(name, _)| passed(name)) {
            url.query_pairs_mut().append_pair(name, value);
        }
        url
    }
}

/// `models/NAME:METHOD`. Returns whether the method makes the model answer.
fn gemini(path: &str) -> Option<bool> {
    let (model, method) = path.strip_prefix("models/")?.split_once(':')?;
    let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | '@');
    if model.is_empty() || !model.chars().all(plain) {
        return None;
    }
    match method {
        "generateContent" | "streamGenerateContent" => Some(true),
        "countTokens" => Some(false),
        _ => None,
    }
}

/// The decoded pairs of a query.
pub(super) fn query_pairs(query: Option<&str>) -> Vec<(String, String)> {
    let mut url = Url::parse("http://proxy/").ok();
    if let Some(url) = &mut url {
        url.set_query(query);
    }
    url.iter().flat_map(Url::query_pairs).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [WireFormat; 4] = [WireFormat::Anthropic, WireFormat::Responses, WireFormat::ChatCompletions, WireFormat::Gemini];

    #[test]
    fn each_format_has_its_own_paths_and_no_others() {
        let served = |method: &Method, path: &str| {
            FORMATS.map(|format| Route::of(format, method, path).map_or('-', |route| if route.asks_model { 'm' } else { 'f' }))
        };
        let (post, get) = (&Method::POST, &Method::GET);
        for (method, path, expected) in [
            (post, "/v1/messages", "m---"),
            (post, "/v1/messages/count_tokens", "f---"),
            (post, "/v1/responses", "-m--"),
            (post, "/v1/chat/completions", "--m-"),
            (get, "/v1/models", "-ff-"),
            (post, "/v1beta/models/gemini-2.5-pro:generateContent", "---m"),
            (post, "/v1beta/models/gemini-2.5-pro:streamGenerateContent", "---m"),
            (post, "/v1beta/models/gemini-2.5-pro:countTokens", "---f"),
        ] {
            assert_eq!(served(method, path), *expected.chars().collect::<Vec<_>>(), "{path}");
            assert_eq!(served(&Method::DELETE, path), ['-'; 4], "{path}");
        }
        for path in [
            "/",
            "/v1/files",
            "/v1/messages/",
            "//v1/messages",
            "/v1/messages/batches",
            "/v1/../v1/messages",
            "/v1/responses/r_1",
            "/v1/%6dessages",
            "/messages",
            "/v1beta/models/:generateContent",
            "/v1beta/models/a/b:generateContent",
            "/v1beta/models/a%2f..:generateContent",
            "/v1beta/models/a:embedContent",
            "/v1beta/files",
        ] {
            assert_eq!(served(post, path), ['-'; 4], "{path}");
            assert_eq!(served(get, path), ['-'; 4], "{path}");
        }
    }

    #[test]
    fn a_request_goes_below_the_base_url_with_both_queries_and_without_a_key() {
        let route = Route::of(WireFormat::Gemini, &Method::POST, "/v1beta/models/g:streamGenerateContent").unwrap();
        for base in ["http://model:8/prefix/v1beta/?tenant=a", "http://model:8/prefix/v1beta?tenant=a"] {
            let url = route.url(&Url::parse(base).unwrap(), Some("alt=sse&key=token&x=%26"));
            assert_eq!(url.as_str(), "http://model:8/prefix/v1beta/models/g:streamGenerateContent?tenant=a&alt=sse&x=%26");
        }
        let base = Url::parse("http://model/v1beta/?api-version=A&tenant=a&key=k&%61lt=sse").unwrap();
        let url = route.url(&base, Some("api-version=B&Api-Version=C&tenant=&%74enant=b&key=x&alt=json&x=1"));
        assert_eq!(url.query(), Some("api-version=A&tenant=a&key=k&%61lt=sse&x=1"), "the program's value stands beside the configured one");
        assert_eq!(
            route.url(&Url::parse("http://m/v1beta/").unwrap(), Some("key=t")).as_str(),
            "http://m/v1beta/models/g:streamGenerateContent"
        );
    }
}
