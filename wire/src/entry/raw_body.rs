//! How a [`Body`] is written as JSON. A kind that this version does not know is kept whole.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Body;

/// The JSON of a [`Body`]: `{"kind": "...", "optional": true?, "body": {...}}`.
#[derive(Serialize, Deserialize)]
pub(super) struct RawBody {
    kind: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
    #[serde(default)]
    body: Value,
}

macro_rules! kinds {
    ($($kind:ident),+ $(,)?) => {
        impl From<RawBody> for Body {
            fn from(raw: RawBody) -> Self {
                match raw.kind.as_str() {
                    $(stringify!($kind) => match serde_json::from_value(raw.body.clone()) {
                        Ok(body) => Body::$kind(body),
                        Err(_) => Body::Unknown { kind: raw.kind, optional: raw.optional, fields: raw.body },
                    },)+
                    _ => Body::Unknown { kind: raw.kind, optional: raw.optional, fields: raw.body },
                }
            }
        }
        impl From<Body> for RawBody {
            fn from(body: Body) -> Self {
                match body {
                    $(Body::$kind(inner) => RawBody {
                        kind: stringify!($kind).to_owned(),
                        optional: matches!(stringify!($kind), "Extension"),
                        body: serde_json::to_value(inner).unwrap_or(Value::Null),
                    },)+
                    Body::Unknown { kind, optional, fields } => RawBody { kind, optional, body: fields },
                }
            }
        }
        impl Body {
            /// The kind in JSON.
            #[must_use]
            pub fn kind(&self) -> &str {
                match self {
                    $(Body::$kind(_) => stringify!($kind),)+
                    Body::Unknown { kind, .. } => kind,
                }
            }
        }
    };
}

kinds!(
    SessionStarted,
    RuntimeStarted,
    Input,
    PeerMessage,
    RunStarted,
    Assistant,
    ToolRequested,
    ToolAsked,
    ToolAnswered,
    ToolStarted,
    ToolEnded,
    RunEnded,
    Notice,
    SegmentStarted,
    Carried,
    ConfigChanged,
    SystemItem,
    Paused,
    Resumed,
    Abandoned,
    RolledBack,
    Rewound,
    ModeSwitched,
    Usage,
    CompactionStarted,
    CompactionEnded,
    Extension,
);
