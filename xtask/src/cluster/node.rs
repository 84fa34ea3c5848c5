//! The files a node starts from: certificates, kubeconfigs, each part's settings, and the supervisor's list of parts.

use super::{cgroup, network, pki};
use crate::instance::Instance;
use crate::packages;
use anyhow::{Context, Result};
use base64::Engine;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

pub struct Prepared {
    /// Something differs from what a running node was started with.
    pub changed: bool,
}

/// Places that parts of the node write to whatever they are told. In the node's own mount namespace they lead into its folder; on the
/// machine they are empty folders, made when missing.
const MOUNT_POINTS: [(&str, &str); 2] = [("/var/lib/kubelet", "kubelet"), ("/var/lib/cni", "cni/state")];

pub fn prepare(instance: Instance, programs: &Path) -> Result<Prepared> {
    let folders = [
        "etcd",
        "containerd",
        "kubelet",
        "cni/state",
        "cni/net.d",
        "log/node",
        "yoi",
        "local-path",
        "conf",
        "opt",
        "flexvolume",
        "registries",
    ];
    for folder in folders {
        fs::create_dir_all(instance.path(folder)).with_context(|| format!("failed to make {}", instance.path(folder)))?;
    }
    for (point, _) in MOUNT_POINTS {
        if !Path::new(point).exists() {
            fs::create_dir_all(point)?;
            fs::write(made_mark(point), "")?;
        }
    }
    pki::make(instance)?;
    fs::write(instance.path("resolv.conf"), resolv_conf())?;
    let mut files: Vec<(String, String)> = vec![
        (instance.path("conf/containerd.toml"), containerd(instance)),
        (instance.path("cni/net.d/10-yoi.conflist"), pretty(&cni(instance))),
        (instance.path("conf/kubelet.json"), pretty(&kubelet(instance))),
        (instance.path("conf/kube-proxy.json"), pretty(&kube_proxy(instance))),
        (instance.path("supervise.json"), pretty(&supervise(instance, programs)?)),
        (instance.path("kubeconfig"), admin_kubeconfig(instance)?),
    ];
    for user in ["controller-manager", "scheduler", "proxy", "kubelet"] {
        files.push((part_kubeconfig_path(instance, user), pretty(&part_kubeconfig(instance, user))));
    }
    let mut changed = false;
    for (path, text) in files {
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            changed = true;
            fs::write(&path, text).with_context(|| format!("failed to write {path}"))?;
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        }
    }
    Ok(Prepared { changed })
}

fn made_mark(point: &str) -> String {
    format!("{}/made{}", crate::instance::ROOT, point.replace('/', "-"))
}

/// Only once no instance is left: removing a folder takes away what is mounted on it in every other mount namespace.
pub fn remove_mount_points() {
    for (point, _) in MOUNT_POINTS {
        if fs::remove_file(made_mark(point)).is_ok() {
            let _ = fs::remove_dir(point);
        }
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Name servers on a loopback address cannot be reached from the node's network.
fn resolv_conf() -> String {
    let reachable = |path: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<_> =
            text.lines().filter(|line| !line.starts_with("nameserver 127.") && !line.starts_with("nameserver ::1")).collect();
        lines.iter().any(|line| line.starts_with("nameserver")).then(|| lines.join("\n") + "\n")
    };
    ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"].into_iter().find_map(reachable).unwrap_or_default()
}

fn has_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.unwrap_or_default() & (1 << 24) != 0
}

fn containerd(instance: Instance) -> String {
    let at = |below: &str| instance.path(below);
    format!(
        r#"version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
  address = "{socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{opt}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = {restrict}
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{conf}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registries}"
"#,
        root = at("containerd"),
        socket = instance.containerd_socket(),
        opt = at("opt"),
        pause = crate::images::PAUSE,
        restrict = !has_sys_resource(),
        cni = packages::cni_folder(),
        conf = at("cni/net.d"),
        registries = at("registries"),
    )
}

/// Point to point rather than a bridge: all traffic between Pods is routed, so Services work without the bridge netfilter module.
fn cni(instance: Instance) -> Value {
    json!({"cniVersion": "0.4.0", "name": "yoi", "plugins": [{
        "type": "ptp",
        "ipMasq": false,
        "ipam": {
            "type": "host-local",
            "dataDir": instance.path("cni/addresses"),
            "ranges": [[{"subnet": instance.pod_range()}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }]})
}

fn kubelet(instance: Instance) -> Value {
    let key = |file: &str| instance.path(&format!("pki/{file}"));
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": key("ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": key("kubelet-server.crt"), "tlsPrivateKeyFile": key("kubelet-server.key"),
        "containerRuntimeEndpoint": format!("unix://{}", instance.containerd_socket()),
        "clusterDNS": [instance.dns_address()], "clusterDomain": "cluster.local", "resolvConf": instance.path("resolv.conf"),
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", instance.cgroup()), "cgroupsPerQOS": true, "failCgroupV1": false,
        "enforceNodeAllocatable": [], "failSwapOn": false, "maxPods": 500,
        "oomScoreAdj": if has_sys_resource() { -999 } else { 0 },
        "volumePluginDir": instance.path("flexvolume"),
        // Images are imported, and cannot be pulled again once collected.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        // Tests kill containers again and again.
        "featureGates": {"KubeletCrashLoopBackOffMax": true}, "crashLoopBackOff": {"maxContainerRestartPeriod": "5s"},
    })
}

fn kube_proxy(instance: Instance) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "iptables", "clusterCIDR": instance.pod_range(), "hostnameOverride": instance.node_name(),
        "clientConnection": {"kubeconfig": part_kubeconfig_path(instance, "proxy")},
        // These sysctls may be read-only: leave them alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

fn part_kubeconfig_path(instance: Instance, user: &str) -> String {
    instance.path(&format!("conf/{user}.kubeconfig"))
}

fn part_kubeconfig(instance: Instance, user: &str) -> Value {
    let key = |file: &str| instance.path(&format!("pki/{file}"));
    kubeconfig(
        instance,
        user,
        json!({"certificate-authority": key("ca.crt")}),
        json!({"client-certificate": key(&format!("{user}.crt")), "client-key": key(&format!("{user}.key"))}),
    )
}

/// Whole in itself, so that it can be copied anywhere.
fn admin_kubeconfig(instance: Instance) -> Result<String> {
    let data = |file: &str| -> Result<String> {
        Ok(base64::engine::general_purpose::STANDARD.encode(fs::read(instance.path(&format!("pki/{file}")))?))
    };
    let cluster = json!({"certificate-authority-data": data("ca.crt")?});
    let user = json!({"client-certificate-data": data("admin.crt")?, "client-key-data": data("admin.key")?});
    Ok(serde_yaml::to_string(&kubeconfig(instance, "admin", cluster, user))?)
}

fn kubeconfig(instance: Instance, user: &str, mut cluster: Value, user_keys: Value) -> Value {
    let name = instance.name();
    cluster["server"] = format!("https://{}:6443", instance.node_address()).into();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": format!("{name}-{user}"), "user": user_keys}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": format!("{name}-{user}")}}],
    })
}

fn supervise(instance: Instance, programs: &Path) -> Result<Value> {
    let binds = MOUNT_POINTS.map(|(point, below)| json!({"source": instance.path(below), "target": point}));
    let mut mounts = vec![json!({"target": "/run"}), json!({"source": instance.path("log/node"), "target": "/var/log"})];
    mounts.extend(binds);
    Ok(json!({
        "pidFile": instance.path("pid"), "gateFile": instance.path("gate"), "readyFile": instance.path("ready"),
        "logDir": instance.path("log"), "maxLogBytes": 16 << 20,
        "cgroupProcs": cgroup::procs(instance)?,
        "mounts": mounts,
        "setup": network::node_setup(instance),
        "children": children(instance, &programs.join("yoi-cluster").display().to_string()),
    }))
}

fn children(instance: Instance, program: &str) -> Value {
    let part = |name: &str, ready: &str, flags: String| {
        let mut command = vec![program.to_owned(), name.to_owned()];
        command.extend(flags.split_whitespace().map(str::to_owned));
        json!({"name": name, "command": command, "ready": ready})
    };
    let containerd = crate::command::find_program("containerd").unwrap_or_else(|| "/usr/bin/containerd".into());
    let (socket, node, pki) = (instance.containerd_socket(), instance.node_name(), instance.path("pki"));
    let address = instance.node_address();
    let user = |name: &str| part_kubeconfig_path(instance, name);
    json!([
        {"name": "containerd", "ready": format!("unix:{socket}"), "command": [containerd, "--config", instance.path("conf/containerd.toml")]},
        part("etcd", "tcp:127.0.0.1:2379", format!(
            "--data-dir={} --unsafe-no-fsync --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379
             --listen-peer-urls=http://127.0.0.1:2380 --log-level=warn --quota-backend-bytes=4294967296 --auto-compaction-retention=10m",
            instance.path("etcd"))),
        part("kube-apiserver", &format!("tcp:{address}:6443"), format!(
            "--etcd-servers=http://127.0.0.1:2379 --advertise-address={address} --bind-address=0.0.0.0 --secure-port=6443
             --service-cluster-ip-range={} --allow-privileged=true --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
             --client-ca-file={pki}/ca.crt --tls-cert-file={pki}/apiserver.crt --tls-private-key-file={pki}/apiserver.key
             --kubelet-client-certificate={pki}/apiserver-kubelet.crt --kubelet-client-key={pki}/apiserver-kubelet.key
             --kubelet-certificate-authority={pki}/ca.crt --kubelet-preferred-address-types=InternalIP
             --service-account-issuer=https://kubernetes.default.svc.cluster.local
             --service-account-key-file={pki}/service-accounts.pub --service-account-signing-key-file={pki}/service-accounts.key
             --requestheader-client-ca-file={pki}/front-proxy-ca.crt --requestheader-allowed-names=front-proxy-client
             --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group
             --requestheader-username-headers=X-Remote-User --proxy-client-cert-file={pki}/front-proxy-client.crt
             --proxy-client-key-file={pki}/front-proxy-client.key --enable-aggregator-routing=true",
            instance.service_range())),
        part("kube-controller-manager", "", format!(
            "--kubeconfig={0} --authentication-kubeconfig={0} --authorization-kubeconfig={0} --leader-elect=false --bind-address=127.0.0.1
             --use-service-account-credentials=true --service-account-private-key-file={pki}/service-accounts.key --root-ca-file={pki}/ca.crt
             --cluster-signing-cert-file={pki}/ca.crt --cluster-signing-key-file={pki}/ca.key --cluster-cidr={1} --allocate-node-cidrs=false
             --flex-volume-plugin-dir={2}",
            user("controller-manager"), instance.pod_range(), instance.path("flexvolume"))),
        part("kube-scheduler", "", format!(
            "--kubeconfig={0} --authentication-kubeconfig={0} --authorization-kubeconfig={0} --leader-elect=false --bind-address=127.0.0.1",
            user("scheduler"))),
        part("kubelet", "", format!(
            "--config={} --kubeconfig={} --hostname-override={node} --node-ip={address} --root-dir=/var/lib/kubelet",
            instance.path("conf/kubelet.json"), user("kubelet"))),
        part("kube-proxy", "", format!("--config={}", instance.path("conf/kube-proxy.json"))),
    ])
}
