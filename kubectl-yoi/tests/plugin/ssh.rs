//! `ssh` and `ssh-config` with the machine's own ssh and scp, against a gateway that starts the machine's own sshd.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Result, ensure};
use axum::body::Body;
use axum::extract::{Path as UrlPath, Query, Request, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use futures::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use yoi_wire::ssh::{CLOSED, FROM_SERVER, PROTOCOL, SshHost, SshQuery, TO_SERVER};

use crate::api_server::{ApiServer, status};
use crate::plugin::{Output, Plugin, agent, output};

/// A gateway with an agent `a` of namespace `ns`, whose server this machine has.
struct Gateway {
    folder: PathBuf,
    url: String,
}

impl Gateway {
    async fn start(folder: &Path) -> Result<Self> {
        if rustix::process::geteuid().is_root() {
            // sshd of root demands this folder, which the package's service makes.
            _ = std::fs::DirBuilder::new().mode(0o755).create("/run/sshd");
        }
        let key = folder.join("host");
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&key).output()?;
        ensure!(made.status.success(), "{made:?}");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(folder.to_owned());
        let path = "/apis/runtime.yoi.dev/v1alpha1/namespaces/{namespace}/yoipods/{name}/proxy/ssh";
        let router = axum::Router::new().route(path, get(ssh)).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Gateway { folder: folder.to_owned(), url })
    }

    /// The plugin with this server in place of that of its kubeconfig.
    async fn run(&self, plugin: &Plugin, words: &[&str]) -> Result<Output> {
        plugin.run(&[words[0], "--server", &self.url].iter().chain(&words[1..]).copied().collect::<Vec<_>>()).await
    }
}

async fn ssh(
    State(folder): State<Arc<PathBuf>>,
    UrlPath((namespace, name)): UrlPath<(String, String)>,
    Query(query): Query<SshQuery>,
    mut request: Request,
) -> Response<Body> {
    if (namespace.as_str(), name.as_str()) != ("ns", "a") {
        return (StatusCode::NOT_FOUND, status(404, "NotFound", "YoiPod is not there")).into_response();
    }
    let Some(nonce) = request.headers().get("sec-websocket-key").cloned() else {
        let key = std::fs::read_to_string(folder.join("host.pub")).unwrap_or_default();
        let host_key = key.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let user = Command::new("id").arg("-un").output().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let host = SshHost { user: user.unwrap_or_default(), host_key, path: folder.join("the tree").display().to_string() };
        return axum::Json(host).into_response();
    };
    let keys = folder.join("keys");
    if std::fs::write(&keys, query.key.unwrap_or_default()).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let switched = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let upgraded = switched.await.map_err(std::io::Error::other)?;
        serve(&folder, WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await).await
    });
    let head = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).header("connection", "Upgrade").header("upgrade", "websocket");
    let head = head.header("sec-websocket-protocol", PROTOCOL).header("sec-websocket-accept", derive_accept_key(nonce.as_bytes()));
    head.body(Body::empty()).unwrap_or_default()
}

async fn serve(folder: &Path, socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>) -> std::io::Result<()> {
    let mut sshd = tokio::process::Command::new("/usr/sbin/sshd");
    sshd.args(["-i", "-f", "/dev/null", "-o", "StrictModes=no", "-o", "Subsystem=sftp internal-sftp"]);
    sshd.arg("-o").arg(format!("HostKey={}", folder.join("host").display()));
    sshd.arg("-o").arg(format!("AuthorizedKeysFile={}", folder.join("keys").display()));
    let mut child = sshd.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
    let (Some(mut input), Some(mut out)) = (child.stdin.take(), child.stdout.take()) else { return Ok(()) };
    let (mut sink, mut source) = socket.split();
    let up = async {
        while let Some(Ok(message)) = source.next().await {
            match message {
                Message::Binary(data) if data.first() == Some(&TO_SERVER) && input.write_all(&data[1..]).await.is_err() => break,
                Message::Binary(data) if data.first() == Some(&CLOSED) => break,
                _ => {}
            }
        }
        drop(input);
        std::future::pending::<()>().await;
    };
    let down = async {
        loop {
            let mut piece = vec![FROM_SERVER];
            let count = out.read_buf(&mut piece).await.unwrap_or_default();
            if count == 0 || sink.send(Message::binary(piece)).await.is_err() {
                break;
            }
        }
        let _ = sink.close().await;
    };
    tokio::select! { () = up => {}, () = down => {} }
    Ok(())
}

#[tokio::test]
async fn a_command_runs_in_the_tree_with_its_exit_code_and_any_client_reaches_it_by_the_printed_configuration() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let gateway = Gateway::start(plugin.folder.path()).await?;
    let tree = gateway.folder.join("the tree");
    std::fs::create_dir(&tree)?;
    std::fs::write(tree.join("file"), "of the tree\n")?;
    let said = gateway.run(&plugin, &["ssh", "a", "--", "sh", "-c", "cat file; echo 'it'\"'\"'s' \"$0\" >&2; exit 7", "a b"]).await?;
    ensure!(said.code == 7 && said.out == "of the tree\n" && said.err == "it's a b\n", "{said:?}");
    let key = std::fs::read(gateway.folder.join("ssh/key/id_ed25519"))?;

    let config = gateway.run(&plugin, &["ssh-config", "a"]).await?.expect_code(0)?;
    ensure!(
        config.out.contains("Host a.ns.yoi\n") && config.out.contains("ForwardAgent no") && config.out.contains("the tree"),
        "{config:?}"
    );
    std::fs::write(gateway.folder.join("config"), &config.out)?;
    let by_hand = |line: &str| {
        let mut command = plugin.command(Path::new("sh"), &["-c", line]);
        // The printed lines need nothing of the environment.
        command.env_remove("KUBECONFIG").env_remove("YOI_SSH_FOLDER").stdout(Stdio::piped()).stderr(Stdio::piped());
        output(command)
    };
    let line = "head -c 2000000 /dev/urandom > one && scp -q -F config one \"a.ns.yoi:$PWD/the tree/two\" && cmp one 'the tree/two' && ssh -F config a.ns.yoi 'exit 3'";
    let copied = by_hand(line).await?;
    ensure!(copied.code == 3, "{copied:?}");
    ensure!(std::fs::read(gateway.folder.join("ssh/key/id_ed25519"))? == key, "the key is made once");

    // An agent that has a new key is known by the word of the gateway; one whose key is not the server's is refused.
    let known: Vec<_> =
        std::fs::read_dir(gateway.folder.join("ssh/known"))?.map(|file| file.map(|file| file.path())).collect::<Result<_, _>>()?;
    ensure!(known.len() == 1, "{known:?}");
    std::fs::write(&known[0], "a.ns.yoi ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n")?;
    ensure!(by_hand("ssh -F config a.ns.yoi true").await?.code == 0);
    let other = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(gateway.folder.join("other")).output()?;
    ensure!(other.status.success(), "{other:?}");
    std::fs::rename(gateway.folder.join("other.pub"), gateway.folder.join("host.pub"))?;
    let refused = gateway.run(&plugin, &["ssh", "a", "--", "true"]).await?;
    ensure!(refused.code == 255, "the server has another key than the gateway says: {refused:?}");
    Ok(())
}

#[tokio::test]
async fn what_keeps_a_person_out_is_said_before_ssh_is_started() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    server.put(agent("b", &[]));
    let off = "SSH into agents is switched off on this cluster; whoever runs Yoi allows it: helm upgrade --set gateway.ssh=true";
    for (code, reason, message, exit) in [
        (403, "Forbidden", "User \"ann\" cannot create resource \"yoipods/ssh\"", 4),
        (422, "Invalid", off, 1),
        (422, "Invalid", "YoiPod ns/a: the agent's image has no sshd: take one with OpenSSH's server", 1),
        (429, "TooManyRequests", "YoiPod ns/a: 16 people are in the agent by SSH", 5),
    ] {
        server.answer_for("a", "proxy/ssh", code, status(code, reason, message));
        for words in [&["ssh", "a", "--", "true"][..], &["ssh", "a", "--stdio"], &["ssh-config", "a"]] {
            let refused = plugin.run(words).await?.expect_code(exit)?;
            ensure!(refused.err.contains(message.trim_start_matches("YoiPod ns/a: ")) && refused.out.is_empty(), "{refused:?}");
        }
    }
    // Of all agents, those that can be reached.
    let host = json!({ "user": "agent", "hostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7", "path": "/w\nHost *" });
    server.answer_for("b", "proxy/ssh", 200, host.to_string());
    let listed = plugin.run(&["ssh-config"]).await?.expect_code(0)?;
    ensure!(listed.out.contains("Host b.ns.yoi\n") && !listed.out.contains("Host a") && listed.err.contains("a is left out"), "{listed:?}");
    ensure!(listed.out.lines().filter(|line| line.starts_with("Host ")).count() == 1, "{listed:?}");
    let kept = plugin.run(&["ssh-config", "b", "--token", "t"]).await?.expect_code(2)?;
    ensure!(kept.err.contains("a token would stand in a file"), "{kept:?}");
    Ok(())
}
