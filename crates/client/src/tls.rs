//! TLS with the certificates that the host trusts.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use crate::error::ClientError;

/// What connections with TLS trust. A host without certificates can still speak to servers without TLS.
pub(crate) fn config() -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    // Some certificates of a host's store may be too old to parse; the others do.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Tls { reason: error.to_string() })?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
