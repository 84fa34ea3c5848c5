//! Skills and commands of an agent's tree.

use axum::http::StatusCode;
use serde_json::{Value, json};
use yoi_wire::assets::MAX_SEARCH_BYTES;

use crate::harness::TestCluster;

const ASSETS: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/assets";

#[tokio::test(flavor = "multi_thread")]
async fn a_search_reaches_the_runtime_as_it_was_written_and_a_reload_needs_a_right_of_its_own() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get assets");
    cluster.api.allow("jane", "create assets");
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let get = async |query: &str| cluster.request(&replica, "alice", "GET", &format!("{ASSETS}{query}"), None).await;
    assert_eq!(get("").await, (StatusCode::OK, json!({"query": ""})));
    let asked = (StatusCode::OK, json!({"query": "search=a%20b%26c"}));
    assert_eq!(get("?search=a%20b%26c&waitSeconds=0").await, asked);
    assert_eq!(get(&format!("?search={}", "x".repeat(MAX_SEARCH_BYTES + 1))).await.0, StatusCode::BAD_REQUEST);

    let post = async |user: &str, body: Value| cluster.request(&replica, user, "POST", ASSETS, Some(body)).await;
    assert_eq!(post("alice", json!({})).await.0, StatusCode::FORBIDDEN);
    for body in [json!("yes"), json!({"strict": 1}), json!({"sudo": true})] {
        assert_eq!(post("jane", body.clone()).await.0, StatusCode::BAD_REQUEST, "{body}");
    }
    assert!(a.state.steering.lock().unwrap().requests.is_empty());
    a.state.steering.lock().unwrap().answer = Some((200, json!({"generation": 3}).to_string()));
    assert_eq!(post("jane", json!({"strict": true})).await, (StatusCode::OK, json!({"generation": 3})));
    assert_eq!(a.state.steering.lock().unwrap().requests.pop().unwrap(), ("jane".to_owned(), json!({"strict": true})));
    let refusal = json!({"reason": "Invalid", "message": "nothing was loaded"});
    a.state.steering.lock().unwrap().answer = Some((409, refusal.to_string()));
    let (status, refused) = post("jane", json!({"strict": true})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("nothing was loaded"), "{refused}");
}
