//! Makes the graph of the files that it is given.

use std::collections::BTreeMap;

use super::{Graph, Node};
use crate::diagnostic::Diagnostics;
use crate::reading::Reading;
use crate::{Skill, Strictness};

#[derive(Debug, Default)]
pub(crate) struct Builder {}

impl Builder {
    pub(crate) fn add(&mut self, _reading: Reading<'_>, _below: &str, _content: Result<&str, (String, Option<u32>)>) {}
    pub(crate) fn add_skill(&mut self, _skill: &Skill) {}
    pub(crate) fn finish(self, _strictness: Strictness, _diagnostics: &mut Diagnostics) -> Graph { Graph::default() }
}

pub(super) struct Index<'graph> { nodes: &'graph BTreeMap<String, Node> }
impl<'graph> Index<'graph> {
    pub(super) fn of(nodes: &'graph BTreeMap<String, Node>) -> Self { Self { nodes } }
    pub(super) fn find(&self, text: &str) -> Result<String, Vec<String>> { if self.nodes.contains_key(text) { Ok(text.to_owned()) } else { Err(vec![]) } }
}
