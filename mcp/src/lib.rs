//! Serves tools over the Model Context Protocol on standard input and output: <https://modelcontextprotocol.io/specification/2025-11-25>.
//!
//! Tools and their calls come from a [`ToolSource`]. The server offers nothing else: no resources, no prompts, and it asks nothing of its
//! client.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::{Map, Value};
use yoi_wire::entry::OfferedTool;

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAnswer {
    /// What the model reads.
    pub text: String,
    /// Whether the tool did not do what it was asked.
    pub failed: bool,
}

/// Has the tools and runs them.
pub trait ToolSource: Send + Sync + 'static {
    /// The tools that are offered now.
    ///
    /// # Errors
    /// Why they are not known, as a sentence.
    fn list(&self) -> BoxFuture<'_, Result<Vec<OfferedTool>, String>>;

    /// Runs a call. Dropping the future ends it.
    ///
    /// # Errors
    /// Why nothing is known of the call, as a sentence.
    fn call(&self, tool: String, args: Value) -> BoxFuture<'_, Result<ToolAnswer, String>>;
}

/// The server ended before its client closed the connection.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("failed to agree with the client on the protocol")]
    Initialize(#[from] Box<ServerInitializeError>),
    #[error("failed to serve the client to its end: {0}")]
    Serve(String),
}

/// Serves standard input and output until the client closes them. `name` and `version` are this server's.
///
/// # Errors
/// The client does not begin as the protocol says, or the server breaks.
pub async fn serve_stdio(tools: impl ToolSource, name: &str, version: &str) -> Result<(), ServeError> {
    let server = ToolServer { tools: Arc::new(tools), own: Implementation::new(name, version) };
    let running = match server.serve(rmcp::transport::io::stdio_pipes()).await {
        Ok(running) => running,
        // A client that only looked whether the program starts.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Box::new(error).into()),
    };
    running.waiting().await.map(|_| ()).map_err(|error| ServeError::Serve(error.to_string()))
}

struct ToolServer<T> {
    tools: Arc<T>,
    own: Implementation,
}

impl<T: ToolSource> ServerHandler for ToolServer<T> {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_server_info(self.own.clone())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        const VERSIONS: &[ProtocolVersion] =
            &[ProtocolVersion::V_2024_11_05, ProtocolVersion::V_2025_03_26, ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25];
        Cow::Borrowed(VERSIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.list().await.map_err(|why| ErrorData::internal_error(why, None))?;
        Ok(ListToolsResult::with_all_items(tools.into_iter().map(tool).collect()))
    }

    async fn call_tool(&self, call: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(call.arguments.unwrap_or_default());
        let running = self.tools.call(call.name.into_owned(), args);
        let cancelled = context.ct.cancelled();
        let answer = match futures::future::select(running, Box::pin(cancelled)).await {
            futures::future::Either::Left((answer, _)) => answer,
            futures::future::Either::Right(_) => Err("the client has cancelled the call".to_owned()),
        };
        // What has failed is told as a result: the model reads it, and an error of the protocol it does not.
        let ToolAnswer { text, failed } = answer.unwrap_or_else(|text| ToolAnswer { text, failed: true });
        let content = vec![ContentBlock::text(text)];
        Ok(if failed { CallToolResult::error(content) } else { CallToolResult::success(content) }.into())
    }
}

fn tool(offered: OfferedTool) -> Tool {
    let schema = match offered.schema {
        Value::Object(schema) => schema,
        // A tool without arguments, which the protocol wants as an object.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::from_iter([("type".to_owned(), Value::from("object"))])
        }
    };
    Tool::new(offered.name, offered.description, schema)
}
