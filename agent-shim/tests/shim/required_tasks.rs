//! The process ends with the first of its required tasks.

use std::future::pending;

use yoi_agent_shim::shim::required_tasks::{RequiredTaskEnded, RequiredTasks};
use yoi_agent_shim::shim::{ShimError, serve_sockets};

use crate::test_shim::TestShim;

#[tokio::test]
async fn a_task_that_panics_or_ends_ends_the_shim_with_its_name() {
    for panicked in [true, false] {
        let (shim, mut tasks) = (TestShim::new(), RequiredTasks::default());
        tasks.spawn("the report of the node", pending());
        tasks.spawn("the provision controller", async move { assert!(!panicked, "planted") });
        let (state, kubelet_dir) = (&shim.state, &shim.state.kubelet_dir);
        std::fs::create_dir_all(kubelet_dir.join("plugins_registry")).unwrap();
        let ended = serve_sockets(state, tokio::spawn(pending()), &mut tasks).await.unwrap_err();
        assert!(
            matches!(&ended, ShimError::TaskEnded(e) if *e == RequiredTaskEnded { task: "the provision controller", panicked }),
            "{ended}"
        );
        // As at every end: the kubelet forgets the driver, and nothing more is provisioned.
        assert!(state.stop.is_cancelled() && !kubelet_dir.join("plugins_registry/csi.yoi.dev-reg.sock").exists());
    }
}

#[tokio::test]
async fn tasks_that_end_once_the_process_stops_are_waited_for() {
    let (shim, mut tasks) = (TestShim::new(), RequiredTasks::default());
    tasks.spawn("the provision controller", shim.state.stop.clone().cancelled_owned());
    shim.state.stop.cancel();
    tasks.join_all().await;
}
