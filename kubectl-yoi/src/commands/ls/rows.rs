//! What a kind shows of an object in a table.

use comfy_table::Cell;
use kube::ResourceExt;

use crate::args::{ListFilter, OutputFormat};
use crate::cluster::{Cluster, NamespacedObject};
use crate::show;

/// The columns of a kind.
pub trait Rows {
    type Object: NamespacedObject;
    /// What the list holds, for the sentence when it is empty.
    const WHAT: &'static str;

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
        Some(super::object_name(object))
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
}

/// Returns a table of objects, or the sentence for none.
pub fn table<R: Rows>(rows: &R, objects: &[R::Object], options: &RowOptions) -> String {
    if objects.is_empty() {
        return show::empty_list(R::WHAT, options.namespace.as_deref());
    }
    let mut table = show::table(&options.header(rows));
    for object in objects {
        table.add_row(options.row(rows, object));
    }
    show::lines(&table)
}
