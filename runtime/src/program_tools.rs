//! `yoi-runtime mcp`: offers the runtime's tools to a program. PID 1 runs them; this process only passes calls on.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use yoi_engine::error_text::error_text;
use yoi_mcp::{ToolAnswer, ToolSource};
use yoi_wire::entry::{OfferedTool, ToolOutcome};

use crate::args::ProgramEnd;
use crate::program_socket::{Answer, Method, Request, ask};

/// The tools of the runtime, by its socket.
#[derive(Debug)]
pub struct RuntimeTools {
    end: ProgramEnd,
}

impl RuntimeTools {
    /// The tools of the run whose socket and token these are.
    #[must_use]
    pub fn new(end: ProgramEnd) -> Self {
        Self { end }
    }

    async fn ask(&self, method: Method) -> Result<Answer, String> {
        let request = Request { token: self.end.token.clone(), method };
        ask(&self.end.socket, &request).await.map_err(|error| error_text(&error))
    }
}

impl ToolSource for RuntimeTools {
    fn list(&self) -> BoxFuture<'_, Result<Vec<OfferedTool>, String>> {
        async {
            match self.ask(Method::ListTools).await? {
                Answer::Tools { tools } => Ok(tools),
                Answer::Refused { message } => Err(message),
                Answer::Done | Answer::Ended { .. } => Err("the runtime answered another question".to_owned()),
            }
        }
        .boxed()
    }

    fn call(&self, tool: String, args: Value) -> BoxFuture<'_, Result<ToolAnswer, String>> {
        async {
            match self.ask(Method::CallTool { tool, args }).await? {
                Answer::Ended { outcome, output } => Ok(ToolAnswer { text: output, failed: outcome != ToolOutcome::Succeeded }),
                Answer::Refused { message } => Err(message),
                Answer::Done | Answer::Tools { .. } => Err("the runtime answered another question".to_owned()),
            }
        }
        .boxed()
    }
}
