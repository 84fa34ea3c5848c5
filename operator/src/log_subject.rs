//! The object that a log line is about: the same fields on every line.

use kube::{Resource, ResourceExt};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogSubject {
    pub kind: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Of YoiPods only.
    pub run_generation: Option<i64>,
}

impl LogSubject {
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>(object: &K, run_generation: Option<i64>) -> Self {
        LogSubject {
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            run_generation,
        }
    }

    /// `namespace/name`, as in the logs of all processes of Yoi.
    #[must_use]
    pub fn object(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

/// A log line about an object. The level means: error, someone must act; warn, recovered oddness; info, a change made; debug, a decision.
macro_rules! log_for {
    ($level:ident, $subject:expr, $($rest:tt)+) => {{
        let about: &$crate::log_subject::LogSubject = $subject;
        tracing::$level!(
            kind = about.kind,
            object = about.object(),
            uid = about.uid,
            run = about.run_generation,
            $($rest)+
        )
    }};
}
pub(crate) use log_for;
