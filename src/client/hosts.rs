//! The hostnames of a cluster, with the statuses that the API server has.

use anyhow::Result;
use serde_json::{Value, json};

use super::ClusterView;
use super::stand_ins::StandIns;
use gatewright_control::{Visibility, owner_rows};
use gatewright_core::hosts::{HostRow, Sight, host_rows};
use gatewright_core::inputs::ObjectKey;

impl ClusterView {
    /// Returns the hostnames with what answers for them and what is wrong, as the statuses that the
    /// controller wrote have it. Of what the user may not read neither ports nor certificates are
    /// told.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn hosts(&self) -> Result<Vec<HostRow>> {
        let stand_ins = StandIns::new(
            |key| self.view.objects.get(key),
            &self.unread,
            self.controller(),
            None,
        );
        let pipeline = self.pipeline(stand_ins.objects).await?;
        let sight = Sight {
            document: &|key| self.written_document(key),
            may_read: &|key| self.view.may_read(key),
        };
        Ok(host_rows(&pipeline, None, &sight))
    }

    /// The kind, the metadata and the written status of an object.
    fn written_document(&self, key: &ObjectKey) -> Option<Value> {
        self.view.observed.get(key)?;
        Some(json!({"kind": key.kind.as_str(),
            "metadata": {"namespace": &*key.name.namespace, "name": &*key.name.name},
            "status": self.status_of(key)}))
    }

    /// Returns the record of ownership, in the form of a running program; `None` if the user may
    /// not read it.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn owners(&self) -> Result<Option<Value>> {
        if !self.view.has_record {
            return Ok(None);
        }
        let pipeline = self.pipeline(Vec::new()).await?;
        Ok(Some(
            owner_rows(&pipeline, &Visibility::Everything).collect(),
        ))
    }
}
