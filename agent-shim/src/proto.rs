//! The gRPC interfaces that the kubelet speaks, generated from `proto/`.

/// Container Storage Interface.
#[allow(missing_docs, clippy::all, clippy::pedantic, dead_code)]
pub mod csi {
    include!("proto/csi.v1.rs");
}
/// The kubelet's plugin registration.
#[allow(missing_docs, clippy::all, clippy::pedantic, dead_code)]
pub mod registration {
    include!("proto/pluginregistration.rs");
}
