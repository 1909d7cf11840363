//! Names of algorithms, for people.

/// The name of the algorithm or curve of an object identifier in dotted form; the identifier itself
/// if it is unknown.
pub(crate) fn name_of(oid: &str) -> &str {
    match oid {
        "1.2.840.113549.1.1.1" => "RSA",
        "1.2.840.113549.1.1.10" => "RSA-PSS",
        "1.2.840.10045.2.1" => "ECDSA",
        "1.2.840.10040.4.1" => "DSA",
        "1.3.101.110" => "X25519",
        "1.3.101.111" => "X448",
        "1.3.101.112" => "Ed25519",
        "1.3.101.113" => "Ed448",
        "2.16.840.1.101.3.4.3.17" => "ML-DSA-44",
        "2.16.840.1.101.3.4.3.18" => "ML-DSA-65",
        "2.16.840.1.101.3.4.3.19" => "ML-DSA-87",
        "1.2.840.10045.3.1.1" => "P-192",
        "1.3.132.0.33" => "P-224",
        "1.2.840.10045.3.1.7" => "P-256",
        "1.3.132.0.34" => "P-384",
        "1.3.132.0.35" => "P-521",
        "1.3.132.0.10" => "secp256k1",
        "1.3.36.3.3.2.8.1.1.7" => "brainpoolP256r1",
        "1.3.36.3.3.2.8.1.1.11" => "brainpoolP384r1",
        "1.3.36.3.3.2.8.1.1.13" => "brainpoolP512r1",
        "1.2.840.113549.1.1.2" => "MD2 with RSA",
        "1.2.840.113549.1.1.4" => "MD5 with RSA",
        "1.2.840.113549.1.1.5" => "SHA-1 with RSA",
        "1.2.840.10045.4.1" => "SHA-1 with ECDSA",
        "1.2.156.10197.1.301" => "SM2",
        "1.2.156.10197.1.501" => "SM2 with SM3",
        "2.5.29.9" => "subjectDirectoryAttributes",
        "2.5.29.14" => "subjectKeyIdentifier",
        "2.5.29.15" => "keyUsage",
        "2.5.29.16" => "privateKeyUsagePeriod",
        "2.5.29.17" => "subjectAltName",
        "2.5.29.18" => "issuerAltName",
        "2.5.29.19" => "basicConstraints",
        "2.5.29.30" => "nameConstraints",
        "2.5.29.31" => "cRLDistributionPoints",
        "2.5.29.32" => "certificatePolicies",
        "2.5.29.33" => "policyMappings",
        "2.5.29.35" => "authorityKeyIdentifier",
        "2.5.29.36" => "policyConstraints",
        "2.5.29.37" => "extKeyUsage",
        "2.5.29.54" => "inhibitAnyPolicy",
        "1.3.6.1.5.5.7.1.1" => "authorityInfoAccess",
        "1.3.6.1.5.5.7.1.24" => "TLS feature",
        "1.3.6.1.4.1.11129.2.4.2" => "signed certificate timestamps",
        "1.3.6.1.4.1.11129.2.4.3" => "precertificate poison",
        other => other,
    }
}

/// The dotted form of an encoded object identifier.
pub(crate) fn dotted(oid: &[u8]) -> String {
    x509_parser::asn1_rs::Oid::new(oid.into()).to_id_string()
}
