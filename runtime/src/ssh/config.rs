//! The configuration of one server.

use std::ffi::OsString;
use std::path::Path;

use uuid::Uuid;

/// What a server is told.
pub struct Config<'a> {
    pub host_key: &'a Path,
    pub authorized_keys: &'a Path,
    /// The variables of what it starts.
    pub env: &'a [(OsString, OsString)],
    /// One more of them.
    pub call_id: (&'a str, &'a Uuid),
}

/// What a person may do, and what the server is not to do: it runs as the agent's user and has nothing to ask the system for.
const RULES: &str = "\
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
PidFile none
UseDNS no
LoginGraceTime 60
ClientAliveInterval 30
ClientAliveCountMax 4
PrintMotd no
PrintLastLog no
PermitUserRC no
PermitUserEnvironment no
PermitTunnel no
X11Forwarding no
AllowAgentForwarding no
AllowTcpForwarding local
AllowStreamLocalForwarding local
GatewayPorts no
AcceptEnv LANG LC_* COLORTERM
Subsystem sftp internal-sftp
LogLevel ERROR
";

impl Config<'_> {
    /// As the server reads it.
    pub fn text(&self) -> String {
        let mut text = format!("HostKey {}\nAuthorizedKeysFile {}\n{RULES}", quoted_path(self.host_key), quoted_path(self.authorized_keys));
        let (name, id) = self.call_id;
        // Only the first line of these counts.
        text.push_str(&format!("SetEnv {name}={id}"));
        for (name, value) in self.env {
            if let Some(variable) = variable(name, value) {
                text.push(' ');
                text.push_str(&variable);
            }
        }
        text.push('\n');
        text
    }
}

/// A variable as a word of the configuration. The client says which terminal it has, and what has several lines has no form there.
fn variable(name: &OsString, value: &OsString) -> Option<String> {
    let (name, value) = (name.to_str()?, value.to_str()?);
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_name && name != "TERM" && !value.contains(char::is_control)).then(|| quoted(&format!("{name}={value}")))
}

fn quoted_path(path: &Path) -> String {
    // A percent sign begins a placeholder there.
    quoted(&path.display().to_string().replace('%', "%%"))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_words_of_one_line_whatever_is_in_them() {
        let env = [("PATH", "/a:/b c"), ("Q", "say \"x\" \\ 'y' # z"), ("TERM", "dumb"), ("LINES", "a\nHostKey /x"), ("a b", "c")];
        let env = env.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let id = Uuid::nil();
        let config = Config { host_key: Path::new("/t/h"), authorized_keys: Path::new("/t/50%"), env: &env, call_id: ("YOI_CALL", &id) };
        let text = config.text();
        let set: Vec<&str> = text.lines().filter(|line| line.starts_with("SetEnv")).collect();
        assert_eq!(set, [format!(r#"SetEnv YOI_CALL={id} "PATH=/a:/b c" "Q=say \"x\" \\ 'y' # z""#)]);
        assert!(text.starts_with("HostKey \"/t/h\"\nAuthorizedKeysFile \"/t/50%%\"\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("HostKey")).count(), 1);
    }
}
