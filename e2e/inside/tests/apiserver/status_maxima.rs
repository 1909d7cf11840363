//! The maxima of statuses are those of the definitions.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use e2e::apiserver::manifests::documents;
use gatewright_core::status_maxima::{
    ADDRESSES, ANCESTORS, BACKEND_ANCESTORS, CONDITIONS, FEATURES, KINDS, LISTENERS, MESSAGE,
    PARENTS,
};
use serde_json::Value;

const DEFINITIONS: [&str; 4] = [
    "../../.tools/gateway-api/config/crd/standard",
    "../../.tools/gateway-api/config/crd/experimental",
    "../../.tools/gateway-api-older/config/crd/experimental",
    "../../deploy/crds",
];

/// The kinds whose statuses are written whole, without a maximum of ours.
const UNBOUNDED: [&str; 1] = ["TenantGateway"];

/// A list with more room than others of its name.
const ROOMIER: (&str, usize) = ("XBackend.ancestors", BACKEND_ANCESTORS);

/// The lists and messages of statuses, by the name of the field.
fn known() -> BTreeMap<&'static str, u64> {
    [
        ("addresses", ADDRESSES),
        ("ancestors", ANCESTORS),
        ("conditions", CONDITIONS),
        ("supportedFeatures", FEATURES),
        ("supportedKinds", KINDS),
        ("listeners", LISTENERS),
        ("message", MESSAGE),
        ("parents", PARENTS),
    ]
    .map(|(field, maximum)| (field, maximum as u64))
    .into()
}

/// Collects the maxima of lists and messages below a schema, with their paths.
fn collect(schema: &Value, path: &str, all: &mut Vec<(String, String, u64)>) {
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{field}");
        let maximum = schema["maxItems"]
            .as_u64()
            .or_else(|| schema["maxLength"].as_u64().filter(|_| field == "message"));
        if let Some(maximum) = maximum {
            all.push((path.clone(), field.clone(), maximum));
        }
        collect(schema, &path, all);
        collect(&schema["items"], &path, all);
    }
}

#[test]
#[ignore = "needs the definitions: e2e/tools install gateway-api"]
fn the_maxima_are_those_of_the_definitions() -> Result<()> {
    let known = known();
    let mut seen = BTreeMap::new();
    for folder in DEFINITIONS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for file in std::fs::read_dir(folder)? {
            let file = file?.path();
            if file.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            for definition in documents(&std::fs::read_to_string(&file)?)? {
                let kind = definition["spec"]["names"]["kind"].as_str();
                let Some(kind) = kind.filter(|kind| !UNBOUNDED.contains(kind)) else {
                    continue;
                };
                for version in definition["spec"]["versions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                {
                    let schema = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
                    let mut all = Vec::new();
                    collect(schema, kind, &mut all);
                    for (path, field, maximum) in all {
                        let wanted = match ROOMIER {
                            (of, maximum) if of == path => Some(maximum as u64),
                            _ => known.get(field.as_str()).copied(),
                        };
                        assert_eq!(wanted, Some(maximum), "{path} of {}", file.display());
                        seen.insert(field, maximum);
                    }
                }
            }
        }
    }
    assert_eq!(
        seen.len(),
        known.len(),
        "each is in some definition: {seen:?}"
    );
    Ok(())
}
