//! What the agent is given beside the conversation, by the manifest.

use yoi_engine::agent_config::{self, Prompt, model_config};
use yoi_engine::tools::ToolGate;
use yoi_wire::entry::{AgentConfig, ModelConfig};
use yoi_wire::manifest::AgentManifest;

/// Forms the configuration that the log records.
pub fn agent_config(manifest: &AgentManifest, digest: &str, tools: &ToolGate, tree_context: String) -> AgentConfig {
    if let Some(program) = &manifest.program {
        // A program has its own prompt and its own tools, and the runtime does not know them.
        let name = program.preset.as_ref().map_or("program", |preset| &preset.name);
        let model = manifest.model.as_ref().map(model_config).unwrap_or_default();
        let model = ModelConfig { api: format!("program/{name}"), ..model };
        return AgentConfig { model, manifest_digest: digest.to_owned(), ..AgentConfig::default() };
    }
    let prompt = Prompt { agent: &manifest.agent.name, path: &manifest.path, instruction: &manifest.builtin.instruction };
    agent_config::agent_config(&prompt, manifest.model.as_ref(), tools, tree_context, digest)
}
