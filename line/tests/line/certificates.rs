//! Certificates of a CA that a test makes. The gateway's tests use them too.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// The name in the certificates of servers.
pub const NAME: &str = "gateway.test";

pub struct Ca {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Ca {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub fn server(&self) -> Pair {
        self.sign(CertificateParams::new(vec![NAME.to_owned()]).unwrap(), ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self, common_names: &[&str]) -> Pair {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        // rcgen holds one name of each type, so the second common name is given by its object identifier.
        let kinds = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
        for (kind, name) in kinds.into_iter().zip(common_names) {
            params.distinguished_name.push(kind, *name);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Pair {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { cert, key: key.serialize_pem() }
    }
}
