//! A line set dials again whatever ends.

use crate::harness::*;
use axum::http::StatusCode;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use yoi_line::*;

#[tokio::test]
async fn a_line_that_drops_is_dialled_again_with_the_current_token() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "first").unwrap();
    let (_addresses, found) = watch::channel(vec![gateway.address]);
    let lines = keep_lines(Dial { token: TextSource::file(&token), ..dial(&ca, gateway.address) }, found, hello_service());

    let line = gateway.line().await;
    wait_for_state(&lines, "the line", LineSetState::all_up).await;
    std::fs::write(&token, "second").unwrap();
    let mut seen = lines.state();
    seen.mark_unchanged();
    line.close();
    let down = wait_for("the drop in the state", seen.wait_for(|state| state.up() == 0)).await.unwrap().clone();
    assert_eq!(down.last_error.map(|failure| failure.class), Some(FailureClass::Lost));

    assert_says_hello(&gateway.line().await).await;
    assert_eq!(gateway.tokens(), ["first", "second"]);
    let up = wait_for_state(&lines, "the line again", LineSetState::all_up).await;
    assert_eq!(up.last_error, None);
}

#[tokio::test]
async fn lines_come_back_after_the_server_restarted() {
    let ca = Ca::new();
    let reserved = ReservedAddress::new();
    let mut gateway = Gateway::start_at(&ca, &reserved).await;
    let (_addresses, found) = watch::channel(vec![reserved.address()]);
    let lines = keep_lines(dial(&ca, reserved.address()), found, hello_service());
    let line = gateway.line().await;
    wait_for_state(&lines, "the line", LineSetState::all_up).await;

    gateway.stop().await;
    line.close();
    let gone = wait_for_state(&lines, "the refusal to connect", |state| {
        state.last_error.as_ref().is_some_and(|failure| failure.class == FailureClass::Unreachable)
    })
    .await;
    assert_eq!((gone.up(), gone.address_count()), (0, 1));

    let mut gateway = Gateway::start_at(&ca, &reserved).await;
    assert_says_hello(&gateway.line().await).await;
    wait_for_state(&lines, "the line again", LineSetState::all_up).await;
}

#[tokio::test]
async fn every_address_has_a_line_and_a_removed_address_loses_its_line() {
    let ca = Ca::new();
    let (mut one, mut two) = (Gateway::start(&ca).await, Gateway::start(&ca).await);
    let (addresses, found) = watch::channel(vec![one.address]);
    let lines = keep_lines(dial(&ca, one.address), found, hello_service());
    let first = one.line().await;
    wait_for_state(&lines, "one line", |state| state.up() == 1).await;

    addresses.send_replace(vec![two.address, one.address, one.address]);
    let second = two.line().await;
    wait_for_state(&lines, "two lines", |state| state.up() == 2 && state.address_count() == 2).await;
    assert_says_hello(&first).await;
    assert_says_hello(&second).await;

    addresses.send_replace(vec![two.address]);
    assert_eq!(wait_for("the first line's end", first.closed()).await, LineEnd::ClosedByPeer);
    let left = wait_for_state(&lines, "one line left", |state| state.address_count() == 1).await;
    assert_eq!(left.lines.keys().collect::<Vec<_>>(), [&two.address]);
    assert_says_hello(&second).await;
    assert_eq!(one.tokens().len(), 1, "the removed address was dialled again");
}

#[tokio::test]
async fn a_resolver_that_fails_ends_no_line() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let address = gateway.address;
    let (answers, asked) = watch::channel(0usize);
    let answers = Arc::new(answers);
    let mut asked = asked;
    let resolver = Resolver::from_fn(move || {
        let mut n = 0;
        answers.send_modify(|asked| {
            *asked += 1;
            n = *asked;
        });
        async move {
            match n {
                1 => Ok(vec![address]),
                n if n % 3 == 0 => Ok(Vec::<SocketAddr>::new()),
                _ => Err(std::io::Error::other("no such host")),
            }
        }
    });
    let lines = LineSet::keep(resolver, dial(&ca, address), hello_service(), policy(), Arc::new(|| 0.0));
    let line = gateway.line().await;
    wait_for("many failed resolutions", asked.wait_for(|asked| *asked > 10)).await.unwrap();
    assert_says_hello(&line).await;
    let state = lines.state().borrow().clone();
    assert_eq!(state.up(), 1);
    assert_eq!(state.last_error.map(|failure| failure.class), Some(FailureClass::Unreachable));
}

#[tokio::test]
async fn a_refusal_is_reported_until_the_line_is_accepted() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    *gateway.state.refuse.lock().unwrap() = Some(StatusCode::UNAUTHORIZED);
    let (_addresses, found) = watch::channel(vec![gateway.address]);
    let lines = keep_lines(dial(&ca, gateway.address), found, hello_service());
    let state = wait_for_state(&lines, "the refusal", |state| state.last_error.is_some()).await;
    let failure = state.last_error.unwrap();
    assert_eq!(failure.class, FailureClass::Refused);
    assert!(failure.message.contains("who are you?"), "{failure}");
    assert_eq!(state.lines[&gateway.address], LineState::Down(failure));

    *gateway.state.refuse.lock().unwrap() = None;
    assert_says_hello(&gateway.line().await).await;
    assert_eq!(wait_for_state(&lines, "the line", LineSetState::all_up).await.last_error, None);
}

#[tokio::test]
async fn a_ca_that_was_replaced_is_trusted_at_the_next_dial() {
    let (old, new) = (Ca::new(), Ca::new());
    let mut gateway = Gateway::start(&old).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, &new.pem).unwrap();
    let (_addresses, found) = watch::channel(vec![gateway.address]);
    let lines = keep_lines(Dial { ca_pem: TextSource::file(&ca), ..dial(&old, gateway.address) }, found, hello_service());
    wait_for_state(&lines, "a certificate of another CA", |state| {
        state.last_error.as_ref().is_some_and(|failure| failure.class == FailureClass::Tls)
    })
    .await;
    // The server's certificate is replaced while it serves.
    let pair = new.server();
    gateway.tls.send_replace(tls_server_config(&pair.cert, &pair.key, &ClientAuth::None).unwrap());
    assert_says_hello(&gateway.line().await).await;
    std::fs::write(&ca, &old.pem).unwrap();
    lines.stop().await;
}

#[tokio::test]
async fn lines_that_are_stopped_or_dropped_end_at_the_gateway_too() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let (_addresses, found) = watch::channel(vec![gateway.address]);
    let lines = keep_lines(dial(&ca, gateway.address), found.clone(), hello_service());
    let line = gateway.line().await;
    // The gateway has the line a moment before the dialler does.
    wait_for_state(&lines, "the line", LineSetState::all_up).await;
    let mut state = lines.state();
    wait_for("the stop", lines.stop()).await;
    assert_eq!(wait_for("the end", line.closed()).await, LineEnd::ClosedByPeer);
    assert!(state.borrow_and_update().lines.is_empty());
    assert!(state.changed().await.is_err(), "the state is still updated");

    let lines = keep_lines(dial(&ca, gateway.address), found, hello_service());
    let line = gateway.line().await;
    drop(lines);
    wait_for("the end", line.closed()).await;
}

#[tokio::test]
async fn a_name_is_resolved_to_its_addresses() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let dial = dial(&ca, gateway.address);
    let lines = LineSet::keep(Resolver::dns(dial.address.clone()), dial, hello_service(), policy(), Arc::new(|| 0.5));
    assert_says_hello(&gateway.line().await).await;
    lines.stop().await;
}
