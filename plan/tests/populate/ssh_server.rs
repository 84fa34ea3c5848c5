//! sshd of this machine: one process for each connection, with a host key of the test's own.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct SshServer {
    folder: PathBuf,
    pub port: u16,
    /// Whose account the server lets in.
    pub user: String,
}

impl SshServer {
    /// Lets in who has the key `folder/client`, until the process ends.
    pub fn start(folder: &Path) -> Self {
        crate::populator::require("sshd", "openssh-server");
        crate::populator::require("ssh-keygen", "openssh-client");
        fs::create_dir_all(folder).unwrap();
        for name in ["host", "client", "other"] {
            make_key(&folder.join(name), "");
        }
        // sshd of root demands this folder, which the package's service makes.
        _ = fs::DirBuilder::new().mode(0o755).create("/run/sshd");
        let path = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
            PermitRootLogin prohibit-password\nPidFile none\nAcceptEnv GIT_PROTOCOL\n",
            path("host"),
            path("client.pub")
        );
        fs::write(folder.join("config"), config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = path("config");
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (input, output) = (OwnedFd::from(stream.try_clone().unwrap()), OwnedFd::from(stream));
                let mut sshd = Command::new("/usr/sbin/sshd");
                sshd.args(["-i", "-f", &config]).stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::null());
                let mut child = sshd.spawn().unwrap();
                std::thread::spawn(move || child.wait());
            }
        });
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        SshServer { folder: folder.to_owned(), port, user: String::from_utf8(user).unwrap().trim().to_owned() }
    }

    pub fn url(&self, repository: &Path) -> String {
        format!("ssh://{}@127.0.0.1:{}{}", self.user, self.port, repository.display())
    }

    pub fn key(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    /// The line of known_hosts for this server with the key of this name.
    pub fn known_hosts(&self, key: &str) -> String {
        format!("[127.0.0.1]:{} {}", self.port, self.key(&format!("{key}.pub")))
    }

    /// As ssh-keygen shows it.
    pub fn fingerprint(&self) -> String {
        let done = Command::new("ssh-keygen").args(["-l", "-f"]).arg(self.folder.join("host.pub")).output().unwrap();
        String::from_utf8(done.stdout).unwrap().split(' ').nth(1).unwrap().to_owned()
    }
}

pub fn make_key(path: &Path, passphrase: &str) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", passphrase, "-f"]).arg(path).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
