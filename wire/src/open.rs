//! Enums whose values another version may extend.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An enum whose values have fixed names.
pub trait NamedValue: Copy + Eq + 'static {
    /// Every value.
    const ALL: &'static [Self];

    /// The name of the value in JSON. No two values have the same.
    fn as_str(self) -> &'static str;
}

/// Names the values of an enum, each once: `as_str`, and [`NamedValue`] with all of them.
macro_rules! named_values {
    ($type:ident: $($value:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// The name of the value.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        impl $crate::open::NamedValue for $type {
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn as_str(self) -> &'static str {
                self.as_str()
            }
        }
    };
}
pub(crate) use named_values;

/// A value of the enum `T`, or the name of one that this version does not know.
///
/// It is a string in JSON and in schemas. A name that was read is written again unchanged, so that an older process does not spoil the field
/// of a newer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open<T> {
    /// A value of this version.
    Known(T),
    /// The name of a value of another version.
    Other(String),
}

impl<T: NamedValue> Open<T> {
    /// The name of the value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Open::Known(value) => value.as_str(),
            Open::Other(name) => name,
        }
    }

    /// The value, if this version knows it.
    #[must_use]
    pub fn known(&self) -> Option<T> {
        match self {
            Open::Known(value) => Some(*value),
            Open::Other(_) => None,
        }
    }
}

impl<T: NamedValue> From<T> for Open<T> {
    fn from(value: T) -> Self {
        Open::Known(value)
    }
}

impl<T: NamedValue> PartialEq<T> for Open<T> {
    fn eq(&self, value: &T) -> bool {
        self.known() == Some(*value)
    }
}

impl<T: NamedValue> fmt::Display for Open<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<T: NamedValue> Serialize for Open<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de, T: NamedValue> Deserialize<'de> for Open<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(from)?;
        let known = T::ALL.iter().copied().find(|value| value.as_str() == name);
        Ok(known.map_or_else(|| Open::Other(name.into_owned()), Open::Known))
    }
}

impl<T> JsonSchema for Open<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "string".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::{Activity, ReportReason, TaskState};

    fn is_read_and_written_by_name<T: NamedValue + fmt::Debug>() {
        for value in T::ALL {
            let json = serde_json::to_string(&Open::from(*value)).unwrap();
            assert_eq!(json, format!("\"{}\"", value.as_str()));
            assert_eq!(serde_json::from_str::<Open<T>>(&json).unwrap(), *value);
        }
    }

    #[test]
    fn every_value_is_read_and_written_by_its_name() {
        is_read_and_written_by_name::<Activity>();
        is_read_and_written_by_name::<ReportReason>();
        is_read_and_written_by_name::<TaskState>();
    }

    #[test]
    fn a_value_of_another_version_is_written_as_it_was_read() {
        let state: Open<TaskState> = serde_json::from_str(r#""Dreaming""#).unwrap();
        assert_eq!(state, Open::Other("Dreaming".to_owned()));
        assert_eq!((state.known(), state.as_str()), (None, "Dreaming"));
        assert_eq!(serde_json::to_string(&state).unwrap(), r#""Dreaming""#);
    }
}
