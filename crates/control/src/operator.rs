//! What operators do with tenants. No API key can: it is asked for on the host, of the running server or of the store alone.

use contract::time::rfc3339;
use domain::TenantId;
use serde::{Deserialize, Serialize};
use store::{NetworkMode, Quota, Store, TenantRow};

use crate::clock::now_ms;
use crate::control::{Control, random};
use crate::error::ControlError;
use crate::names;
use crate::tokens::{first_key, new_key};
use crate::view::network_mode;

/// Limits to change; those that are absent stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaChange {
    /// Sandboxes, sleeping ones included.
    pub sandboxes: Option<u64>,
    /// Virtual CPUs of all sandboxes together.
    pub cpus: Option<u64>,
    /// MiB of memory of all sandboxes together.
    pub memory_mib: Option<u64>,
    /// Volumes.
    pub volumes: Option<u64>,
    /// MiB of all volumes together.
    pub volume_mib: Option<u64>,
    /// Snapshots.
    pub snapshots: Option<u64>,
    /// Templates of its own.
    pub templates: Option<u64>,
    /// Builds that wait or run.
    pub builds: Option<u64>,
}

impl QuotaChange {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn apply(&self, quota: &mut Quota) {
        let Self { sandboxes, cpus, memory_mib, volumes, volume_mib, snapshots, templates, builds } = self;
        for (new, old) in [
            (sandboxes, &mut quota.sandboxes),
            (cpus, &mut quota.cpus),
            (memory_mib, &mut quota.memory_mib),
            (volumes, &mut quota.volumes),
            (volume_mib, &mut quota.volume_mib),
            (snapshots, &mut quota.snapshots),
            (templates, &mut quota.templates),
            (builds, &mut quota.builds),
        ] {
            if let Some(new) = new {
                *old = *new;
            }
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub enum OperatorRequest {
    /// A tenant with a first key.
    CreateTenant {
        /// Its name, which no other tenant has.
        name: String,
        /// Limits of its own.
        quota: QuotaChange,
        /// What its sandboxes reach unless their creation says otherwise.
        #[serde(default, skip_serializing_if = "NetworkDefault::is_kept")]
        network: NetworkDefault,
    },
    /// All tenants.
    ListTenants,
    /// Changes what a tenant may have.
    SetQuota {
        /// Its name or id.
        tenant: String,
        /// The limits.
        quota: QuotaChange,
        /// Whether to begin from the usual limits instead of its own.
        reset: bool,
        /// What its sandboxes reach unless their creation says otherwise.
        #[serde(default, skip_serializing_if = "NetworkDefault::is_kept")]
        network: NetworkDefault,
    },
}

/// What a tenant's sandboxes shall reach unless their creation says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkDefault {
    /// As it is.
    #[default]
    Kept,
    /// As the server decides.
    Server,
    /// Nothing.
    None,
    /// Whatever the operator lets guests reach.
    All,
}

impl NetworkDefault {
    /// Whether it changes nothing.
    pub fn is_kept(&self) -> bool {
        *self == Self::Kept
    }

    /// What the tenant has then, that has this now.
    fn apply(self, now: Option<NetworkMode>) -> Option<NetworkMode> {
        match self {
            Self::Kept => now,
            Self::Server => None,
            Self::None => Some(NetworkMode::None),
            Self::All => Some(NetworkMode::All),
        }
    }
}

/// A tenant as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_at: String,
    /// Sandboxes it has.
    pub sandboxes: u64,
    /// API keys it has.
    pub keys: u64,
    /// What it may have.
    pub quota: Quota,
    /// Whether these are limits of its own, not the usual ones.
    pub has_own_quota: bool,
    /// What its sandboxes reach unless their creation says otherwise; absent: as the server decides.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub network_default: Option<contract::sandbox::NetworkMode>,
    /// Its first key, where it was made just now. It is shown this once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
}

/// Does what an operator asks; the tenants that it is about. `usual` is what a tenant may have that has no limits of its own.
pub async fn operate(
    store: &dyn Store,
    usual: &Quota,
    request: OperatorRequest,
) -> Result<Vec<Tenant>, ControlError> {
    match request {
        OperatorRequest::ListTenants => {
            let mut found = Vec::new();
            for row in store.tenants().await?.into_iter().rev() {
                found.push(tenant(store, usual, row).await?);
            }
            Ok(found)
        }
        OperatorRequest::CreateTenant { name, quota, network } => {
            let name = names::label(name.trim())?;
            if name.is_empty() {
                return Err(ControlError::invalid("a tenant needs a name"));
            }
            if store.tenants().await?.iter().any(|row| row.name == name || row.id.as_str() == name) {
                return Err(ControlError::conflict(format!("there is a tenant {name} already")));
            }
            let id = TenantId::from_random(random().map_err(ControlError::internal)?);
            let own = (!quota.is_empty()).then(|| {
                let mut own = usual.clone();
                quota.apply(&mut own);
                own
            });
            let network_default = network.apply(None);
            let row = TenantRow { id: id.clone(), name, quota: own, network_default, created_ms: now_ms() };
            store.add_tenant(row.clone()).await?;
            let key = new_key()?;
            store.add_token(first_key(&key, &id, "first")).await?;
            Ok(vec![Tenant { key: Some(key), ..tenant(store, usual, row).await? }])
        }
        OperatorRequest::SetQuota { tenant: named, quota, reset, network } => {
            let mut meant: Vec<_> = store.tenants().await?;
            meant.retain(|row| row.id.as_str() == named || row.name == named);
            let mut row = match (meant.pop(), meant.pop()) {
                (Some(row), None) => row,
                (None, _) => {
                    let error = ControlError::not_found(format!("there is no tenant {named}"));
                    return Err(error.hint("pandastack tenant list"));
                }
                _ => {
                    let error = ControlError::conflict(format!("several tenants are called {named}"));
                    return Err(error.hint("name it by its id: pandastack tenant list"));
                }
            };
            if reset || !quota.is_empty() {
                let before = row.quota.take().filter(|_| !reset);
                row.quota = (!quota.is_empty()).then(|| {
                    let mut own = before.unwrap_or_else(|| usual.clone());
                    quota.apply(&mut own);
                    own
                });
                store.set_quota(&row.id, row.quota.clone()).await?;
            }
            if !network.is_kept() {
                row.network_default = network.apply(row.network_default);
                store.set_network_default(&row.id, row.network_default).await?;
            }
            Ok(vec![tenant(store, usual, row).await?])
        }
    }
}

async fn tenant(store: &dyn Store, usual: &Quota, row: TenantRow) -> Result<Tenant, ControlError> {
    Ok(Tenant {
        sandboxes: store.sandboxes(&row.id).await?.len() as u64,
        keys: store.tokens(&row.id).await?.len() as u64,
        has_own_quota: row.quota.is_some(),
        network_default: row.network_default.map(network_mode),
        quota: row.quota.unwrap_or_else(|| usual.clone()),
        id: row.id.to_string(),
        name: row.name,
        created_at: rfc3339(row.created_ms),
        key: None,
    })
}

impl Control {
    /// Does what an operator asks of the running server.
    pub async fn operate(&self, request: OperatorRequest) -> Result<Vec<Tenant>, ControlError> {
        operate(&**self.store(), &self.config().quota, request).await
    }
}

#[cfg(test)]
mod tests {
    use store::SqliteStore;

    use super::*;
    use crate::config::ControlConfig;

    #[tokio::test]
    async fn a_tenant_has_a_key_and_limits_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("control.db")).unwrap();
        let usual = ControlConfig::default().quota;
        let ask = |request| operate(&store, &usual, request);
        let network = NetworkDefault::Kept;
        let create =
            |name: &str, quota| OperatorRequest::CreateTenant { name: name.to_owned(), quota, network };
        let made = ask(create("team-a", QuotaChange::default())).await.unwrap().remove(0);
        assert!(made.key.unwrap().starts_with("pds_") && !made.has_own_quota && made.keys == 1);
        assert!(ask(create("team-a", QuotaChange::default())).await.is_err());
        assert!(ask(create(" ", QuotaChange::default())).await.is_err());

        let few = QuotaChange { sandboxes: Some(2), ..QuotaChange::default() };
        let set = |tenant: &str, quota: &QuotaChange, reset| OperatorRequest::SetQuota {
            tenant: tenant.to_owned(),
            quota: quota.clone(),
            reset,
            network,
        };
        ask(set("team-a", &few, false)).await.unwrap();
        let more = QuotaChange { cpus: Some(7), ..QuotaChange::default() };
        let changed = ask(set(&made.id, &more, false)).await.unwrap().remove(0);
        assert_eq!((changed.quota.sandboxes, changed.quota.cpus, changed.has_own_quota), (2, 7, true));
        assert_eq!(changed.quota.volumes, usual.volumes);
        // Nothing to change: it is shown.
        let shown = ask(set("team-a", &QuotaChange::default(), false)).await.unwrap().remove(0);
        assert_eq!(shown, changed);
        let reset = ask(set("team-a", &QuotaChange::default(), true)).await.unwrap().remove(0);
        assert_eq!((reset.quota, reset.has_own_quota), (usual.clone(), false));
        assert!(ask(set("team-b", &few, false)).await.is_err());
        let listed = ask(OperatorRequest::ListTenants).await.unwrap();
        assert!(matches!(&listed[..], [only] if only.name == "team-a" && only.key.is_none()));
    }

    #[tokio::test]
    async fn a_tenant_has_a_network_default_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("control.db")).unwrap();
        let usual = ControlConfig::default().quota;
        let quota = QuotaChange::default();
        let create = OperatorRequest::CreateTenant {
            name: "team-a".to_owned(),
            quota: quota.clone(),
            network: NetworkDefault::All,
        };
        let made = operate(&store, &usual, create).await.unwrap().remove(0);
        let all = Some(contract::sandbox::NetworkMode::All);
        assert_eq!((made.network_default, made.has_own_quota), (all, false));
        for (network, shown) in [
            (NetworkDefault::Kept, all),
            (NetworkDefault::None, Some(contract::sandbox::NetworkMode::None)),
            (NetworkDefault::Server, None),
        ] {
            let tenant = "team-a".to_owned();
            let set = OperatorRequest::SetQuota { tenant, quota: quota.clone(), reset: false, network };
            let changed = operate(&store, &usual, set).await.unwrap().remove(0);
            assert_eq!((changed.network_default, changed.has_own_quota), (shown, false), "{network:?}");
            let listed = operate(&store, &usual, OperatorRequest::ListTenants).await.unwrap().remove(0);
            assert_eq!(listed.network_default, shown);
        }
    }

    #[test]
    fn a_request_that_keeps_the_network_is_understood_by_older_servers() {
        let quota = QuotaChange::default();
        let request =
            OperatorRequest::CreateTenant { name: "a".to_owned(), quota, network: NetworkDefault::Kept };
        let text = serde_json::to_string(&request).unwrap();
        assert!(!text.contains("network"), "{text}");
        assert_eq!(serde_json::from_str::<OperatorRequest>(&text).unwrap(), request);
    }
}
