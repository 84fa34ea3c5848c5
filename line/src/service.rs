//! The service that answers requests, boxed.
//!
//! Every public function takes any service and boxes it once. One box per request costs little beside the request; in return the
//! connection code is compiled once, and not once for every router.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Incoming};
use tower::ServiceExt;
use tower::util::BoxCloneService;

/// Any error of a service or of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A boxed error. It is a type of its own because hyper requires `Into<BoxError>`, which the compiler cannot prove for `BoxError` in a task
/// that is `Send`.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct OpaqueError(BoxError);

pub(crate) type BoxBody = UnsyncBoxBody<Bytes, OpaqueError>;

/// A boxed [`HttpService`].
pub struct BoxedService(pub(crate) BoxCloneService<Request<Incoming>, Response<BoxBody>, OpaqueError>);

impl Clone for BoxedService {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Any tower service from `Request<Incoming>` to a `Response` with a body of `Bytes`. An `axum::Router` is one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer on a line",
    note = "it takes a `tower::Service<Request<hyper::body::Incoming>>` that is Clone + Send + 'static and answers `Response<impl Body<Data = Bytes>>`"
)]
pub trait HttpService: Send + 'static {
    #[doc(hidden)]
    fn into_boxed(self) -> BoxedService;
}

impl<S, B> HttpService for S
where
    S: tower::Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn into_boxed(self) -> BoxedService {
        let service = self.map_response(|response: Response<B>| response.map(boxed)).map_err(|error| OpaqueError(error.into()));
        BoxedService(BoxCloneService::new(service))
    }
}

pub(crate) fn boxed<B>(body: B) -> BoxBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(|error| OpaqueError(error.into())).boxed_unsync()
}
