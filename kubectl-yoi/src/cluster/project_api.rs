//! The aggregated API: what a project takes.

use yoi_crds::YoiProject;
use yoi_wire::people::{GROUP, VERSION};
use yoi_wire::sync::{SyncQuery, SyncResponse};

use super::Cluster;
use super::agent_api::{REPEAT_LOST, RETRY_AFTER, is_lost};
use crate::error::Error;

impl Cluster {
    /// Sends a part of a working tree's bundle. A request whose answer was lost is sent again: the same part counts once.
    pub async fn send_tree(&self, project: &str, query: &SyncQuery, part: &[u8]) -> Result<SyncResponse, Error> {
        let SyncQuery { machine, commit, previous, captured_at, sha256, bytes, part: number, part_sha256 } = query;
        // All of these are letters that a query may hold.
        let previous = previous.as_ref().map_or(String::new(), |previous| format!("&previous={previous}"));
        let of_part = format!("bytes={bytes}&part={number}&partSha256={part_sha256}");
        let query = format!("machine={machine}&commit={commit}{previous}&capturedAt={captured_at}&sha256={sha256}&{of_part}");
        let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{}/yoiprojects/{project}/sync?{query}", self.namespace);
        let failed = |error| self.api_error::<YoiProject>("sync the working tree to", project)(error);
        let mut tried = 0;
        loop {
            let request = http::Request::post(&path).header(http::header::CONTENT_TYPE, "application/octet-stream").body(part.to_vec());
            match self.client.request(request.map_err(|error| failed(kube::Error::HttpError(error)))?).await {
                Err(error) if is_lost(&error) && tried < REPEAT_LOST => tried += 1,
                answer => return answer.map_err(failed),
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}
