//! TLS with the certificates that the host trusts, so that hosts behind a proxy of their own work as they do for other programs.

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Nothing to trust.
    #[error("the host has no trusted certificates")]
    NoRoots,
    /// A certificate from the settings that is none.
    #[error("certificate {number} of the settings cannot be used")]
    Certificate {
        /// Which, from 0.
        number: usize,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// The library refuses.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

pub(super) fn config(more: &[Vec<u8>]) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    // Some certificates of a host's store may be too old to parse; the others do.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for (number, certificate) in more.iter().enumerate() {
        let certificate = CertificateDer::from(certificate.clone());
        roots.add(certificate).map_err(|source| TlsError::Certificate { number, source })?;
    }
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(TlsError::Setup)?.with_root_certificates(roots).with_no_client_auth())
}
