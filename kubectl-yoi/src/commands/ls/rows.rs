//! What a kind shows of an object in a table.

use comfy_table::Cell;
use kube::ResourceExt;

use crate::args::{ListFilter, OutputFormat};
use crate::cluster::{Cluster, Listed, NamespacedObject, UnreadableObject};
use crate::show;

/// The columns of a kind.
pub trait Rows {
    type Object: NamespacedObject;
    /// What the list holds, for the sentence when it is empty.
    const WHAT: &'static str;
    /// Whether a row says why an object is not ready.
    const HAS_MESSAGE: bool = true;

    /// The header, without the namespace's.
    fn header(&self, wide: bool) -> Vec<&'static str>;

    /// One object, in the header's order.
    fn row(&self, object: &Self::Object, wide: bool) -> Vec<Cell>;

    /// Whether the list has this object.
    fn has(&self, _object: &Self::Object) -> bool {
        true
    }

    /// The name for programs; `None` when what is listed has none yet.
    fn name(&self, object: &Self::Object) -> Option<String> {
        Some(super::program_name::<Self::Object>(&object.name_any()))
    }
}

/// How a table is drawn.
pub struct RowOptions {
    /// The one namespace that is listed; `None` gives the table a column for it.
    pub namespace: Option<String>,
    pub wide: bool,
}

impl RowOptions {
    pub fn new(cluster: &Cluster, output: Option<OutputFormat>, filter: &ListFilter) -> Self {
        RowOptions { namespace: (!filter.all_namespaces).then(|| cluster.namespace.clone()), wide: output == Some(OutputFormat::Wide) }
    }

    pub fn header<R: Rows>(&self, rows: &R) -> Vec<&'static str> {
        let namespace = self.namespace.is_none().then_some("namespace");
        namespace.into_iter().chain(rows.header(self.wide)).collect()
    }

    pub fn row<R: Rows>(&self, rows: &R, object: &R::Object) -> Vec<Cell> {
        let namespace = self.namespace.is_none().then(|| show::cell(object.namespace().unwrap_or_default()));
        namespace.into_iter().chain(rows.row(object, self.wide)).collect()
    }

    /// One object that cannot be read, under the same header: its name, and why.
    pub fn unreadable_row<R: Rows>(&self, rows: &R, object: &UnreadableObject) -> Vec<Cell> {
        let namespace = self.namespace.is_none().then(|| show::cell(&object.namespace));
        let cells = rows.header(self.wide).into_iter().enumerate().map(|(at, column)| match (at, column) {
            (0, _) => show::cell(&object.name),
            (_, "ready") => show::cell("Unknown"),
            (_, "reason") => show::cell("Unreadable"),
            (_, "message") => show::cell(&object.error),
            (_, _) => show::cell(""),
        });
        namespace.into_iter().chain(cells).collect()
    }
}

/// Returns a table of objects, or the sentence for none. It ends with those that cannot be read.
pub fn table<R: Rows>(rows: &R, listed: &Listed<R::Object>, options: &RowOptions) -> String {
    if listed.objects.is_empty() && listed.unreadable.is_empty() {
        return show::empty_list(R::WHAT, options.namespace.as_deref());
    }
    let mut table = show::table(&options.header(rows));
    for object in &listed.objects {
        table.add_row(options.row(rows, object));
    }
    for object in &listed.unreadable {
        table.add_row(options.unreadable_row(rows, object));
    }
    show::lines(&table)
}

/// Says on standard error which objects cannot be read, where the list itself has no place for it.
pub fn say_unreadable(what: &str, unreadable: &[UnreadableObject]) {
    for UnreadableObject { namespace, name, error, object: _ } in unreadable {
        eprintln!("one of the {what} cannot be read: {}", show::one_line(&format!("{namespace}/{name}: {error}")));
    }
}
