//! `ls -w`: a list that goes on, as `kubectl get -w` does.

use futures::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};

use super::rows::{RowOptions, Rows, say_unreadable};
use crate::args::{ListFilter, OutputFormat};
use crate::cluster::{Cluster, UnreadableObject, understood};
use crate::error::{self, Error, RefusalKind};
use crate::show::{self, Written};

/// Shows each object, and again whenever it changes, until standard output is closed.
pub async fn watch<R: Rows>(cluster: &Cluster, output: Option<OutputFormat>, filter: &ListFilter, rows: &R) -> Result<(), Error> {
    let api: Api<DynamicObject> = cluster.dynamic_api::<R::Object>(filter.all_namespaces);
    let config = filter.selector.as_ref().map_or_else(watcher::Config::default, |labels| watcher::Config::default().labels(labels));
    // The first answer tells whether the list may be read at all: a watch would go on trying.
    cluster.list_each::<R::Object>(filter.all_namespaces, filter.selector.as_deref()).await?;
    let options = RowOptions::new(cluster, output, filter);
    let mut lines = Lines::new(options.header(rows));
    let mut stream = watcher(api, config).default_backoff().boxed();
    let mut first = Vec::new();
    while let Some(event) = stream.next().await {
        let changed = match event {
            Ok(watcher::Event::Init) => continue,
            Ok(watcher::Event::InitApply(object)) => {
                first.push(object);
                continue;
            }
            Ok(watcher::Event::InitDone) => std::mem::take(&mut first),
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => vec![object],
            Err(error) if is_refusal(&error) => {
                let operation = format!("watch the {}", R::WHAT);
                let next = cluster.doctor_command(filter.all_namespaces);
                return Err(Error::refused_error(operation, error::watch_error_message(&error), next, RefusalKind::Forbidden));
            }
            // The watcher tries again by itself.
            Err(error) => {
                eprintln!("the list goes on when the API server answers: {}", show::one_line(&error::watch_error_message(&error)));
                continue;
            }
        };
        let changed: Vec<Result<R::Object, Box<UnreadableObject>>> = changed.into_iter().map(understood).collect();
        let changed: Vec<_> = changed.into_iter().filter(|object| object.as_ref().map_or(true, |object| rows.has(object))).collect();
        let is_table = matches!(output, None | Some(OutputFormat::Wide));
        let text = match output {
            None | Some(OutputFormat::Wide) => {
                let cells = changed.iter().map(|object| match object {
                    Ok(object) => options.row(rows, object),
                    Err(unreadable) => options.unreadable_row(rows, unreadable),
                });
                lines.text(cells.map(|row| row.iter().map(comfy_table::Cell::content).collect()).collect())
            }
            Some(OutputFormat::Name) => {
                let name = |object: &Result<R::Object, Box<UnreadableObject>>| match object {
                    Ok(object) => rows.name(object),
                    Err(unreadable) => Some(super::program_name::<R::Object>(&unreadable.name)),
                };
                changed.iter().filter_map(name).map(|name| name + "\n").collect()
            }
            Some(format) => {
                let document = |object: &Result<R::Object, Box<UnreadableObject>>| match object {
                    Ok(object) => show::document(format, object),
                    Err(unreadable) => show::document(format, &unreadable.object),
                };
                changed.iter().map(document).collect::<Result<String, _>>()?
            }
        };
        if !is_table || !R::HAS_MESSAGE {
            let unreadable: Vec<_> =
                changed.iter().filter_map(|object| object.as_ref().err().map(|unreadable| (**unreadable).clone())).collect();
            say_unreadable(R::WHAT, &unreadable);
        }
        if show::write(&text)? == Written::Closed {
            return Ok(());
        }
    }
    Ok(())
}

fn is_refusal(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => matches!(status.code, 401 | 403),
        _ => false,
    }
}

/// Lines of a table whose end is not known. A column never gets narrower.
struct Lines {
    header: Option<Vec<String>>,
    widths: Vec<usize>,
}

impl Lines {
    fn new(header: Vec<&'static str>) -> Self {
        let header: Vec<String> = header.into_iter().map(str::to_uppercase).collect();
        Lines { widths: vec![0; header.len()], header: Some(header) }
    }

    fn text(&mut self, rows: Vec<Vec<String>>) -> String {
        let rows: Vec<Vec<String>> = if rows.is_empty() { rows } else { self.header.take().into_iter().chain(rows).collect() };
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |row: &Vec<String>| {
            let cells: String = row.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
            format!("{}\n", cells.trim_end())
        };
        rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_stand_under_the_first_ones() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let mut lines = Lines::new(vec!["agent", "age"]);
        assert_eq!(lines.text(vec![]), "");
        assert_eq!(lines.text(vec![row(["alexandra", "1s"])]), "AGENT      AGE\nalexandra  1s\n");
        assert_eq!(lines.text(vec![row(["a", "2s"])]), "a          2s\n");
    }
}
