//! Objects that a test creates in its namespace: a scripted model, a git server, projects, agents.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use yoi_crds::condition::{ConditionStatus, is_true};
use yoi_crds::pod::Completion;
use yoi_crds::{YoiPod, YoiProject};

use crate::test_namespace::TestNamespace;

/// Path at which agents of these tests see their tree.
pub const TREE_PATH: &str = "/workspace/tree";

impl TestNamespace {
    /// Creates a model that follows `script`, and waits for it. `bin/scripted-model/script.rs` describes the format.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn create_model(&self, script: &str) -> Result<()> {
        self.create_model_with_args(script, "").await
    }

    /// Creates a model as [`TestNamespace::create_model`] does that refuses requests without `key`.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn create_model_with_key(&self, script: &str, key: &str) -> Result<()> {
        self.create_model_with_args(script, &format!(", --require-key={key}")).await
    }

    async fn create_model_with_args(&self, script: &str, more: &str) -> Result<()> {
        let indented: String = script.lines().map(|line| format!("    {line}\n")).collect();
        let manifest = include_str!("fixtures/model.yaml").replace("$SCRIPT", &indented).replace("$MORE", more);
        self.apply(&manifest).await?;
        self.wait_pod_ready("scripted-model").await
    }

    /// Creates a git server with one small repository at `git://git/project.git`, and one with a team's skills and commands at `git://git/team.git`, and waits
    /// for it.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn create_git_server(&self) -> Result<()> {
        self.apply(include_str!("fixtures/git.yaml")).await?;
        self.wait_pod_ready("git").await
    }

    /// Waits until a Pod is Ready.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn wait_pod_ready(&self, name: &str) -> Result<()> {
        self.wait_for::<Pod, ()>(name, "ready", |pod| {
            let conditions = pod?.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(())
        })
        .await
    }

    /// Creates a project with this source. Its agents use the scripted model.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create_project(&self, name: &str, source: serde_json::Value) -> Result<()> {
        self.create_project_with(name, json!({ "source": source })).await
    }

    /// Creates a project with these fields of its spec; one that is null is left out. Its agents use the scripted model.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create_project_with(&self, name: &str, spec: serde_json::Value) -> Result<()> {
        let mut project = json!({
            "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": { "name": name },
            "spec": { "path": TREE_PATH, "defaults": {
                "model": { "provider": "OpenAI", "name": "scripted", "baseUrl": format!("http://scripted-model.{}.svc:8080/v1/", self.name) },
                "pod": { "env": [
                    { "name": "GIT_AUTHOR_NAME", "value": "Agent" }, { "name": "GIT_AUTHOR_EMAIL", "value": "agent@yoi.example" },
                    { "name": "GIT_COMMITTER_NAME", "value": "Agent" }, { "name": "GIT_COMMITTER_EMAIL", "value": "agent@yoi.example" },
                ] },
            } },
        });
        if let (Some(fields), serde_json::Value::Object(spec)) = (project["spec"].as_object_mut(), spec) {
            fields.extend(spec);
            fields.retain(|_, value| !value.is_null());
        }
        self.apply(&project.to_string()).await
    }

    /// Creates the git server and a project `name` on its repository, and waits until the project is ready.
    ///
    /// # Errors
    /// When its base is not sealed.
    pub async fn create_git_project(&self, name: &str) -> Result<()> {
        self.create_git_server().await?;
        self.create_project(name, json!({ "git": { "url": format!("git://git.{}.svc:9418/project.git", self.name) } })).await?;
        self.wait_condition::<YoiProject>(name, "Ready", ConditionStatus::True).await.map(drop)
    }

    /// Creates a project with an empty tree, and waits until it is ready.
    ///
    /// # Errors
    /// When its base is not sealed.
    pub async fn create_empty_project(&self, name: &str) -> Result<()> {
        self.create_project(name, json!({ "empty": {} })).await?;
        self.wait_condition::<YoiProject>(name, "Ready", ConditionStatus::True).await.map(drop)
    }

    /// Creates an agent of `project`. The fields of `more` replace fields of its spec.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create_agent(&self, name: &str, project: &str, more: serde_json::Value) -> Result<()> {
        let mut spec = json!({ "projectRef": { "name": project }, "agent": { "builtin": { "instruction": format!("You are {name}.") } } });
        if let (Some(spec), serde_json::Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        let pod = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": name }, "spec": spec });
        self.apply(&pod.to_string()).await
    }

    /// Waits until a YoiPod is Ready.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn wait_agent_ready(&self, name: &str) -> Result<()> {
        self.wait_condition::<YoiPod>(name, "Ready", ConditionStatus::True).await.map(drop)
    }

    /// Waits until a YoiPod's task is complete, and the agent is Ready unless it stops then: a short task is done before the kubelet has reported the
    /// container, and until then not every gateway is sure to reach the agent.
    ///
    /// # Errors
    /// When its task is not complete, or it is not Ready.
    pub async fn wait_task_complete(&self, name: &str) -> Result<()> {
        self.wait_for::<YoiPod, ()>(name, "TaskComplete and Ready", |agent| {
            let agent = agent?;
            let conditions = &agent.status.as_ref()?.conditions;
            let ready = agent.spec.completion == Completion::Stop || is_true(conditions, "Ready");
            (is_true(conditions, "TaskComplete") && ready).then_some(())
        })
        .await
    }
}
