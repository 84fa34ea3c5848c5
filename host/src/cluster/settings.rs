//! The files a node starts from: certificates, kubeconfigs, each part's settings, and the supervisor's list of parts.

use super::{Programs, cgroup, data_root, network, pki, supervisor};
use crate::instance::{Instance, Node};
use crate::packages;
use anyhow::{Context, Result};
use base64::Engine;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Places that parts of the node write to whatever they are told. In the node's own mount namespace they lead into its folder; on the
/// machine they are empty folders, made when missing.
const MOUNT_POINTS: [(&str, &str); 2] = [("/var/lib/kubelet", "kubelet"), ("/var/lib/cni", "cni/state")];

/// Folders below the node's.
const FOLDERS: [&str; 10] =
    ["containerd", "kubelet", "cni/state", "cni/net.d", "log/node", "yoi", "local-path", "conf", "opt", "flexvolume"];
/// Folders below the instance's.
const INSTANCE_FOLDERS: [&str; 3] = ["etcd", "registries", "shared"];

/// Returns whether something differs from what a running node was started with.
pub fn write(node: Node, programs: &Programs) -> Result<bool> {
    let instance = node.instance;
    for folder in FOLDERS.map(|folder| node.path(folder)).into_iter().chain(INSTANCE_FOLDERS.map(|folder| instance.path(folder))) {
        fs::create_dir_all(&folder).with_context(|| format!("failed to make {folder}"))?;
    }
    for (point, _) in MOUNT_POINTS {
        if !Path::new(point).exists() {
            fs::create_dir_all(point)?;
            fs::write(made_mark(point), "")?;
        }
    }
    pki::make(node)?;
    fs::write(node.path("resolv.conf"), resolv_conf())?;
    let mut files: Vec<(String, String)> = vec![
        (node.path("conf/containerd.toml"), containerd(node)),
        (node.path("cni/net.d/10-yoi.conflist"), pretty(&cni(node))),
        (node.path("conf/kubelet.json"), pretty(&kubelet(node))),
        (node.path("conf/kube-proxy.json"), pretty(&kube_proxy(node))),
        (node.path("supervise.json"), pretty(&supervise(node, programs)?)),
        (kubelet_kubeconfig_path(node), pretty(&part_kubeconfig(instance, "kubelet", &node.path("pki/kubelet")))),
    ];
    if node.is_first() {
        files.push((instance.path("kubeconfig"), admin_kubeconfig(instance)?));
        for user in ["controller-manager", "scheduler", "proxy", "netpol"] {
            let keys = instance.path(&format!("pki/{user}"));
            files.push((part_kubeconfig_path(instance, user), pretty(&part_kubeconfig(instance, user, &keys))));
        }
    }
    let mut changed = false;
    for (path, text) in files {
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            changed = true;
            fs::write(&path, text).with_context(|| format!("failed to write {path}"))?;
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        }
    }
    Ok(changed)
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

fn containerd(node: Node) -> String {
    let at = |below: &str| node.path(below);
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
        socket = node.containerd_socket(),
        opt = at("opt"),
        pause = crate::images::PAUSE,
        restrict = !has_sys_resource(),
        cni = packages::cni_folder(),
        conf = at("cni/net.d"),
        registries = node.instance.path("registries"),
    )
}

/// Point to point rather than a bridge: all traffic between Pods is routed, so Services work without the bridge netfilter module.
fn cni(node: Node) -> Value {
    json!({"cniVersion": "0.4.0", "name": "yoi", "plugins": [{
        "type": "ptp",
        "ipMasq": false,
        "ipam": {
            "type": "host-local",
            "dataDir": node.path("cni/addresses"),
            "ranges": [[{"subnet": node.pod_range()}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }]})
}

fn kubelet(node: Node) -> Value {
    let instance = node.instance;
    let key = |file: &str| node.path(&format!("pki/{file}"));
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": instance.path("pki/ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": key("kubelet-server.crt"), "tlsPrivateKeyFile": key("kubelet-server.key"),
        "containerRuntimeEndpoint": format!("unix://{}", node.containerd_socket()),
        "clusterDNS": [instance.dns_address()], "clusterDomain": "cluster.local", "resolvConf": node.path("resolv.conf"),
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", node.cgroup()), "cgroupsPerQOS": true, "failCgroupV1": false,
        "enforceNodeAllocatable": [], "failSwapOn": false, "maxPods": 500,
        "oomScoreAdj": if has_sys_resource() { -999 } else { 0 },
        "volumePluginDir": node.path("flexvolume"),
        // Renewed every 5 s, so that several renewals fit into the controller-manager's --node-monitor-grace-period.
        "nodeLeaseDurationSeconds": 20,
        // No registry has the images, so neither their age nor a full disk may remove them.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        // Tests kill containers again and again.
        "featureGates": {"KubeletCrashLoopBackOffMax": true}, "crashLoopBackOff": {"maxContainerRestartPeriod": "5s"},
    })
}

fn kube_proxy(node: Node) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "iptables", "clusterCIDR": node.instance.pod_range(), "hostnameOverride": node.name(),
        "clientConnection": {"kubeconfig": part_kubeconfig_path(node.instance, "proxy")},
        // These sysctls may be read-only: leave them alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

fn part_kubeconfig_path(instance: Instance, user: &str) -> String {
    instance.path(&format!("conf/{user}.kubeconfig"))
}

fn kubelet_kubeconfig_path(node: Node) -> String {
    node.path("conf/kubelet.kubeconfig")
}

/// `keys`: the user's certificate and key, without their endings.
fn part_kubeconfig(instance: Instance, user: &str, keys: &str) -> Value {
    kubeconfig(
        instance,
        user,
        json!({"certificate-authority": instance.path("pki/ca.crt")}),
        json!({"client-certificate": format!("{keys}.crt"), "client-key": format!("{keys}.key")}),
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
    cluster["server"] = format!("https://{}:6443", Node::first(instance).address()).into();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": format!("{name}-{user}"), "user": user_keys}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": format!("{name}-{user}")}}],
    })
}

fn supervise(node: Node, programs: &Programs) -> Result<Value> {
    let instance = node.instance;
    let mut binds = MOUNT_POINTS.map(|(point, below)| (node.path(below), point.to_owned())).to_vec();
    if !node.is_first() {
        // Paths on nodes are the same for every node: in the charts, and in the provisioner's settings.
        binds.extend(["yoi", "local-path"].map(|below| (node.path(below), instance.path(below))));
    }
    let mut mounts = vec![json!({"target": "/run"}), json!({"source": node.path("log/node"), "target": "/var/log"})];
    mounts.extend(binds.into_iter().map(|(source, target)| json!({"source": source, "target": target})));
    let mut setup = network::node_setup(node);
    setup.extend(data_root::node_setup(node, &instance.path("yoi")));
    let program = programs.kubernetes.join("yoi-cluster").display().to_string();
    let mut children = vec![containerd_child(node)];
    if node.is_first() {
        children.extend(control_plane(instance, &program));
    }
    children.extend(node_parts(node, &program));
    children.push(netpol(node, &programs.netpol));
    Ok(json!({
        "pidFile": node.path("pid"), "gateFile": node.path("gate"), "readyFile": node.path("ready"),
        "logDir": node.path("log"), "maxLogBytes": 16 << 20,
        "cgroupProcs": cgroup::procs(node)?,
        "mounts": mounts,
        "setup": setup,
        "children": children,
    }))
}

/// One part of the program. `ready`: where it then accepts connections.
fn part(program: &str, name: &str, ready: &str, flags: &str) -> Value {
    let command: Vec<&str> = [program, name].into_iter().chain(flags.split_whitespace()).collect();
    json!({"name": name, "command": command, "ready": ready})
}

fn containerd_child(node: Node) -> Value {
    let program = crate::command::find_program("containerd").unwrap_or_else(|| "/usr/bin/containerd".into());
    json!({
        "name": "containerd", "ready": format!("unix:{}", node.containerd_socket()),
        "command": [program.display().to_string(), "--config".to_owned(), node.path("conf/containerd.toml")],
    })
}

fn node_parts(node: Node, program: &str) -> [Value; 2] {
    let mut kubelet = part(
        program,
        "kubelet",
        "",
        &format!(
            "--config={} --kubeconfig={} --hostname-override={node} --node-ip={} --root-dir=/var/lib/kubelet",
            node.path("conf/kubelet.json"),
            kubelet_kubeconfig_path(node),
            node.address()
        ),
    );
    kubelet["after"] = node.path(supervisor::IMAGES_MARK).into();
    [kubelet, part(program, "kube-proxy", "", &format!("--config={}", node.path("conf/kube-proxy.json")))]
}

/// Enforces NetworkPolicies, from when the Node is there and kube-proxy has its rules: nothing else waits for that.
fn netpol(node: Node, program: &Path) -> Value {
    let command = [
        program.display().to_string(),
        format!("--kubeconfig={}", part_kubeconfig_path(node.instance, "netpol")),
        format!("--node={node}"),
        format!("--service-range={}", node.instance.service_range()),
        format!("--ready-socket={}", node.path(supervisor::POLICIES_SOCKET)),
    ];
    json!({"name": "netpol", "command": command, "ready": ""})
}

fn control_plane(instance: Instance, program: &str) -> [Value; 4] {
    let (address, pki) = (Node::first(instance).address(), instance.path("pki"));
    let user = |name: &str| part_kubeconfig_path(instance, name);
    // What people keep outlives a loss of power; the clusters of a clone are made anew.
    let sync = if instance == Instance::YoiHost { "" } else { " --unsafe-no-fsync" };
    let etcd = format!(
        "--data-dir={}{sync} --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379
         --listen-peer-urls=http://127.0.0.1:2380 --log-level=warn --quota-backend-bytes=4294967296 --auto-compaction-retention=10m",
        instance.path("etcd")
    );
    let api_server = format!(
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
        instance.service_range()
    );
    let controller_manager = format!(
        "--kubeconfig={0} --authentication-kubeconfig={0} --authorization-kubeconfig={0} --leader-elect=false --bind-address=127.0.0.1
         --use-service-account-credentials=true --service-account-private-key-file={pki}/service-accounts.key --root-ca-file={pki}/ca.crt
         --cluster-signing-cert-file={pki}/ca.crt --cluster-signing-key-file={pki}/ca.key --cluster-cidr={1} --allocate-node-cidrs=false
         --flex-volume-plugin-dir={2} --node-monitor-grace-period={NODE_GRACE}",
        user("controller-manager"),
        instance.pod_range(),
        instance.path("flexvolume")
    );
    let scheduler = format!(
        "--kubeconfig={0} --authentication-kubeconfig={0} --authorization-kubeconfig={0} --leader-elect=false --bind-address=127.0.0.1",
        user("scheduler")
    );
    [
        part(program, "etcd", "tcp:127.0.0.1:2379", &etcd),
        part(program, "kube-apiserver", &format!("tcp:{address}:6443"), &api_server),
        part(program, "kube-controller-manager", "", &controller_manager),
        part(program, "kube-scheduler", "", &scheduler),
    ]
}

/// After this time without a renewal of its Lease, a node is NotReady. Longer than the 18 s for which tests stop a kubelet or the API server.
const NODE_GRACE: &str = "30s";
