//! The aggregated API: what agents answer themselves.

use futures::{AsyncBufRead, TryStreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use yoi_crds::YoiPod;
use yoi_wire::people::{GROUP, VERSION};

use super::Cluster;
use crate::error::Error;

impl Cluster {
    /// Returns the error for a request to an agent that cannot be built.
    fn invalid_request(&self, name: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        let operation = format!("write a request to {}", self.display_name::<YoiPod>(name));
        Error::local(operation, error, "check its name, the namespace and the words of the command line")
    }

    fn runtime_path(&self, name: &str, subresource: &str) -> String {
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/yoipods/{name}/{subresource}", self.namespace)
    }

    /// Opens a `GET` of a subresource of the aggregated API.
    pub async fn stream(&self, name: &str, subresource: &str, query: &str) -> Result<impl AsyncBufRead + use<>, Error> {
        let request = http::Request::get(format!("{}?{query}", self.runtime_path(name, subresource)))
            .body(Vec::new())
            .map_err(|e| self.invalid_request(name, e))?;
        self.client.request_stream(request).await.map_err(self.api_error::<YoiPod>(&format!("read the {subresource} of"), name))
    }

    pub async fn fetch<T: DeserializeOwned>(&self, name: &str, subresource: &str, query: &str) -> Result<T, Error> {
        let path = format!("{}?{query}", self.runtime_path(name, subresource));
        let request = http::Request::get(path).body(Vec::new()).map_err(|e| self.invalid_request(name, e))?;
        self.client.request(request).await.map_err(self.api_error::<YoiPod>(&format!("read the {subresource} of"), name))
    }

    pub async fn post<T: DeserializeOwned>(&self, name: &str, subresource: &str, body: &impl Serialize) -> Result<T, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        let request = http::Request::post(self.runtime_path(name, subresource))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(bytes)
            .map_err(|e| self.invalid_request(name, e))?;
        self.client.request(request).await.map_err(self.api_error::<YoiPod>(&format!("post a {subresource} to"), name))
    }
}

/// Splits a stream into lines without their newline.
pub fn lines(reader: impl AsyncBufRead + Unpin) -> impl futures::Stream<Item = std::io::Result<String>> {
    futures::AsyncBufReadExt::lines(reader).into_stream()
}
