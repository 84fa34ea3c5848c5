//! The program that is the agent: its preset, what it needs in its Pod, and whether it speaks to its model.
//!
//! A preset and a login that users bring are files, so that they may change and have any size. A Pod whose required file is missing waits without a word of
//! which one, so the file is optional and a variable asks for the same key: the kubelet then names what is missing.

use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, ConfigMapVolumeSource, EnvVar, EnvVarSource, KeyToPath, SecretKeySelector, SecretVolumeSource, Volume,
    VolumeMount,
};
use yoi_crds::condition::ConditionValue;
use yoi_crds::pod::{Agent, CliAgent, ModelApi, ModelEndpointSpec, ModelProvider, PresetSource, SecretRef};
use yoi_crds::reason;
use yoi_wire::identity::{CREDENTIALS_MOUNT, PRESET_FILE, PRESET_MOUNT, env};
use yoi_wire::manifest::Program;
use yoi_wire::preset::{Preset, ProgramFormat};

use super::manifest::Resolved;
use crate::restricted::mount;
use crate::settings::Settings;

/// The volumes that only an agent with a preset or a login of the user's has. No volume of the user's has one of these names.
pub(super) const PRESET_VOLUME: &str = "yoi-preset";
pub(super) const CREDENTIALS_VOLUME: &str = "yoi-credentials";
/// Kubernetes adds read for the Pod's group, which is the runtime's.
const CREDENTIALS_MODE: i32 = 0o400;

/// The preset of the chart that the agent names, if there is one.
fn known_preset<'a>(cli: &CliAgent, settings: &'a Settings) -> Option<&'a Preset> {
    settings.presets.get(cli.preset.as_deref()?)
}

/// Checks what the preset says of the spec. Of a preset in a user's ConfigMap, the runtime does it.
///
/// # Errors
/// The condition Accepted says why not.
pub(super) fn accept(agent: &Agent, resolved: &Resolved, settings: &Settings) -> Result<(), ConditionValue> {
    let Some((cli, title)) = agent.cli.as_ref().and_then(|cli| Some((cli, cli.preset.as_ref()?))) else { return Ok(()) };
    let Some(preset) = known_preset(cli, settings) else {
        let known = settings.presets.keys().map(String::as_str).collect::<Vec<_>>();
        let known = if known.is_empty() { "the chart has none".to_owned() } else { format!("there are: {}", known.join(", ")) };
        let message = format!("spec.agent.cli.preset: there is no preset {title}; {known}");
        return Err(ConditionValue::no(reason::PRESET_UNKNOWN, message));
    };
    if cli.credentials_secret_ref.is_some() && preset.credentials.is_empty() {
        let message = format!(
            "spec.agent.cli.credentialsSecretRef: preset {title} does not say which login its program takes; leave it out, and name a model whose \
             key is in spec.model.authSecretRef"
        );
        return Err(ConditionValue::no(reason::INVALID_SPEC, message));
    }
    let endpoints = resolved.model.iter().flat_map(|model| std::iter::once(&model.endpoint).chain(&model.fallbacks));
    let formats: Vec<(&ModelEndpointSpec, ProgramFormat)> = endpoints.filter_map(|of| Some((of, wire_format(of, preset)?))).collect();
    if let Some((endpoint, format)) = formats.iter().find(|(_, format)| !preset.speaks.contains(format)) {
        let speaks = preset.speaks.iter().map(|format| format!("{} ({})", format.title(), fields(*format))).collect::<Vec<_>>();
        let message = format!(
            "model {} answers in the format {}, and program {title} speaks only: {}",
            endpoint.name,
            format.title(),
            speaks.join(", ")
        );
        return Err(ConditionValue::no(reason::MODEL_FORMAT_NOT_SPOKEN, message));
    }
    // A program speaks one format, whichever endpoint answers.
    let first = formats.first().map(|(_, format)| *format);
    match formats.iter().find(|(_, format)| Some(*format) != first) {
        Some((fallback, format)) => {
            let first = first.map(ProgramFormat::title).unwrap_or_default();
            let message = format!(
                "fallback {} of the model answers in the format {}, and the model itself in {first}: program {title} cannot change between them",
                fallback.name,
                format.title()
            );
            Err(ConditionValue::no(reason::MODEL_FORMAT_NOT_SPOKEN, message))
        }
        None => Ok(()),
    }
}

/// The format in which this program would ask an endpoint; `None` for one of another version.
fn wire_format(endpoint: &ModelEndpointSpec, preset: &Preset) -> Option<ProgramFormat> {
    match (endpoint.provider, endpoint.api, &endpoint.base_url) {
        (ModelProvider::Anthropic, _, _) => Some(ProgramFormat::Anthropic),
        (ModelProvider::Gemini, _, _) => Some(ProgramFormat::Gemini),
        (ModelProvider::OpenAI, Some(ModelApi::Responses), _) | (ModelProvider::OpenAI, None, None) => Some(ProgramFormat::Responses),
        (ModelProvider::OpenAI, Some(ModelApi::ChatCompletions), _) => Some(ProgramFormat::ChatCompletions),
        (ModelProvider::OpenAI, None, Some(_)) => Some(preset.format_of_compatible_endpoint()),
        (ModelProvider::OpenAI, Some(ModelApi::Unknown), _) | (ModelProvider::Unknown, _, _) => None,
    }
}

/// What a user writes into the model for it.
fn fields(format: ProgramFormat) -> &'static str {
    match format {
        ProgramFormat::Anthropic => "provider: Anthropic",
        ProgramFormat::Responses => "provider: OpenAI, api: Responses",
        ProgramFormat::ChatCompletions => "provider: OpenAI, api: ChatCompletions",
        ProgramFormat::Gemini => "provider: Gemini",
    }
}

/// The program as the runtime reads it; `None` for the runtime's own loop. Nothing of a Secret is in it.
pub(super) fn wire_program(agent: &Agent, settings: &Settings) -> Option<Program> {
    let Agent { builtin: _, cli, command } = agent;
    match cli {
        Some(cli) => Some(Program {
            preset: known_preset(cli, settings).cloned(),
            preset_file: cli.preset_from.as_ref().map(|_| format!("{PRESET_MOUNT}/{PRESET_FILE}")),
            args: cli.args.clone(),
            credentials: cli.credentials_secret_ref.as_ref().map(|_| CREDENTIALS_MOUNT.to_owned()),
            command: Vec::new(),
        }),
        None if command.is_empty() => None,
        None => Some(Program { command: command.clone(), ..Program::default() }),
    }
}

pub(super) fn volumes(agent: &Agent, settings: &Settings) -> Vec<Volume> {
    let Some(cli) = &agent.cli else { return Vec::new() };
    let preset = cli.preset_from.as_ref().map(preset_volume);
    let credentials = cli.credentials_secret_ref.as_ref().map(|secret| credentials_volume(secret, credential_key(cli, settings).is_some()));
    preset.into_iter().chain(credentials).collect()
}

fn preset_volume(from: &PresetSource) -> Volume {
    let source = ConfigMapVolumeSource {
        name: from.name.clone(),
        items: Some(vec![KeyToPath { key: from.key.clone(), path: PRESET_FILE.to_owned(), mode: None }]),
        // The variable asks for it.
        optional: Some(true),
        ..ConfigMapVolumeSource::default()
    };
    Volume { name: PRESET_VOLUME.to_owned(), config_map: Some(source), ..Volume::default() }
}

/// `is_asked_for`: a variable asks for the Secret.
fn credentials_volume(secret: &SecretRef, is_asked_for: bool) -> Volume {
    let source = SecretVolumeSource {
        secret_name: Some(secret.name.clone()),
        default_mode: Some(CREDENTIALS_MODE),
        optional: is_asked_for.then_some(true),
        items: None,
    };
    Volume { name: CREDENTIALS_VOLUME.to_owned(), secret: Some(source), ..Volume::default() }
}

pub(super) fn mounts(agent: &Agent) -> Vec<VolumeMount> {
    let Some(cli) = &agent.cli else { return Vec::new() };
    let preset = cli.preset_from.as_ref().map(|_| mount(PRESET_VOLUME, PRESET_MOUNT, true));
    let credentials = cli.credentials_secret_ref.as_ref().map(|_| mount(CREDENTIALS_VOLUME, CREDENTIALS_MOUNT, true));
    preset.into_iter().chain(credentials).collect()
}

/// The variables without which the container does not start.
pub(super) fn variables(agent: &Agent, settings: &Settings) -> Vec<EnvVar> {
    let Some(cli) = &agent.cli else { return Vec::new() };
    let of = |name: &str, source: EnvVarSource| EnvVar { name: name.to_owned(), value: None, value_from: Some(source) };
    let preset = cli.preset_from.as_ref().map(|from| {
        let selector = ConfigMapKeySelector { name: from.name.clone(), key: from.key.clone(), optional: None };
        of(env::PRESET, EnvVarSource { config_map_key_ref: Some(selector), ..EnvVarSource::default() })
    });
    let credential = cli.credentials_secret_ref.as_ref().zip(credential_key(cli, settings)).map(|(secret, key)| {
        let selector = SecretKeySelector { name: secret.name.clone(), key: key.to_owned(), optional: None };
        of(env::CREDENTIAL, EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() })
    });
    preset.into_iter().chain(credential).collect()
}

/// The key of the login that must be there. The keys of a preset in a user's ConfigMap are not known here: that Pod waits for its volume.
fn credential_key<'a>(cli: &CliAgent, settings: &'a Settings) -> Option<&'a str> {
    known_preset(cli, settings)?.credentials.first().map(|credential| credential.key.as_str())
}

/// The name of a volume of the user's that the agent's own would have, too. Schemas of earlier versions let it through.
pub(super) fn taken_volume_name<'a>(agent: &Agent, mut users: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    agent.cli.as_ref()?;
    users.find(|name| [PRESET_VOLUME, CREDENTIALS_VOLUME].contains(name))
}
