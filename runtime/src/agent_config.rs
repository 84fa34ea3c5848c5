//! What the model is given beside the conversation, by the manifest.

use yoi_engine::model::system_prompt;
use yoi_engine::tools::ToolGate;
use yoi_wire::entry::{AgentConfig, CallFrom, ModelConfig};
use yoi_wire::manifest::{AgentManifest, ModelApi, ModelEndpoint, ModelProvider};

/// Forms the configuration that the log records.
pub fn agent_config(manifest: &AgentManifest, digest: &str, tools: &ToolGate, tree_context: String) -> AgentConfig {
    let model = manifest.model.clone().map(|endpoint| {
        let api = api(&endpoint).to_owned();
        let ModelEndpoint { name, max_output_tokens, effort, .. } = endpoint;
        ModelConfig { api, name, max_output_tokens, effort }
    });
    if let Some(program) = &manifest.program {
        // A program has its own prompt and its own tools, and the runtime does not know them.
        let name = program.preset.as_ref().map_or("program", |preset| &preset.name);
        let model = model.unwrap_or_default();
        let model = ModelConfig { api: format!("program/{name}"), ..model };
        return AgentConfig { model, manifest_digest: digest.to_owned(), ..AgentConfig::default() };
    }
    AgentConfig {
        system: vec![system_prompt(manifest), tree_context],
        tools: tools.offered(CallFrom::Model),
        model: model.unwrap_or_default(),
        manifest_digest: digest.to_owned(),
    }
}

/// The wire format, as answers name it.
fn api(model: &ModelEndpoint) -> &'static str {
    match (model.provider, model.api, &model.base_url) {
        (ModelProvider::Anthropic, ..) => "anthropic",
        (ModelProvider::Gemini, ..) => "gemini",
        (ModelProvider::OpenAI, Some(ModelApi::Responses), _) | (ModelProvider::OpenAI, None, None) => "responses",
        (ModelProvider::OpenAI, Some(ModelApi::ChatCompletions | ModelApi::Unknown), _) | (ModelProvider::OpenAI, None, Some(_)) => {
            "chatCompletions"
        }
        (ModelProvider::Unknown, ..) => "",
    }
}
