//! The TenantGateway (`gateway.cozystack.io/v1alpha1`) with upstream's schema and defaults, and its
//! validation.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::document::{Fields, read};
use super::manifest::Manifest;
use super::names::object_name;
use super::{Kind, ParseError};
use crate::model::{Hostname, ObjectName};

/// The annotation that chooses the certificate source, instead of the installation's default;
/// `spec` stays as upstream's schema has it.
pub const ISSUER: &str = "gatewright.io/issuer";
/// The annotation with the URL of an ACME directory other than those of `spec.issuerName`.
pub const DIRECTORY: &str = "gatewright.io/acme-directory";
/// The annotation with IP addresses of the Gateway, separated by commas; without it the Gateway has
/// those of its class.
pub const ADDRESSES: &str = "gatewright.io/addresses";
/// The custom resource definition of TenantGateway, a generated file.
pub const CRD: &str =
    include_str!("../../../../deploy/crds/gateway.cozystack.io_tenantgateways.yaml");

/// A TenantGateway.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantGateway {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`; derived objects have it in their owner reference.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp` in seconds; 0 without one.
    pub created: i64,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The specification.
    pub spec: Spec,
    /// Why `spec` is the default value: a laxer or newer schema admitted a specification that we
    /// cannot read.
    pub unreadable: Option<String>,
}

/// `spec`, with upstream's defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The apex: the domain of all hostnames.
    #[serde(default)]
    pub apex: String,
    /// `http01`, `dns01` or `existingSecret`.
    #[serde(default = "http01")]
    pub cert_mode: String,
    /// `letsencrypt-prod` or `letsencrypt-stage`.
    #[serde(default = "prod")]
    pub issuer_name: String,
    /// The DNS provider for DNS-01 challenges; read in dns01 mode only.
    pub dns01: Option<Dns01>,
    /// The Secret of existingSecret mode.
    pub wildcard_secret_ref: Option<LocalObject>,
    /// Namespaces that may attach routes, in addition to inheriting ones.
    #[serde(default)]
    pub attached_namespaces: Vec<String>,
    /// Services whose TLS is passed through.
    #[serde(default)]
    pub tls_passthrough_services: Vec<String>,
    /// The class of the Gateway.
    #[serde(default = "cilium")]
    pub gateway_class_name: String,
}

/// `spec.dns01`: a provider and its block. Blocks go into the Issuer key by key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Dns01 {
    /// `cloudflare`, `route53`, `digitalocean` or `rfc2136`.
    #[serde(default = "cloudflare")]
    pub provider: String,
    /// Cloudflare.
    pub cloudflare: Option<Cloudflare>,
    /// Route 53.
    pub route53: Option<Route53>,
    /// DigitalOcean.
    pub digitalocean: Option<DigitalOcean>,
    /// RFC 2136.
    pub rfc2136: Option<Rfc2136>,
}

/// `spec.dns01.cloudflare`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cloudflare {
    /// The API token.
    pub api_token_secret_ref: SecretKey,
}

/// `spec.dns01.route53`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route53 {
    /// The region.
    pub region: String,
    /// The ID of the access key; ambient credentials are used without it.
    #[serde(rename = "accessKeyID", default)]
    pub access_key_id: String,
    /// The access key.
    pub secret_access_key_secret_ref: Option<SecretKey>,
}

/// `spec.dns01.digitalocean`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DigitalOcean {
    /// The API token.
    pub token_secret_ref: SecretKey,
}

/// `spec.dns01.rfc2136`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rfc2136 {
    /// The server.
    pub nameserver: String,
    /// The key's name.
    pub tsig_key_name: String,
    /// The key's algorithm.
    #[serde(default)]
    pub tsig_algorithm: String,
    /// The key.
    pub tsig_secret_secret_ref: SecretKey,
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SecretKey {
    /// The Secret.
    #[serde(default)]
    pub name: String,
    /// The key in it.
    pub key: String,
    /// Read, and left out of the Issuer, which has no such field.
    #[serde(default)]
    pub optional: Option<bool>,
}

/// An object of the same namespace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LocalObject {
    /// Its name.
    #[serde(default)]
    pub name: String,
}

fn http01() -> String {
    "http01".to_owned()
}

fn prod() -> String {
    "letsencrypt-prod".to_owned()
}

fn cilium() -> String {
    "cilium".to_owned()
}

fn cloudflare() -> String {
    "cloudflare".to_owned()
}

/// The kind of certificates that a TenantGateway has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One certificate per host; by HTTP-01 if the issuer requires a challenge.
    Http01,
    /// One wildcard certificate; by DNS-01 if the issuer requires a challenge.
    Dns01,
    /// A certificate in a Secret that the user provides.
    ExistingSecret,
}

impl Mode {
    /// True if every host has a listener and a certificate of its own.
    pub fn per_host(self) -> bool {
        self == Mode::Http01
    }
}

/// The issuer of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// cert-manager, through its Issuers and Certificates.
    CertManager,
    /// Our ACME client, from a CA that speaks ACME.
    Acme,
    /// Our internal CA.
    InternalCa,
}

impl Source {
    const ALL: [Source; 3] = [Source::CertManager, Source::Acme, Source::InternalCa];

    /// The value of the annotation.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::CertManager => "cert-manager",
            Source::Acme => "acme",
            Source::InternalCa => "internal-ca",
        }
    }
}

/// A validation error of a TenantGateway: the field and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {fix}")]
pub struct Invalid {
    /// The field's path.
    pub field: String,
    /// The finding, and the text to write instead.
    pub fix: String,
}

fn invalid<T>(field: impl Into<String>, fix: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid {
        field: field.into(),
        fix: fix.into(),
    })
}

impl TenantGateway {
    /// Reads a manifest. Violations of the schema alone are errors here; settings that can never
    /// work are reported by [`Self::check`].
    pub fn parse(value: &Value) -> Result<Self, ParseError> {
        Self::parse_with(value, Fields::Known)
    }

    pub(super) fn read(manifest: Manifest<'_>) -> Result<Box<Self>, ParseError> {
        Self::parse_with(manifest.value, manifest.fields).map(Box::new)
    }

    /// Reads a TenantGateway. Violations of the schema are errors when unknown fields are
    /// ([`Fields::Known`]); of an object that an API server has admitted they are reported by
    /// [`Self::check`].
    fn parse_with(value: &Value, fields: Fields) -> Result<Self, ParseError> {
        let meta: ObjectMeta = read(&value["metadata"], Fields::Any)?;
        let name = object_name(Kind::TenantGateway, &meta)?;
        let spec = if value["spec"].is_null() {
            Value::Object(serde_json::Map::new())
        } else {
            value["spec"].clone()
        };
        let (spec, unreadable) = match read(&spec, fields) {
            Ok(spec) => (spec, None),
            Err(error) if fields == Fields::Any => (Spec::default(), Some(error.to_string())),
            Err(ParseError::UnknownField(field)) => {
                return Err(ParseError::UnknownField(format!("spec.{field}")));
            }
            Err(error) => return Err(ParseError::Schema(format!("spec: {error}"))),
        };
        Ok(Self {
            name,
            uid: meta.uid.unwrap_or_default(),
            generation: meta.generation.unwrap_or(1),
            created: meta.creation_timestamp.map_or(0, |time| time.0.as_second()),
            annotations: meta.annotations.unwrap_or_default(),
            spec,
            unreadable,
        })
    }

    /// The certificate mode.
    pub fn mode(&self) -> Result<Mode, Invalid> {
        match self.spec.cert_mode.as_str() {
            "" | "http01" => Ok(Mode::Http01),
            "dns01" => Ok(Mode::Dns01),
            "existingSecret" => Ok(Mode::ExistingSecret),
            other => invalid(
                "spec.certMode",
                format!("{other:?} is not known: use http01, dns01 or existingSecret"),
            ),
        }
    }

    /// The certificate source of the annotation; `None` without one.
    pub fn source(&self) -> Result<Option<Source>, Invalid> {
        let Some(given) = self.annotations.get(ISSUER) else {
            return Ok(None);
        };
        let known = Source::ALL
            .into_iter()
            .find(|source| source.as_str() == given);
        match known {
            Some(source) => Ok(Some(source)),
            None => invalid(
                format!("metadata.annotations[{ISSUER}]"),
                format!(
                    "{given:?} is not known: use cert-manager, acme or internal-ca, or leave it out"
                ),
            ),
        }
    }

    /// Validates the specification, and returns the parsed apex and mode. `from` is the certificate
    /// source if the annotation does not name one.
    pub fn check(&self, from: Source) -> Result<(Hostname, Mode), Invalid> {
        if let Some(why) = &self.unreadable {
            return invalid("spec", format!("cannot be read: {why}"));
        }
        if self.spec.apex.is_empty() {
            return invalid(
                "spec.apex",
                "is empty: write the hostname below which everything is published",
            );
        }
        let apex = match Hostname::parse(&self.spec.apex) {
            Ok(apex) if apex.is_exact() => apex,
            Ok(_) => return invalid("spec.apex", "is a wildcard: write the name without *."),
            Err(error) => return invalid("spec.apex", error.to_string()),
        };
        // Derived objects have its name in a label, whose value may be at most 63 characters long.
        if self.name.name.len() > 63 {
            return invalid(
                "metadata.name",
                "is longer than 63 characters: make one with a shorter name",
            );
        }
        let mode = self.mode()?;
        let source = self.source()?.unwrap_or(from);
        if !mode.per_host() && apex.as_str().len() > 251 {
            let fix = format!(
                "is longer than 251 characters, so that *.{apex} is no hostname: use certMode http01"
            );
            return invalid("spec.apex", fix);
        }
        if mode == Mode::ExistingSecret
            && self
                .spec
                .wildcard_secret_ref
                .as_ref()
                .is_none_or(|s| s.name.is_empty())
        {
            return invalid(
                "spec.wildcardSecretRef.name",
                "is needed by certMode existingSecret",
            );
        }
        if !matches!(
            self.spec.issuer_name.as_str(),
            "" | "letsencrypt-prod" | "letsencrypt-stage"
        ) {
            let fix = format!(
                "{:?} is not known: use letsencrypt-prod or letsencrypt-stage",
                self.spec.issuer_name
            );
            return invalid("spec.issuerName", fix);
        }
        if let Some(directory) = self
            .annotations
            .get(DIRECTORY)
            .filter(|url| !url.starts_with("https://"))
        {
            return invalid(
                format!("metadata.annotations[{DIRECTORY}]"),
                format!("{directory:?} is no https:// URL"),
            );
        }
        if let Err(text) = self.addresses() {
            return invalid(format!("metadata.annotations[{ADDRESSES}]"), text);
        }
        if mode == Mode::Dns01 && source != Source::InternalCa {
            self.check_provider()?;
        }
        let too_many = self
            .spec
            .tls_passthrough_services
            .len()
            .max(self.spec.attached_namespaces.len());
        if self.spec.tls_passthrough_services.len() > 32 || too_many > 256 {
            return invalid(
                "spec",
                "at most 32 tlsPassthroughServices and 256 attachedNamespaces are taken",
            );
        }
        for service in &self.spec.tls_passthrough_services {
            let host = Hostname::parse(&format!("{service}.{apex}"));
            if service.contains('.') || service.is_empty() || host.is_err() {
                return invalid(
                    "spec.tlsPassthroughServices",
                    format!("{service:?} is no DNS label"),
                );
            }
        }
        Ok((apex, mode))
    }

    fn check_provider(&self) -> Result<(), Invalid> {
        let Some(dns01) = &self.spec.dns01 else {
            return invalid("spec.dns01", "is needed by certMode dns01");
        };
        let there = match dns01.provider.as_str() {
            "cloudflare" => dns01.cloudflare.is_some(),
            "route53" => dns01.route53.is_some(),
            "digitalocean" => dns01.digitalocean.is_some(),
            "rfc2136" => dns01.rfc2136.is_some(),
            other => {
                let fix = format!(
                    "{other:?} is not known: use cloudflare, route53, digitalocean or rfc2136"
                );
                return invalid("spec.dns01.provider", fix);
            }
        };
        let field = format!("spec.dns01.{}", dns01.provider);
        if there {
            Ok(())
        } else {
            invalid(field, format!("is needed by provider {}", dns01.provider))
        }
    }

    /// The requested addresses.
    ///
    /// # Errors
    /// When an address is invalid, or there are more than a Gateway may have.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        let text = self
            .annotations
            .get(ADDRESSES)
            .map(String::as_str)
            .unwrap_or_default();
        let all = text
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let all: Vec<IpAddr> = all
            .map(|text| {
                text.parse().map_err(|_| {
                    format!("{text:?} is no IP address: write them separated by commas")
                })
            })
            .collect::<Result<_, _>>()?;
        if all.len() > 16 {
            Err("at most 16 addresses are taken".to_owned())
        } else {
            Ok(all)
        }
    }

    /// The passthrough services in the specification's order, each once.
    pub fn passthrough(&self) -> Vec<Arc<str>> {
        let mut seen = Vec::<Arc<str>>::new();
        for service in &self.spec.tls_passthrough_services {
            if !seen.iter().any(|s| **s == **service) {
                seen.push(Arc::from(service.as_str()));
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tenant(spec: Value) -> TenantGateway {
        TenantGateway::parse(
            &json!({"metadata": {"namespace": "tenant-a", "name": "cozystack"}, "spec": spec}),
        )
        .expect("of the right shape")
    }

    #[test]
    fn defaults_are_upstreams() {
        let tenant = tenant(json!({"apex": "a.example.org"}));
        assert_eq!(tenant.spec.gateway_class_name, "cilium");
        assert_eq!(tenant.spec.issuer_name, "letsencrypt-prod");
        assert_eq!(
            tenant.check(Source::CertManager).expect("valid").1,
            Mode::Http01
        );
    }

    /// A hostname of `length` characters.
    fn long(length: usize) -> String {
        let mut name = "a.".repeat(length / 2 - 1);
        name.extend(std::iter::repeat_n('a', length - name.len()));
        name
    }

    #[test]
    fn names_are_taken_up_to_what_labels_and_hostnames_hold() {
        fn named(length: usize) -> Result<(Hostname, Mode), Invalid> {
            let name = "n".repeat(length);
            let value =
                json!({"metadata": {"namespace": "a", "name": name}, "spec": {"apex": long(253)}});
            TenantGateway::parse(&value)
                .expect("of the right shape")
                .check(Source::CertManager)
        }
        assert!(named(63).is_ok());
        let refused = named(64).expect_err("a label has no room").to_string();
        assert!(
            refused.starts_with("metadata.name: is longer than 63"),
            "{refused}"
        );
        let spec = json!({"apex": long(251), "certMode": "existingSecret", "wildcardSecretRef": {"name": "w"}});
        assert!(tenant(spec).check(Source::CertManager).is_ok());
    }

    #[test]
    fn an_impossible_specification_names_its_field() {
        for (spec, message) in [
            (json!({}), "spec.apex: is empty"),
            (
                json!({"apex": "A.example.org"}),
                "spec.apex: hostname \"A.example.org\" has upper-case",
            ),
            (json!({"apex": "*.example.org"}), "spec.apex: is a wildcard"),
            (
                json!({"apex": "a.org", "certMode": "x"}),
                "spec.certMode: \"x\" is not known",
            ),
            (
                json!({"apex": "a.org", "certMode": "dns01"}),
                "spec.dns01: is needed",
            ),
            (
                json!({"apex": "a.org", "certMode": "dns01", "dns01": {}}),
                "spec.dns01.cloudflare: is needed",
            ),
            (
                json!({"apex": "a.org", "certMode": "dns01", "dns01": {"provider": "x"}}),
                "spec.dns01.provider: \"x\"",
            ),
            (
                json!({"apex": "a.org", "certMode": "existingSecret"}),
                "spec.wildcardSecretRef.name: is needed",
            ),
            (
                json!({"apex": "a.org", "issuerName": "x"}),
                "spec.issuerName: \"x\"",
            ),
            (
                json!({"apex": "a.org", "tlsPassthroughServices": ["a.b"]}),
                "spec.tlsPassthroughServices: \"a.b\"",
            ),
            (
                json!({"apex": long(252), "certMode": "existingSecret"}),
                "spec.apex: is longer than 251",
            ),
            (json!({"apex": long(254)}), "spec.apex: hostname"),
        ] {
            let found = tenant(spec.clone())
                .check(Source::Acme)
                .expect_err("invalid")
                .to_string();
            assert!(found.starts_with(message), "{spec}: {found}");
        }
    }

    #[test]
    fn the_annotation_goes_before_the_installation_and_our_own_ca_needs_no_provider() {
        fn annotated(issuer: &str, spec: Value) -> TenantGateway {
            let meta = json!({"name": "t", "namespace": "a", "annotations": {ISSUER: issuer}});
            TenantGateway::parse(&json!({"metadata": meta, "spec": spec}))
                .expect("of the right shape")
        }
        fn dns01() -> Value {
            json!({"apex": "a.org", "certMode": "dns01"})
        }
        for (issuer, source) in Source::ALL.map(|source| (source.as_str(), source)) {
            assert_eq!(annotated(issuer, dns01()).source(), Ok(Some(source)));
        }
        assert_eq!(tenant(dns01()).source(), Ok(None));
        assert!(
            annotated("internal-ca", dns01())
                .check(Source::Acme)
                .is_ok()
        );
        assert!(tenant(dns01()).check(Source::InternalCa).is_ok());
        assert!(
            annotated("acme", dns01())
                .check(Source::InternalCa)
                .is_err()
        );
        let refused = annotated("own", dns01())
            .check(Source::Acme)
            .expect_err("unknown")
            .to_string();
        assert!(
            refused.contains("\"own\" is not known: use cert-manager, acme or internal-ca"),
            "{refused}"
        );
    }

    #[test]
    fn the_definition_has_the_columns_and_the_short_name() {
        let crd: Value = serde_yaml_ng::from_str(CRD).expect("the definition is YAML");
        assert_eq!(
            crd["metadata"]["name"],
            "tenantgateways.gateway.cozystack.io"
        );
        assert_eq!(crd["spec"]["names"]["shortNames"], json!(["tgw"]));
        let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .expect("columns");
        let names: Vec<_> = columns
            .iter()
            .map(|column| column["name"].as_str().expect("named"))
            .collect();
        assert_eq!(names, ["Apex", "Mode", "Ready", "Age"]);
    }

    /// A value that a schema admits, with every field set.
    fn whole(schema: &Value) -> Value {
        match schema["type"].as_str() {
            Some("object") => {
                let fields = schema["properties"].as_object().expect("properties");
                fields
                    .iter()
                    .map(|(name, schema)| (name.clone(), whole(schema)))
                    .collect()
            }
            Some("array") => json!([whole(&schema["items"])]),
            Some("boolean") => json!(true),
            Some("string") => schema["enum"]
                .get(0)
                .cloned()
                .unwrap_or_else(|| json!("text")),
            other => panic!("a type that is not read: {other:?}"),
        }
    }

    /// A deserializer that records the fields of a type.
    struct Asked<'a>(&'a mut &'static [&'static str]);

    impl<'de> serde::Deserializer<'de> for Asked<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: serde::de::Visitor<'de>>(
            self,
            _: V,
        ) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("only structs are asked"))
        }

        fn deserialize_struct<V: serde::de::Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn fields<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
        let mut fields: &[&str] = &[];
        T::deserialize(Asked(&mut fields)).expect_err("nothing is given");
        fields.iter().map(|field| (*field).to_owned()).collect()
    }

    #[test]
    fn fields_that_a_laxer_schema_admits_are_ignored_or_reported() {
        fn admitted(spec: Value) -> Result<(Hostname, Mode), Invalid> {
            let value =
                json!({"metadata": {"namespace": "tenant-a", "name": "cozystack"}, "spec": spec});
            TenantGateway::parse_with(&value, Fields::Any)
                .expect("it has a name")
                .check(Source::Acme)
        }
        assert!(admitted(json!({"apex": "a.org", "fieldOfTomorrow": {"x": 1}})).is_ok());
        assert!(
            admitted(json!({"apex": "a.org", "dns01": {"provider": "cloudflare", "another": 1}}))
                .is_ok()
        );
        let refused = admitted(json!({"apex": "a.org", "attachedNamespaces": "x"}))
            .expect_err("no list")
            .to_string();
        assert!(refused.starts_with("spec: cannot be read: "), "{refused}");
        let strict = |spec: Value| {
            let value =
                json!({"metadata": {"namespace": "tenant-a", "name": "cozystack"}, "spec": spec});
            TenantGateway::parse(&value)
                .expect_err("in a file it is a mistake")
                .to_string()
        };
        assert!(
            strict(json!({"apex": "a.org", "dns01": {"another": 1}}))
                .contains("spec.dns01.another")
        );
        assert!(strict(json!({"apex": 1})).contains("spec: "));
    }

    #[test]
    fn the_definition_and_the_type_have_the_same_fields_and_defaults() {
        let crd: Value = serde_yaml_ng::from_str(CRD).expect("the definition is YAML");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let dns01 = &schema["properties"]["dns01"];
        fn provider<'a>(name: &str, dns01: &'a Value) -> &'a Value {
            &dns01["properties"][name]
        }
        for (schema, fields) in [
            (schema, fields::<Spec>()),
            (dns01, fields::<Dns01>()),
            (provider("cloudflare", dns01), fields::<Cloudflare>()),
            (provider("route53", dns01), fields::<Route53>()),
            (provider("digitalocean", dns01), fields::<DigitalOcean>()),
            (provider("rfc2136", dns01), fields::<Rfc2136>()),
            (
                &provider("cloudflare", dns01)["properties"]["apiTokenSecretRef"],
                fields::<SecretKey>(),
            ),
            (
                &schema["properties"]["wildcardSecretRef"],
                fields::<LocalObject>(),
            ),
        ] {
            let mut fields = fields;
            fields.sort();
            let written: Vec<&String> = schema["properties"]
                .as_object()
                .expect("properties")
                .keys()
                .collect();
            assert_eq!(written, fields.iter().collect::<Vec<_>>());
        }
        Spec::deserialize(whole(schema)).expect("the type reads what the definition admits");
        let least = Spec::deserialize(json!({"apex": "a.org"})).expect("nothing else is required");
        for (field, value) in [
            ("certMode", &least.cert_mode),
            ("issuerName", &least.issuer_name),
            ("gatewayClassName", &least.gateway_class_name),
        ] {
            assert_eq!(
                schema["properties"][field]["default"],
                json!(value),
                "{field}"
            );
        }
        assert_eq!(schema["required"], json!(["apex"]));
    }
}
