//! The names of users in an image.

/// The name of a user; `None` where there is none that a configuration could name.
pub fn user_of(passwd: &str, uid: u32) -> Option<String> {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        let is_name =
            !name.is_empty() && !name.starts_with('-') && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        (is_name && id.parse() == Ok(uid)).then(|| name.to_owned())
    };
    passwd.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::user_of;

    #[test]
    fn a_user_is_found_by_its_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken\nagent:x:1000:1000::/home/agent:/bin/bash\n-o:x:7:7::/:/bin/sh\n";
        assert_eq!(user_of(passwd, 1000).as_deref(), Some("agent"));
        assert_eq!(user_of(passwd, 0).as_deref(), Some("root"));
        assert_eq!((user_of(passwd, 7), user_of(passwd, 100), user_of("", 0)), (None, None, None));
    }
}
