//! A manifest, to be read as an object of its kind.

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::document::{Fields, read};
use super::{Kind, Meta, ParseError};

/// A manifest of a kind, and what unknown fields of it mean.
#[derive(Clone, Copy)]
pub(super) struct Manifest<'a> {
    pub(super) kind: Kind,
    pub(super) value: &'a Value,
    pub(super) fields: Fields,
}

/// An object as written, with a specification `S`. Its status is not read: it is ours or not
/// needed.
#[derive(Deserialize)]
pub(super) struct Specified<S> {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: S,
}

/// A type of objects as written.
pub(super) trait Written: DeserializeOwned {
    fn metadata(&self) -> &ObjectMeta;
}

impl<S: DeserializeOwned> Written for Specified<S> {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl<W: Metadata<Ty = ObjectMeta> + DeserializeOwned> Written for W {
    fn metadata(&self) -> &ObjectMeta {
        Metadata::metadata(self)
    }
}

/// The ways to read an object, by what its reader takes.
impl<'a> Manifest<'a> {
    /// The metadata that is kept, and the specification.
    pub(super) fn spec<S: DeserializeOwned, T>(
        self,
        read: fn(Meta, S) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        let (meta, written) = self.written::<Specified<S>>()?;
        read(meta, written.spec)
    }

    /// The metadata that is kept, and the manifest with all metadata.
    pub(super) fn whole<W: Written, T>(
        self,
        read: fn(Meta, W) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        let (meta, written) = self.written()?;
        read(meta, written)
    }

    /// The manifest as it is.
    pub(super) fn by<T>(
        self,
        read: fn(Manifest<'a>) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        read(self)
    }

    fn written<W: Written>(self) -> Result<(Meta, W), ParseError> {
        let written: W = read(self.value, self.fields).map_err(|why| {
            if self.kind.has_credentials() {
                why.without_values()
            } else {
                why
            }
        })?;
        Ok((Meta::read(self.kind, written.metadata())?, written))
    }

    /// The metadata of a manifest that cannot be read as a whole.
    pub(super) fn meta(self) -> Option<Meta> {
        let meta = read(&self.value["metadata"], Fields::Any).ok()?;
        Meta::read(self.kind, &meta).ok()
    }
}
