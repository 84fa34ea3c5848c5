//! Reading, writing and deleting objects.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use yoi_crds::name::field_manager;

use super::{Cluster, NamespacedObject};
use crate::args::DryRun;
use crate::error::{Error, ErrorTarget};

/// An object that this version does not understand, as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadableObject {
    pub namespace: String,
    pub name: String,
    /// What is wrong with it.
    pub error: String,
    pub object: Value,
}

/// Objects of a list, and those of them that cannot be read: one of another version, or one that was stored before its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<K> {
    pub objects: Vec<K>,
    pub unreadable: Vec<UnreadableObject>,
}

impl<K> Listed<K> {
    pub const EMPTY: Self = Listed { objects: Vec::new(), unreadable: Vec::new() };
}

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

    /// Lists objects, and fails when one of them cannot be read: whoever acts on all of them must know all of them.
    pub async fn list<K: NamespacedObject>(&self, all_namespaces: bool, selector: Option<&str>) -> Result<Vec<K>, Error> {
        let api: Api<K> = if all_namespaces { Api::all(self.client.clone()) } else { self.api() };
        let listed = api.list(&list_params(selector)).await;
        let mut items = listed.map_err(|e| self.list_error::<K>(all_namespaces, e))?.items;
        items.sort_by_cached_key(|o| (o.namespace(), o.name_any()));
        Ok(items)
    }

    /// Lists objects for a person who looks at them. One that cannot be read hides no other.
    pub async fn list_each<K: NamespacedObject>(&self, all_namespaces: bool, selector: Option<&str>) -> Result<Listed<K>, Error> {
        let listed = self.dynamic_api::<K>(all_namespaces).list(&list_params(selector)).await;
        let mut items = listed.map_err(|e| self.list_error::<K>(all_namespaces, e))?.items;
        items.sort_by_cached_key(|o| (o.namespace(), o.name_any()));
        let mut each = Listed::EMPTY;
        for item in items {
            match understood(item) {
                Ok(object) => each.objects.push(object),
                Err(unreadable) => each.unreadable.push(*unreadable),
            }
        }
        Ok(each)
    }

    /// Objects of a kind as they stand.
    pub fn dynamic_api<K: NamespacedObject>(&self, all_namespaces: bool) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<K>(&());
        match all_namespaces {
            true => Api::all_with(self.client.clone(), &kind),
            false => Api::namespaced_with(self.client.clone(), &self.namespace, &kind),
        }
    }

    fn list_error<K: NamespacedObject>(&self, all_namespaces: bool, error: kube::Error) -> Error {
        let name = format!("the list of {}s", K::kind(&()));
        let target = ErrorTarget { name, list_command: "kubectl get crds".to_owned(), doctor_command: self.doctor_command(all_namespaces) };
        Error::api(format!("read {}", target.name), &target, error)
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

fn list_params(selector: Option<&str>) -> ListParams {
    selector.map_or_else(ListParams::default, |labels| ListParams::default().labels(labels))
}

/// The object of its kind, or what cannot be read of it. A list's items name no kind.
pub fn understood<K: NamespacedObject>(mut item: DynamicObject) -> Result<K, Box<UnreadableObject>> {
    item.types = Some(kube::core::TypeMeta::resource::<K>());
    let (namespace, name) = (item.namespace().unwrap_or_default(), item.name_any());
    let unreadable = |error: serde_json::Error, object| Box::new(UnreadableObject { namespace, name, error: error.to_string(), object });
    match serde_json::to_value(item) {
        Ok(object) => K::deserialize(&object).map_err(|error| unreadable(error, object.clone())),
        Err(error) => Err(unreadable(error, Value::Null)),
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
