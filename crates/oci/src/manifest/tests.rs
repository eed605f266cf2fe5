//! What is a manifest, what is an index, and what is neither or both.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::media_type::{OCI_LAYER_GZIP, OCI_LAYER_ZSTD};

fn entry(os: &str, architecture: &str, variant: Option<&str>) -> Descriptor {
    let name = format!("{os}{architecture}{variant:?}");
    let platform =
        Platform { os: os.into(), architecture: architecture.into(), variant: variant.map(str::to_owned) };
    Descriptor { platform: Some(platform), ..Descriptor::of(OCI_MANIFEST, name.as_bytes()) }
}

#[test]
fn the_right_machine_is_chosen() {
    let machine = Platform::linux_amd64();
    let plain = entry("linux", "amd64", None);
    let newer = entry("linux", "amd64", Some("v3"));
    let others = [
        entry("linux", "arm64", Some("v8")),
        entry("windows", "amd64", None),
        entry("unknown", "unknown", None),
    ];
    let chosen = |more: &[&Descriptor]| {
        let mut manifests = others.to_vec();
        manifests.extend(more.iter().map(|entry| (*entry).clone()));
        Index { manifests }.choose(&machine).cloned()
    };
    assert_eq!(chosen(&[&newer, &plain]).unwrap(), plain);
    assert_eq!(chosen(&[&newer]).unwrap(), newer);
    let error = chosen(&[]).unwrap_err().to_string();
    assert_eq!(error, "no image for linux/amd64; there are: linux/arm64/v8, windows/amd64, unknown/unknown");
    let silent = Descriptor::of(OCI_MANIFEST, b"");
    assert_eq!(Index { manifests: vec![silent.clone()] }.choose(&machine).unwrap(), &silent);
    assert!(Index { manifests: vec![silent.clone(), silent] }.choose(&machine).is_err());
}

#[test]
fn what_could_be_read_two_ways_is_refused() {
    let config = json!(Descriptor::of(OCI_CONFIG, b"{}"));
    let image = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": []});
    let decode =
        |value: &serde_json::Value, declared| Document::decode(value.to_string().as_bytes(), declared);
    assert!(matches!(decode(&image, Some(OCI_MANIFEST)), Ok(Document::Manifest(_))));
    assert!(matches!(decode(&image, Some("application/json; charset=utf-8")), Ok(Document::Manifest(_))));
    assert!(matches!(decode(&image, Some(DOCKER_INDEX)), Err(ManifestError::Ambiguous { .. })));
    let mut both = image.clone();
    both["manifests"] = json!([]);
    assert!(matches!(decode(&both, None), Err(ManifestError::Ambiguous { .. })));
    let mut wrong = image.clone();
    wrong["mediaType"] = json!(OCI_INDEX);
    assert!(matches!(decode(&wrong, None), Err(ManifestError::Ambiguous { .. })));
    let list = json!([2, OCI_MANIFEST, config, [], null, null]);
    assert!(matches!(decode(&list, None), Err(ManifestError::Ambiguous { .. })));
    let old = json!({"schemaVersion": 1, "fsLayers": [], "history": []});
    assert!(decode(&old, None).unwrap_err().to_string().contains("schema 1"));
    let mut strange = image;
    strange["mediaType"] = json!("text/html");
    assert!(matches!(decode(&strange, None), Err(ManifestError::UnknownKind { .. })));
}

#[test]
fn other_artifacts_are_no_images() {
    let manifest = |config: &str, layer: &str| Manifest {
        schema_version: 2,
        media_type: OCI_MANIFEST.into(),
        config: Descriptor::of(config, b"{}"),
        layers: vec![Descriptor::of(layer, b"")],
    };
    for layer in
        [OCI_LAYER, OCI_LAYER_GZIP, OCI_LAYER_ZSTD, "application/vnd.docker.image.rootfs.diff.tar.gzip"]
    {
        assert!(manifest(DOCKER_CONFIG, layer).check().is_ok(), "{layer}");
    }
    assert!(manifest("application/vnd.cncf.helm.config.v1+json", OCI_LAYER).check().is_err());
    assert!(manifest(OCI_CONFIG, "application/vnd.oci.image.layer.v1.tar+gzip+encrypted").check().is_err());
    let mut many = manifest(OCI_CONFIG, OCI_LAYER);
    many.layers = vec![many.layers[0].clone(); LAYERS_MAX + 1];
    assert!(matches!(many.check(), Err(ManifestError::TooMany { .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Document::decode(&bytes, None);
        let _ = crate::config::ImageConfig::decode(&bytes);
    }

    #[test]
    fn any_json_of_the_right_words_is_answered(
        kind in prop::sample::select(vec![OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX, "x", ""]),
        parts in prop::sample::subsequence(vec!["config", "layers", "manifests", "fsLayers", "annotations"], 0..5),
        size in any::<i64>(),
        empty in any::<bool>(),
    ) {
        let descriptor = json!({"mediaType": kind, "digest": Digest::of(b"").to_string(), "size": size});
        let mut value = json!({"schemaVersion": 2, "mediaType": kind});
        for part in parts {
            let list = if empty { json!([]) } else { json!([descriptor, descriptor]) };
            value[part] = if part == "config" { descriptor.clone() } else { list };
        }
        match Document::decode(value.to_string().as_bytes(), Some(kind)) {
            Ok(Document::Manifest(manifest)) => { let _ = manifest.check(); }
            Ok(Document::Index(index)) => { let _ = index.choose(&Platform::linux_amd64()); }
            Err(_) => {}
        }
    }
}
