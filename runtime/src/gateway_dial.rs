//! How the gateway is dialled.

use std::path::Path;
use std::time::Duration;

use yoi_line::{Dial, TextSource, Timings};
use yoi_wire::hub::gateway_api;
use yoi_wire::manifest::Gateway;

const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The settings of connections to the gateway at `address`, with the token in a file.
pub fn dial(gateway: &Gateway, token: &Path, address: &str) -> Dial {
    Dial {
        address: address.to_owned(),
        server_name: gateway.server_name.clone(),
        ca_pem: TextSource::fixed(gateway.ca.clone()),
        path: gateway_api::LINE.to_owned(),
        token: TextSource::file(token.to_owned()),
        timings: Timings { drain: DRAIN_TIMEOUT, ..Timings::default() },
    }
}
