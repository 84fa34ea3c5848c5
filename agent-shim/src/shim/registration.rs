//! The registration service: tells the kubelet where the CSI socket is.

use std::path::PathBuf;

use tokio::sync::mpsc::UnboundedSender;
use tonic::{Request, Response, Status};
use yoi_wire::identity::CSI_DRIVER;

use crate::proto::registration::registration_server::Registration;
use crate::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};

/// Serves the kubelet's plugin registration.
pub struct Registrar {
    /// Path of the CSI socket.
    pub endpoint: PathBuf,
    /// Receives the kubelet's error if it refuses the driver. The kubelet looks again only at a new socket, so the process must then end.
    pub refused: UnboundedSender<String>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: CSI_DRIVER.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!("the kubelet took the driver");
        } else {
            // The receiver is gone only when the process already ends.
            _ = self.refused.send(status.error);
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
