//! Git servers that refuse, stay silent or send garbage.

use anyhow::{Result, ensure};
use serde_json::json;
use yoi_crds::YoiProject;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::test_namespace::TestNamespace;

use crate::{check_doctor_names, check_message};

/// A Pod and a Service. The Pod runs this line of Perl for each connection.
fn server(name: &str, on_connection: &str) -> String {
    let program =
        format!("$s=IO::Socket::INET->new(Listen=>5,LocalPort=>9418,ReuseAddr=>1) or die; while($c=$s->accept){{ {on_connection} }}");
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } }, "spec": {
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": name, "image": "$image(agent)", "imagePullPolicy": "Never",
            "command": ["perl", "-MIO::Socket::INET", "-e", program], "readinessProbe": { "exec": { "command": ["true"] } },
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }] } });
    format!("{pod}\n---\n{}", service(name, name))
}

fn service(name: &str, app: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "selector": { "app": app }, "ports": [{ "port": 9418 }] } })
    .to_string()
}

#[tokio::test]
async fn a_git_server_that_fails_is_named_delays_no_other_project_and_is_retried() -> Result<()> {
    let ns = TestNamespace::create("degraded-git").await?;
    ns.create_git_server().await?;
    ns.apply(&server("silent", "push @k, $c")).await?;
    ns.apply(&server("babble", "while(print $c \"x\" x 65536) {}")).await?;
    ns.wait_pod_ready("silent").await?;
    ns.wait_pod_ready("babble").await?;
    let url = |host: &str, path: &str| format!("git://{host}.{}.svc:9418/{path}.git", ns.name);
    let git = |url: String, reference: Option<&str>| match reference {
        Some(reference) => json!({ "git": { "url": url, "ref": reference } }),
        None => json!({ "git": { "url": url } }),
    };
    ns.create_project("silent", git(url("silent", "project"), None)).await?;
    ns.create_project("babble", git(url("babble", "project"), None)).await?;
    ns.create_project("absent", git(url("absent", "project"), None)).await?;
    ns.create_project("refless", git(url("git", "project"), Some("no-such-branch"))).await?;
    ns.create_project("nameless", git(url("git", "no-such-project"), None)).await?;
    ns.create_project("good", git(url("git", "project"), None)).await?;
    let failed = async |name: &str, words: &str| -> Result<()> {
        // The first attempt may come before the node has a route to the new Service.
        let condition = ns.wait_message::<YoiProject>(name, "Ready", "PopulateFailed", |message| message.contains(words)).await?;
        check_message(&condition, words)
    };
    let silent = async {
        // Until the timeout the project says what it waits for.
        let condition = ns.wait_reason::<YoiProject>("silent", "Ready", "Populating").await?;
        ensure!(!condition.message.is_empty(), "no word on what it waits for");
        failed("silent", "the server has sent nothing for 60 s").await
    };
    let good = async { ns.wait_condition::<YoiProject>("good", "Ready", ConditionStatus::True).await.map(drop) };
    futures::try_join!(
        good,
        silent,
        failed("babble", "protocol error"),
        async {
            failed("absent", "unable to look up absent").await?;
            check_doctor_names(&ns, "dns", "YoiProject", "absent", "unable to look up absent").await
        },
        failed("refless", "the source has no branch, tag or commit no-such-branch"),
        async {
            failed("nameless", "access denied or repository not exported").await?;
            check_doctor_names(&ns, "agents", "YoiProject", "nameless", "access denied or repository not exported").await
        },
    )?;
    // Each project goes on by itself once its fault is fixed: a server that exists now, and a branch that is named now.
    ns.apply(&service("absent", "git")).await?;
    ns.merge_patch::<YoiProject>("refless", &json!({ "spec": { "source": { "git": { "ref": "main" } } } })).await?;
    futures::try_join!(async { ns.wait_condition::<YoiProject>("absent", "Ready", ConditionStatus::True).await.map(drop) }, async {
        ns.wait_condition::<YoiProject>("refless", "Ready", ConditionStatus::True).await.map(drop)
    },)?;
    ns.remove().await
}
