//! What can be changed in a request that an endpoint refuses, so that the conversation goes on. Does no I/O.
//!
//! Nothing of it is changed in the log. What has helped is kept for the life of the process, so that the next request is not refused again.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;
use yoi_wire::entry::{AgentConfig, AnswerPart, Image, ModelConfig, PromptItem, PromptToolResult};

use crate::model::ModelRequest;
use crate::model::failure::{HistoryFault, ModelFailureClass, OutputLimit, Refusal, lower_output_limit};
use crate::model::format::{RequestParts, Server, WireFormat};

/// Words of a model that takes no picture at all, in lower case.
const NO_PICTURES: [&str; 9] = [
    "not support image",
    "not support vision",
    "support image input",
    "image input is not",
    "image_url is only supported",
    "expected `text`",
    "only supports text",
    "not multimodal",
    "not a multimodal",
];

/// Words about the order of messages, in lower case.
const ORDER_WORDS: [&str; 7] = [
    // The templates of Mistral's and Google's open models, and others made after them.
    "must alternate",
    "alternate between",
    "alternating",
    // Mistral.
    "unexpected role",
    "expected last role",
    "after role",
    "invalid message order",
];

/// Names of what only the endpoint that made it understands, in lower case.
const REASONING_NAMES: [&str; 9] = [
    "reasoning_content",
    "reasoning_details",
    "'reasoning'",
    "`reasoning`",
    "\"reasoning\"",
    "extra_content",
    "signature",
    "encrypted_content",
    "encrypted content",
];

/// Words with which it is refused, in lower case.
const REASONING_REFUSED: [&str; 14] = [
    "unknown",
    "unrecognized",
    "unexpected",
    "unsupported",
    "not supported",
    "extra inputs",
    "extra field",
    "not permitted",
    "not allowed",
    "additional propert",
    "invalid",
    "not valid",
    "could not be verified",
    "no schema matches",
];

/// What an endpoint's refusals have taught of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Learned {
    /// A model of `/responses` that does not reason refuses to be asked for encrypted reasoning.
    refuses_encrypted_reasoning: bool,
    output_limit: Option<u32>,
    strict_order: bool,
    /// The answers before this item are given without what only their endpoint understands.
    own_from: usize,
    takes_no_pictures: bool,
    refused_pictures: BTreeSet<u64>,
}

/// A change of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    EncryptedReasoning,
    OutputLimit(u32),
    Pictures(usize),
    Order,
    Reasoning,
    /// Pictures and reasoning at once, where the endpoint does not say what it refuses of the conversation.
    Bare,
}

impl Change {
    /// What a person reads of a change that has helped; `None` where it takes nothing away.
    pub fn sentence(self, refusal: &str) -> Option<String> {
        let what = match self {
            Self::EncryptedReasoning => return None,
            Self::OutputLimit(tokens) => format!("the model is asked for an answer of at most {tokens} tokens"),
            Self::Pictures(count) => {
                format!("the {count} latest pictures are given to the model as a line of text each, and the agent goes on without them")
            }
            Self::Order => "the messages are given to the model in an order in which roles alternate".to_owned(),
            Self::Bare => "the model is given neither the pictures so far nor what it reasoned in former answers".to_owned(),
            Self::Reasoning => "the model is not given back what it reasoned in former answers".to_owned(),
        };
        Some(format!("{what}: {refusal}"))
    }
}

/// One request with the changes that its endpoint needs.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    format: WireFormat,
    request: &'a ModelRequest,
    before: Learned,
    learned: Learned,
    /// Tokens that the window leaves for this answer.
    room: Option<u32>,
    /// Pictures that were left out in this call so far.
    omitted: usize,
    is_bare: bool,
}

impl<'a> Attempt<'a> {
    pub fn new(format: WireFormat, learned: Learned, request: &'a ModelRequest) -> Self {
        Self { format, request, before: learned.clone(), learned, room: None, omitted: 0, is_bare: false }
    }

    pub fn has_learned(&self) -> bool {
        self.before != self.learned
    }

    pub fn into_learned(self) -> Learned {
        self.learned
    }

    pub fn body(&self, server: Server) -> Value {
        let Learned { refuses_encrypted_reasoning, strict_order, own_from, .. } = self.learned;
        let server = Server { takes_encrypted_reasoning: !refuses_encrypted_reasoning, strict_order, ..server };
        let items = self.items();
        let config = self.config();
        let parts = RequestParts { config: &config, items: &items, offer_tools: self.request.offer_tools, own_from };
        self.format.body(parts, server)
    }

    /// What can be changed after this refusal; `None`: nothing that was not tried.
    pub fn change(&mut self, refusal: &Refusal, class: ModelFailureClass) -> Option<Change> {
        let Refusal { status, words } = refusal;
        if ![400, 413, 415, 422, 500].contains(status) {
            return None;
        }
        let has = |all: &[&str]| all.iter().any(|word| words.contains(word));
        let include = words.starts_with("include ") || words.contains("encrypted content is not supported");
        if self.format == WireFormat::Responses && include && !self.learned.refuses_encrypted_reasoning {
            self.learned.refuses_encrypted_reasoning = true;
            return Some(Change::EncryptedReasoning);
        }
        if let Some(limit) = self.asked_output().and_then(|asked| lower_output_limit(words, asked)) {
            let tokens = match limit {
                OutputLimit::Model(tokens) => *self.learned.output_limit.insert(tokens),
                OutputLimit::Room(tokens) => *self.room.insert(tokens),
            };
            return Some(Change::OutputLimit(tokens));
        }
        if class == ModelFailureClass::History(HistoryFault::TooLong) {
            return None;
        }
        if has(&["image", "picture"]) {
            let none = has(&NO_PICTURES);
            // One more, then two, then four.
            if self.leave_out_pictures(if none { usize::MAX } else { self.omitted.max(1) }) {
                self.learned.takes_no_pictures |= none;
                return Some(Change::Pictures(self.omitted));
            }
        }
        if self.format == WireFormat::ChatCompletions && has(&ORDER_WORDS) && !self.learned.strict_order {
            self.learned.strict_order = true;
            return Some(Change::Order);
        }
        if has(&REASONING_NAMES) && has(&REASONING_REFUSED) && self.leave_out_reasoning(has(&["signature", "encrypted"])) {
            return Some(Change::Reasoning);
        }
        if class == ModelFailureClass::History(HistoryFault::Refused) && !std::mem::replace(&mut self.is_bare, true) {
            let (pictures, reasoning) = (self.leave_out_pictures(usize::MAX), self.leave_out_reasoning(true));
            return (pictures || reasoning).then_some(Change::Bare);
        }
        None
    }

    /// The most tokens of the answer that the request asks for.
    fn asked_output(&self) -> Option<u32> {
        let configured = self.format.output_limit(self.request.config.model.max_output_tokens)?;
        Some([self.learned.output_limit, self.room].into_iter().flatten().fold(configured, u32::min))
    }

    fn config(&self) -> Cow<'a, AgentConfig> {
        let config = &self.request.config;
        let limit = self.asked_output().filter(|_| self.learned.output_limit.is_some() || self.room.is_some());
        match limit {
            Some(limit) => {
                let model = ModelConfig { max_output_tokens: Some(limit), ..config.model.clone() };
                Cow::Owned(AgentConfig { model, ..(**config).clone() })
            }
            None => Cow::Borrowed(&**config),
        }
    }

    fn items(&self) -> Cow<'a, [PromptItem]> {
        if !self.learned.takes_no_pictures && self.learned.refused_pictures.is_empty() {
            return Cow::Borrowed(self.request.items.as_slice());
        }
        let without = |result: &PromptToolResult| {
            let (images, left_out): (Vec<Image>, Vec<Image>) = result.images.iter().cloned().partition(|image| self.shows(image));
            let lines = left_out
                .iter()
                .map(|image| format!("\n[A picture ({}) is left out here: the model's endpoint does not take it.]", image.media_type));
            PromptToolResult { output: result.output.clone() + &lines.collect::<String>(), images, ..result.clone() }
        };
        let item = |item: &PromptItem| match item {
            PromptItem::Results(results) => PromptItem::Results(results.iter().map(without).collect()),
            PromptItem::User(_) | PromptItem::Assistant(_) => item.clone(),
        };
        Cow::Owned(self.request.items.iter().map(item).collect())
    }

    fn shows(&self, image: &Image) -> bool {
        !self.learned.takes_no_pictures && !self.learned.refused_pictures.contains(&mark(image))
    }

    /// Leaves out so many more of the latest pictures. Returns whether there was one.
    fn leave_out_pictures(&mut self, count: usize) -> bool {
        let items = self.request.items.iter().rev();
        let results = items.filter_map(|item| if let PromptItem::Results(results) = item { Some(results) } else { None });
        let pictures = results.flat_map(|results| results.iter().rev()).flat_map(|result| result.images.iter().rev());
        let more: Vec<u64> = pictures.filter(|image| self.shows(image)).map(mark).take(count).collect();
        self.omitted += more.len();
        self.learned.refused_pictures.extend(&more);
        !more.is_empty()
    }

    /// A signature that is not valid is one of a former answer; a field that is not known is refused in each. Returns whether there was anything.
    fn leave_out_reasoning(&mut self, former_only: bool) -> bool {
        let own = |item: &PromptItem| match item {
            PromptItem::Assistant(answer) => answer.parts.iter().any(|part| match part {
                AnswerPart::Opaque { .. } => true,
                AnswerPart::Text { extra, .. } | AnswerPart::Call { extra } => extra.is_some(),
            }),
            PromptItem::User(_) | PromptItem::Results(_) => false,
        };
        let some = self.request.items.iter().skip(self.learned.own_from).any(own);
        self.learned.own_from = if former_only { self.request.items.len() } else { usize::MAX };
        some
    }
}

/// Knows a picture again in this process.
fn mark(image: &Image) -> u64 {
    let mut hasher = DefaultHasher::new();
    image.data.hash(&mut hasher);
    hasher.finish()
}
