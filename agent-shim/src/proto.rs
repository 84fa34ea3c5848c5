//! The gRPC interfaces that the kubelet speaks, generated from `proto/`.

#[allow(clippy::all, clippy::pedantic, dead_code)]
pub mod csi {
    include!("proto/csi.v1.rs");
}
#[allow(clippy::all, clippy::pedantic, dead_code)]
pub mod registration {
    include!("proto/pluginregistration.rs");
}
