//! From a name to a TLS stream, for lines and for [`RequestClient`](crate::RequestClient).

use crate::dial::Dial;
use crate::error::LineError;
use crate::tls::{TlsError, client_config};
use http::HeaderValue;
use rustls::pki_types::ServerName;
use std::io::ErrorKind;
use std::net::SocketAddr;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Calls `open` with each address of `dial.address` in the resolver's order, until one call succeeds. The error is that of the last call.
pub(crate) async fn open_first<T, F>(dial: &Dial, open: impl Fn(SocketAddr) -> F) -> Result<T, LineError>
where
    F: Future<Output = Result<T, LineError>>,
{
    let mut last = LineError::Resolve { address: dial.address.clone(), source: ErrorKind::NotFound.into() };
    for address in resolve(dial).await? {
        match open(address).await {
            Ok(opened) => return Ok(opened),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn resolve(dial: &Dial) -> Result<Vec<SocketAddr>, LineError> {
    let after = dial.timings.connect;
    let addresses = timeout(after, lookup_host(&dial.address))
        .await
        .map_err(|_| LineError::TimedOut { operation: "resolve and speak", address: dial.address.clone(), after })?
        .map_err(|source| LineError::Resolve { address: dial.address.clone(), source })?;
    Ok(addresses.collect())
}

/// Connects TCP and TLS to one address, each within `timings.connect`.
pub(crate) async fn connect(dial: &Dial, address: SocketAddr, alpn: &[u8]) -> Result<TlsStream<TcpStream>, LineError> {
    let after = dial.timings.connect;
    let late = |operation| move |_| LineError::TimedOut { operation, address: address.to_string(), after };
    let config = client_config(&dial.ca_pem.read()?, alpn)?;
    let server_name =
        ServerName::try_from(dial.server_name.clone()).map_err(|source| TlsError::ServerName { name: dial.server_name.clone(), source })?;

    let tcp = timeout(after, TcpStream::connect(address))
        .await
        .map_err(late("connect"))?
        .map_err(|source| LineError::Unreachable { address: address.to_string(), source })?;
    // Requests are small and responses are awaited, so Nagle's algorithm only adds delay.
    let _ = tcp.set_nodelay(true);

    timeout(after, TlsConnector::from(config).connect(server_name, tcp)).await.map_err(late("agree on TLS"))?.map_err(|source| {
        let address = address.to_string();
        // A connection that breaks during the handshake is no evidence about certificates.
        match source.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
            true => LineError::Tls { address, server_name: dial.server_name.clone(), source },
            false => LineError::Unreachable { address, source },
        }
    })
}

/// `Bearer <token>` with the current token, marked sensitive so that no layer prints it.
pub(crate) fn authorization(dial: &Dial) -> Result<HeaderValue, LineError> {
    let token = dial.token.read()?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(LineError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}
