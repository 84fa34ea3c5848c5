//! The agent and its session in each line of the process's own log.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use yoi_wire::entry::AgentRef;

/// The agent and session of this process, as far as they are known. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LogOrigin(Arc<RwLock<OriginFields>>);

#[derive(Debug, Default)]
struct OriginFields {
    agent: Option<(AgentRef, u64)>,
    session: Option<String>,
}

impl LogOrigin {
    /// Adds the agent to all further lines.
    pub fn set_agent(&self, agent: &AgentRef, run_generation: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).agent = Some((agent.clone(), run_generation));
    }

    /// Adds the session to all further lines.
    pub fn set_session(&self, id: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).session = Some(id.to_owned());
    }

    /// The fields as text of a JSON object, each with a comma after it.
    fn fields(&self) -> String {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut fields = String::new();
        if let Some((agent, run)) = &known.agent {
            let (object, uid) = (json!(agent.to_string()), json!(agent.uid));
            fields.push_str(&format!("\"object\":{object},\"uid\":{uid},\"run\":{run},"));
        }
        if let Some(session) = &known.session {
            fields.push_str(&format!("\"session\":{},", json!(session)));
        }
        fields
    }
}

/// Writes the origin's fields before the first field of each JSON line of another format.
pub struct WithOrigin<F> {
    format: F,
    origin: LogOrigin,
}

impl<F> WithOrigin<F> {
    #[must_use]
    pub fn new(format: F, origin: LogOrigin) -> Self {
        Self { format, origin }
    }
}

impl<S, N, F> FormatEvent<S, N> for WithOrigin<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        match line.strip_prefix('{') {
            Some(rest) => write!(writer, "{{{}{rest}", self.origin.fields()),
            None => writer.write_str(&line),
        }
    }
}
