//! Tests of the endpoint, over HTTP.
