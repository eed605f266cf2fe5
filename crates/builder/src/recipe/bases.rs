//! What stages start from and copy from besides each other: templates of the catalogue, and images.

use std::collections::BTreeMap;
use std::sync::Arc;

use dockerfile::{Build, CacheKey, ImageConfig};
use image::Rootfs;
use image::template::{self, TemplateSpec};
use oci::Reference;

use super::Recipe;
use crate::config;
use crate::error::BuildError;
use crate::layers::{About, Layer};
use crate::stock::{Making, base_key, foreign_key, grown};

/// Everything that a build starts or copies from, by the names in its Dockerfile.
pub(super) struct Bases {
    found: BTreeMap<String, Base>,
}

enum Base {
    Template(Box<Rootfs>),
    Image(Arc<oci::Image>),
}

impl Bases {
    /// Finds them: templates of the catalogue first, then images, which are pulled.
    pub(super) async fn find(recipe: Recipe<'_>, build: &Build) -> Result<Self, BuildError> {
        let mut found = BTreeMap::new();
        // Different words may mean the same image: it is asked for once, so that all get the same.
        let mut pulled: BTreeMap<Reference, Arc<oci::Image>> = BTreeMap::new();
        for name in build.images() {
            let base = match template::find(name) {
                Some(spec) => Base::Template(Box::new(rootfs(recipe, &spec).await?)),
                None => {
                    let reference = Reference::parse(name, &recipe.stock.settings.naming)?;
                    let image = match pulled.get(&reference) {
                        Some(image) => Arc::clone(image),
                        None => Arc::new(recipe.stock.pull(name, recipe.making.journal).await?),
                    };
                    pulled.insert(reference, Arc::clone(&image));
                    Base::Image(image)
                }
            };
            found.insert(name.to_owned(), base);
        }
        Ok(Self { found })
    }

    /// The config that a stage starts with.
    pub(super) fn config(&self, name: &str) -> ImageConfig {
        match self.found.get(name) {
            Some(Base::Image(image)) => config::of_image(&image.config),
            _ => ImageConfig::default(),
        }
    }

    /// The key of each.
    pub(super) fn keys(&self, making: Making<'_>) -> BTreeMap<String, CacheKey> {
        self.found.iter().map(|(name, base)| (name.clone(), base.key(making))).collect()
    }

    /// The disk of one.
    pub(super) async fn layer(&self, recipe: Recipe<'_>, name: &str) -> Result<Layer, BuildError> {
        let (stock, making) = (recipe.stock, recipe.making);
        match self.found.get(name) {
            Some(Base::Image(image)) => stock.image_disk(image, making).await,
            Some(base @ Base::Template(rootfs)) => {
                let key = base.key(making).to_string();
                if let Some(layer) = stock.layers.find(&key) {
                    return Ok(layer);
                }
                let staging = stock.staging()?;
                grown(rootfs.path.clone(), &staging, making.size).await?;
                let layers = Arc::clone(&stock.layers);
                staging.blocking(move |folder| layers.add(&key, folder, About::default())).await
            }
            None => Err(BuildError::Source { problem: format!("nobody looked for `{name}`") }),
        }
    }
}

impl Base {
    fn key(&self, making: Making<'_>) -> CacheKey {
        match self {
            Self::Template(rootfs) => base_key(&format!("template {}", rootfs.digest), making.size),
            Self::Image(image) => foreign_key(&format!("image {}", image.descriptor.digest), making),
        }
    }
}

async fn rootfs(recipe: Recipe<'_>, spec: &TemplateSpec) -> Result<Rootfs, BuildError> {
    let part = recipe.making.journal.begin(&format!("find template {}", spec.name));
    let said = std::sync::Mutex::new(String::new());
    let progress = |step: image::Step| {
        let mut said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *said != step.message {
            part.say(&step.message);
            *said = step.message;
        }
    };
    match recipe.node.catalogue_disk(spec, &progress).await {
        Ok(rootfs) => {
            part.done();
            Ok(rootfs)
        }
        Err(error) => {
            let error = BuildError::node(error);
            part.failed(&error);
            Err(error)
        }
    }
}
