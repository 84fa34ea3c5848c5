use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

mod http;

#[tokio::test]
async fn a_call_that_panics_fails_and_the_next_one_is_answered() {
    let calls = AtomicUsize::new(0);
    let client = ModelClient::start(ModelConfig::default(), move |_, _| {
        let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            assert!(!first, "as a client that does not expect this answer");
            Ok(Assistant { text: "here".to_owned(), ..Assistant::default() })
        }
    })
    .unwrap();
    let request = ModelRequest { config: Arc::default(), items: Arc::default(), offer_tools: true };
    assert!(client.call(request.clone(), DeltaSink::none()).await.is_err());
    assert_eq!(client.call(request, DeltaSink::none()).await.unwrap().text, "here");
}
