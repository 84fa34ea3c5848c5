//! Several projects in one process. Each has its own processes, policy, slots and record: what becomes of one is nothing to another.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::project::{Project, ProjectError, ProjectOptions};

/// The projects of this process, by their ids.
#[derive(Debug, Default)]
pub struct Engine {
    /// Held over a start and a stop, so that an id is that of one project at any moment.
    projects: Mutex<BTreeMap<String, Arc<Project>>>,
}

impl Engine {
    /// Starts a project. Everything is checked before anything is made.
    ///
    /// # Errors
    /// [`ProjectError::AlreadyStarted`], and the project that runs goes on; otherwise why it cannot be started.
    pub async fn start_project(&self, options: ProjectOptions) -> Result<Arc<Project>, ProjectError> {
        let mut projects = self.projects.lock().await;
        if projects.contains_key(&options.id) {
            return Err(ProjectError::AlreadyStarted { id: options.id });
        }
        let project = Arc::new(Project::start(options).await?);
        projects.insert(project.id().to_owned(), project.clone());
        Ok(project)
    }

    /// Stops a project: its run ends as interrupted, no process of it is left, and its id may be started again.
    ///
    /// # Errors
    /// [`ProjectError::Unknown`].
    pub async fn stop_project(&self, id: &str) -> Result<(), ProjectError> {
        let mut projects = self.projects.lock().await;
        let Some(project) = projects.get(id) else { return Err(ProjectError::Unknown { id: id.to_owned() }) };
        project.stop().await;
        projects.remove(id);
        Ok(())
    }

    /// The project of this id.
    ///
    /// # Errors
    /// [`ProjectError::Unknown`].
    pub async fn project(&self, id: &str) -> Result<Arc<Project>, ProjectError> {
        self.projects.lock().await.get(id).cloned().ok_or_else(|| ProjectError::Unknown { id: id.to_owned() })
    }

    /// The ids of all projects, in their order.
    pub async fn projects(&self) -> Vec<String> {
        self.projects.lock().await.keys().cloned().collect()
    }
}
