//! Reading, writing and deleting objects.

use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use yoi_crds::name::field_manager;

use super::{Cluster, NamespacedObject};
use crate::args::DryRun;
use crate::error::{Error, ErrorTarget};

impl Cluster {
    pub fn api<K: NamespacedObject>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn get<K: NamespacedObject>(&self, name: &str) -> Result<K, Error> {
        self.api::<K>().get(name).await.map_err(self.api_error::<K>("read", name))
    }

    /// Returns `None` for an object that does not exist.
    pub async fn get_opt<K: NamespacedObject>(&self, name: &str) -> Result<Option<K>, Error> {
        self.api::<K>().get_opt(name).await.map_err(self.api_error::<K>("read", name))
    }

    pub async fn list<K: NamespacedObject>(&self, all_namespaces: bool, selector: Option<&str>) -> Result<Vec<K>, Error> {
        let api: Api<K> = if all_namespaces { Api::all(self.client.clone()) } else { self.api() };
        let what = format!("the list of {}s", K::kind(&()));
        let target =
            ErrorTarget { name: what, list_command: "kubectl get crds".to_owned(), doctor_command: self.doctor_command(all_namespaces) };
        let params = selector.map_or_else(ListParams::default, |labels| ListParams::default().labels(labels));
        let listed = api.list(&params).await;
        let mut items = listed.map_err(|e| Error::api(format!("read {}", target.name), &target, e))?.items;
        items.sort_by_cached_key(|o| (o.namespace(), o.name_any()));
        Ok(items)
    }

    fn server_dry_run(&self) -> bool {
        self.dry_run == Some(DryRun::Server)
    }

    /// What kubectl says behind what it did not do.
    pub fn dry_run_mark(&self) -> &'static str {
        match self.dry_run {
            None => "",
            Some(DryRun::Server) => " (server dry run)",
            Some(DryRun::Client) => " (dry run)",
        }
    }

    pub async fn create<K: NamespacedObject>(&self, object: &K) -> Result<K, Error> {
        if self.dry_run == Some(DryRun::Client) {
            let mut object = object.clone();
            object.meta_mut().namespace = Some(self.namespace.clone());
            return Ok(object);
        }
        let params = PostParams { field_manager: Some(field_manager::PLUGIN.into()), dry_run: self.server_dry_run() };
        self.api::<K>().create(&params, object).await.map_err(self.api_error::<K>("create", &object.name_any()))
    }

    /// Applies a JSON merge patch.
    pub async fn patch<K: NamespacedObject>(&self, name: &str, patch: &Value) -> Result<K, Error> {
        if self.dry_run == Some(DryRun::Client) {
            return self.get::<K>(name).await.and_then(|object| merged(&object, patch));
        }
        let params =
            PatchParams { field_manager: Some(field_manager::PLUGIN.into()), dry_run: self.server_dry_run(), ..PatchParams::default() };
        self.api::<K>().patch(name, &params, &Patch::Merge(patch)).await.map_err(self.api_error::<K>("change", name))
    }

    /// Deletes this object, by its UID. A later object of the same name stays.
    pub async fn delete<K: NamespacedObject>(&self, object: &K) -> Result<(), Error> {
        self.delete_if(object, None).await.map_err(self.api_error::<K>("delete", &object.name_any()))
    }

    /// As [`Cluster::delete`], only as it was read: returns whether it had not changed since.
    pub async fn delete_unchanged<K: NamespacedObject>(&self, object: &K) -> Result<bool, Error> {
        match self.delete_if(object, object.resource_version()).await {
            Ok(()) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(self.api_error::<K>("delete", &object.name_any())(error)),
        }
    }

    async fn delete_if<K: NamespacedObject>(&self, object: &K, resource_version: Option<String>) -> Result<(), kube::Error> {
        if self.dry_run == Some(DryRun::Client) {
            return Ok(());
        }
        let params = DeleteParams {
            dry_run: self.server_dry_run(),
            preconditions: Some(Preconditions { uid: object.uid(), resource_version }),
            ..DeleteParams::default()
        };
        self.api::<K>().delete(&object.name_any(), &params).await.map(drop)
    }
}

/// The object after a JSON merge patch.
fn merged<K: Serialize + DeserializeOwned + Resource>(object: &K, patch: &Value) -> Result<K, Error> {
    let local = |e| Error::local("show what the change would make", e, "ask the API server instead: --dry-run=server");
    let mut value = serde_json::to_value(object).map_err(local)?;
    merge(&mut value, patch);
    serde_json::from_value(value).map_err(local)
}

fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = value else { return };
    for (key, field) in fields {
        if field.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), field);
        }
    }
}
