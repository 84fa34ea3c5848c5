//! The aggregated API: what a project takes.

use yoi_crds::YoiProject;
use yoi_wire::people::{GROUP, VERSION};
use yoi_wire::sync::{SyncQuery, SyncResponse};

use super::Cluster;
use super::agent_api::{REPEAT_LOST, RETRY_AFTER, is_lost};
use crate::error::Error;

impl Cluster {
    /// Sends a working tree. A request whose answer was lost is sent again: the same commit counts once.
    pub async fn send_tree(&self, project: &str, query: &SyncQuery, bundle: &[u8]) -> Result<SyncResponse, Error> {
        let SyncQuery { machine, commit, previous, captured_at, sha256 } = query;
        // All of these are letters that a query may hold.
        let previous = previous.as_ref().map_or(String::new(), |previous| format!("&previous={previous}"));
        let query = format!("machine={machine}&commit={commit}{previous}&capturedAt={captured_at}&sha256={sha256}");
        let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{}/yoiprojects/{project}/sync?{query}", self.namespace);
        let failed = |error| self.api_error::<YoiProject>("sync the working tree to", project)(error);
        for _ in 0..REPEAT_LOST {
            let request = http::Request::post(&path).header(http::header::CONTENT_TYPE, "application/octet-stream").body(bundle.to_vec());
            match self.client.request(request.map_err(|error| failed(kube::Error::HttpError(error)))?).await {
                Err(error) if is_lost(&error) => tokio::time::sleep(RETRY_AFTER).await,
                answer => return answer.map_err(failed),
            }
        }
        let request = http::Request::post(&path).header(http::header::CONTENT_TYPE, "application/octet-stream").body(bundle.to_vec());
        self.client.request(request.map_err(|error| failed(kube::Error::HttpError(error)))?).await.map_err(failed)
    }
}
