//! Accounts of issuers: other keys and other accounts.

use super::{CertificateManager, Opened, names};

impl CertificateManager {
    /// Changes the key of an issuer's account. Orders are paused meanwhile, and go on once Envoys
    /// answer with the new key.
    ///
    /// # Errors
    /// When there is no such issuer, or the CA rejects the change.
    pub async fn change_key(&self, name: &str) -> Result<(), String> {
        let opened = self.opened(name)?;
        let old = opened.issuer.thumbprint();
        opened
            .issuer
            .roll_over_key()
            .await
            .map_err(|failure| failure.message)?;
        self.endpoints.release(&old);
        // Hands out the new thumbprint.
        self.nudge.send_modify(|n| *n += 1);
        Ok(())
    }

    fn opened(&self, name: &str) -> Result<Opened, String> {
        self.named.get(name).unwrap_or_else(|| {
            Err(format!(
                "no ACME issuer is called {name:?}: there are {}",
                names(&self.named)
            ))
        })
    }

    /// Creates another account for an issuer whose account was closed by the CA, or whose key is
    /// lost.
    ///
    /// # Errors
    /// When there is no such issuer, or the CA rejects the account.
    pub async fn new_account(&self, name: &str) -> Result<(), String> {
        let Some(known) = self.named.get(name) else {
            return self.opened(name).map(drop);
        };
        match known {
            Ok(opened) => {
                let old = opened.issuer.thumbprint();
                opened
                    .issuer
                    .replace_account()
                    .await
                    .map_err(|failure| failure.message)?;
                self.endpoints.release(&old);
            }
            Err(_) => {
                self.named.discard_damaged(name, &self.storage).await?;
                self.named.reopen(&self.storage, &self.endpoints).await;
                self.opened(name)?
                    .issuer
                    .account_url()
                    .await
                    .map_err(|failure| failure.message)?;
            }
        }
        // Orders that failed with the old account are retried.
        self.take_on(&[name.to_owned()]);
        Ok(())
    }
}
